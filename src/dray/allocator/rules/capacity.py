"""Consumable capacity: what stored shares, shares of this attempt and one more take must stay within the device."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING

from dray.allocator.capacity_requests import RequestedCapacity
from dray.allocator.device_kinds import DeviceKind
from dray.allocator.ledger import CapacitySums
from dray.allocator.requests import Option, Problem
from dray.allocator.rules import KindOf, Look, Rule, SumBound
from dray.allocator.rules.share_packing import SharePacking
from dray.allocator.rules.share_sums import ShareSums
from dray.allocator.types import bits
from dray.api.quantity import Quantity

if TYPE_CHECKING:
    from dray.allocator.search_plan import SearchPlan

# More shares than any pod can ask for.
UNLIMITED = 1 << 20

Booked = tuple[tuple[str, int], ...]


class Capacity(Rule):
    """Concerns devices that may be shared, and devices with shares from a time when they might."""

    name = "capacity"
    is_late_for_all = True
    kind_changes = True
    limits_shares = True

    __slots__ = (
        "_booked",
        "_concerns",
        "_kinds",
        "_problem",
        "_representatives",
        "_shareable",
        "_shared",
        "_smallest",
        "_stored",
    )

    def __init__(
        self,
        problem: Problem,
        kinds: Sequence[DeviceKind],
        shareable: int,
        stored: dict[int, CapacitySums],
        shared: int = 0,
    ) -> None:
        """`stored` are the sums of stored shares, by device; `shared` are devices with such shares, also of nothing."""
        self._problem = problem
        self._kinds = kinds
        self._shareable = shareable
        self._stored = stored
        self._shared = shared
        self._concerns = shareable
        for position in stored:
            self._concerns |= 1 << position
        # Shares that this attempt has given out so far, by device, oldest first.
        self._booked: dict[int, list[tuple[tuple[str, int, int], ...]]] = {}
        self._smallest: dict[int, tuple[tuple[str, int, int], ...]] = {}
        self._representatives: dict[int, tuple[int, ...]] = {}

    def enter(self, option: Option, position: int) -> bool:
        if not self._concerns >> position & 1:
            return True
        amounts = option.amounts(self._kinds[position])
        items = amounts.items
        if self._overflow(items, position) or (amounts.either_or and self._clash(amounts, position)):
            return False
        if self._shareable >> position & 1:
            self._booked.setdefault(position, []).append(items)
        return True

    def _overflow(self, items: tuple[tuple[str, int, int], ...], position: int) -> str:
        stored = self._stored.get(position)
        booked = self._booked.get(position)
        if not stored and not booked:
            return ""  # the static part of the test has compared the amount alone
        for place, (name, published, amount) in enumerate(items):
            total = amount + stored.get(name, 0) if stored else amount
            if booked:
                total += sum([share[place][2] for share in booked])
            if total > published:
                return name
        return ""

    def _clash(self, amounts: RequestedCapacity, position: int) -> str:
        """A capacity that others hold by asking for it and this one does not ask for, or the other way round."""
        booked = self._booked.get(position, ())
        if not booked and not self._shared >> position & 1:
            return ""
        stored = self._stored.get(position, {})
        for place, (name, _, amount) in enumerate(amounts.items):
            if name in amounts.either_or:
                held = stored.get(name, 0) + sum([share[place][2] for share in booked])
                if bool(held) != bool(amount):
                    return name
        return ""

    def leave(self, option: Option, position: int) -> None:
        booked = self._booked.get(position)
        if booked is not None:
            booked.pop()
            if not booked:
                del self._booked[position]

    def most_that_fit(self, mask: int, wanted: int) -> int:
        """No more requests than this can be served from these devices: one each, or as many as the smallest share allows."""
        most = (mask & ~self._shareable).bit_count()
        for position in bits(mask & self._shareable):
            most += self._most_shares(position)
        return most

    def _most_shares(self, position: int) -> int:
        smallest = self._smallest.get(position)
        if smallest is None:
            smallest = self._smallest[position] = self._smallest_share(position)
        stored = self._stored.get(position, {})
        booked = self._booked.get(position, ())
        most = UNLIMITED
        for place, (name, published, amount) in enumerate(smallest):
            if amount > 0:
                left = published - stored.get(name, 0) - sum([share[place][2] for share in booked])
                most = min(most, max(left, 0) // amount)
        return most

    def _smallest_share(self, position: int) -> tuple[tuple[str, int, int], ...]:
        """Capacity by capacity, the least that any request of the claims would take."""
        kind = self._kinds[position]
        asked = [device_filter.amounts(kind).items for device_filter in self._problem.filters]
        usable = [items for items in asked if items]
        if not usable:
            return ()
        return tuple([min(column, key=lambda item: item[2]) for column in zip(*usable, strict=True)])

    def sum_bounds(self, plan: SearchPlan, look: Look) -> list[SumBound]:
        found: list[SumBound] = []
        for component in plan.components:
            wanted = 0
            for request in component:
                wanted |= plan.mask_of(request)
            names = {
                name for position in bits(wanted & self._shareable) for name in self._kinds[position].device.capacity
            }
            found += [ShareSums(plan, component, name, self, look) for name in sorted(names)]
            found += [SharePacking(plan, component, name, self, look) for name in sorted(names)]
        return found

    def has(self, position: int, name: str) -> bool:
        return name in self._kinds[position].device.capacity

    def one_of_each_kind(self, mask: int) -> Sequence[int]:
        found = self._representatives.get(mask)
        if found is None:
            first = {self._kinds[position]: position for position in bits(mask)}
            found = self._representatives[mask] = tuple(first.values())
        return found

    def amount(self, option: Option, position: int, name: str) -> int:
        """Only of devices that the option may take."""
        for each, _, amount in option.amounts(self._kinds[position]).items:
            if each == name:
                return amount
        return 0

    def left_of(self, position: int, name: str) -> int:
        """What stored shares and those of this attempt leave of a capacity."""
        stored = self._stored.get(position)
        left = self._kinds[position].device.capacity[name].value.nanos - (stored.get(name, 0) if stored else 0)
        for share in self._booked.get(position, ()):
            for each, _, amount in share:
                if each == name:
                    left -= amount
        return left

    def booked_devices(self) -> Iterable[int]:
        return self._booked

    def kind(self, first_request: int, position: int) -> Hashable:
        if not self._concerns >> position & 1:
            return None
        kind = self._kinds[position]
        stored = self._stored.get(position)
        asked = {
            option.device_filter.capacity_key: option
            for request in self._problem.requests[first_request:]
            for option in request.options
        }
        return (
            self._shareable >> position & 1,
            tuple([option.amounts(kind).items for option in asked.values()]),
            tuple(sorted(stored.items())) if stored else None,
            kind.capacity.either_or and (kind.capacity.either_or, self._shared >> position & 1),
        )

    def live_kind(self, position: int) -> Booked | None:
        """The shares that this attempt has booked on the device; equal devices differ once one of them carries a share."""
        booked = self._booked.get(position)
        if not booked:
            return None
        sums: dict[str, int] = {"": len(booked)}
        for share in booked:
            for name, _, amount in share:
                sums[name] = sums.get(name, 0) + amount
        return tuple(sorted(sums.items()))

    def state(self, first_request: int, kind_of: KindOf) -> Hashable:
        return tuple(sorted(kind_of(position) for position in self._booked)) if self._booked else None

    def why(self, option: Option, position: int) -> str:
        kind = self._kinds[position]
        amounts = option.amounts(kind)
        name = self._overflow(amounts.items, position)
        if not name and amounts.either_or:
            name = self._clash(amounts, position)
            asked = next(row[2] for row in amounts.items if row[0] == name)
            why = "others hold the device without it" if asked else "others asked for it, so everybody has to"
            return f"capacity {name}: {why} (ConsumedOrNever)"
        place, asked = next((i, row[2]) for i, row in enumerate(amounts.items) if row[0] == name)
        taken = (self._stored.get(position) or {}).get(name, 0)
        taken += sum(share[place][2] for share in self._booked.get(position, ()))
        published = kind.device.capacity[name].value
        left = Quantity(max(0, published.nanos - taken), published.format)
        return f"capacity {name}: {Quantity(asked, published.format)} asked, {left} of {published} left"
