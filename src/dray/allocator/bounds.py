"""Bound before search: can the requests still open be served at all?

Necessary conditions, never sufficient ones. Each open request needs its count of devices from those that it may use, and no
device serves twice: a bipartite matching. And what the open requests take together must be there: rules bring `SumBound`s.
A search that keeps these satisfied does not run into a wall of requests that fight over too little.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

from dray.allocator.requests import ClaimRequest, Option
from dray.allocator.rules import Look, Rule, ValueGroups
from dray.allocator.search_input import SearchInput
from dray.allocator.search_plan import SearchPlan
from dray.allocator.types import bits
from dray.allocator.usefulness import Usefulness

if TYPE_CHECKING:
    from dray.allocator.search import Search


class Bounds:
    """Asks the rules how many devices can be taken together, and which values devices may have together."""

    __slots__ = (
        "_all_sums",
        "_constraints",
        "_given",
        "_limits",
        "_plan",
        "_share_limits",
        "_sums",
        "_usefulness",
        "_views",
    )

    def __init__(self, given: SearchInput, plan: SearchPlan, look: Look) -> None:
        """`look` may stop the search; whatever takes long calls it now and then, and continues where it was."""
        self._given = given
        self._plan = plan
        self._all_sums = [bound for rule in given.rules for bound in rule.sum_bounds(plan, look)]
        self._sums = self._all_sums
        self._usefulness = Usefulness()
        self._constraints = [rule for rule in given.rules if rule.is_constraint]
        # Options with equal views may take the same devices, whatever has been chosen.
        self._views = [self._view(option) for option in given.problem.options]
        limits = [rule for rule in given.rules if rule.most_that_fit(0, 0) is not None]
        self._limits = [rule for rule in limits if not rule.limits_shares]
        self._share_limits = [rule for rule in limits if rule.limits_shares]

    def _view(self, option: Option) -> Hashable:
        concerned = tuple([rule.concerns(option) for rule in self._constraints])
        # Devices that a claim holds already matter to admin access, those that other claims hold do not.
        claim = option.claim.index if option.admin_access else None
        return (option.device_filter.index, claim, concerned)

    @staticmethod
    def may_hide_errors(given: SearchInput) -> bool:
        """Whether leaving out a branch could hide an error that the plain search would meet."""
        options = given.problem.options
        if any(matches.wrong for matches in given.distinct_matches) or any(option.derived for option in options):
            return True
        return any(option.all_devices and option.claim.constraints for option in options)

    @property
    def bits(self) -> int:
        """The memory that tables of sums use."""
        return sum([bound.bits for bound in self._all_sums])

    def begin(self, component: Sequence[ClaimRequest]) -> None:
        """Only bounds that can refuse something here are asked."""
        self._sums = [bound for bound in self._all_sums if bound.binds(component)]

    def sums_suffice(self, search: Search, option: Option, ordinal: int, start: int) -> bool:
        if not self._sums:
            return True
        free = self._plan.masks[option.index] & ~search.in_use(option)
        if start:
            free = self._given.from_rank(option, free, start)
        first = search.first_rank_of(option) if ordinal else start
        return all(bound.suffices(option, ordinal, start, first, free) for bound in self._sums)

    def narrow(self, search: Search, option: Option, ordinal: int, start: int, candidates: int) -> int:
        """Candidates with which the rest may still be served; none at all means that this is a dead end."""
        if not self._usefulness.is_worth_asking():
            return candidates
        kept = self._narrowed(search, option, ordinal, start, candidates)
        self._usefulness.note(kept != candidates)
        return kept

    def _narrowed(self, search: Search, option: Option, ordinal: int, start: int, candidates: int) -> int:
        masks = self._masks(search, option, start)
        kept = self._serving(masks, option, ordinal, candidates)
        # Constraints on requests to come count as well: one that cannot be met makes all of this vain.
        for rule in self._constraints:
            groups = rule.value_groups() if kept else None
            if groups is not None and groups.last_request >= option.request.index:
                if groups.one_value:
                    kept = self._of_one_value(groups, masks, option, ordinal, kept)
                else:
                    kept = self._of_own_values(groups, masks, option, ordinal, kept)
        return kept

    def _masks(self, search: Search, option: Option, start: int) -> list[int]:
        """Devices that each option from here on may still take."""
        given = self._given
        masks = [0] * len(given.matches_by_option)
        known: dict[Hashable, int] = {}
        for request in self._plan.open_from(option.request):
            for each in request.options:
                key = self._views[each.index]
                mask = known.get(key)
                if mask is None:
                    mask = given.matches_by_option[each.index].good & ~search.in_use(each)
                    for rule in self._constraints:
                        mask = rule.narrow(each, mask)
                    known[key] = mask
                masks[each.index] = mask
        if start:
            masks[option.index] = given.from_rank(option, masks[option.index], start)
        return masks

    def _of_one_value(self, groups: ValueGroups, masks: list[int], option: Option, ordinal: int, kept: int) -> int:
        """While the common value is open, each candidate must have one that enough others share.

        Where a request has alternatives that the constraint does not cover, perhaps no covered device is needed at all.
        """
        covered = groups.covered
        is_covered = option.index in covered
        serving = 0
        for devices in (*groups.masks, 0):
            suitable = kept & devices if is_covered else kept
            if suitable & ~serving:
                narrowed = [mask & devices if index in covered else mask for index, mask in enumerate(masks)]
                serving |= self._serving(narrowed, option, ordinal, suitable)
        return serving

    def _of_own_values(
        self, groups: ValueGroups, masks: Sequence[int], current: Option, ordinal: int, kept: int
    ) -> int:
        """Each covered device uses up a value: the same matching, with values in the place of devices."""
        matching = Matching()
        demands: dict[int, int] = {}
        values_in: dict[int, int] = {}
        own = 0
        for request in self._plan.open_from(current.request):
            if request.index > groups.last_request:
                break
            options = [current] if request is current.request else request.options
            if any(option.index not in groups.covered or option.all_devices for option in options):
                continue
            least = min(option.count - (ordinal if option is current else 0) for option in options)
            together = 0
            for option in options:
                together |= masks[option.index]
            if together not in values_in:
                values_in[together] = _values_in(together, groups.masks)
            values = values_in[together]
            demands[values] = demands.get(values, 0) + least
            if request is current.request:
                own = values
        for values, count in sorted(demands.items(), key=lambda item: item[0].bit_count()):
            if not matching.add(values, count):
                return 0
        if not own:
            return kept
        holdable = matching.can_hold(own)
        return _devices_with(holdable, groups.masks) & kept

    def _serving(self, masks: Sequence[int], current: Option, ordinal: int, candidates: int) -> int:
        """Of `candidates`, those that some assignment of enough devices to all open requests gives to `current`."""
        given = self._given
        own: int | None = None
        demands: dict[int, int] = {}
        # With requests that may share devices.
        all_demands: dict[int, int] = {}
        for request in self._plan.open_from(current.request):
            options = [current] if current.request is request else request.options
            least, together, counts = -1, 0, True
            for option in options:
                count = given.count_of(option) - (ordinal if option is current else 0)
                mask = self._all_or_nothing(option, masks) if option.all_devices else masks[option.index]
                if mask.bit_count() < count or (option.all_devices and not mask):
                    continue
                least = count if least < 0 else min(least, count)
                together |= mask
                counts = counts and not option.admin_access
            if least < 0:
                return 0
            if counts and self._share_limits:
                all_demands[together] = all_demands.get(together, 0) + least
            if counts and not together & given.shareable:
                demands[together] = demands.get(together, 0) + least
                if request is current.request:
                    own = together
        matching = Matching()
        for mask, count in sorted(demands.items(), key=lambda item: item[0].bit_count()):
            if not matching.add(mask, count):
                return 0
        if not _suffices(self._limits, demands) or not _suffices(self._share_limits, all_demands):
            return 0
        return candidates if own is None else candidates & matching.can_hold(own)

    def _all_or_nothing(self, option: Option, masks: Sequence[int]) -> int:
        wanted = 0
        for position in self._given.all_sets[option.index]:
            wanted |= 1 << position
        return wanted if not wanted & ~masks[option.index] else 0


def _suffices(rules: Sequence[Rule], demands: dict[int, int]) -> bool:
    """Devices may be there and yet not together; asked for each demand with those that want no other devices."""
    if not rules or not demands:
        return True
    everything = 0
    for mask in demands:
        everything |= mask
    for mask in {*demands, everything}:
        wanted = sum([count for inner, count in demands.items() if not inner & ~mask])
        for rule in rules:
            most = rule.most_that_fit(mask, wanted)
            if most is not None and wanted > most:
                return False
    return True


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


class Matching:
    """Demands served so far. Devices are bits; a demand holds as many as it asked for."""

    __slots__ = ("_free", "_held", "_masks")

    def __init__(self) -> None:
        self._free = -1
        self._masks: list[int] = []
        self._held: list[int] = []

    def add(self, mask: int, count: int) -> bool:
        """Serves one more demand, moving devices between demands where needed; False if that is impossible."""
        own = len(self._masks)
        self._masks.append(mask)
        self._held.append(0)
        for _ in range(count):
            spare = mask & self._free
            if spare:
                device = spare & -spare
                self._held[own] |= device
                self._free ^= device
            elif not self._move_one_to(own):
                return False
        return True

    def _move_one_to(self, own: int) -> bool:
        """Breadth first from the demand that lacks a device to one that can use a spare device instead."""
        came_from = {own: (-1, 0)}
        queue = [own]
        for current in queue:
            spare = self._masks[current] & self._free
            if spare:
                device = spare & -spare
                self._free ^= device
                self._pass_along(current, device, came_from)
                return True
            for other, held in enumerate(self._held):
                useful = held & self._masks[current]
                if useful and other not in came_from:
                    came_from[other] = (current, useful & -useful)
                    queue.append(other)
        return False

    def _pass_along(self, current: int, device: int, came_from: dict[int, tuple[int, int]]) -> None:
        while True:
            self._held[current] |= device
            receiver, given = came_from[current]
            if receiver < 0:
                return
            self._held[current] &= ~given
            current, device = receiver, given

    def can_hold(self, mask: int) -> int:
        """Devices that the demand with this mask holds in at least one way of serving all demands."""
        own = self._masks.index(mask)
        # Devices that can be given up because somebody in a chain of exchanges has a spare one, or takes one of ours.
        movable = self._free | self._held[own]
        waiting = [demand for demand in range(len(self._masks)) if demand != own]
        progress = True
        while progress:
            progress = False
            for demand in list(waiting):
                if self._masks[demand] & movable:
                    movable |= self._held[demand]
                    waiting.remove(demand)
                    progress = True
        return mask & movable
