"""Rules for kinds of a stock cluster that Dray stores and does not act on: what a client must not leave out or change.

Runtime classes and revisions of controllers. Deeper rules of these kinds are left to the
components that use them.
"""

from __future__ import annotations

from dray.api import names
from dray.validation.errors import Document, Errors, ValidationContext
from dray.validation.formats import IMMUTABLE, check_not_negative
from dray.validation.pod_fields import check_labels, check_tolerations
from dray.validation.pods import check_overhead


def check_runtime_class(new: Document, old: Document | None, context: ValidationContext, errors: Errors) -> None:
    handler = new.get("handler") or ""
    if not handler:
        errors.required("handler", declarative=True)
    else:
        errors.each_invalid("handler", handler, names.label_problems(handler), declarative=True)
    check_overhead((new.get("overhead") or {}).get("podFixed") or {}, "overhead", errors)
    _check_scheduling(new.get("scheduling") or {}, errors)
    if old is not None and handler != (old.get("handler") or ""):
        errors.invalid("handler", handler, IMMUTABLE, declarative=True)


def _check_scheduling(scheduling: Document, errors: Errors) -> None:
    check_labels(scheduling.get("nodeSelector") or {}, "scheduling.nodeSelector", errors)
    tolerations = scheduling.get("tolerations") or []
    check_tolerations(tolerations, "scheduling.tolerations", errors)
    seen: set[tuple[str, ...]] = set()
    for i, toleration in enumerate(tolerations):
        key = tuple(toleration.get(field) or "" for field in ("key", "operator", "value", "effect"))
        if key in seen:
            errors.duplicate(f"scheduling.tolerations[{i}]", toleration)
        seen.add(key)


def check_revision(new: Document, old: Document | None, context: ValidationContext, errors: Errors) -> None:
    """A ControllerRevision is a snapshot: it never changes."""
    check_not_negative(new, "", ("revision",), errors)
    data = new.get("data")
    if old is not None:
        if data != old.get("data"):
            errors.invalid("data", data, IMMUTABLE)
    elif data is None:
        errors.required("data", "data is mandatory")
    elif not isinstance(data, dict):
        errors.required("data", "data must be a valid JSON object")
