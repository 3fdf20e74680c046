"""The plan of a search that looks ahead: requests that depend on each other, in order, and requests that are equal.

- Requests that share no device, no counter, no constraint and no limit do not influence each other. Each such component is
  solved for itself: the first solution of all is the first solution of each, and one without a solution ends the search.
- Of two equal requests the later one takes no device before the first device of the earlier one: exchanging the two would
  give a solution that comes first. The same holds for the first requests of two equal claims, and for their alternatives.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from dray.allocator.requests import ClaimProblem, ClaimRequest, Option
from dray.allocator.search_input import SearchInput
from dray.api.resource import MAX_ALLOCATION_RESULTS


class SearchPlan:
    """`components`: requests that depend on each other, each in search order. `masks`: devices that an option could take."""

    __slots__ = ("_following", "_open", "components", "given", "masks", "twin_before")

    def __init__(self, given: SearchInput) -> None:
        """Only for a search in which leaving out a branch hides no error."""
        self.given = given
        self.components: Sequence[Sequence[ClaimRequest]] = _components(given)
        self.masks = [_usable(given, option) for option in given.problem.options]
        self._following: dict[int, ClaimRequest | None] = {}
        self._open: dict[int, Sequence[ClaimRequest]] = {}
        # By request, the nearest equal one before it.
        self.twin_before: dict[int, ClaimRequest] = {}
        for component in self.components:
            for place, request in enumerate(component):
                self._open[request.index] = component[place:]
                self._following[request.index] = component[place + 1] if place + 1 < len(component) else None
            if not given.problem.has_admin:
                self._find_twins(component)

    def following(self, request: ClaimRequest) -> ClaimRequest | None:
        """The next request of the component."""
        return self._following[request.index]

    def open_from(self, request: ClaimRequest) -> Sequence[ClaimRequest]:
        """This request and those of its component that come after it."""
        return self._open[request.index]

    def mask_of(self, request: ClaimRequest) -> int:
        mask = 0
        for option in request.options:
            mask |= self.masks[option.index]
        return mask

    def _find_twins(self, component: Sequence[ClaimRequest]) -> None:
        latest: dict[Hashable, ClaimRequest] = {}
        claims_begun: set[int] = set()
        for request in component:
            claim = request.claim
            if claim.index in claims_begun:
                key: Hashable = (claim.index, self._content(request))
            else:
                claims_begun.add(claim.index)
                key = _first_with_equal_claim(claim, self.given.problem.claims).index
            twin = latest.get(key)
            if twin is not None:
                self.twin_before[request.index] = twin
            latest[key] = request
            latest[claim.index, self._content(request)] = request

    def _content(self, request: ClaimRequest) -> Hashable:
        """Equal for requests of one claim that ask for the same under the same constraints."""
        constraints = [rule for rule in self.given.rules if rule.is_constraint]
        options = [
            (
                option.device_filter.index,
                option.count,
                option.all_devices,
                tuple([rule.concerns(option) for rule in constraints]),
            )
            for option in request.options
        ]
        return (request.is_prioritized, tuple(options))


def _usable(given: SearchInput, option: Option) -> int:
    if option.all_devices:
        mask = 0
        for position in given.all_sets[option.index]:
            mask |= 1 << position
        return mask
    good = given.matches_by_option[option.index].good
    return good if option.admin_access else good & ~given.stored


def _first_with_equal_claim(claim: ClaimProblem, claims: Sequence[ClaimProblem]) -> ClaimProblem:
    wanted = claim.claim.spec.devices
    for other in claims[: claim.index]:
        asked = other.claim.spec.devices
        if asked.requests == wanted.requests and asked.constraints == wanted.constraints:
            return other
    return claim


def _components(given: SearchInput) -> list[list[ClaimRequest]]:
    """Requests of one component are connected by devices, by rules, or by the limit of results per claim."""
    problem = given.problem
    masks = [0] * len(problem.requests)
    for option in problem.options:
        masks[option.request.index] |= _usable(given, option)
    connections = [[index for index, mask in enumerate(masks) if mask & tied] for tied in _tied_devices(given, masks)]
    for rule in given.rules:
        if rule.is_constraint:
            covered = [request for request in problem.requests if any(rule.concerns(one) for one in request.options)]
            connections.append([request.index for request in covered])
    for claim in problem.claims:
        most = sum([max([given.count_of(option) for option in request.options]) for request in claim.requests])
        if most > MAX_ALLOCATION_RESULTS:
            connections.append([request.index for request in claim.requests])
    components: dict[int, list[ClaimRequest]] = {}
    for request, leader in zip(problem.requests, _leaders(len(masks), connections), strict=True):
        components.setdefault(leader, []).append(request)
    return list(components.values())


def _tied_devices(given: SearchInput, masks: Sequence[int]) -> list[int]:
    """Disjoint sets of devices; a request that may take one device of a set depends on all that may take another."""
    disjoint: list[int] = []
    for mask in [*masks, *[tied for rule in given.rules for tied in rule.tied_devices()]]:
        apart = [other for other in disjoint if not other & mask]
        for other in disjoint:
            if other & mask:
                mask |= other
        disjoint = [*apart, mask]
    return disjoint


def _leaders(number: int, connections: Sequence[Sequence[int]]) -> list[int]:
    """For each index the smallest one that it is connected with."""
    leaders = list(range(number))

    def leader_of(index: int) -> int:
        while leaders[index] != index:
            leaders[index] = leaders[leaders[index]]
            index = leaders[index]
        return index

    for connected in connections:
        for index in connected[1:]:
            one, other = sorted((leader_of(connected[0]), leader_of(index)))
            leaders[other] = one
    return [leader_of(index) for index in range(number)]
