"""Bound for counters: can the open requests draw, all together, no more than is left?

Devices that compete for counters draw amounts that add up. All sums that the open requests can come to are worked out once;
during the search one look says whether some of them stays within what is left. Necessary, never sufficient: a device
that one request has taken may count again for a request of another kind.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from dray.allocator.sums import (
    MOST_BITS_IN_ALL,
    MOST_BITS_IN_TABLE,
    MOST_WORK,
    NO_WAY,
    NOTHING,
    Amounts,
    SumRows,
    Sums,
    SumSpace,
    joined,
    work_of,
)
from dray.allocator.types import bits

if TYPE_CHECKING:
    from dray.allocator.requests import ClaimRequest, Option
    from dray.allocator.rules import Look
    from dray.allocator.search_plan import SearchPlan


class SumTable:
    """Sums of k devices out of those from a rank on, each added to what other requests draw."""

    __slots__ = ("_ranks", "_rows", "_stride", "bits")

    def __init__(self, space: SumSpace, draws: Sequence[tuple[int, Amounts]], most: int, base: Sums) -> None:
        """`draws` by rank, in order."""
        self._ranks = [rank for rank, _ in draws]
        # Where not all rows fit into memory, every so many are kept; a row for more devices than asked is a weaker bound.
        self._stride = 1 + len(draws) * most * space.bits // MOST_BITS_IN_TABLE
        # At most.
        self.bits = (len(draws) // self._stride + 1) * (most + 1) * space.bits
        # From the last rank to the first.
        self._rows = SumRows(space, [amounts for _, amounts in reversed(draws)], most, base, self._stride)

    def work_out(self, look: Look) -> None:
        self._rows.work_out(look)

    def reached(self, start: int, count: int) -> Sums:
        place = bisect_left(self._ranks, start)
        rows = self._rows.rows
        row = rows[0] if place == len(self._ranks) else rows[-1 - place // self._stride]
        return row[count] if count < len(row) else NO_WAY


def is_fixed(request: ClaimRequest) -> bool:
    """A request for all devices leaves no choice: what it draws is known."""
    return not request.is_prioritized and request.options[0].all_devices and not request.options[0].admin_access


class EqualRequests:
    """Open requests that want equally many devices of the same, together; often just one."""

    __slots__ = ("count", "has_others", "is_ordered", "outside")

    def __init__(self, count: int, members: Sequence[ClaimRequest], plan: SearchPlan, outside: int) -> None:
        self.count = count * len(members)
        self.has_others = len(members) > 1
        # Whether each takes its first device after that of the one before.
        self.is_ordered = all(plan.twin_before.get(later.index) is before for before, later in pairwise(members))
        # Devices that they could take elsewhere.
        self.outside = outside


class CounterSums:
    """One group of devices that compete for counters, in one numbering of sums."""

    __slots__ = (
        "_amounts",
        "_bases",
        "_bits_worked_out",
        "_devices",
        "_fixed",
        "_left",
        "_look",
        "_places",
        "_plan",
        "_space",
        "_tables",
        "_worked_out",
    )

    def __init__(
        self,
        plan: SearchPlan,
        space: SumSpace,
        amounts: Mapping[int, Amounts],
        left: list[int],
        places: Sequence[int],
        look: Look,
    ) -> None:
        """`amounts` by device; `left` is the live state of all counters, `places` says which of them the amounts are about."""
        self._plan = plan
        self._space = space
        self._amounts = amounts
        self._left = left
        self._places = places
        self._look = look
        self._devices = 0
        for position in amounts:
            self._devices |= 1 << position
        self._bases: dict[tuple[int, ...], Sums] = {}
        self._tables: dict[int, tuple[SumTable, EqualRequests]] = {}
        self._fixed: dict[int, Amounts] = {}
        # Kept, perhaps half done, for when the search continues after a stop.
        self._worked_out: dict[Hashable, SumRows] = {}
        self._bits_worked_out = 0

    @property
    def bits(self) -> int:
        return sum([table.bits for table, _ in self._tables.values()]) + self._bits_worked_out

    def binds(self, requests: Sequence[ClaimRequest]) -> bool:
        """Not if these requests may come without any device of this group, or with devices that draw nothing.

        Nor if it would take too long to work out all sums.
        """
        count = sum([max([option.count for option in request.options]) for request in self._choosing(requests)])
        if work_of(self._space, len(self._amounts), min(count, len(self._amounts))) > MOST_WORK:
            return False
        return any(is_fixed(request) for request in requests) or not self._base(self._choosing(requests)).get(0, 0) & 1

    def suffices(self, option: Option, ordinal: int, start: int, first: int, free: int) -> bool:
        """Whether enough is left for this option from its `ordinal`th device on, and for all requests after it.

        The next device comes at rank `start` or later, the first one came at rank `first`; `free` are the devices that the
        option may still take.
        """
        request = option.request
        if option.admin_access:
            return True
        open_requests = self._plan.open_from(request)
        if option.all_devices:
            later = self._base(self._choosing(open_requests[1:]))
            reached = later if is_fixed(request) else self._plus_all(option, later)
        else:
            table, alike = self._table(option)
            needed = alike.count - ordinal
            if not alike.has_others:
                low, outside = start, (free & ~self._devices).bit_count()
            else:
                low, outside = (start if ordinal == 0 else first + 1) if alike.is_ordered else 0, alike.outside
            reached = table.reached(low, max(0, needed - outside))
        return self._space.is_within(reached, self._left_beside_fixed(request))

    def _left_beside_fixed(self, request: ClaimRequest) -> Amounts:
        """What requests for all devices, from this request on, leave of the counters."""
        drawn = self._fixed.get(request.index)
        if drawn is None:
            drawn = [0] * len(self._places)
            for each in self._plan.open_from(request):
                if is_fixed(each):
                    for position in self._plan.given.all_sets[each.options[0].index]:
                        for place, amount in enumerate(self._amounts.get(position, ())):
                            drawn[place] += amount
            self._fixed[request.index] = drawn
        return [self._left[place] - amount for place, amount in zip(self._places, drawn, strict=True)]

    def _choosing(self, requests: Sequence[ClaimRequest]) -> list[ClaimRequest]:
        return [request for request in requests if not is_fixed(request)]

    def _alike(self, request: ClaimRequest, among: Sequence[ClaimRequest]) -> list[ClaimRequest]:
        """Requests that want equally many devices of the same; `request` itself only if its alternatives agree in that."""
        wanted = self._wanted(request)
        return [request] if wanted is None else [other for other in among if self._wanted(other) == wanted]

    def _wanted(self, request: ClaimRequest) -> tuple[int, int] | None:
        counts = {option.count for option in request.options}
        if len(counts) > 1 or any(option.all_devices or option.admin_access for option in request.options):
            return None
        return self._plan.mask_of(request), counts.pop()

    def _table(self, option: Option) -> tuple[SumTable, EqualRequests]:
        known = self._tables.get(option.index)
        if known is None:
            request = option.request
            open_requests = self._choosing(self._plan.open_from(request))
            members = [request] if request.is_prioritized else self._alike(request, open_requests)
            others = [other for other in open_requests if other not in members]
            mask, rank = self._plan.masks[option.index], self._plan.given.rank
            draws = [(rank(option, position), self._amounts[position]) for position in bits(mask & self._devices)]
            most = min(option.count * len(members), len(draws))
            table = SumTable(self._space, sorted(draws), most, self._base(others))
            if self.bits + table.bits > MOST_BITS_IN_ALL:
                self._tables.clear()
            alike = EqualRequests(option.count, members, self._plan, self._elsewhere(mask, len(members)))
            known = self._tables[option.index] = (table, alike)
        known[0].work_out(self._look)
        return known

    def _elsewhere(self, mask: int, requests: int) -> int:
        """How many devices so many requests could take elsewhere; shared ones each of them."""
        elsewhere = mask & ~self._devices
        shared = (elsewhere & self._plan.given.shareable).bit_count()
        return elsewhere.bit_count() - shared + shared * requests

    def _base(self, requests: Sequence[ClaimRequest]) -> Sums:
        """All sums that these requests can come to."""
        key = tuple([request.index for request in requests])
        known = self._bases.get(key)
        if known is None:
            known = self._bases[key] = self._sums(requests)
        return known

    def _sums(self, requests: Sequence[ClaimRequest]) -> Sums:
        if not requests:
            return NOTHING
        first = requests[0]
        if any(option.admin_access for option in first.options):
            return self._base(requests[1:])
        wanted = self._wanted(first)
        if wanted is None:
            later = self._base(requests[1:])
            reached = NO_WAY
            for option in first.options:
                if option.all_devices:
                    reached = joined(reached, self._plus_all(option, later))
                else:
                    mask = self._plan.masks[option.index]
                    needed = option.count - self._elsewhere(mask, 1)
                    reached = joined(reached, self._plus(mask, needed, later))
            return reached
        alike = self._alike(first, requests)
        later = self._base([request for request in requests if request not in alike])
        mask, count = wanted
        return self._plus(mask, count * len(alike) - self._elsewhere(mask, len(alike)), later)

    def _plus(self, mask: int, count: int, later: Sums) -> Sums:
        if count <= 0:
            return later
        key = (mask, count, tuple(later.items()))
        rows = self._worked_out.get(key)
        if rows is None:
            draws = [self._amounts[position] for position in bits(mask & self._devices)]
            rows = self._worked_out[key] = SumRows(self._space, draws, count, later, stride=0)
            self._bits_worked_out += (count + 1) * self._space.bits
        rows.work_out(self._look)
        return rows.last[count]

    def _plus_all(self, option: Option, later: Sums) -> Sums:
        for position in self._plan.given.all_sets[option.index]:
            if self._devices >> position & 1:
                later = self._space.adding(self._amounts[position])(later)
        return later
