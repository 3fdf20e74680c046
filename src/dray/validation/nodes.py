"""Rules for Node: its taints, and what cannot change once it is set."""

from __future__ import annotations

from dray.api import names
from dray.validation.errors import Document, Errors, FieldError

TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def check_node(new: Document, old: Document | None, errors: Errors) -> None:
    spec = new.get("spec") or {}
    # Kubernetes reports taints below metadata.
    _check_taints(spec.get("taints") or [], "metadata.taints", errors)
    if old is not None:
        _check_update(spec, old.get("spec") or {}, errors)


def _check_taints(taints: list[Document], path: str, errors: Errors) -> None:
    seen = set()
    for i, taint in enumerate(taints):
        here = f"{path}[{i}]"
        key, effect = taint.get("key") or "", taint.get("effect") or ""
        errors.each_invalid(f"{here}.key", key, names.qualified_name_problems(key))
        errors.each_invalid(
            f"{here}.value", taint.get("value") or "", names.label_value_problems(taint.get("value") or "")
        )
        if not effect:
            errors.required(f"{here}.effect")
        elif effect not in TAINT_EFFECTS:
            detail = "supported values: " + ", ".join(f'"{name}"' for name in TAINT_EFFECTS)
            errors.found.append(FieldError("FieldValueNotSupported", f"{here}.effect", effect, detail))
        if (key, effect) in seen:
            errors.duplicate(here, taint)
        seen.add((key, effect))


def _check_update(spec: Document, before: Document, errors: Errors) -> None:
    ranges, known = spec.get("podCIDRs") or [], before.get("podCIDRs") or []
    if known and ranges != known:
        errors.forbidden("spec.podCIDRs", 'node updates may not change podCIDR except from "" to valid')
    provider, given = spec.get("providerID") or "", before.get("providerID") or ""
    if given and provider != given:
        errors.forbidden("spec.providerID", 'node updates may not change providerID except from "" to valid')
