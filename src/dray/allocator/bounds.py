"""Bound before search: can the requests still open be served at all, if one looks at the number of devices only?

A necessary condition, never a sufficient one: each open request needs its count of devices from those that it may use,
and no device serves twice. It is a bipartite matching; a search that keeps it satisfied does not run into
a wall of requests that fight over too few devices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dray.allocator.attempt import Attempt
from dray.allocator.requests import Option
from dray.allocator.rules.constraints import Match

if TYPE_CHECKING:
    from dray.allocator.search import Search

Demand = tuple[int, int]
"""How many devices, and a mask of those that will do."""


class Bounds:
    __slots__ = ("_attempt", "_matches", "is_hopeless")

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._matches = [
            rule
            for rule in attempt.rules
            if isinstance(rule, Match) and not rule.scope.lists and not _has_derived(attempt)
        ]
        self.is_hopeless = False

    @classmethod
    def of(cls, attempt: Attempt) -> Bounds | None:
        """None where leaving out a branch could hide an error that the plain search would meet."""
        if any(sight.wrong for sight in attempt.sights) or _has_derived(attempt):
            return None
        if any(option.all_devices and option.claim.constraints for option in attempt.problem.options):
            return None
        bounds = cls(attempt)
        bounds.is_hopeless = not bounds._can_start()
        return bounds

    def _can_start(self) -> bool:
        """The same question at the root, where nothing is chosen yet and no constraint is settled."""
        attempt = self._attempt
        masks = [sight.good & ~(0 if sight.option.admin_access else attempt.stored) for sight in attempt.sights]
        return self._fits(masks, 0, None, 0) and all(self._some_value_fits(match, masks, 0) for match in self._matches)

    def can_serve(self, search: Search, option: Option, ordinal: int, start: int) -> bool:
        attempt = self._attempt
        first = option.request.index
        masks = [0] * len(attempt.sights)
        for request in attempt.problem.requests[first:]:
            for each in request.options:
                mask = attempt.sights[each.index].good & ~search.in_use(each)
                for match in self._matches:
                    mask = match.narrow(each, mask)
                masks[each.index] = mask
        masks[option.index] = masks[option.index] >> start << start
        return self._fits(masks, first, option, ordinal)

    def _some_value_fits(self, match: Match, masks: list[int], first: int) -> bool:
        covered = match.scope.covered
        by_value = match.masks_by_value()
        for value, devices in by_value.items():
            if value is not None:
                narrowed = [mask & devices if i in covered else mask for i, mask in enumerate(masks)]
                if self._fits(narrowed, first, None, 0):
                    return True
        return not by_value and not covered

    def _fits(self, masks: list[int], first: int, current: Option | None, ordinal: int) -> bool:
        attempt = self._attempt
        demands: list[Demand] = []
        for request in attempt.problem.requests[first:]:
            options = [current] if current is not None and current.request is request else request.options
            least, together, shares = -1, 0, False
            for option in options:
                count = attempt.count_of(option) - (ordinal if option is current else 0)
                mask = self._all_mask(option, masks) if option.all_devices else masks[option.index]
                if mask.bit_count() < count or (option.all_devices and not mask):
                    continue
                least = count if least < 0 else min(least, count)
                together |= mask
                shares = shares or option.admin_access
            if least < 0:
                return False
            if least and not shares and not together & attempt.shareable:
                demands.append((least, together))
        return can_match(demands)

    def _all_mask(self, option: Option, masks: list[int]) -> int:
        """A request for all devices gets all of them or none."""
        wanted = 0
        for position in self._attempt.all_sets[option.index]:
            wanted |= 1 << position
        return wanted if not wanted & ~masks[option.index] else 0


def _has_derived(attempt: Attempt) -> bool:
    return any(option.derived for option in attempt.problem.options)


def can_match(demands: list[Demand]) -> bool:
    """Whether disjoint sets of devices exist, one per demand, of the size it asks for."""
    demands.sort(key=lambda demand: demand[1].bit_count())
    free = -1
    masks: list[int] = []
    held: list[int] = []
    for count, mask in demands:
        masks.append(mask)
        held.append(0)
        for _ in range(count):
            spare = mask & free
            if spare:
                device = spare & -spare
                held[-1] |= device
                free ^= device
            elif not _augment(len(masks) - 1, masks, held, [free]):
                return False
            else:
                free = -1
                for taken in held:
                    free &= ~taken
    return True


def _augment(demand: int, masks: list[int], held: list[int], free: list[int]) -> bool:
    """Finds one more device for `demand` by moving others; breadth first over demands."""
    reached = {demand: (-1, 0)}
    queue = [demand]
    for current in queue:
        spare = masks[current] & free[0]
        if spare:
            _shift(current, spare & -spare, reached, held)
            return True
        for other, taken in enumerate(held):
            if other not in reached and taken & masks[current]:
                useful = taken & masks[current]
                reached[other] = (current, useful & -useful)
                queue.append(other)
    return False


def _shift(current: int, device: int, reached: dict[int, tuple[int, int]], held: list[int]) -> None:
    while True:
        held[current] |= device
        previous, passed_on = reached[current]
        if previous < 0:
            return
        held[current] &= ~passed_on
        current, device = previous, passed_on
