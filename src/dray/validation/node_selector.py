"""Rules for node selectors in slices, devices and allocations."""

from __future__ import annotations

from dray.api import names
from dray.validation.errors import Document, Errors

_VALUE_RULES = {
    "In": "must be specified when `operator` is 'In' or 'NotIn'",
    "NotIn": "must be specified when `operator` is 'In' or 'NotIn'",
    "Exists": "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
    "DoesNotExist": "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
    "Gt": "must be specified single value when `operator` is 'Lt' or 'Gt'",
    "Lt": "must be specified single value when `operator` is 'Lt' or 'Gt'",
}


def check_node_selector(selector: Document, path: str, errors: Errors) -> None:
    terms = selector.get("nodeSelectorTerms") or []
    here = f"{path}.nodeSelectorTerms"
    if not terms:
        errors.required(here, "must have at least one node selector term")
    for i, term in enumerate(terms):
        for j, requirement in enumerate(term.get("matchExpressions") or ()):
            _check_expression(requirement, f"{here}[{i}].matchExpressions[{j}]", errors)
        for j, requirement in enumerate(term.get("matchFields") or ()):
            _check_field(requirement, f"{here}[{i}].matchFields[{j}]", errors)


def _check_expression(requirement: Document, path: str, errors: Errors) -> None:
    operator, values = requirement.get("operator") or "", requirement.get("values") or []
    if operator in ("In", "NotIn"):
        if not values:
            errors.required(f"{path}.values", _VALUE_RULES[operator])
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            errors.forbidden(f"{path}.values", _VALUE_RULES[operator])
    elif operator in ("Gt", "Lt"):
        if len(values) != 1:
            errors.required(f"{path}.values", _VALUE_RULES[operator])
    else:
        errors.invalid(f"{path}.operator", operator, "not a valid selector operator")
    key = requirement.get("key") or ""
    errors.each_invalid(f"{path}.key", key, names.qualified_name_problems(key))
    for i, value in enumerate(values):
        errors.each_invalid(f"{path}.values[{i}]", value, names.label_value_problems(value))


def _check_field(requirement: Document, path: str, errors: Errors) -> None:
    operator, values = requirement.get("operator") or "", requirement.get("values") or []
    if operator not in ("In", "NotIn"):
        errors.invalid(f"{path}.operator", operator, "not a valid selector operator")
    elif len(values) != 1:
        detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        errors.required(f"{path}.values", detail)
    key = requirement.get("key") or ""
    if key != "metadata.name":
        errors.invalid(f"{path}.key", key, "not a valid field selector key")
        return
    for i, value in enumerate(values):
        errors.each_invalid(f"{path}.values[{i}]", value, names.subdomain_problems(value))
