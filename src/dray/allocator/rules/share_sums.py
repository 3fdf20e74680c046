"""Bound for consumable capacity: do the shares of the open requests fit into what is left of all devices together?

What is left of a device counts only as far as shares of the open requests can use it up: of two devices with 5 left each,
shares of 2 use 4 and 4. Exact for two devices with the same amounts; necessary, never sufficient, for more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import gcd
from typing import TYPE_CHECKING, Protocol

from dray.allocator.types import bits

if TYPE_CHECKING:
    from dray.allocator.requests import ClaimRequest, Option
    from dray.allocator.rules import Look
    from dray.allocator.search_plan import SearchPlan

# Bits of one set of sums, and of all sets for devices of one kind (2 MB).
MOST_BITS = 1 << 22
MOST_BITS_IN_ALL = 1 << 24

Profile = tuple[tuple[int, ...], ...]
"""By request: the amounts that its alternatives take of a device; no amounts: none can take it."""


class LiveShares(Protocol):
    """What the search has booked so far."""

    def has(self, position: int, name: str) -> bool:
        """Whether the device has such a capacity."""
        ...

    def one_of_each_kind(self, mask: int) -> Sequence[int]:
        """Devices of the mask; of those that differ in their names only, one."""
        ...

    def left_of(self, position: int, name: str) -> int: ...

    def booked_devices(self) -> Iterable[int]: ...

    def amount(self, option: Option, position: int, name: str) -> int:
        """0 where the device has no such capacity."""
        ...


class UsableSums:
    """How much of a device the shares of the requests from some place on can use up at most."""

    __slots__ = ("_known", "_sets", "_step", "bits")

    def __init__(self, profile: Profile, most: int) -> None:
        self._step = gcd(*[amount for amounts in profile for amount in amounts]) or 1
        self._known: dict[tuple[int, int], int] = {}
        width = most // self._step + 1
        # From the last request to the first; None: too many sums to look at.
        self._sets: list[int] | None = None
        self.bits = 0
        if width <= MOST_BITS:
            every = (1 << width) - 1
            sums, sets = 1, [1]
            for amounts in reversed(profile):
                # A larger amount reaches no sum, and would first make a set with a bit for each step up to it.
                for amount in [each for each in amounts if each <= most]:
                    sums |= sets[-1] << amount // self._step & every
                sets.append(sums)
            self._sets = sets[::-1] if width * len(sets) <= MOST_BITS_IN_ALL else [sums] * len(sets)
            self.bits = width * len(set(map(id, self._sets)))

    def usable(self, place: int, left: int) -> int:
        if self._sets is None or left <= 0:
            return max(left, 0) // self._step * self._step
        key = (place, left)
        known = self._known.get(key)
        if known is None:
            within = self._sets[place] & (1 << left // self._step + 1) - 1
            known = self._known[key] = (within.bit_length() - 1) * self._step
            if len(self._known) > 4096:
                self._known.clear()
        return known


class ShareSums:
    """One capacity, in one component of requests."""

    __slots__ = (
        "_demand",
        "_devices",
        "_largest",
        "_least",
        "_live",
        "_look",
        "_name",
        "_places",
        "_plan",
        "_profiles",
        "_requests",
        "_supply",
        "_tables",
        "_usable",
    )

    def __init__(
        self, plan: SearchPlan, requests: Sequence[ClaimRequest], name: str, live: LiveShares, look: Look
    ) -> None:
        self._plan = plan
        self._requests = requests
        self._name = name
        self._live = live
        self._places = {request.index: place for place, request in enumerate(requests)}
        self._look = look
        self._devices = self._devices_with_capacity()
        # Worked out when first asked; each table may take milliseconds.
        self._profiles: dict[int, Profile] = {}
        self._tables: dict[Profile, UsableSums] = {}
        self._usable: dict[int, UsableSums] = {}
        self._least = {option.index: self._least_of(option) for request in requests for option in request.options}
        # By place: what the requests from there on take at least, and the largest single share among them.
        self._demand = [0] * (len(requests) + 1)
        self._largest = [0] * (len(requests) + 1)
        for place in range(len(requests) - 1, -1, -1):
            options = requests[place].options
            self._demand[place] = self._demand[place + 1] + min([self._whole(option) for option in options])
            self._largest[place] = max(self._largest[place + 1], *[self._least[option.index] for option in options])
        self._supply: dict[int, int] = {}

    @property
    def bits(self) -> int:
        return sum([table.bits for table in self._tables.values()])

    def binds(self, requests: Sequence[ClaimRequest]) -> bool:
        return self._demand[self._places[requests[0].index]] > 0 if requests[0].index in self._places else False

    def suffices(self, option: Option, ordinal: int, start: int, first: int, free: int) -> bool:
        place = self._places.get(option.request.index)
        if place is None:
            return True
        if len(self._usable) < len(self._devices):
            self._work_out()
        demand = self._whole(option) - ordinal * self._least[option.index] + self._demand[place + 1]
        supply = self._supply.get(place)
        if supply is None:
            supply = self._supply[place] = self._supply_at_first(place)
        if demand <= supply:
            for position in self._live.booked_devices():
                table = self._usable.get(position)
                if table is not None:
                    left = self._live.left_of(position, self._name)
                    supply += table.usable(place, left) - table.usable(place, self._devices[position])
        return demand <= supply

    def _work_out(self) -> None:
        """Looks at the time in between. After a pause it continues where it was."""
        for position in self._devices:
            if position not in self._profiles:
                self._profiles[position] = self._profile(position)
                self._look()
        most: dict[Profile, int] = {}
        for position, profile in self._profiles.items():
            most[profile] = max(most.get(profile, 0), self._devices[position])
        for profile, limit in most.items():
            if profile not in self._tables:
                self._tables[profile] = UsableSums(profile, limit)
                self._look()
        self._usable = {position: self._tables[profile] for position, profile in self._profiles.items()}

    def _supply_at_first(self, place: int) -> int:
        """Before anything is booked. Devices that are not shared may serve requests, too, and take any share off."""
        supply = 0
        for (table, left), number in Counter(
            [(self._usable[position], left) for position, left in self._devices.items()]
        ).items():
            supply += table.usable(place, left) * number
        unshared = 0
        for request in self._requests[place:]:
            for option in request.options:
                if not option.all_devices:
                    unshared |= self._plan.masks[option.index] & ~self._plan.given.shareable
        return supply + unshared.bit_count() * self._largest[place]

    def _devices_with_capacity(self) -> dict[int, int]:
        """Shared devices that some request may take, with what is left of them."""
        wanted = 0
        for request in self._requests:
            wanted |= self._plan.mask_of(request)
        found: dict[int, int] = {}
        for position in bits(wanted & self._plan.given.shareable):
            if self._live.has(position, self._name):
                found[position] = max(0, self._live.left_of(position, self._name))
        return found

    def _profile(self, position: int) -> Profile:
        profile = []
        for request in self._requests:
            amounts = set()
            for option in request.options:
                if self._plan.masks[option.index] >> position & 1 and not option.admin_access:
                    amounts.add(self._live.amount(option, position, self._name))
            profile.append(tuple(sorted(amounts)))
        return tuple(profile)

    def _least_of(self, option: Option) -> int:
        """The smallest share that this option can take of a device; 0 where it may do without any."""
        if option.admin_access:
            return 0
        least: int | None = None
        for position in self._live.one_of_each_kind(self._plan.masks[option.index] & self._plan.given.shareable):
            amount = self._live.amount(option, position, self._name)
            least = amount if least is None else min(least, amount)
        return least or 0

    def _whole(self, option: Option) -> int:
        if option.all_devices and not option.admin_access:
            positions = self._plan.given.all_sets[option.index]
            shared = [position for position in positions if self._plan.given.shareable >> position & 1]
            return sum([self._live.amount(option, position, self._name) for position in shared])
        return option.count * self._least[option.index]
