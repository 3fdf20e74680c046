"""What requests see of devices: one screen for all options that ask the same, one lens for each shape it looks at."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from dray.allocator.amounts import Amounts, amounts_on
from dray.allocator.devices import DeviceKind
from dray.allocator.reads import ReadSet
from dray.allocator.rules.taints import first_untolerated
from dray.allocator.selectors import SelectorFailure, Verdict, value_read
from dray.allocator.shapes import Column, Shape
from dray.allocator.types import Features
from dray.api.quantity import Quantity
from dray.api.resource import DeviceSubRequest, ExactDeviceRequest

if TYPE_CHECKING:
    from dray.allocator.requests import Option, Problem

# Columns pay off when many nodes are asked; the first few shapes are looked at device by device.
FIRST_LENSES = 2
# Shapes that one screen remembers; dead ones go when it starts afresh.
MOST_LENSES = 20_000


class Lens:
    """What one option sees of one shape: matching devices, devices not asked about yet, devices that err.

    An error stays put until the search reaches its device. `late` holds those that a device of another node never shows:
    the node is looked at before the capacity is.
    """

    __slots__ = ("errors", "late", "screen", "shape", "tainted", "unknown", "walks", "wrong", "yes")

    def __init__(self, screen: Screen, shape: Shape) -> None:
        self.screen = screen
        self.shape = shape
        self.unknown = shape.every
        self.yes = self.wrong = self.late = 0
        self.errors: dict[int, str] = {}
        # Where a walk for a lone request ended, by what is taken of the pool.
        self.walks: dict[Hashable, list[tuple[Option, int]] | None] = {}
        if not screen.features.binds_with_conditions:
            self.unknown &= ~shape.binding
        self.tainted = screen.untolerated(shape) if shape.tainted else 0

    def ask(self, position: int) -> None:
        bit = 1 << position
        self.unknown &= ~bit
        verdict = self.screen.verdict(self.shape.kinds[position])
        if verdict is True:
            self.yes |= bit
        elif verdict is not False:
            self.errors[position] = verdict.message
            if isinstance(verdict, CapacityFailure):
                self.late |= bit
            else:
                self.wrong |= bit


class CapacityFailure(SelectorFailure):
    """An amount that cannot be represented, or is negative."""

    __slots__ = ()


class Screen:
    """What a device alone must be like; requests that ask for the same share one, and what it has found out."""

    __slots__ = (
        "_looks_at_all",
        "_reads",
        "capacity",
        "capacity_key",
        "checks_capacity",
        "features",
        "index",
        "label",
        "lenses",
        "lenses_by_columns",
        "room",
        "selectors",
        "tolerations",
        "verdicts",
    )

    def __init__(
        self,
        problem: Problem,
        spec: ExactDeviceRequest | DeviceSubRequest,
        selectors: list[tuple[str, str]],
        label: str,
    ) -> None:
        self.index = len(problem.screens)
        self.label = label
        self.features = problem.features
        self.room = problem.selectors
        self.selectors = selectors
        self.tolerations = spec.tolerations
        self.capacity: Mapping[str, Quantity] = spec.capacity.requests if spec.capacity is not None else {}
        self.capacity_key = capacity_key_of(self.capacity, problem.features)
        self.checks_capacity = problem.features.consumable_capacity
        self.lenses: dict[Shape, Lens] = {}
        # Shapes that agree in what the selectors look at share a lens.
        self.lenses_by_columns: dict[Column, Lens] = {}
        self.verdicts: dict[DeviceKind, Verdict] = {}
        # What the selectors look at together; known once columns are needed.
        self._reads: ReadSet | None = None
        self._looks_at_all = False

    def lens(self, shape: Shape) -> Lens:
        """Remembered per shape; shapes that agree in what is looked at share one."""
        lens = self.lenses.get(shape)
        if lens is not None:
            return lens
        reads = self._reads
        column = shape.known_column(reads) if reads is not None else None
        lens = self.lenses_by_columns.get(column) if column is not None else None
        if lens is None:
            lens = self._new_lens(shape)
        self.lenses[shape] = lens
        return lens

    def _new_lens(self, shape: Shape) -> Lens:
        if len(self.lenses) < FIRST_LENSES:
            return Lens(self, shape)
        if len(self.lenses) >= MOST_LENSES:
            self.lenses.clear()
            self.lenses_by_columns.clear()
        if self._reads is None and not self._looks_at_all:
            self._reads = self.room.read_set([expression for _, expression in self.selectors])
            self._looks_at_all = self._reads is None
        if self._reads is None:
            return Lens(self, shape)
        column = shape.known_column(self._reads) or self._column(shape, self._reads)
        lens = self.lenses_by_columns.get(column)
        if lens is None:
            lens = self.lenses_by_columns[column] = Lens(self, shape)
        return lens

    def _column(self, shape: Shape, reads: ReadSet) -> Column:
        """All that is looked at, side by side."""
        columns = [shape.column(read, partial(value_read, read=read)) for read in reads.reads]
        return shape.joined_column(reads, (shape.base, *columns))

    def verdict(self, kind: DeviceKind) -> Verdict:
        """Class selectors, then request selectors, then what the capacity policy allows at all."""
        known = self.verdicts.get(kind)
        if known is None:
            known = self.verdicts[kind] = self._verdict(kind)
        return known

    def _verdict(self, kind: DeviceKind) -> Verdict:
        answers = kind.answers
        for label, expression in self.selectors:
            answer = answers.get(expression)
            if answer is None:
                answer = self.room.verdict(expression, kind)
            if answer is False:
                return False
            if answer is not True:
                return SelectorFailure(f"{label} on device {{device}}: {answer.message}")
        if self.checks_capacity and (self.capacity or not kind.capacity.is_simple):
            amounts = self.amounts(kind)
            if amounts.error:
                label = f"{self.label}, request {{request}}"
                return CapacityFailure(f"{label}: checking capacity for device {{device}}: {amounts.error}")
            return not amounts.refusal
        return True

    def amounts(self, kind: DeviceKind) -> Amounts:
        plan = kind.capacity
        known: Amounts | None = plan.amounts.get(self.capacity_key)
        if known is None:
            known = amounts_on(kind.device, self.capacity, self.features.fractional_capacity_range)
            kind.remember(plan.amounts, self.capacity_key, known)
        return known

    def untolerated(self, shape: Shape) -> int:
        """Devices of `shape` with a taint that is not tolerated."""
        mask = 0
        if self.features.device_taints:
            for position, kind in enumerate(shape.kinds):
                if kind.taints and first_untolerated(kind.taints, self.tolerations) is not None:
                    mask |= 1 << position
        return mask


def capacity_key_of(capacity: Mapping[str, Quantity], features: Features) -> Hashable:
    amounts = tuple(sorted([(name, amount.nanos) for name, amount in capacity.items()])) if capacity else ()
    return (amounts, features.fractional_capacity_range)
