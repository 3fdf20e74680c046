"""matchAttribute and distinctAttribute, each within one claim."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from dray.allocator.attributes import UNKNOWN, Value, as_set, attribute_of, derived_attribute, scalar, several, single
from dray.allocator.device_kinds import DeviceKind, KindColumn, Shape
from dray.allocator.requests import ClaimProblem, Option
from dray.allocator.rules import KindOf, Rule, ValueGroups
from dray.allocator.types import FatalError
from dray.api.resource import DeviceAttribute, DeviceConstraint


class ConstraintScope:
    """The part of a constraint that is the same on every node: whom it covers, and the value each kind of device has.

    A value is None where the attribute is missing (or, for lists, empty): such a device is always refused. A list of one
    is its only element, as a scalar is.
    """

    __slots__ = (
        "attribute",
        "claim",
        "column_key",
        "covered",
        "has_derived",
        "is_match",
        "last_request",
        "lists",
        "values",
    )

    def __init__(self, claim: ClaimProblem, constraint: DeviceConstraint, lists: bool) -> None:
        self.claim = claim
        self.is_match = constraint.match_attribute is not None
        self.attribute: str = constraint.match_attribute or constraint.distinct_attribute or ""
        self.lists = lists
        named = frozenset(constraint.requests)
        self.covered = frozenset(
            option.index
            for request in claim.requests
            for option in request.options
            if not named or option.base_name in named or option.name in named
        )
        covering = [
            request.index for request in claim.requests if any(o.index in self.covered for o in request.options)
        ]
        self.last_request = max(covering, default=-1)
        self.values: dict[Hashable, Any] = {}
        self.column_key = ("constraint", self.attribute, lists)
        self.has_derived = any(option.derived for request in claim.requests for option in request.options)

    def value(self, option: Option, kind: DeviceKind) -> Any:
        expression = option.derived.get(self.attribute) if option.derived else None
        if expression is None:
            return self.published(kind)
        key = (expression, kind)
        if key not in self.values:
            self.values[key] = self._derived(option, kind, expression)
        found = self.values[key]
        if isinstance(found, FatalError):
            raise found
        return found

    def published(self, kind: DeviceKind) -> Any:
        if kind not in self.values:
            self.values[kind] = self._comparable(attribute_of(kind, self.attribute))
        return self.values[kind]

    def column(self, shape: Shape) -> KindColumn:
        return shape.known_column(self.column_key) or shape.column(self.column_key, self.published)

    def _derived(self, option: Option, kind: DeviceKind, expression: str) -> Any:
        derived = derived_attribute(option.device_filter.evaluator, self.attribute, expression, kind)
        if isinstance(derived, FatalError):
            return FatalError(derived.code, f"claim {self.claim.label}, request {option.name}: {derived.message}")
        return self._comparable(derived)

    def _comparable(self, attribute: DeviceAttribute | None) -> Any:
        if attribute is None:
            return None
        return single(as_set(attribute)) if self.lists else scalar(attribute)


class Constraint(Rule):
    """The common part of both constraints during one search. `kinds` are the node's devices by position."""

    is_constraint = True
    name = "constraint"

    __slots__ = ("_by_value", "_history", "_is_plain", "_value_groups", "kinds", "scope")

    def __init__(self, scope: ConstraintScope, kinds: Sequence[DeviceKind]) -> None:
        self.scope = scope
        self.kinds = kinds
        self._history: list[Any] = []
        self._by_value: dict[Any, int] | None = None
        self._is_plain: bool | None = None
        self._value_groups: ValueGroups | None = None

    @property
    def is_plain(self) -> bool:
        """No device of the node has several values; then comparing is a matter of masks."""
        if self._is_plain is None:
            self._is_plain = not any(isinstance(value, frozenset) for value in self.masks_by_value())
        return self._is_plain

    def concerns(self, option: Option) -> bool:
        return option.index in self.scope.covered

    def lacks(self, option: Option, position: int) -> str:
        return self.scope.attribute if self.scope.value(option, self.kinds[position]) is None else ""

    def _groups(self, one_value: bool) -> ValueGroups | None:
        if self._value_groups is None and self.is_plain:
            masks = [devices for value, devices in self.masks_by_value().items() if value is not None]
            self._value_groups = ValueGroups(masks, self.scope.covered, self.scope.last_request, one_value)
        return self._value_groups

    def kind(self, first_request: int, position: int) -> Hashable:
        scope = self.scope
        if scope.last_request < first_request:
            return None
        values: list[Hashable] = []
        for request in scope.claim.requests:
            if request.index >= first_request:
                for option in request.options:
                    if option.index in scope.covered:
                        try:
                            values.append(scope.value(option, self.kinds[position]))
                        except FatalError:
                            return ("error", position)
                        if not option.derived and len(values) == 1 and not scope.has_derived:
                            return values[0]
        return tuple(values)

    def masks_by_value(self) -> dict[Any, int]:
        """Devices by published value; what options without derived attributes see."""
        if self._by_value is None:
            masks: dict[Any, int] = {}
            for position, kind in enumerate(self.kinds):
                value = self.scope.published(kind)
                masks[value] = masks.get(value, 0) | 1 << position
            self._by_value = masks
        return self._by_value


class Match(Constraint):
    """All covered devices share a type and value; lists: at least one value."""

    name = "matchAttribute"

    __slots__ = ()

    def narrow(self, option: Option, mask: int) -> int:
        if option.index not in self.scope.covered or option.derived or not mask:
            return mask
        if not self._history:
            return mask & ~self.masks_by_value().get(None, 0)
        current = self._history[-1]
        if not self.is_plain:
            return mask
        return 0 if current is UNKNOWN else mask & self.masks_by_value().get(current, 0)

    def value_groups(self) -> ValueGroups | None:
        """Only while no covered device has been chosen; afterwards `narrow` leaves the devices of one value."""
        return None if self._history else self._groups(one_value=True)

    def enter(self, option: Option, position: int) -> bool:
        if option.index not in self.scope.covered:
            return True
        value = self.scope.value(option, self.kinds[position])
        if value is None:
            return False
        if self._history:
            value = self._join(self._history[-1], value)
            if value is None:
                return False
        self._history.append(value)
        return True

    def _join(self, current: Any, value: Any) -> Any:
        if isinstance(current, frozenset) or isinstance(value, frozenset):
            return single(several(current) & several(value))
        return None if current is UNKNOWN or current != value else current

    def leave(self, option: Option, position: int) -> None:
        if option.index in self.scope.covered:
            self._history.pop()

    def state(self, first_request: int, kind_of: KindOf) -> Hashable:
        if self.scope.last_request < first_request or not self._history:
            return None
        return (self._history[-1],)

    def why(self, option: Option, position: int) -> str:
        if self.lacks(option, position):
            return f"has no attribute {self.scope.attribute}"
        value = self.scope.value(option, self.kinds[position])
        return f"{self.scope.attribute} is {_said(value)}, the devices chosen before have {_said(self._history[-1])}"


class Distinct(Constraint):
    """No two covered devices share a value; lists: they are disjoint."""

    name = "distinctAttribute"

    __slots__ = ("_numbers",)

    def __init__(self, scope: ConstraintScope, kinds: Sequence[DeviceKind]) -> None:
        super().__init__(scope, kinds)
        self._numbers: dict[Any, int] = {}

    def narrow(self, option: Option, mask: int) -> int:
        if option.index not in self.scope.covered or option.derived or not mask:
            return mask
        masks = self.masks_by_value()
        mask &= ~masks.get(None, 0)
        if not self.is_plain:
            return mask
        for value in self._history:
            if value is not UNKNOWN:
                mask &= ~masks.get(value, 0)
        return mask

    def value_groups(self) -> ValueGroups | None:
        return None if UNKNOWN in self.masks_by_value() else self._groups(one_value=False)

    def enter(self, option: Option, position: int) -> bool:
        if option.index not in self.scope.covered:
            return True
        value = self.scope.value(option, self.kinds[position])
        if value is None or self._clashes(value):
            return False
        self._history.append(value)
        return True

    def _clashes(self, value: Any) -> bool:
        if self.scope.lists:
            mine = several(value)
            return any(not mine.isdisjoint(several(other)) for other in self._history)
        # What cannot be compared is never known to differ.
        return bool(self._history) if value is UNKNOWN else value in self._history

    def leave(self, option: Option, position: int) -> None:
        if option.index in self.scope.covered:
            self._history.pop()

    def state(self, first_request: int, kind_of: KindOf) -> Hashable:
        if self.scope.last_request < first_request:
            return None
        values = 0
        for value in self._history:
            values |= 1 << self._numbers.setdefault(value, len(self._numbers))
        return values

    def why(self, option: Option, position: int) -> str:
        if self.lacks(option, position):
            return f"has no attribute {self.scope.attribute}"
        value = self.scope.value(option, self.kinds[position])
        return f"{self.scope.attribute} is {_said(value)}, which another chosen device has as well"


def _said(value: Value | frozenset[Value] | object) -> str:
    if isinstance(value, frozenset):
        return "[" + ", ".join(sorted(_said(entry) for entry in value)) + "]"
    return repr(value[1]) if isinstance(value, tuple) else "a list"


def scopes_of(claim: ClaimProblem, lists: bool) -> list[ConstraintScope]:
    return [ConstraintScope(claim, constraint, lists) for constraint in claim.constraints]


def constraint_rule(scope: ConstraintScope, kinds: Sequence[DeviceKind]) -> Match | Distinct:
    return (Match if scope.is_match else Distinct)(scope, kinds)
