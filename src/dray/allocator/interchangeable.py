"""Which devices are interchangeable? Exchanging two of them changes nothing for the requests still to come."""

from __future__ import annotations

from collections.abc import Hashable

from dray.allocator.search_input import SearchInput
from dray.allocator.types import bits


class InterchangeableDevices:
    """Numbers devices so that two with equal numbers are interchangeable from a given request on."""

    __slots__ = ("_given", "_live", "_numbers", "_static", "_suffixes")

    def __init__(self, given: SearchInput) -> None:
        self._given = given
        self._numbers: dict[Hashable, int] = {}
        self._static: dict[tuple[int, int], Hashable] = {}
        self._suffixes: dict[int, list[tuple[int, int, int, int]]] = {}
        self._live = [rule for rule in given.rules if rule.kind_changes]
        for matches in given.distinct_matches:
            matches.ask_all()

    def number(self, first_request: int, position: int) -> int:
        key = (first_request, position)
        static = self._static.get(key)
        if static is None:
            static = self._static[key] = self._numbered((first_request, self._describe(first_request, position)))
        if self._live and self._given.shareable >> position & 1:
            return self._numbered((static, *[rule.live_kind(position) for rule in self._live]))
        assert isinstance(static, int)
        return static

    def equals(self, first_request: int, position: int, among: int) -> int:
        """Devices of `among` that are interchangeable with the one at `position`."""
        wanted = self.number(first_request, position)
        mask = 0
        for other in bits(among):
            if self.number(first_request, other) == wanted:
                mask |= 1 << other
        return mask

    def _numbered(self, description: Hashable) -> int:
        return self._numbers.setdefault(description, len(self._numbers))

    def _describe(self, first_request: int, position: int) -> Hashable:
        if self._given.problem.has_admin:
            return position  # whether a device is taken matters to admin access, and no two are alike in that
        seen = [
            ((good >> position & 1) | (wrong >> position & 1) << 1 | (stored >> position & 1) << 2)
            for good, wrong, stored, _ in self._suffix(first_request)
        ]
        # The order in which a request for all devices takes them decides whether a constraint is violated first.
        ordered = any(special >> position & 1 for *_, special in self._suffix(first_request))
        return (
            tuple(seen),
            position if ordered else -1,
            *[rule.kind(first_request, position) for rule in self._given.rules],
        )

    def _suffix(self, first_request: int) -> list[tuple[int, int, int, int]]:
        """Distinct views of the options from a request on: good, wrong, stored (admin only), ordered."""
        views = self._suffixes.get(first_request)
        if views is None:
            given = self._given
            distinct: dict[tuple[int, int, int, int], None] = {}
            for request in given.problem.requests[first_request:]:
                for option in request.options:
                    matches = given.matches_by_option[option.index]
                    stored = given.stored if option.admin_access else 0
                    good = matches.yes & ~matches.barred
                    special = 0
                    if option.all_devices:
                        good = 0
                        for place in given.all_sets[option.index]:
                            good |= 1 << place
                        special = good if option.claim.constraints else 0
                        stored |= matches.barred
                    distinct[good, matches.wrong, stored, special] = None
            views = self._suffixes[first_request] = list(distinct)
        return views
