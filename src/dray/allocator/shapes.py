"""Pools that differ in nothing but names have one shape; what is learnt about a shape holds for all of them.

A column is one property of all devices of a shape, in their order. Columns are interned, so shapes that agree in
what a claim looks at are recognised by comparing a few objects.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from weakref import WeakValueDictionary

from dray.allocator.devices import DeviceKind


class Column:
    """Values of one property, device by device."""

    __slots__ = ("__weakref__", "_pattern", "values")

    def __init__(self, values: tuple[Hashable, ...]) -> None:
        self.values = values
        self._pattern: tuple[int, ...] | None = None

    @property
    def pattern(self) -> tuple[int, ...]:
        """Which values are equal to which, whatever they are."""
        if self._pattern is None:
            self._pattern = pattern_of(self.values)
        return self._pattern


def pattern_of(values: tuple[Hashable, ...]) -> tuple[int, ...]:
    """Each value by the number of its first appearance; None stays apart."""
    numbers: dict[Hashable, int] = {None: -1}
    return tuple([numbers.setdefault(value, len(numbers)) for value in values])


class Shape:
    """Kinds of devices in search order, with masks of those that need attention. Bit i stands for device i."""

    __slots__ = (
        "__weakref__",
        "_base",
        "_columns",
        "_table",
        "allows_multiple",
        "binding",
        "consumes",
        "every",
        "grouped",
        "is_plain",
        "kinds",
        "skipping",
        "tainted",
    )

    def __init__(self, kinds: tuple[DeviceKind, ...], table: ShapeTable) -> None:
        self.kinds = kinds
        self._table = table
        self._columns: dict[Hashable, Column] = {}
        self._base: Column | None = None
        self.every = (1 << len(kinds)) - 1
        self.allows_multiple = self.binding = self.consumes = self.skipping = self.tainted = 0
        self.grouped = False
        for position, kind in enumerate(kinds):
            bit = 1 << position
            if kind.allows_multiple:
                self.allows_multiple |= bit
            if kind.has_binding_conditions:
                self.binding |= bit
            if kind.taints:
                self.tainted |= bit
            if kind.skips_node_operations:
                self.skipping |= bit
            if kind.consumes:
                self.consumes |= bit
                self.grouped = self.grouped or any(groups for _, _, groups in kind.consumes)
        self.is_plain = not (self.binding | self.consumes | self.skipping | self.tainted)

    @property
    def base(self) -> Column:
        """Everything but attributes and names."""
        if self._base is None:
            self._base = self._table.column(tuple([kind.base for kind in self.kinds]))
        return self._base

    def column(self, key: Hashable, value_of: Callable[[DeviceKind], Hashable]) -> Column:
        """The property named by `key`, worked out once."""
        column = self._columns.get(key)
        if column is None:
            column = self._table.column(tuple([value_of(kind) for kind in self.kinds]))
            self._columns[key] = column
        return column

    def joined_column(self, key: Hashable, columns: tuple[Column, ...]) -> Column:
        column = self._columns[key] = self._table.column(columns)
        return column

    def known_column(self, key: Hashable) -> Column | None:
        return self._columns.get(key)


class ShapeTable:
    def __init__(self) -> None:
        self._shapes: WeakValueDictionary[Hashable, Shape] = WeakValueDictionary()
        self._columns: WeakValueDictionary[Hashable, Column] = WeakValueDictionary()

    def shape_of(self, kinds: tuple[DeviceKind, ...]) -> Shape:
        # Kinds are interned and the shape keeps them alive, so identity is equality here.
        shape = self._shapes.get(kinds)
        if shape is None:
            shape = self._shapes[kinds] = Shape(kinds, self)
        return shape

    def column(self, values: tuple[Hashable, ...]) -> Column:
        column = self._columns.get(values)
        if column is None:
            column = self._columns[values] = Column(values)
        return column

    def __len__(self) -> int:
        return len(self._shapes)
