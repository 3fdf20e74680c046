"""Declarations of functions: each function once, with its signature, its cost and its implementation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from dray.cel.ast import AstNode
from dray.cel.cost_ranges import Range
from dray.cel.types import Type
from dray.cel.values import Duration, OpenMap, Optional, Timestamp, TypeValue, UInt, no_overload

Implementation = Callable[..., Any]


class Sizing(Protocol):
    """The facts about a call that a cost estimate may use."""

    target: AstNode | None
    args: list[AstNode]

    def size(self, node: AstNode) -> Range: ...

    def element_reading(self, node: AstNode) -> Range | None: ...

    def item_size(self, node: AstNode) -> Range: ...


class Estimate(NamedTuple):
    """Cost of the call itself, and how big its result may be (None: look at the result's type)."""

    cost: Range
    size: Range | None = None


@dataclass(frozen=True, slots=True)
class Overload:
    """One signature of a function. `cost` counts from the arguments' values; without it a call costs 1."""

    id: str
    function: str
    args: tuple[Type, ...]  # the target first, for a member function
    result: Type
    is_member: bool
    implementation: Implementation | None
    cost: Callable[..., int] | None = None
    # Charged where the overload is only known at run time.
    name_cost: Callable[..., int] | None = None
    estimate: Callable[[Sizing], Estimate | None] | None = None
    is_generic: bool = False
    guards: tuple[frozenset[type] | None, ...] = ()


_GUARDS: dict[str, frozenset[type]] = {
    "bool": frozenset({bool}),
    "int": frozenset({int}),
    "uint": frozenset({UInt}),
    "double": frozenset({float}),
    "string": frozenset({str}),
    "bytes": frozenset({bytes}),
    "null_type": frozenset({type(None)}),
    "list": frozenset({list, tuple}),
    "map": frozenset((dict, OpenMap)),
    "timestamp": frozenset({Timestamp}),
    "duration": frozenset({Duration}),
    "type": frozenset({TypeValue}),
    "optional_type": frozenset({Optional}),
}


def guard_name(name: str, *python_types: type) -> None:
    """Says which Python values belong to a struct or opaque type."""
    _GUARDS[name] = frozenset(python_types)


def _guard(t: Type) -> frozenset[type] | None:
    return _GUARDS.get(t.name) if t.kind in ("struct", "opaque") else _GUARDS.get(t.kind)


@dataclass(slots=True)
class Library:
    """Functions by name. Libraries are joined into an environment."""

    name: str
    overloads: dict[str, list[Overload]] = field(default_factory=dict)

    def add(
        self,
        function: str,
        id: str,
        args: Iterable[Type],
        result: Type,
        implementation: Implementation | None,
        *,
        member: bool = False,
        cost: Callable[..., int] | None = None,
        cost_by_name: bool | Callable[..., int] = False,
        estimate: Callable[[Sizing], Estimate | None] | None = None,
        unguarded: bool = False,
    ) -> None:
        signature = tuple(args)
        guards = () if unguarded else tuple(_guard(t) for t in signature)
        if not any(guards):
            guards = ()
        generic = any(t.is_generic for t in signature) or result.is_generic
        name_cost = cost if cost_by_name is True else (cost_by_name or None)
        overload = Overload(
            id, function, signature, result, member, implementation, cost, name_cost, estimate, generic, guards
        )
        self.overloads.setdefault(function, []).append(overload)


def fits(overload: Overload, values: tuple[Any, ...]) -> bool:
    """Whether values seen at run time are what the signature says."""
    if len(values) != len(overload.args):
        return False
    return all(guard is None or type(value) in guard for guard, value in zip(overload.guards, values, strict=False))


def caller(overloads: tuple[Overload, ...]) -> Implementation:
    """A Python function for a call: checks the values where the checker could not, and picks the overload."""
    if len(overloads) == 1:
        return _guarded(overloads[0])

    def dispatched(*values: Any) -> Any:
        for overload in overloads:
            if fits(overload, values):
                assert overload.implementation is not None
                return overload.implementation(*values)
        raise no_overload()

    shared = {overload.implementation for overload in overloads}
    if len(shared) == 1 and not any(overload.guards for overload in overloads):
        (only,) = shared
        assert only is not None
        return only
    return dispatched


def _guarded(overload: Overload) -> Implementation:
    implementation, guards = overload.implementation, overload.guards
    assert implementation is not None, overload.id
    if not guards:
        return implementation
    if len(guards) == 1:
        (only,) = guards
        assert only is not None

        def one(a: Any) -> Any:
            if type(a) not in only:
                raise no_overload()
            return implementation(a)

        return one
    if len(guards) == 2:
        first, second = guards

        def two(a: Any, b: Any) -> Any:
            if (first is not None and type(a) not in first) or (second is not None and type(b) not in second):
                raise no_overload()
            return implementation(a, b)

        return two

    def many(*values: Any) -> Any:
        if not fits(overload, values):
            raise no_overload()
        return implementation(*values)

    return many
