"""Rules for LimitRange: which amounts a type may limit, and that they do not contradict each other."""

from __future__ import annotations

from dray.api import names
from dray.api.quantity import Quantity
from dray.validation.errors import Document, Errors
from dray.validation.pods import CONTAINER_NAMES
from dray.validation.quotas import is_extended, is_standard

TYPES = ("Container", "PersistentVolumeClaim", "Pod")
Amounts = dict[str, Quantity]


def check_limit_range(document: Document, errors: Errors) -> None:
    seen: set[str] = set()
    for i, limit in enumerate((document.get("spec") or {}).get("limits") or ()):
        path, kind = f"spec.limits[{i}]", limit.get("type") or ""
        problems = names.qualified_name_problems(kind)
        errors.each_invalid(f"{path}.type", kind, problems)
        if not problems and "/" not in kind and kind not in TYPES:
            errors.invalid(f"{path}.type", kind, "must be a standard limit type or fully qualified")
        if kind in seen:
            errors.duplicate(f"{path}.type", kind)
        seen.add(kind)
        _check_limit(limit, kind, path, errors)


def _check_limit(limit: Document, kind: str, path: str, errors: Errors) -> None:
    fields = ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"]
    if kind == "Pod":
        for field in ("default", "defaultRequest"):
            fields.remove(field)
            if limit.get(field):
                errors.forbidden(f"{path}.{field}", "may not be specified when `type` is 'Pod'")
    amounts: dict[str, Amounts] = {}
    for field in fields:
        if field == "maxLimitRequestRatio" and kind == "PersistentVolumeClaim":
            _check_storage(amounts, path, errors)
        for name in limit.get(field) or ():
            _check_name(name, kind, f"{path}.{field}[{name}]", errors)
        amounts[field] = {name: Quantity.parse(amount) for name, amount in (limit.get(field) or {}).items()}
    for name in sorted({name for each in amounts.values() for name in each}):
        _check_order(name, {field: each[name] for field, each in amounts.items() if name in each}, path, errors)


def _check_storage(amounts: dict[str, Amounts], path: str, errors: Errors) -> None:
    if "storage" not in amounts["min"] and "storage" not in amounts["max"]:
        detail = "either minimum or maximum storage value is required, but neither was provided"
        errors.required(f"{path}.limits", detail)


def _check_name(name: str, kind: str, path: str, errors: Errors) -> None:
    problems = names.qualified_name_problems(name)
    errors.each_invalid(path, name, problems)
    if "/" in name:
        return
    if not problems and not is_standard(name):
        errors.invalid(path, name, "must be a standard resource type or fully qualified")
    if kind in ("Container", "Pod") and name not in CONTAINER_NAMES and not name.startswith("hugepages-"):
        errors.invalid(path, name, "must be a standard resource for containers")


# What may not be more than what: field, its word, the larger field, its word, the field at fault and the value shown.
_ORDER = (
    ("min", "min", "max", "max", "min", "min"),
    ("min", "min", "defaultRequest", "default request", "defaultRequest", "defaultRequest"),
    ("defaultRequest", "default request", "max", "max", "defaultRequest", "defaultRequest"),
    ("defaultRequest", "default request", "default", "default limit", "defaultRequest", "defaultRequest"),
    ("min", "min", "default", "default", "default", "min"),
    ("default", "default", "max", "max", "default", "max"),
)


def _check_order(name: str, amounts: Amounts, path: str, errors: Errors) -> None:
    for low, low_word, high, high_word, blamed, shown in _ORDER:
        if low in amounts and high in amounts and amounts[low] > amounts[high]:
            detail = f"{low_word} value {amounts[low]} is greater than {high_word} value {amounts[high]}"
            errors.invalid(f"{path}.{blamed}[{name}]", str(amounts[shown]), detail)
    _check_ratio(amounts, f"{path}.maxLimitRequestRatio[{name}]", errors)
    limit, request = amounts.get("default"), amounts.get("defaultRequest")
    is_fixed = is_extended(name) or name.startswith("hugepages-")
    if is_fixed and limit is not None and request is not None and limit != request:
        detail = f"default value {limit} must equal to defaultRequest value {request} in {name}"
        errors.invalid(f"{path}.defaultRequest[{name}]", str(request), detail)


def _check_ratio(amounts: Amounts, path: str, errors: Errors) -> None:
    ratio, low, high = (amounts.get(field) for field in ("maxLimitRequestRatio", "min", "max"))
    if ratio is None:
        return
    if ratio.nanos < 10**9:
        errors.invalid(path, str(ratio), f"ratio {ratio} is less than 1")
    if low is not None and high is not None and low.nanos and ratio.nanos * low.nanos > high.nanos * 10**9:
        errors.invalid(path, str(ratio), f"ratio {ratio} is greater than max/min = {high.nanos / low.nanos:.6f}")
