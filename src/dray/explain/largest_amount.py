"""The largest amount of a capacity that works, among the amounts that devices hand out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from dray.allocator.capacity_requests import MILLI, UNIT, grid_unit
from dray.api.quantity import Quantity
from dray.api.resource import DeviceCapacity

# Of larger amounts nobody wants a thousandth.
LARGE = 10**6 * UNIT


@dataclass(frozen=True, slots=True)
class AmountGrid:
    """Amounts in nano-units: `values`, or from `start` in steps up to `most`."""

    start: int
    step: int
    most: int
    values: tuple[int, ...] = ()

    @classmethod
    def of(cls, capacity: DeviceCapacity, fractional: bool) -> AmountGrid:
        policy = capacity.request_policy
        published = capacity.value.nanos
        allowed = policy.valid_range if policy is not None else None
        if policy is not None and policy.valid_values:
            return cls(0, 0, published, tuple(value.nanos for value in policy.valid_values))
        if allowed is None:
            return cls(0, _finest(published), published)
        least = allowed.min.nanos if allowed.min is not None else 0
        most = min(published, allowed.max.nanos) if allowed.max is not None else published
        if allowed.step is None:
            return cls(least, _finest(least, most), most)
        unit = grid_unit(allowed, fractional)
        return cls(_rounded_up(least, unit), _rounded_up(allowed.step.nanos, unit), most)

    def amounts(self, below: int) -> range | tuple[int, ...]:
        """In ascending order, without nothing at all."""
        if self.values:
            return tuple(sorted(value for value in self.values if 0 < value < below and value <= self.most))
        first = self.start if self.start > 0 else self.start + self.step
        return range(first, min(self.most, below - 1) + 1, max(self.step, 1))


def largest_amount(grids: Iterable[AmountGrid], asked: Quantity, works: Callable[[Quantity], bool]) -> Quantity | None:
    """Less than `asked`; None if no amount works. Takes it that less than an amount that works does work, too."""
    best: Quantity | None = None
    for grid in grids:
        amounts = grid.amounts(asked.nanos)
        low, high = 0, len(amounts)
        while low < high:
            middle = (low + high) // 2
            tried = Quantity(amounts[middle], asked.format)
            if (best is not None and tried <= best) or works(tried):
                low = middle + 1
            else:
                high = middle
        if low and (best is None or amounts[low - 1] > best.nanos):
            best = Quantity(amounts[low - 1], asked.format)
    return best


def _finest(*amounts: int) -> int:
    """Thousandths where small amounts are published in them, else whole units."""
    is_small = all(amount < LARGE for amount in amounts)
    return MILLI if is_small and any(amount % UNIT for amount in amounts) else UNIT


def _rounded_up(amount: int, unit: int) -> int:
    return -(-amount // unit) * unit
