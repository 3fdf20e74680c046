"""Small steps of every write: validation, warnings about pods, duplicate owner references, generated names.

The field rules themselves are in `dray.validation`; this module chooses which of them an endpoint needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any

import msgspec

from dray.api.jsontext import go_json
from dray.api.quantity import Quantity
from dray.api.scheme import Resource, group_version
from dray.apiserver.errors import FieldErrorLike
from dray.apiserver.subresources.pod_resize_and_ephemeral_containers import (
    ephemeral_problems,
    resize_problems,
)
from dray.features import FeatureGates
from dray.validation import ValidationContext, validate_create, validate_status_update, validate_update
from dray.validation.ignored_fields import ignored_fields

Document = dict[str, Any]
Labels = Mapping[str, str] | None

POD_MAKERS = frozenset({"ReplicaSet", "DaemonSet", "Deployment", "Job"})


def create_errors(
    row: Resource, version: str, document: Document, gates: FeatureGates, labels: Labels
) -> Sequence[FieldErrorLike]:
    return validate_create(document, ValidationContext(gates, labels, group_version(row.group, version)))


def update_errors(
    row: Resource,
    version: str,
    new: Document,
    old: Document,
    gates: FeatureGates,
    labels: Labels,
    endpoint: str,
    *,
    resize_with_claims: bool,
) -> Sequence[FieldErrorLike]:
    context = ValidationContext(gates, labels, group_version(row.group, version))
    if endpoint == "status":
        return validate_status_update(new, old, context)
    if endpoint == "finalize":
        return ()
    if endpoint == "resize":
        return list(resize_problems(new, old, with_claims=resize_with_claims))
    if endpoint == "ephemeralcontainers":
        return ephemeral_problems(new, old)
    return validate_update(new, old, context)


def warnings_about(row: Resource, document: Document, endpoint: str = "") -> list[str]:
    """Warnings about fields that are valid but deprecated or probably a mistake."""
    if row.kind in POD_MAKERS and not endpoint:
        template = (document.get("spec") or {}).get("template") or {}
        return list(pod_warnings(template.get("spec") or {}, "spec.template.spec"))
    if row.kind == "Pod" and not endpoint:
        return list(pod_warnings(document.get("spec") or {}))
    if endpoint:
        return []
    found = [f"{path}: {text}" for path, text in ignored_fields(document)]
    driver = (document.get("spec") or {}).get("driver") or "" if row.kind == "ResourceSlice" else ""
    if driver != driver.lower():
        found.append(f'spec.driver: driver names should be lowercase; "{driver}" contains uppercase characters')
    return found


# Labels of nodes that have a newer name.
RENAMED_NODE_LABELS = {
    "beta.kubernetes.io/arch": ("v1.14", "kubernetes.io/arch"),
    "beta.kubernetes.io/os": ("v1.14", "kubernetes.io/os"),
    "failure-domain.beta.kubernetes.io/region": ("v1.17", "topology.kubernetes.io/region"),
    "failure-domain.beta.kubernetes.io/zone": ("v1.17", "topology.kubernetes.io/zone"),
}


def pod_warnings(spec: Document, path: str = "spec") -> Iterator[str]:
    for label in spec.get("nodeSelector") or {}:
        if label in RENAMED_NODE_LABELS:
            since, newer = RENAMED_NODE_LABELS[label]
            yield f'{path}.nodeSelector[{label}]: deprecated since {since}; use "{newer}" instead'
    for field in ("initContainers", "containers"):
        for i, container in enumerate(spec.get(field) or ()):
            yield from _container_warnings(container, f"{path}.{field}[{i}]")
    grace = spec.get("terminationGracePeriodSeconds")
    if grace is not None and grace < 0:
        yield f"{path}.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"


def _container_warnings(container: Document, path: str) -> Iterator[str]:
    resources = container.get("resources") or {}
    for field in ("limits", "requests"):
        for name in ("memory", "ephemeral-storage"):
            amount = (resources.get(field) or {}).get(name)
            if amount is not None and Quantity.parse(amount).nanos % 10**9:
                yield f"{path}.resources.{field}[{name}]: fractional byte value {go_json(amount)} is invalid, must be an integer"
    seen: set[str] = set()
    for i, variable in enumerate(container.get("env") or ()):
        name = variable.get("name") or ""
        if name in seen:
            yield f"{path}.env[{i}]: hides previous definition of {go_json(name)}, which may be dropped when using apply"
        seen.add(name)
    ports: dict[tuple[int, str], int] = {}
    for i, port in enumerate(container.get("ports") or ()):
        key = (port.get("containerPort") or 0, port.get("protocol") or "TCP")
        first = ports.setdefault(key, i)
        if first != i:
            yield f"{path}.ports[{i}]: duplicate port definition with {path}.ports[{first}]"


DUPLICATE_OWNERS_WARNING = (
    ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject "
    "such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: "
)


_canonical = msgspec.json.Encoder(order="deterministic").encode


def drop_duplicate_owners(metadata: Document, warn: Callable[[str], None]) -> None:
    sent = metadata.get("ownerReferences")
    if not sent or len(sent) < 2:
        return
    kept: list[Document] = []
    again: list[str] = []
    seen: set[bytes] = set()
    for reference in sent:
        form = _canonical(reference)
        if form in seen:
            again.append(reference.get("uid") or "")
        else:
            seen.add(form)
            kept.append(reference)
    if again:
        metadata["ownerReferences"] = kept
        warn(DUPLICATE_OWNERS_WARNING + ", ".join(again))


NAME_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
NAME_SUFFIX_LENGTH = 5
MAX_NAME_PREFIX = 58


def random_name_suffix(random: Random) -> str:
    return "".join(random.choices(NAME_ALPHABET, k=NAME_SUFFIX_LENGTH))


def fill_name(metadata: dict[str, Any], random: Random) -> None:
    """generateName becomes a name, unless there is one."""
    prefix = metadata.get("generateName")
    if prefix and not metadata.get("name"):
        metadata["name"] = prefix[:MAX_NAME_PREFIX] + random_name_suffix(random)
