"""Where the server asks `dray.validation`: documents in, field errors out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dray.api.scheme import Resource, group_version
from dray.apiserver.errors import FieldErrorLike
from dray.apiserver.subresources.pod_resize import (
    ephemeral_problems,
    resize_problems,
)
from dray.apiserver.write.pod_warnings import pod_warnings
from dray.features import FeatureGates
from dray.validation import Context, validate_create, validate_status_update, validate_update

Document = dict[str, Any]
Labels = Mapping[str, str] | None

POD_MAKERS = frozenset({"ReplicaSet", "DaemonSet", "Deployment", "Job"})


def create_errors(
    row: Resource, version: str, document: Document, gates: FeatureGates, labels: Labels
) -> Sequence[FieldErrorLike]:
    return validate_create(document, Context(gates, labels, group_version(row.group, version)))


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
    context = Context(gates, labels, group_version(row.group, version))
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
    """What is allowed but unwise."""
    if row.kind in POD_MAKERS and not endpoint:
        template = (document.get("spec") or {}).get("template") or {}
        return list(pod_warnings(template.get("spec") or {}, "spec.template.spec"))
    if row.kind == "Pod" and not endpoint:
        return list(pod_warnings(document.get("spec") or {}))
    if row.kind != "ResourceSlice":
        return []
    driver = (document.get("spec") or {}).get("driver") or ""
    if driver == driver.lower():
        return []
    return [f'spec.driver: driver names should be lowercase; "{driver}" contains uppercase characters']
