"""Bound before search: can the requests still open be served at all, if one looks at the number of devices only?

A necessary condition, never a sufficient one: each open request needs its count of devices from those that it may use,
and no device serves twice. It is a bipartite matching; a search that keeps it satisfied does not run into
a wall of requests that fight over too few devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dray.allocator.attempt import Attempt
from dray.allocator.attributes import UNKNOWN
from dray.allocator.matching import Matching
from dray.allocator.requests import Option
from dray.allocator.rules.capacity import Capacity
from dray.allocator.rules.constraints import Distinct, Match
from dray.allocator.rules.counters import Counters
from dray.allocator.types import bits

if TYPE_CHECKING:
    from dray.allocator.search import Search


class Bounds:
    __slots__ = ("_attempt", "_capacity", "_counters", "_distinct", "_matches")

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._matches = [rule for rule in attempt.rules if isinstance(rule, Match) and rule.is_plain]
        self._capacity = [rule for rule in attempt.rules if isinstance(rule, Capacity)]
        self._counters = [rule for rule in attempt.rules if isinstance(rule, Counters)]
        self._distinct = [rule for rule in attempt.rules if isinstance(rule, Distinct) and _has_plain_values(rule)]

    @classmethod
    def of(cls, attempt: Attempt) -> Bounds | None:
        """None where leaving out a branch could hide an error that the plain search would meet."""
        options = attempt.problem.options
        if any(sight.wrong for sight in attempt.distinct_sights) or any(option.derived for option in options):
            return None
        if any(option.all_devices and option.claim.constraints for option in options):
            return None
        return cls(attempt)

    def narrow(self, search: Search, option: Option, ordinal: int, start: int, candidates: int) -> int:
        """Candidates with which the rest may still be served; none at all means that this is a dead end."""
        masks = self._masks(search, option, start)
        kept = self._serving(masks, option, ordinal, candidates)
        # Constraints on requests to come count as well: one that cannot be met makes all of this vain.
        for match in self._matches:
            if kept and match.is_open and match.scope.last_request >= option.request.index:
                kept = self._by_value(match, masks, option, ordinal, kept)
        for distinct in self._distinct:
            if kept and distinct.scope.last_request >= option.request.index:
                kept = self._of_free_values(distinct, masks, option, ordinal, kept)
        return kept

    def _masks(self, search: Search, option: Option, start: int) -> list[int]:
        """Devices that each option from here on may still take."""
        attempt = self._attempt
        masks = [0] * len(attempt.sights)
        known: dict[Any, int] = {}
        for request in attempt.problem.requests[option.request.index :]:
            for each in request.options:
                covering = tuple([each.index in rule.scope.covered for rule in (*self._matches, *self._distinct)])
                key = (each.screen.index, each.admin_access, each.claim.index, covering)
                mask = known.get(key)
                if mask is None:
                    mask = attempt.sights[each.index].good & ~search.in_use(each)
                    for rule in (*self._matches, *self._distinct):
                        mask = rule.narrow(each, mask)
                    known[key] = mask
                masks[each.index] = mask
        if start:
            masks[option.index] = attempt.from_rank(option, masks[option.index], start)
        return masks

    def _by_value(self, match: Match, masks: list[int], option: Option, ordinal: int, kept: int) -> int:
        """While the common value is open, each candidate must have one that enough others share."""
        covered = match.scope.covered
        is_covered = option.index in covered
        serving = 0
        for value, devices in match.masks_by_value().items():
            suitable = kept & devices if is_covered else kept
            if value is not None and suitable & ~serving:
                narrowed = [mask & devices if index in covered else mask for index, mask in enumerate(masks)]
                serving |= self._serving(narrowed, option, ordinal, suitable)
        return serving

    def _of_free_values(
        self, distinct: Distinct, masks: Sequence[int], current: Option, ordinal: int, kept: int
    ) -> int:
        """Each covered device uses up a value: the same matching, with values in the place of devices."""
        by_value = [devices for value, devices in distinct.masks_by_value().items() if value is not None]
        matching = Matching()
        demands: dict[int, int] = {}
        own = 0
        for request in distinct.scope.claim.requests:
            if request.index < current.request.index:
                continue
            options = [current] if request is current.request else request.options
            if any(option.index not in distinct.scope.covered or option.all_devices for option in options):
                continue
            least = min(option.count - (ordinal if option is current else 0) for option in options)
            together = 0
            for option in options:
                together |= masks[option.index]
            values = _values_in(together, by_value)
            demands[values] = demands.get(values, 0) + least
            if request is current.request:
                own = values
        for values, count in sorted(demands.items(), key=lambda item: item[0].bit_count()):
            if not matching.add(values, count):
                return 0
        if not own:
            return kept
        holdable = matching.can_hold(own)
        return _devices_with(holdable, by_value) & kept

    def _serving(self, masks: Sequence[int], current: Option, ordinal: int, candidates: int) -> int:
        """Of `candidates`, those that some assignment of enough devices to all open requests gives to `current`."""
        attempt = self._attempt
        own: int | None = None
        demands: dict[int, int] = {}
        # With requests that may share devices.
        all_demands: dict[int, int] = {}
        for request in attempt.problem.requests[current.request.index :]:
            options = [current] if current.request is request else request.options
            least, together, counts = -1, 0, True
            for option in options:
                count = attempt.count_of(option) - (ordinal if option is current else 0)
                mask = self._all_or_nothing(option, masks) if option.all_devices else masks[option.index]
                if mask.bit_count() < count or (option.all_devices and not mask):
                    continue
                least = count if least < 0 else min(least, count)
                together |= mask
                counts = counts and not option.admin_access
            if least < 0:
                return 0
            if counts and self._capacity:
                all_demands[together] = all_demands.get(together, 0) + least
            if counts and not together & attempt.shareable:
                demands[together] = demands.get(together, 0) + least
                if request is current.request:
                    own = together
        matching = Matching()
        for mask, count in sorted(demands.items(), key=lambda item: item[0].bit_count()):
            if not matching.add(mask, count):
                return 0
        if not _suffices(self._counters, demands) or not _suffices(self._capacity, all_demands):
            return 0
        return candidates if own is None else candidates & matching.can_hold(own)

    def _all_or_nothing(self, option: Option, masks: Sequence[int]) -> int:
        wanted = 0
        for position in self._attempt.all_sets[option.index]:
            wanted |= 1 << position
        return wanted if not wanted & ~masks[option.index] else 0


def _suffices(rules: Sequence[Counters | Capacity], demands: dict[int, int]) -> bool:
    """Devices may be there and yet not together; asked for each demand with those that want no other devices."""
    if not rules or not demands:
        return True
    everything = 0
    for mask in demands:
        everything |= mask
    for mask in {*demands, everything}:
        wanted = sum([count for inner, count in demands.items() if not inner & ~mask])
        if any(wanted > rule.most_that_fit(mask) for rule in rules):
            return False
    return True


def _has_plain_values(rule: Distinct) -> bool:
    return rule.is_plain and UNKNOWN not in rule.masks_by_value()


def _values_in(mask: int, by_value: Sequence[int]) -> int:
    """Which values the devices of a mask have; bit i stands for value i."""
    values = 0
    for number, devices in enumerate(by_value):
        if devices & mask:
            values |= 1 << number
    return values


def _devices_with(values: int, by_value: Sequence[int]) -> int:
    mask = 0
    for number in bits(values):
        mask |= by_value[number]
    return mask
