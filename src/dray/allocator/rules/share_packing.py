"""Bound for consumable capacity where little is to spare: can the shares of the open requests be packed into the devices at all?

Exact where `ShareSums` compares sums only. The largest share goes into some device, which is then filled up with other shares. A filling to
which no share can be added is as good as any that lacks one: moving a share there only makes room elsewhere. Fillings that waste more than
there is to spare are left out, and states that have failed are remembered.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from itertools import islice
from math import gcd
from typing import TYPE_CHECKING

from dray.allocator.rules.share_sums import LiveShares
from dray.allocator.types import bits
from dray.allocator.usefulness import Usefulness

if TYPE_CHECKING:
    from dray.allocator.requests import ClaimRequest, Option
    from dray.allocator.rules import Look
    from dray.allocator.search_plan import SearchPlan

# The widest set of sums; a device with more units is not looked at.
MOST_UNITS = 1 << 17
# Shares that are too many to be packed one by one.
MOST_SHARES = 128
# States after which one question stays open, open questions after which no more are asked, and states between two looks at the time.
MOST_STATES = 3000
MOST_OPEN = 3
STATES_PER_LOOK = 2
# Ways to fill a device that are compared before one device is settled on, and steps on the way to them in one state.
FEW_WAYS = 64
MOST_TRIED = 3000
# Failed states that are remembered, and the memory of one.
MOST_FAILED = 20_000
BITS_OF_A_STATE = 8000

Counts = tuple[int, ...]
"""How many shares of each kind are left to place."""
Bins = tuple[tuple[int, int], ...]
"""What is left of each device, in units, and its group; the fullest first."""


class TooLong(Exception):
    """The question stays open."""


class SharePacking:
    """One capacity, in one component of requests."""

    __slots__ = (
        "_after",
        "_amounts",
        "_asked",
        "_attempt",
        "_failed",
        "_group_of",
        "_groups",
        "_kind_of",
        "_live",
        "_look",
        "_name",
        "_open",
        "_places",
        "_states",
        "_tried",
        "_unit",
        "_usefulness",
    )

    def __init__(
        self, plan: SearchPlan, requests: Sequence[ClaimRequest], name: str, live: LiveShares, look: Look
    ) -> None:
        self._live = live
        self._look = look
        self._name = name
        self._usefulness = Usefulness()
        self._failed: set[tuple[Counts, Bins]] = set()
        self._asked: tuple[Counts, Bins] | None = None
        self._attempt: Generator[None, None, bool]
        self._states = self._tried = self._open = 0
        self._places: dict[int, int] = {}
        shares = _shares_of(plan, requests, name, live)
        if shares is None:
            return
        self._unit = gcd(*[amount for amount, _ in shares if amount]) or 1
        wanted = 0
        for _, mask in shares:
            wanted |= mask
        # Devices that the same requests may take are one group.
        groups: dict[tuple[int, ...], int] = {}
        self._group_of = {
            position: groups.setdefault(tuple([mask >> position & 1 for _, mask in shares]), len(groups))
            for position in bits(wanted)
        }
        if sum([request.options[0].count for request in requests]) > MOST_SHARES:
            return
        if max([live.left_of(position, name) for position in self._group_of], default=0) // self._unit > MOST_UNITS:
            return
        self._places = {request.index: place for place, request in enumerate(requests)}
        self._count_kinds(requests, shares, list(groups))

    def _count_kinds(
        self, requests: Sequence[ClaimRequest], shares: Sequence[tuple[int, int]], groups: Sequence[tuple[int, ...]]
    ) -> None:
        """Shares that are equal in size and may go into the same devices are of one kind; the largest come first."""
        kinds = [
            (amount // self._unit, sum([1 << number for number, group in enumerate(groups) if group[place]]))
            for place, (amount, _) in enumerate(shares)
        ]
        in_order = sorted({kind for kind in kinds if kind[0]}, reverse=True)
        self._amounts = [amount for amount, _ in in_order]
        self._groups = [mask for _, mask in in_order]
        self._kind_of = [in_order.index(kind) if kind[0] else None for kind in kinds]
        counts = [0] * len(in_order)
        after = [tuple(counts)]
        for place in range(len(requests) - 1, 0, -1):
            kind = self._kind_of[place]
            if kind is not None:
                counts[kind] += requests[place].options[0].count
            after.append(tuple(counts))
        # By place: the shares of all requests after it.
        self._after = after[::-1]

    @property
    def bits(self) -> int:
        return len(self._failed) * BITS_OF_A_STATE

    def binds(self, requests: Sequence[ClaimRequest]) -> bool:
        return requests[0].index in self._places and any(kind is not None for kind in self._kind_of)

    def suffices(self, option: Option, ordinal: int, start: int, first: int, free: int) -> bool:
        place = self._places.get(option.request.index)
        if place is None or self._open >= MOST_OPEN or not self._usefulness.is_worth_asking():
            return True
        counts = list(self._after[place])
        kind = self._kind_of[place]
        if kind is not None:
            counts[kind] += option.count - ordinal
        fits = self._answer(tuple(counts), self._what_is_left())
        self._usefulness.note(not fits)
        return fits

    def _what_is_left(self) -> Bins:
        lefts = [
            (self._live.left_of(position, self._name) // self._unit, group)
            for position, group in self._group_of.items()
        ]
        return tuple(sorted([each for each in lefts if each[0] > 0]))

    def _answer(self, counts: Counts, bins: Bins) -> bool:
        """Asked again after a pause, it continues where it was. A question that takes too long counts as a yes."""
        if self._asked != (counts, bins):
            spare = sum([left for left, _ in bins])
            spare -= sum([count * amount for count, amount in zip(counts, self._amounts, strict=True)])
            self._asked = (counts, bins)
            self._states = 0
            self._attempt = self._fits(counts, bins, spare)
        try:
            while True:
                next(self._attempt)
                self._look()
        except StopIteration as end:
            fits: bool = end.value
        except TooLong:
            self._open += 1
            fits = True
        self._asked = None
        return fits

    def _fits(self, counts: Counts, bins: Bins, spare: int) -> Generator[None, None, bool]:
        """Yields where it may pause."""
        if not any(counts):
            return True
        if spare < 0 or (counts, bins) in self._failed:
            return False
        self._states += 1
        if self._states > MOST_STATES:
            raise TooLong
        if self._states % STATES_PER_LOOK == 0:
            yield
        sums = self._sums_from(counts, bins[-1][0])
        wasted = sum([left - ((sums[0] & (2 << left) - 1).bit_length() - 1) for left, _ in bins])
        if wasted <= spare:
            self._tried = 0
            for rest in self._after_filling(counts, bins, spare, sums):
                if (yield from self._fits(*rest)):
                    return True
        if len(self._failed) >= MOST_FAILED:
            self._failed.clear()
        self._failed.add((counts, bins))
        return False

    def _sums_from(self, counts: Counts, most: int) -> list[int]:
        """By kind: the sums of shares of this kind and those after it, as bits."""
        every, sums = (2 << most) - 1, [1]
        for count, amount in zip(reversed(counts), reversed(self._amounts), strict=True):
            reached = sums[-1]
            for _ in range(min(count, most // amount)):
                reached |= reached << amount & every
            sums.append(reached)
        return sums[::-1]

    def _after_filling(
        self, counts: Counts, bins: Bins, spare: int, sums: Sequence[int]
    ) -> list[tuple[Counts, Bins, int]]:
        """What is left to do when one device is filled up: one that takes the largest share, or the fullest device.

        Either is enough, so it is the one with fewer ways.
        """
        by_share = self._with_largest(counts, bins, spare, sums)
        fullest = self._filled(list(counts), 0, bins, 0, bins[0][0], spare, sums)
        few = list(islice(by_share, FEW_WAYS))
        others = list(islice(fullest, len(few)))
        if len(others) < len(few):
            return others
        return few if len(few) < FEW_WAYS else [*few, *by_share]

    def _with_largest(
        self, counts: Counts, bins: Bins, spare: int, sums: Sequence[int]
    ) -> Iterator[tuple[Counts, Bins, int]]:
        largest = next(kind for kind, count in enumerate(counts) if count)
        amount = self._amounts[largest]
        seen: set[tuple[int, int]] = set()
        for at, (left, group) in enumerate(bins):
            if left < amount or not self._groups[largest] >> group & 1 or (left, group) in seen:
                continue
            seen.add((left, group))
            taken = list(counts)
            taken[largest] -= 1
            yield from self._filled(taken, largest, bins, at, left - amount, spare, sums)

    def _filled(
        self, taken: list[int], kind: int, bins: Bins, at: int, room: int, spare: int, sums: Sequence[int]
    ) -> Iterator[tuple[Counts, Bins, int]]:
        others = bins[:at] + bins[at + 1 :]
        for wasted in self._fillings(taken, kind, room, bins[at][1], spare, sums):
            yield tuple(taken), others, spare - wasted

    def _fillings(
        self, counts: list[int], kind: int, room: int, group: int, spare: int, sums: Sequence[int]
    ) -> Iterator[int]:
        """Takes shares from `counts` to fill the room, in every way that wastes little; the room that stays unused."""
        self._tried += 1
        if self._tried > MOST_TRIED:
            raise TooLong
        least = max(0, room - spare)
        if not sums[kind] >> least & (2 << room - least) - 1:
            return
        if kind == len(counts):
            if not self._takes_more(counts, room, group):
                yield room
            return
        amount, most = self._amounts[kind], 0
        if self._groups[kind] >> group & 1:
            most = min(counts[kind], room // amount)
        counts[kind] -= most
        for number in range(most, -1, -1):
            yield from self._fillings(counts, kind + 1, room - number * amount, group, spare, sums)
            counts[kind] += 1
        counts[kind] -= 1

    def _takes_more(self, counts: Sequence[int], room: int, group: int) -> bool:
        return any(
            count and amount <= room and groups >> group & 1
            for count, amount, groups in zip(counts, self._amounts, self._groups, strict=True)
        )


def _shares_of(
    plan: SearchPlan, requests: Sequence[ClaimRequest], name: str, live: LiveShares
) -> list[tuple[int, int]] | None:
    """By request the share that it takes at least of each device, and those devices; None where it is not that simple."""
    shares: list[tuple[int, int]] = []
    for request in requests:
        option, mask = request.options[0], plan.masks[request.options[0].index]
        if len(request.options) > 1 or option.all_devices or option.admin_access or mask & ~plan.given.shareable:
            return None
        kinds = live.one_of_each_kind(mask)
        if not all(live.has(position, name) for position in kinds):
            return None
        shares.append((min([live.amount(option, position, name) for position in kinds], default=0), mask))
    return shares
