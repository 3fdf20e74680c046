"""The standard functions: sizes, strings, conversions between types."""

from __future__ import annotations

import math
import re
from typing import Any

from dray.cel.cost_ranges import (
    STRING_FACTOR,
    Range,
    traversal,
)
from dray.cel.errors import CelError
from dray.cel.functions import Estimate, Library, Sizing
from dray.cel.library import costs
from dray.cel.library.operators import checked_timestamp
from dray.cel.library.regex import search
from dray.cel.library.texts import to_string
from dray.cel.library.times import parse_duration, parse_timestamp
from dray.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    Type,
    list_of,
    map_of,
    param,
    type_of,
)
from dray.cel.values import MAX_INT, MAX_UINT, MIN_INT, Duration, Timestamp, TypeValue, UInt, size, type_name

library = Library("standard")
A, B = param("A"), param("B")

_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII).fullmatch
_UNSIGNED = re.compile(r"[0-9]+", re.ASCII).fullmatch
_DOUBLE = re.compile(
    r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf|infinity|nan)", re.ASCII | re.IGNORECASE
).fullmatch
_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})
_LONGEST_NUMBER = 400


def to_int(value: Any) -> int:
    kind = type(value)
    if kind is int:
        return int(value)
    if kind is UInt:
        number = int(value)
    elif kind is float:
        if math.isnan(value) or not -(2.0**63) < value < 2.0**63:
            raise CelError("integer overflow")
        number = math.trunc(value)
    elif kind is str:
        if len(value) > _LONGEST_NUMBER or not _INTEGER(value):
            raise CelError(f'strconv.ParseInt: parsing "{value[:64]}": invalid syntax')
        number = int(value)
    else:
        number = int(value.nanos // 10**9 if kind is Timestamp else value.nanos)
    if not MIN_INT <= number <= MAX_INT:
        raise CelError("integer overflow")
    return number


def to_uint(value: Any) -> UInt:
    kind = type(value)
    if kind is float:
        if math.isnan(value) or not 0 <= value < 2.0**64:
            raise CelError("unsigned integer overflow")
        return UInt(math.trunc(value))
    if kind is str and (len(value) > _LONGEST_NUMBER or not _UNSIGNED(value)):
        raise CelError(f'strconv.ParseUint: parsing "{value[:64]}": invalid syntax')
    number = int(value)
    if not 0 <= number <= MAX_UINT:
        raise CelError("unsigned integer overflow")
    return UInt(number)


def to_double(value: Any) -> float:
    if type(value) is str:
        if len(value) > _LONGEST_NUMBER or not _DOUBLE(value):
            raise CelError(f'strconv.ParseFloat: parsing "{value[:64]}": invalid syntax')
        number = float(value)
        if math.isinf(number) and "inf" not in value.lower():
            raise CelError(f'strconv.ParseFloat: parsing "{value[:64]}": value out of range')
        return number
    return float(value)


def to_bool(value: Any) -> bool:
    if type(value) is bool:
        return value
    if value in _TRUE:
        return True
    if value in _FALSE:
        return False
    raise CelError("type conversion error from 'string' to 'bool'")


def to_timestamp(value: Any) -> Timestamp:
    if type(value) is str:
        return parse_timestamp(value)
    if type(value) is int:
        return checked_timestamp(value * 10**9)
    return value  # type: ignore[no-any-return]


def to_duration(value: Any) -> Duration:
    if type(value) is str:
        return parse_duration(value)
    return value  # type: ignore[no-any-return]


def _estimate_string_to_bytes(call: Sizing) -> Estimate:
    length = call.size(call.args[0])
    return Estimate(length.scaled(STRING_FACTOR), Range(length.low, length.high * 4 & (2**64 - 1)))


def _estimate_bytes_to_string(call: Sizing) -> Estimate:
    length = call.size(call.args[0])
    return Estimate(length.scaled(STRING_FACTOR), Range(length.low // 4, length.high))


def _estimate_contains(call: Sizing) -> Estimate:
    assert call.target is not None
    whole = call.size(call.target).scaled(STRING_FACTOR)
    return Estimate(whole.times(call.size(call.args[0]).scaled(STRING_FACTOR)))


def _contains_cost(text: Any, part: Any) -> int:
    return traversal(size(text)) * traversal(size(part))


def _estimate_matches(call: Sizing) -> Estimate:
    return Estimate(costs.estimate_regex(call).cost)


def _declare_sizes() -> None:
    for t in (STRING, BYTES, list_of(A), map_of(A, B)):
        library.add("size", f"size_{t.kind}", (t,), INT, len)
        library.add("size", f"{t.kind}_size", (t,), INT, len, member=True)


def _declare_strings() -> None:
    two = (STRING, STRING)
    library.add(
        "contains",
        "contains_string",
        two,
        BOOL,
        lambda text, part: part in text,
        member=True,
        cost=_contains_cost,
        estimate=_estimate_contains,
    )
    for name, implementation in (("startsWith", str.startswith), ("endsWith", str.endswith)):
        library.add(
            name,
            f"{name}_string",
            two,
            BOOL,
            implementation,
            member=True,
            cost=costs.reading_second,
            estimate=costs.estimate_reading_argument,
        )
    library.add(
        "matches", "matches_string", two, BOOL, search, member=True, cost=costs.regex, estimate=_estimate_matches
    )
    library.add("matches", "matches", two, BOOL, search)


def _declare_conversions() -> None:
    library.add("type", "type", (A,), type_of(A), lambda value: TypeValue(type_name(value)))
    conversions: dict[str, tuple[Type, Any, tuple[Type, ...]]] = {
        "int": (INT, to_int, (INT, DOUBLE, STRING, UINT, TIMESTAMP, DURATION)),
        "uint": (UINT, to_uint, (UINT, DOUBLE, INT, STRING)),
        "double": (DOUBLE, to_double, (DOUBLE, INT, UINT, STRING)),
        "bool": (BOOL, to_bool, (BOOL, STRING)),
        "bytes": (BYTES, lambda value: value if type(value) is bytes else value.encode(), (BYTES, STRING)),
        "string": (STRING, to_string, (STRING, BOOL, BYTES, DOUBLE, INT, UINT, DURATION, TIMESTAMP)),
        "timestamp": (TIMESTAMP, to_timestamp, (TIMESTAMP, STRING, INT)),
        "duration": (DURATION, to_duration, (DURATION, STRING)),
    }
    for name, (result, implementation, sources) in conversions.items():
        for source in sources:
            rule: dict[str, Any] = {}
            if (name, source) == ("bytes", STRING):
                rule = {"cost": costs.reading_first, "estimate": _estimate_string_to_bytes}
            if (name, source) == ("string", BYTES):
                rule = {"cost": costs.reading_first, "estimate": _estimate_bytes_to_string}
            library.add(name, f"{source.kind}_to_{name}", (source,), result, implementation, **rule)


_declare_sizes()
_declare_strings()
_declare_conversions()
