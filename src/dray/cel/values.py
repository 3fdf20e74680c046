"""The Python form of CEL values, their equality and their order.

bool, int, float, str, bytes, None, list and tuple, dict stand for themselves. `UInt` is an int that knows it is unsigned.
A dict key that is a bool is kept as `TRUE_KEY` or `FALSE_KEY`, since Python holds True and 1 for the same key.
Quantities and versions are those of `dray.api`. An error value is a CelError instance.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat
from typing import Any, Final

from dray.api.semver import Semver
from dray.cel.errors import CelError

MIN_INT, MAX_INT, MAX_UINT = -(2**63), 2**63 - 1, 2**64 - 1


class UInt(int):
    """An unsigned 64-bit integer."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{int(self)}u"


class Duration:
    __slots__ = ("nanos",)

    def __init__(self, nanos: int) -> None:
        self.nanos = nanos

    def __repr__(self) -> str:
        return f"duration({self.nanos}ns)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Duration) and self.nanos == other.nanos

    def __hash__(self) -> int:
        return hash(self.nanos)


class Timestamp:
    """Nanoseconds since 1970 in UTC, and the offset it was written with."""

    __slots__ = ("nanos", "offset_s")

    def __init__(self, nanos: int, offset_s: int = 0) -> None:
        self.nanos = nanos
        self.offset_s = offset_s

    def __repr__(self) -> str:
        return f"timestamp({self.nanos}ns)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Timestamp) and self.nanos == other.nanos

    def __hash__(self) -> int:
        return hash(self.nanos)


class Optional:
    """`optional.of(x)`, or `optional.none()`, which is NONE and no other."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return "optional.none()" if self is NONE else f"optional.of({self.value!r})"


NONE: Final = Optional(None)


@dataclass(frozen=True, slots=True)
class StructValue:
    """A value that an expression made with `TypeName{field: value}`."""

    type_name: str
    fields: dict[str, Any]


@dataclass(frozen=True, slots=True)
class TypeValue:
    """The value of `type(x)`, and of a type's name."""

    name: str

    def __repr__(self) -> str:
        return self.name


class BoolKey:
    __slots__ = ("value",)

    def __init__(self, value: bool) -> None:
        self.value = value


TRUE_KEY, FALSE_KEY = BoolKey(True), BoolKey(False)


def to_key(value: Any) -> Any:
    """A value as a dict key; raises for what cannot be one."""
    kind = type(value)
    if kind is str or kind is int or kind is UInt:
        return value
    if kind is bool:
        return TRUE_KEY if value else FALSE_KEY
    if kind is float:
        return value
    raise CelError(f"unsupported key type: {type_name(value)}")


def from_key(key: Any) -> Any:
    return key.value if type(key) is BoolKey else key


def find_key(mapping: dict[Any, Any], value: Any) -> Any:
    """The entry under `value`, or MISSING; numbers find each other across types."""
    if type(mapping) is OpenMap:
        return mapping[value] if type(value) is str else mapping.fallback
    kind = type(value)
    if kind is bool:
        value = TRUE_KEY if value else FALSE_KEY
    elif kind not in _KEY_TYPES:
        return MISSING
    return mapping.get(value, MISSING)


MISSING: Final = object()
_KEY_TYPES = frozenset({str, int, UInt, float})


class OpenMap(dict[str, Any]):
    """Answers an unknown key with an empty map, yet does not contain it."""

    __slots__ = ()
    fallback: dict[str, Any] = {}

    def __missing__(self, key: str) -> dict[str, Any]:
        return self.fallback


_NAMES: dict[type, str] = {
    bool: "bool",
    int: "int",
    UInt: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    type(None): "null_type",
    list: "list",
    tuple: "list",
    dict: "map",
    OpenMap: "map",
    Duration: "google.protobuf.Duration",
    Timestamp: "google.protobuf.Timestamp",
    Optional: "optional_type",
    TypeValue: "type",
    Semver: "kubernetes.Semver",
}


def name_type(python_type: type, name: str) -> None:
    """Teaches `type_name` about a library's own values."""
    _NAMES[python_type] = name


def type_name(value: Any) -> str:
    return _NAMES.get(type(value)) or type(value).__name__


def no_overload() -> CelError:
    return CelError("no such overload")


_INTS = frozenset({int, UInt})
_NUMBERS = frozenset({int, UInt, float})
_LISTS = frozenset({list, tuple})
_MAPS: frozenset[type] = frozenset((dict, OpenMap))
# Their own equality refuses other types instead of saying false.
_PICKY: set[type] = {Semver}


def is_picky(value: Any) -> bool:
    return type(value) in _PICKY


def refuse_other_types(python_type: type) -> None:
    _PICKY.add(python_type)


Compared = dict[tuple[int, int], bool]


def equal(a: Any, b: Any, known: Compared | None = None) -> bool:
    """CEL's `==`; raises CelError where the left side refuses to be compared."""
    ta, tb = type(a), type(b)
    if ta is tb:
        if ta not in _DEEP:
            return bool(a == b)
    elif a is None or b is None:
        return False
    elif ta in _NUMBERS:
        if tb not in _NUMBERS:
            return False
        if ta in _INTS and tb in _INTS:
            return int(a) == int(b)
        return float(a) == float(b)
    if ta in _DEEP:
        return _equal_deep(a, b, {} if known is None else known)
    if ta in _PICKY:
        raise no_overload()
    return False


_DEEP: frozenset[type] = frozenset((list, tuple, dict, OpenMap, Optional))


def _equal_deep(a: Any, b: Any, known: Compared) -> bool:
    """Containers. A pair that occurs again is not compared again: lists of lists can be exponentially large."""
    key = (id(a), id(b))
    answer = known.get(key)
    if answer is None:
        if is_list(a):
            answer = is_list(b) and len(a) == len(b) and not any(map(unequal, a, b, repeat(known)))
        elif is_map(a):
            answer = is_map(b) and _equal_maps(a, b, known)
        elif type(b) is not Optional or a is NONE or b is NONE:
            answer = a is b
        else:
            answer = equal(a.value, b.value, known)
        known[key] = answer
    return answer


def unequal(a: Any, b: Any, known: Compared | None = None) -> bool:
    """Whether `a == b` is plainly false; an equality that fails is not that."""
    try:
        return not equal(a, b, known)
    except CelError:
        return False


def same(a: Any, b: Any) -> bool:
    """Whether `a == b` is plainly true; what membership tests ask."""
    try:
        return equal(a, b)
    except CelError:
        return False


def _equal_maps(a: dict[Any, Any], b: dict[Any, Any], known: Compared) -> bool:
    if len(a) != len(b):
        return False
    for key, value in a.items():
        other = b.get(key, MISSING)
        if other is MISSING or unequal(value, other, known):
            return False
    return True


def compare(a: Any, b: Any) -> int:
    """-1, 0 or 1; raises CelError for what has no order."""
    ta, tb = type(a), type(b)
    if ta in _NUMBERS and tb in _NUMBERS:
        if ta is float or tb is float:
            a, b = float(a), float(b)
            if a != a or b != b:
                raise CelError("NaN values cannot be ordered")
        return int(a > b) - int(a < b)
    if ta is not tb:
        raise no_overload()
    if ta is str or ta is bytes or ta is bool:
        return int(a > b) - int(a < b)
    if ta is Timestamp or ta is Duration:
        return int(a.nanos > b.nanos) - int(a.nanos < b.nanos)
    raise no_overload()


def size(value: Any) -> int:
    """The size that cost counts: characters, bytes, elements, entries; 1 for everything else, errors too."""
    if type(value) in _SIZED:
        return len(value)
    return int(getattr(value, "cel_size", 1))


_SIZED = frozenset({str, bytes, list, tuple, dict, OpenMap})


def is_list(value: Any) -> bool:
    return type(value) in _LISTS


def is_map(value: Any) -> bool:
    return type(value) in _MAPS
