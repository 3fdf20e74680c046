"""Rules for label selectors, such as those of webhooks and policies."""

from __future__ import annotations

from dray.api.names import label_value_problems, qualified_name_problems
from dray.validation.errors import Document, Errors
from dray.validation.metadata import check_labels


def check_label_selector(selector: Document, path: str, errors: Errors) -> None:
    check_labels(selector.get("matchLabels") or {}, f"{path}.matchLabels", errors)
    for i, requirement in enumerate(selector.get("matchExpressions") or []):
        _check_requirement(requirement, f"{path}.matchExpressions[{i}]", errors)


def _check_requirement(requirement: Document, path: str, errors: Errors) -> None:
    operator, values = requirement.get("operator") or "", requirement.get("values") or []
    if operator in ("In", "NotIn"):
        if not values:
            errors.required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'")
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            errors.forbidden(f"{path}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
    else:
        errors.invalid(f"{path}.operator", operator, "not a valid selector operator")
    key = requirement.get("key") or ""
    errors.each_invalid(f"{path}.key", key, qualified_name_problems(key))
    for i, value in enumerate(values):
        errors.each_invalid(f"{path}.values[{i}]", value, label_value_problems(value))
