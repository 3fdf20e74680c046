"""Operators: arithmetic within 64 bits, comparisons across number types, membership, indexing."""

from __future__ import annotations

import math
from typing import Any

from dray.cel.cost_ranges import (
    ONE,
    STRING_FACTOR,
    Range,
    traversal,
)
from dray.cel.errors import CelError
from dray.cel.functions import Estimate, Library, Sizing
from dray.cel.types import (
    BOOL,
    BYTES,
    CIDR,
    DOUBLE,
    DURATION,
    DYN,
    FORMAT,
    INT,
    IP,
    QUANTITY,
    SEMVER,
    STRING,
    TIMESTAMP,
    UINT,
    URL,
    list_of,
    map_of,
    param,
)
from dray.cel.values import (
    FALSE_KEY,
    MAX_INT,
    MAX_UINT,
    MIN_INT,
    MISSING,
    TRUE_KEY,
    Duration,
    Timestamp,
    UInt,
    compare,
    equal,
    find_key,
    is_list,
    is_map,
    is_picky,
    no_overload,
    same,
    size,
    type_name,
)

MAX_LIST = 1_000_000  # elements that a concatenation may have; Kubernetes has no limit but memory
# A concatenation of so many elements costs one, whatever their number; a longer one costs one for each few elements.
FREE_ELEMENTS = 200
ELEMENTS_PER_COST = 10
_MAX_SECONDS = 253402300799
_MIN_SECONDS = -62135596800
_NANOS = 10**9

library = Library("operators")
A, B = param("A"), param("B")


def checked_int(value: int) -> int:
    if MIN_INT <= value <= MAX_INT:
        return value
    raise CelError("integer overflow")


def checked_uint(value: int) -> UInt:
    if 0 <= value <= MAX_UINT:
        return UInt(value)
    raise CelError("unsigned integer overflow")


def checked_duration(nanos: int) -> Duration:
    if MIN_INT <= nanos <= MAX_INT:
        return Duration(nanos)
    raise CelError("integer overflow")


def checked_timestamp(nanos: int, offset_s: int = 0) -> Timestamp:
    if _MIN_SECONDS * _NANOS <= nanos <= _MAX_SECONDS * _NANOS + _NANOS - 1:
        return Timestamp(nanos, offset_s)
    raise CelError("timestamp overflow")


def add(a: Any, b: Any) -> Any:
    ta, tb = type(a), type(b)
    if ta is tb:
        if ta is str or ta is bytes:
            return a + b
        if ta is int:
            return checked_int(a + b)
        if ta is UInt:
            return checked_uint(int(a) + int(b))
        if ta is float:
            return a + b
        if ta is Duration:
            return checked_duration(a.nanos + b.nanos)
    if is_list(a) and is_list(b):
        if len(a) + len(b) > MAX_LIST:
            raise CelError(f"list of more than {MAX_LIST} elements")
        return [*a, *b]
    if ta is Timestamp and tb is Duration:
        return checked_timestamp(a.nanos + b.nanos, a.offset_s)
    if ta is Duration and tb is Timestamp:
        return checked_timestamp(a.nanos + b.nanos, b.offset_s)
    raise no_overload()


def subtract(a: Any, b: Any) -> Any:
    ta, tb = type(a), type(b)
    if ta is tb:
        if ta is int:
            return checked_int(a - b)
        if ta is UInt:
            return checked_uint(int(a) - int(b))
        if ta is float:
            return a - b
        if ta is Duration or ta is Timestamp:
            return checked_duration(a.nanos - b.nanos)
    if ta is Timestamp and tb is Duration:
        return checked_timestamp(a.nanos - b.nanos, a.offset_s)
    raise no_overload()


def multiply(a: Any, b: Any) -> Any:
    ta = type(a)
    if ta is type(b):
        if ta is int:
            return checked_int(a * b)
        if ta is UInt:
            return checked_uint(int(a) * int(b))
        if ta is float:
            return a * b
    raise no_overload()


def divide(a: Any, b: Any) -> Any:
    ta = type(a)
    if ta is type(b):
        if ta is float:
            return _divide_floats(a, b)
        if ta is int or ta is UInt:
            if b == 0:
                raise CelError("division by zero")
            quotient = abs(int(a)) // abs(int(b))
            if ta is UInt:
                return UInt(quotient)
            return checked_int(quotient if (a < 0) == (b < 0) else -quotient)
    raise no_overload()


def _divide_floats(a: float, b: float) -> float:
    if b != 0:
        return a / b
    if a == 0 or math.isnan(a):
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1.0, b)


def remainder(a: Any, b: Any) -> Any:
    ta = type(a)
    if ta is type(b) and (ta is int or ta is UInt):
        if b == 0:
            raise CelError("modulus by zero")
        if a == MIN_INT and b == -1 and ta is int:
            raise CelError("integer overflow")
        rest = abs(int(a)) % abs(int(b))
        return UInt(rest) if ta is UInt else (rest if a >= 0 else -rest)
    raise no_overload()


def negate(a: Any) -> Any:
    if type(a) is int:
        return checked_int(-a)
    if type(a) is float:
        return -a
    if type(a) is Duration:
        return checked_duration(-a.nanos)
    raise no_overload()


def logical_not(a: Any) -> bool:
    if type(a) is bool:
        return not a
    raise no_overload()


def less(a: Any, b: Any) -> bool:
    return compare(a, b) < 0


def less_or_equal(a: Any, b: Any) -> bool:
    return compare(a, b) <= 0


def greater(a: Any, b: Any) -> bool:
    return compare(a, b) > 0


def greater_or_equal(a: Any, b: Any) -> bool:
    return compare(a, b) >= 0


def not_equal(a: Any, b: Any) -> bool:
    return not same(a, b)


def contained(element: Any, container: Any) -> bool:
    if is_list(container):
        return any(same(element, item) for item in container)
    if is_map(container):
        return has_key(container, element)
    raise no_overload()


def has_key(mapping: Any, key: Any) -> bool:
    """Whether the key is really there: the empty map that an unknown domain gives does not count."""
    kind = type(key)
    if kind is str or kind is int or kind is UInt or kind is float:
        return key in mapping
    return kind is bool and (TRUE_KEY if key else FALSE_KEY) in mapping


def index(operand: Any, key: Any) -> Any:
    if is_map(operand):
        found = find_key(operand, key)
        if found is MISSING:
            raise CelError(f"no such key: {shown_key(key)}")
        return found
    if is_list(operand):
        at = list_index(key)
        if not 0 <= at < len(operand):
            raise CelError(f"index out of bounds: {at}")
        return operand[at]
    raise no_overload()


def list_index(key: Any) -> int:
    kind = type(key)
    if kind is int or kind is UInt:
        return int(key)
    if kind is float and key == math.floor(key):
        return int(key)
    raise CelError(f"unsupported index type '{type_name(key)}' in list")


def shown_key(key: Any) -> str:
    return str(key).lower() if type(key) is bool else str(key)


def _string_sum(a: Any, b: Any) -> int:
    return traversal(size(a) + size(b))


def _list_sum(a: Any, b: Any) -> int:
    """One, as in Kubernetes, whose lists are joined without a copy. Here long lists are copied, and the copy is charged."""
    length = len(a) + len(b)
    return 1 if length <= FREE_ELEMENTS else length // ELEMENTS_PER_COST


def smaller(a: Any, b: Any) -> int:
    return traversal(min(size(a), size(b)))


def _equality_cost(a: Any, b: Any) -> int:
    return 1 if is_picky(a) else smaller(a, b)


def _list_size(_: Any, container: Any) -> int:
    return size(container)


def _estimate_smaller(call: Sizing) -> Estimate:
    lowest = min(call.size(call.args[0]).high, call.size(call.args[1]).high)
    return Estimate(Range(1 if lowest else 0, lowest).scaled(STRING_FACTOR))


_UNIT_EQUALITY = frozenset({QUANTITY, SEMVER, IP, CIDR})
_MAX_FORMAT_SIZE = 64


def _estimate_equal(call: Sizing) -> Estimate:
    left, right = call.args[0].type, call.args[1].type
    if left == right:
        if left in _UNIT_EQUALITY:
            return Estimate(ONE)
        if left == FORMAT:
            return Estimate(Range(1, _MAX_FORMAT_SIZE).scaled(STRING_FACTOR))
        if left == URL:
            return Estimate(Range(1, call.size(call.args[1]).high).scaled(STRING_FACTOR))
    return _estimate_smaller(call)


def _estimate_string_sum(call: Sizing) -> Estimate:
    total = call.size(call.args[0]).plus(call.size(call.args[1]))
    return Estimate(total.scaled(STRING_FACTOR), total)


def _estimate_list_sum(call: Sizing) -> Estimate:
    return Estimate(ONE, call.size(call.args[0]).plus(call.size(call.args[1])))


def _estimate_in_list(call: Sizing) -> Estimate:
    return Estimate(call.size(call.args[1]).scaled(1))


def _declare_arithmetic() -> None:
    names = {"_+_": "add", "_-_": "subtract", "_*_": "multiply", "_/_": "divide"}
    functions = {"_+_": add, "_-_": subtract, "_*_": multiply, "_/_": divide}
    for operator, word in names.items():
        for t in (DOUBLE, INT, UINT):
            library.add(operator, f"{word}_{t}", (t, t), t, functions[operator], unguarded=True)
    for t in (INT, UINT):
        library.add("_%_", f"modulo_{t}", (t, t), t, remainder, unguarded=True)
    for t in (DOUBLE, INT):
        library.add("-_", f"negate_{t}", (t,), t, negate, unguarded=True)
    for t in (BYTES, STRING):
        library.add("_+_", f"add_{t}", (t, t), t, add, cost=_string_sum, estimate=_estimate_string_sum, unguarded=True)
    add_list = list_of(A)
    library.add(
        "_+_",
        "add_list",
        (add_list, add_list),
        add_list,
        add,
        cost=_list_sum,
        estimate=_estimate_list_sum,
        unguarded=True,
    )
    library.add("_+_", "add_duration_duration", (DURATION, DURATION), DURATION, add, unguarded=True)
    library.add("_+_", "add_duration_timestamp", (DURATION, TIMESTAMP), TIMESTAMP, add, unguarded=True)
    library.add("_+_", "add_timestamp_duration", (TIMESTAMP, DURATION), TIMESTAMP, add, unguarded=True)
    library.add("_-_", "subtract_duration_duration", (DURATION, DURATION), DURATION, subtract, unguarded=True)
    library.add("_-_", "subtract_timestamp_duration", (TIMESTAMP, DURATION), TIMESTAMP, subtract, unguarded=True)
    library.add("_-_", "subtract_timestamp_timestamp", (TIMESTAMP, TIMESTAMP), DURATION, subtract, unguarded=True)


def _declare_comparisons() -> None:
    rows = {"_<_": ("less", less), "_<=_": ("less_equals", less_or_equal)}
    rows |= {"_>_": ("greater", greater), "_>=_": ("greater_equals", greater_or_equal)}
    numbers = (INT, UINT, DOUBLE)
    for operator, (word, function) in rows.items():
        for t in (BOOL, INT, UINT, DOUBLE, TIMESTAMP, DURATION):
            library.add(operator, f"{word}_{t.kind}", (t, t), BOOL, function, unguarded=True)
        for t in (STRING, BYTES):
            library.add(
                operator,
                f"{word}_{t}",
                (t, t),
                BOOL,
                function,
                cost=smaller,
                estimate=_estimate_smaller,
                unguarded=True,
            )
        for left in numbers:
            for right in numbers:
                if left is not right:
                    library.add(operator, f"{word}_{left}_{right}", (left, right), BOOL, function, unguarded=True)


def _declare_others() -> None:
    library.add("_==_", "equals", (A, A), BOOL, equal, cost=_equality_cost, estimate=_estimate_equal)
    library.add("_!=_", "not_equals", (A, A), BOOL, not_equal, cost=smaller, estimate=_estimate_smaller)
    library.add("!_", "logical_not", (BOOL,), BOOL, logical_not, unguarded=True)
    library.add("_&&_", "logical_and", (BOOL, BOOL), BOOL, None)
    library.add("_||_", "logical_or", (BOOL, BOOL), BOOL, None)
    library.add("_?_:_", "conditional", (BOOL, A, A), A, None)
    library.add("@not_strictly_false", "not_strictly_false", (BOOL,), BOOL, None)
    library.add("_[_]", "index_list", (list_of(A), INT), A, index, unguarded=True)
    library.add("_[_]", "index_map", (map_of(A, B), A), B, index, unguarded=True)
    library.add(
        "@in", "in_list", (A, list_of(A)), BOOL, contained, cost=_list_size, estimate=_estimate_in_list, unguarded=True
    )
    library.add("@in", "in_map", (A, map_of(A, B)), BOOL, contained, unguarded=True)
    library.add("dyn", "to_dyn", (A,), DYN, lambda value: value)


_declare_arithmetic()
_declare_comparisons()
_declare_others()
