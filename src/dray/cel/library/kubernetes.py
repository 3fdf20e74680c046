"""Quantities and semantic versions."""

from __future__ import annotations

import re
from typing import Any

from dray.api.quantity import QuantityError
from dray.api.semver import Semver, SemverError
from dray.cel import quantities
from dray.cel.errors import CelError
from dray.cel.functions import Library, guard_name
from dray.cel.library import costs
from dray.cel.quantities import CelQuantity
from dray.cel.types import BOOL, DOUBLE, INT, QUANTITY, SEMVER, STRING
from dray.cel.values import MAX_INT, MAX_UINT

library = Library("kubernetes")
guard_name(QUANTITY.name, CelQuantity)
guard_name(SEMVER.name, Semver)

_SHORT = re.compile(r"[0-9]+(?:\.[0-9]+)?", re.ASCII).fullmatch
_NUMBERS = re.compile(r"([0-9]+)\.([0-9]+)\.([0-9]+)(.*)", re.ASCII | re.DOTALL).fullmatch


def quantity(text: str) -> CelQuantity:
    try:
        return quantities.parse(text)
    except QuantityError as problem:
        raise CelError(str(problem)) from None


def is_quantity(text: str) -> bool:
    try:
        quantities.parse(text)
    except QuantityError:
        return False
    return True


def semver(text: str, normalize: bool = False) -> Semver:
    try:
        version = Semver.parse(_normalized(text) if normalize else text)
    except SemverError as problem:
        raise CelError(str(problem)) from None
    if max(version.major, version.minor, version.patch) > MAX_UINT:
        raise CelError("version number does not fit into 64 bits")
    return version


def is_semver(text: str, normalize: bool = False) -> bool:
    try:
        semver(text, normalize)
    except CelError:
        return False
    return True


def _normalized(text: str) -> str:
    """Without one leading `v`, with three numbers, without their leading zeros."""
    text = text.removeprefix("v")
    if _SHORT(text):
        text += ".0.0" if "." not in text else ".0"
    found = _NUMBERS(text) if len(text) < 4096 else None
    if found is None:
        return text
    numbers = ".".join(part.lstrip("0") or "0" for part in found.groups()[:3])
    return numbers + found[4]


def compare_quantities(a: CelQuantity, b: CelQuantity) -> int:
    return (a.nanos > b.nanos) - (a.nanos < b.nanos)


def compare_versions(a: Semver, b: Semver) -> int:
    return (a > b) - (a < b)


def is_integer(amount: CelQuantity) -> bool:
    """As Kubernetes answers: `5000m` is none, and neither is a number of nineteen digits."""
    return amount.whole is not None


def as_integer(amount: CelQuantity) -> int:
    whole = amount.whole
    if whole is None:
        raise CelError("cannot convert value to integer")
    return whole


def _plus(amount: CelQuantity, other: Any) -> CelQuantity:
    return amount.plus(other if type(other) is CelQuantity else quantities.of_int(other))


def _minus(amount: CelQuantity, other: Any) -> CelQuantity:
    return amount.plus(other if type(other) is CelQuantity else quantities.of_int(other), -1)


def _number(amount: int) -> int:
    """Beyond 63 bits the number wraps, as it does in Kubernetes."""
    return amount if amount <= MAX_INT else amount - 2**64


def _declare_quantities() -> None:
    q = QUANTITY
    parsing: dict[str, Any] = {
        "cost": costs.reading_first,
        "cost_by_name": True,
        "estimate": costs.estimate_reading,
    }
    unit: dict[str, Any] = {"cost": costs.one, "cost_by_name": True, "estimate": costs.estimate_one}
    library.add("quantity", "string_to_quantity", (STRING,), q, quantity, **parsing)
    library.add("isQuantity", "is_quantity_string", (STRING,), BOOL, is_quantity, **parsing)
    library.add("sign", "quantity_sign", (q,), INT, lambda a: (a.nanos > 0) - (a.nanos < 0), **unit)
    library.add(
        "isGreaterThan", "quantity_is_greater_than", (q, q), BOOL, lambda a, b: a.nanos > b.nanos, member=True, **unit
    )
    library.add(
        "isLessThan", "quantity_is_less_than", (q, q), BOOL, lambda a, b: a.nanos < b.nanos, member=True, **unit
    )
    library.add("compareTo", "quantity_compare_to", (q, q), INT, compare_quantities, member=True, **unit)
    library.add("asApproximateFloat", "quantity_get_float", (q,), DOUBLE, lambda a: a.approximate, member=True, **unit)
    library.add("asInteger", "quantity_get_int", (q,), INT, as_integer, member=True, **unit)
    library.add("isInteger", "quantity_is_integer", (q,), BOOL, is_integer, member=True, **unit)
    for other in (QUANTITY, INT):
        library.add("add", f"quantity_add_{other.kind}", (q, other), q, _plus, member=True, **unit)
        library.add("sub", f"quantity_sub_{other.kind}", (q, other), q, _minus, member=True, **unit)


def _declare_versions() -> None:
    v = SEMVER
    parsing: dict[str, Any] = {
        "cost": costs.reading_first,
        "cost_by_name": True,
        "estimate": costs.estimate_reading_first,
    }
    unit: dict[str, Any] = {"member": True, "cost": costs.one, "cost_by_name": True, "estimate": costs.estimate_one}
    library.add("semver", "string_to_semver", (STRING,), v, semver, **parsing)
    library.add("semver", "string_bool_to_semver", (STRING, BOOL), v, semver, **parsing)
    library.add("isSemver", "is_semver_string", (STRING,), BOOL, is_semver, **parsing)
    library.add("isSemver", "is_semver_string_bool", (STRING, BOOL), BOOL, is_semver, **parsing)
    library.add("isGreaterThan", "semver_is_greater_than", (v, v), BOOL, lambda a, b: a > b, **unit)
    library.add("isLessThan", "semver_is_less_than", (v, v), BOOL, lambda a, b: a < b, **unit)
    library.add("compareTo", "semver_compare_to", (v, v), INT, compare_versions, **unit)
    library.add("major", "semver_major", (v,), INT, lambda a: _number(a.major), **unit)
    library.add("minor", "semver_minor", (v,), INT, lambda a: _number(a.minor), **unit)
    library.add("patch", "semver_patch", (v,), INT, lambda a: _number(a.patch), **unit)


_declare_quantities()
_declare_versions()
