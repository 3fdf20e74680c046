"""CEL types, and when one may stand where another is expected.

Types nest as deeply as literals do. Functions that follow them use plain loops, one call for each level.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

Substitution = dict[str, "Type"]


@dataclass(frozen=True, slots=True)
class Type:
    """`kind` is the family; `name` tells structs, opaque types and type parameters apart."""

    kind: str
    name: str = ""
    params: tuple[Type, ...] = ()
    is_generic: bool = field(init=False, compare=False, repr=False, default=False)

    def __post_init__(self) -> None:
        if self.kind == "param" or any(p.is_generic for p in self.params):
            object.__setattr__(self, "is_generic", True)

    def __str__(self) -> str:
        if self.kind == "opaque" or self.kind == "struct" or self.kind == "param":
            base = self.name
        else:
            base = self.kind
        if not self.params:
            return base
        return f"{base}({', '.join(map(str, self.params))})"


ANY: Final = Type("any")
DYN: Final = Type("dyn")
ERROR: Final = Type("!error!")
NULL: Final = Type("null_type")
BOOL: Final = Type("bool")
INT: Final = Type("int")
UINT: Final = Type("uint")
DOUBLE: Final = Type("double")
STRING: Final = Type("string")
BYTES: Final = Type("bytes")
TIMESTAMP: Final = Type("timestamp", "google.protobuf.Timestamp")
DURATION: Final = Type("duration", "google.protobuf.Duration")
TYPE: Final = Type("type")
QUANTITY: Final = Type("struct", "kubernetes.Quantity")
SEMVER: Final = Type("struct", "kubernetes.Semver")
URL: Final = Type("struct", "kubernetes.URL")
FORMAT: Final = Type("struct", "kubernetes.NamedFormat")
IP: Final = Type("opaque", "net.IP")
CIDR: Final = Type("opaque", "net.CIDR")

_NULLABLE = frozenset({"struct", "opaque", "null_type", "timestamp", "duration", "any"})
_SCALARS = frozenset({"bool", "int", "uint", "double", "timestamp", "duration"})


def list_of(element: Type) -> Type:
    return Type("list", "", (element,))


def map_of(key: Type, value: Type) -> Type:
    return Type("map", "", (key, value))


def optional_of(value: Type) -> Type:
    return Type("opaque", "optional_type", (value,))


def type_of(value: Type) -> Type:
    return Type("type", "", (value,))


def param(name: str) -> Type:
    return Type("param", name)


_DYNAMIC = frozenset(["dyn", "any", "!error!"])


def is_dyn(t: Type) -> bool:
    return t.kind in _DYNAMIC


def is_optional(t: Type) -> bool:
    return t.kind == "opaque" and t.name == "optional_type"


def is_scalar(t: Type) -> bool:
    """Of a size known before evaluation."""
    if is_optional(t):
        return is_scalar(t.params[0])
    return t.kind in _SCALARS


def assignable(sub: Substitution, given: Type, expected: Type) -> bool:
    """Whether `given` may stand for `expected`; fills in type parameters of `sub` on the way, also when it fails."""
    if expected.kind == "param":
        valid, bound = _substitutable(sub, given, expected)
        if valid:
            return True
        if bound:
            return False
    if given.kind == "param":
        return _substitutable(sub, expected, given)[0]
    if given.kind in _DYNAMIC or expected.kind in _DYNAMIC:
        return True
    if given.kind == "null_type":
        return expected.kind in _NULLABLE
    if expected.kind == "null_type":
        return given.kind in _NULLABLE
    if given.kind != expected.kind:
        return False
    if given.kind == "type":
        return True
    if given.name != expected.name or len(given.params) != len(expected.params):
        return False
    for mine, theirs in zip(given.params, expected.params, strict=False):  # noqa: SIM110
        if not assignable(sub, mine, theirs):
            return False
    return True


def _substitutable(sub: Substitution, given: Type, parameter: Type) -> tuple[bool, bool]:
    """(does `given` fit the parameter, was the parameter bound already)."""
    bound = sub.get(parameter.name)
    if bound is not None:
        if bound == given:
            return True, True
        if assignable(sub, given, bound):
            sub[parameter.name] = more_general(given, bound)
            return True, True
        return False, True
    if given == parameter:
        return True, False
    if not _occurs(sub, parameter, given):
        sub[parameter.name] = given
        return True, False
    return False, False


def _occurs(sub: Substitution, parameter: Type, within: Type) -> bool:
    if within.kind == "param":
        if within.name == parameter.name:
            return True
        bound = sub.get(within.name)
        return bound is not None and _occurs(sub, parameter, bound)
    for each in within.params:  # noqa: SIM110
        if _occurs(sub, parameter, each):
            return True
    return False


def more_general(a: Type, b: Type) -> Type:
    if a.kind == "null_type" or b.kind == "null_type":
        return b if a.kind == "null_type" else a
    return a if _less_specific(a, b) else b


def _less_specific(a: Type, b: Type) -> bool:
    if is_dyn(a) or a.kind == "param":
        return True
    if is_dyn(b) or b.kind == "param":
        return False
    if a.kind != b.kind:
        return False
    if a.kind == "type":
        return True
    if a.name != b.name or len(a.params) != len(b.params):
        return False
    for x, y in zip(a.params, b.params, strict=False):  # noqa: SIM110
        if not _less_specific(x, y):
            return False
    return True


def substitute(sub: Substitution, t: Type, free_to_dyn: bool) -> Type:
    """`t` with its parameters replaced by what they stand for."""
    if t.kind == "param":
        bound = sub.get(t.name)
        if bound is not None:
            return substitute(sub, bound, free_to_dyn)
        return DYN if free_to_dyn else t
    if not t.params or not t.is_generic:
        return t
    params: list[Type] = []
    for each in t.params:
        params.append(substitute(sub, each, free_to_dyn))
    return Type(t.kind, t.name, tuple(params))
