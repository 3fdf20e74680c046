"""Rules for the conditions in a status, the same for all kinds that have them."""

from __future__ import annotations

import re
from typing import Any

from dray.api import names
from dray.api.names import byte_length
from dray.validation.errors import Document, Errors

MAX_REASON = 1024
MAX_MESSAGE = 32 * 1024
STATUSES = ("False", "True", "Unknown")

_REASON = r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"
_is_reason = re.compile(_REASON, re.ASCII).fullmatch
REASON_RULE = (
    "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric characters "
    "or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName',  or "
    f"'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is '{_REASON}')"
)


def check_conditions(conditions: Any, limit: int, path: str, errors: Errors) -> None:
    """A list that is too long is still looked into, as in Kubernetes."""
    if len(conditions) > limit:
        errors.too_many(path, len(conditions), limit)
    seen: set[str] = set()
    for i, condition in enumerate(conditions):
        kind = condition.get("type") or ""
        if kind in seen:
            errors.duplicate(f"{path}[{i}]", condition, declarative=True)
        seen.add(kind)
        _check_condition(condition, f"{path}[{i}]", errors)


def _check_condition(condition: Document, path: str, errors: Errors) -> None:
    kind, status = condition.get("type") or "", condition.get("status") or ""
    if not kind:
        errors.required(f"{path}.type", "is required")
    else:
        errors.each_invalid(f"{path}.type", kind, names.qualified_name_problems(kind))
    if not status:
        errors.required(f"{path}.status")
    elif status not in STATUSES:
        errors.not_supported(f"{path}.status", status, STATUSES)
    if (condition.get("observedGeneration") or 0) < 0:
        errors.invalid(
            f"{path}.observedGeneration", condition["observedGeneration"], "must be greater than or equal to zero"
        )
    if not condition.get("lastTransitionTime"):
        errors.required(f"{path}.lastTransitionTime", "must be set")
    _check_reason(condition.get("reason") or "", f"{path}.reason", errors)
    if byte_length(condition.get("message") or "") > MAX_MESSAGE:
        errors.too_long(f"{path}.message", MAX_MESSAGE)


def _check_reason(reason: str, path: str, errors: Errors) -> None:
    if not reason:
        errors.required(path)
        return
    if not _is_reason(reason):
        errors.invalid(path, reason, REASON_RULE)
    if byte_length(reason) > MAX_REASON:
        errors.too_long(path, MAX_REASON)
