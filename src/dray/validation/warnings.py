"""Warnings of the server about fields that are valid but deprecated, without effect, or probably a mistake.

Fields without effect (`ignored_fields`): the KEPs forbid these objects; Kubernetes 1.37 stores them. `dray lint` calls them errors.
Documents are in the storage version.
"""

from __future__ import annotations

from collections.abc import Iterator

from dray.api.jsontext import go_json
from dray.api.quantity import Quantity
from dray.api.scheme import Resource
from dray.api.slice_text import QuietLists
from dray.validation.errors import Document
from dray.validation.formats import key_path

POD_MAKERS = frozenset({"ReplicaSet", "DaemonSet", "Deployment", "Job"})


def warnings_about(row: Resource, document: Document, endpoint: str = "") -> list[str]:
    if row.custom is not None:
        return []
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


def ignored_fields(document: Document) -> Iterator[tuple[str, str]]:
    """(path, what is ignored and what to write instead) for each of them."""
    spec = document.get("spec") or {}
    match document.get("kind"):
        case "ResourceClaim":
            yield from _in_constraints(spec, "spec")
        case "ResourceClaimTemplate":
            yield from _in_constraints(spec.get("spec") or {}, "spec.spec")
        case "ResourceSlice":
            yield from _in_request_policies(spec)


def _in_constraints(claim_spec: Document, path: str) -> Iterator[tuple[str, str]]:
    for i, constraint in enumerate((claim_spec.get("devices") or {}).get("constraints") or ()):
        if constraint.get("matchAttribute") is not None and constraint.get("distinctAttribute") is not None:
            here = f"{path}.devices.constraints[{i}].distinctAttribute"
            yield here, "ignored, because matchAttribute is set in the same constraint; write two constraints"


_LISTS_WITHOUT_IGNORED_FIELDS = QuietLists()
SAYS_SOMETHING = ("default", "validValues", "validRange", "strategy", "zeroConsumption")


def _in_request_policies(slice_spec: Document) -> Iterator[tuple[str, str]]:
    devices, ignored = slice_spec.get("devices") or (), False
    if devices in _LISTS_WITHOUT_IGNORED_FIELDS:
        return
    for i, device in enumerate(devices):
        for name, capacity in (device.get("capacity") or {}).items():
            policy = capacity.get("requestPolicy")
            if policy is not None and not any(policy.get(key) for key in SAYS_SOMETHING):
                here = f"{key_path(f'spec.devices[{i}].capacity', name)}.requestPolicy"
                ignored = True
                yield here, "ignored, because it has no default; set a default or leave the policy out"
    if not ignored:
        _LISTS_WITHOUT_IGNORED_FIELDS.add(devices)
