"""Pools that differ in nothing but names have one shape; what is learnt about a shape holds for all of them."""

from __future__ import annotations

from collections.abc import Hashable
from weakref import WeakValueDictionary

from dray.allocator.devices import DeviceKind


class Shape:
    """Kinds of devices in search order, with masks of those that need attention. Bit i stands for device i."""

    __slots__ = (
        "__weakref__",
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

    def __init__(self, kinds: tuple[DeviceKind, ...]) -> None:
        self.kinds = kinds
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


class ShapeTable:
    def __init__(self) -> None:
        self._shapes: WeakValueDictionary[Hashable, Shape] = WeakValueDictionary()

    def shape_of(self, kinds: tuple[DeviceKind, ...]) -> Shape:
        # Kinds are interned and the shape keeps them alive, so identity is equality here.
        shape = self._shapes.get(kinds)
        if shape is None:
            shape = self._shapes[kinds] = Shape(kinds)
        return shape

    def __len__(self) -> int:
        return len(self._shapes)
