"""Rules for PodGroup and Workload: their claims, templates and scheduling policies."""

from __future__ import annotations

from dray.api import names
from dray.validation.conditions import check_conditions
from dray.validation.equality import same
from dray.validation.errors import Document, Errors
from dray.validation.formats import IMMUTABLE
from dray.validation.pod_status import check_claim_statuses
from dray.validation.pods import check_claim_entries

MAX_CLAIMS = 4
MAX_TEMPLATES = 8
POLICIES = ("basic", "gang")
# Only the size of a gang may change after creation.
_FIXED = (
    *("workloadRef", "schedulingConstraints", "resourceClaims", "disruptionMode"),
    *("priorityClassName", "priority", "preemptionPolicy", "parentCompositePodGroupName"),
)


def check_group(new: Document, old: Document | None, errors: Errors) -> None:
    spec = new.get("spec") or {}
    _check_shape(spec, "spec", errors)
    if old is not None:
        _check_unchanged(spec, old.get("spec") or {}, "spec", errors)


def check_group_status(new: Document, errors: Errors) -> None:
    status, spec = new.get("status") or {}, new.get("spec") or {}
    claims = {claim.get("name") or "": claim for claim in spec.get("resourceClaims") or ()}
    conditions = status.get("conditions") or []
    check_conditions(conditions, len(conditions), "status.conditions", errors)  # As many as there are.
    statuses = status.get("resourceClaimStatuses") or []
    if len(statuses) > MAX_CLAIMS:
        errors.too_many("status.resourceClaimStatuses", len(statuses), MAX_CLAIMS, declarative=True)
    check_claim_statuses(statuses, claims, errors)


def check_workload(new: Document, old: Document | None, errors: Errors) -> None:
    path = "spec.podGroupTemplates"
    templates = (new.get("spec") or {}).get("podGroupTemplates") or []
    if not templates and not (new.get("spec") or {}).get("compositePodGroupTemplates"):
        errors.required(path, "must have at least one item")
    if len(templates) > MAX_TEMPLATES:
        errors.too_many(path, len(templates), MAX_TEMPLATES, declarative=True)
        return
    _check_templates(templates, path, errors)
    if old is not None:
        _check_templates_unchanged(templates, (old.get("spec") or {}).get("podGroupTemplates") or [], path, errors)


def _check_templates(templates: list[Document], path: str, errors: Errors) -> None:
    seen: set[str] = set()
    for i, template in enumerate(templates):
        here, name = f"{path}[{i}]", template.get("name") or ""
        if not name:
            errors.required(f"{here}.name", declarative=True)
        elif name in seen:
            errors.duplicate(here, template, declarative=True)
        else:
            errors.each_invalid(f"{here}.name", name, names.label_problems(name), declarative=True)
        seen.add(name)
        _check_shape(template, here, errors)


def _check_templates_unchanged(new: list[Document], old: list[Document], path: str, errors: Errors) -> None:
    """Templates cannot be added or removed, and fields that are fixed in a group are fixed in its template."""
    before = {template.get("name"): template for template in old}
    if before.keys() != {template.get("name") for template in new}:
        errors.forbidden(path, "items may not be added or removed")
        return
    for i, template in enumerate(new):
        _check_unchanged(template, before[template.get("name")], f"{path}[{i}]", errors)


def _check_shape(spec: Document, path: str, errors: Errors) -> None:
    policy = spec.get("schedulingPolicy") or {}
    chosen = [name for name in POLICIES if policy.get(name) is not None]
    if len(chosen) != 1:
        detail = f"must specify {'one' if not chosen else 'exactly one'} of: `basic`, `gang`"
        shown = "" if not chosen else f"{{{', '.join(chosen)}}}"
        errors.invalid(f"{path}.schedulingPolicy", shown, detail, declarative=True)
    elif chosen == ["gang"]:
        _check_gang(policy["gang"], f"{path}.schedulingPolicy.gang.minCount", errors)
    claims = spec.get("resourceClaims") or []
    if len(claims) > MAX_CLAIMS:
        errors.too_many(f"{path}.resourceClaims", len(claims), MAX_CLAIMS, declarative=True)
    else:
        check_claim_entries(claims, f"{path}.resourceClaims", errors)


def _check_gang(gang: Document, path: str, errors: Errors) -> None:
    count = gang.get("minCount")
    if not count:
        errors.required(path, declarative=True)
    elif count < 0:
        errors.invalid(path, count, "must be greater than or equal to 1", declarative=True)


def _check_unchanged(new: Document, old: Document, path: str, errors: Errors) -> None:
    for field in _FIXED:
        if not same(new.get(field), old.get(field)):
            errors.invalid(f"{path}.{field}", new.get(field), IMMUTABLE, declarative=True)
    policy, before = new.get("schedulingPolicy") or {}, old.get("schedulingPolicy") or {}
    for name in POLICIES:
        if (policy.get(name) is None) != (before.get(name) is None):
            errors.invalid(f"{path}.schedulingPolicy.{name}", policy.get(name), IMMUTABLE, declarative=True)
