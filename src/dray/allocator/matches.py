"""Which devices a request may use: its filter, and the devices that pass the filter in one pool shape or on one node."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from dray.allocator.capacity_requests import RequestedCapacity, requested_capacity_on, with_published_names
from dray.allocator.device_kinds import DeviceKind, KindColumn, Shape
from dray.allocator.selectors import ReadSet, SelectorAnswer, SelectorFailure, value_read
from dray.allocator.types import FatalError, Features, bits
from dray.api.dra.pools import DeviceID
from dray.api.dra.taints import first_untolerated
from dray.api.quantity import Quantity
from dray.api.resource import DeviceSubRequest, ExactDeviceRequest

if TYPE_CHECKING:
    from dray.allocator.inventory import NodePools
    from dray.allocator.requests import Option, Problem

# Columns pay off when many nodes are asked; the first few shapes are looked at device by device.
FIRST_SHAPES = 2
# Shapes that one device_filter remembers; dead ones go when it starts afresh.
MOST_SHAPES = 20_000


class ShapeMatches:
    """The devices of one shape that pass a filter, as masks: matching, not evaluated yet, and with errors.

    An error has no effect until the search reaches its device. `late` holds errors of capacity requests. A device of another
    node never shows these, since the search checks the node before the capacity.
    """

    __slots__ = ("device_filter", "errors", "first_fits", "late", "shape", "tainted", "unknown", "wrong", "yes")

    def __init__(self, device_filter: DeviceFilter, shape: Shape) -> None:
        self.device_filter = device_filter
        self.shape = shape
        self.unknown = shape.every
        self.yes = self.wrong = self.late = 0
        self.errors: dict[int, str] = {}
        # The devices that a lone request gets by first fit, by what is taken of the pool.
        self.first_fits: dict[Hashable, list[tuple[Option, int]] | None] = {}
        if not device_filter.features.binds_with_conditions:
            self.unknown &= ~shape.binding
        self.tainted = device_filter.untolerated(shape) if shape.tainted else 0

    def ask(self, position: int) -> None:
        bit = 1 << position
        self.unknown &= ~bit
        verdict = self.device_filter.verdict(self.shape.kinds[position])
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


class DeviceFilter:
    """Selectors, capacity and tolerations of a request: what a device must be like, whatever else is chosen.

    Requests that ask for the same share one filter and its answers.
    """

    __slots__ = (
        "_looks_at_all",
        "_reads",
        "capacity",
        "capacity_key",
        "checks_capacity",
        "evaluator",
        "features",
        "index",
        "label",
        "matches_by_column",
        "matches_by_shape",
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
        self.index = len(problem.filters)
        self.label = label
        self.features = problem.features
        self.evaluator = problem.selectors
        self.selectors = selectors
        self.tolerations = spec.tolerations
        self.capacity: Mapping[str, Quantity] = spec.capacity.requests if spec.capacity is not None else {}
        self.capacity_key = capacity_key_of(self.capacity, problem.features)
        self.checks_capacity = problem.features.consumable_capacity
        self.matches_by_shape: dict[Shape, ShapeMatches] = {}
        # Shapes that agree in what the selectors look at share a matches.
        self.matches_by_column: dict[KindColumn, ShapeMatches] = {}
        self.verdicts: dict[DeviceKind, SelectorAnswer] = {}
        # What the selectors look at together; known once columns are needed.
        self._reads: ReadSet | None = None
        self._looks_at_all = False

    def matches(self, shape: Shape) -> ShapeMatches:
        """Remembered per shape; shapes that agree in what is looked at share one."""
        matches = self.matches_by_shape.get(shape)
        if matches is not None:
            return matches
        reads = self._reads
        column = shape.known_column(reads) if reads is not None else None
        matches = self.matches_by_column.get(column) if column is not None else None
        if matches is None:
            matches = self._new_matches(shape)
        self.matches_by_shape[shape] = matches
        return matches

    def _new_matches(self, shape: Shape) -> ShapeMatches:
        if len(self.matches_by_shape) < FIRST_SHAPES:
            return ShapeMatches(self, shape)
        if len(self.matches_by_shape) >= MOST_SHAPES:
            self.matches_by_shape.clear()
            self.matches_by_column.clear()
        if self._reads is None and not self._looks_at_all:
            self._reads = self.evaluator.read_set([expression for _, expression in self.selectors])
            self._looks_at_all = self._reads is None
        if self._reads is None:
            return ShapeMatches(self, shape)
        column = shape.known_column(self._reads) or self._column(shape, self._reads)
        matches = self.matches_by_column.get(column)
        if matches is None:
            matches = self.matches_by_column[column] = ShapeMatches(self, shape)
        return matches

    def _column(self, shape: Shape, reads: ReadSet) -> KindColumn:
        """All that is looked at, side by side."""
        columns = [shape.column(read, partial(value_read, read=read)) for read in reads.reads]
        return shape.joined_column(reads, (shape.base, *columns))

    def verdict(self, kind: DeviceKind) -> SelectorAnswer:
        """Class selectors, then request selectors, then what the capacity policy allows at all."""
        known = self.verdicts.get(kind)
        if known is None:
            known = self.verdicts[kind] = self._verdict(kind)
        return known

    def _verdict(self, kind: DeviceKind) -> SelectorAnswer:
        answers = kind.answers
        for label, expression in self.selectors:
            answer = answers.get(expression)
            if answer is None:
                answer = self.evaluator.verdict(expression, kind)
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

    def capacity_on(self, kind: DeviceKind) -> Mapping[str, Quantity]:
        """The requested capacity, under the names that the device publishes."""
        if not self.capacity or self.capacity.keys() <= kind.device.capacity.keys():
            return self.capacity
        return with_published_names(self.capacity, kind.device, kind.driver)

    def amounts(self, kind: DeviceKind) -> RequestedCapacity:
        known: RequestedCapacity | None = kind.capacity.amounts.get(self.capacity_key)
        return known if known is not None else self._new_amounts(kind)

    def _new_amounts(self, kind: DeviceKind) -> RequestedCapacity:
        """Names that the device does not publish as they stand may mean other capacities with another driver."""
        requests, amounts = self.capacity_on(kind), kind.capacity.amounts
        key = self.capacity_key if requests is self.capacity else (kind.driver, self.capacity_key)
        known: RequestedCapacity | None = amounts.get(key)
        if known is None:
            known = requested_capacity_on(kind.device, requests, self.features.fractional_capacity_range)
            kind.remember(amounts, key, known)
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


class NodeMatches:
    """The devices of one node that pass a filter. Masks are over all devices of the node."""

    __slots__ = ("_node", "barred", "device_filter", "matches_by_shape", "unknown", "wrong", "yes")

    def __init__(self, device_filter: DeviceFilter, node: NodePools, blocked: int) -> None:
        self.device_filter = device_filter
        self._node = node
        self.matches_by_shape: list[ShapeMatches] = [device_filter.matches(shape) for shape in node.shapes]
        # Matching but out of reach: another node's device, a taint, operations that the node does not know.
        self.barred = blocked | node.unreachable
        self.yes = self.unknown = self.wrong = 0
        late = 0
        for matches, offset in zip(self.matches_by_shape, node.offsets, strict=True):
            self.yes |= matches.yes << offset
            self.unknown |= matches.unknown << offset
            self.wrong |= matches.wrong << offset
            late |= matches.late << offset
            self.barred |= matches.tainted << offset
        self.wrong |= late & ~node.unreachable

    def ask(self, position: int) -> None:
        """Evaluates the filter for a device that it has not been evaluated for."""
        index = len(self.matches_by_shape) - 1
        offsets = self._node.offsets
        while offsets[index] > position:
            index -= 1
        matches, place = self.matches_by_shape[index], position - offsets[index]
        local, bit = 1 << place, 1 << position
        if matches.unknown & local:
            matches.ask(place)
        self.unknown &= ~bit
        if matches.yes & local:
            self.yes |= bit
        elif matches.wrong & local or (matches.late & local and not self._node.unreachable & bit):
            self.wrong |= bit

    def ask_all(self) -> None:
        for position in bits(self.unknown):
            self.ask(position)

    def error(self, option: Option, position: int) -> FatalError:
        pool, place = self._node.locate(position)
        message = self.matches_by_shape[self._node.pools.index(pool)].errors[place]
        return FatalError("selector-error", named_error(message, pool.device_id(place), option))

    @property
    def good(self) -> int:
        return self.yes & ~self.barred


def named_error(message: str, device_id: DeviceID, option: Option) -> str:
    return message.replace("{device}", str(device_id)).replace("{request}", option.name)
