"""Claims on one node that pods hold or share: who uses them, and how much is left of a pool."""

from dray.accounting.demand import Demand, PoolDraw
from dray.accounting.pod_ref import PodRef

Taken = tuple[tuple[str, str, int], ...]


class ClaimState:
    """One claim on one node. A pool's whole size is reserved as long as any pod uses it."""

    __slots__ = ("_sizes", "allocated", "consumed", "consumers")

    def __init__(self) -> None:
        self.allocated: dict[str, int] = {}
        self.consumed: dict[str, int] = {}
        # In order of arrival.
        self.consumers: dict[PodRef, None] = {}
        # Pool sizes as each consumer knows them: an allocation may have been replaced between two pods.
        self._sizes: dict[PodRef, dict[str, int]] = {}

    def enter(self, pod: PodRef, sizes: dict[str, int]) -> dict[str, int]:
        """A pod starts to use the claim. Returns by how much the reservations grow."""
        self.consumers[pod] = None
        self._sizes[pod] = sizes
        return self._reserve()

    def leave(self, pod: PodRef) -> dict[str, int]:
        """Returns by how much the reservations change: below zero when the last one leaves."""
        del self.consumers[pod]
        del self._sizes[pod]
        return self._reserve()

    def _reserve(self) -> dict[str, int]:
        wanted: dict[str, int] = {}
        for sizes in self._sizes.values():
            for resource, size in sizes.items():
                wanted[resource] = max(size, wanted.get(resource, 0))
        names = {*wanted, *self.allocated}
        changes = {name: wanted.get(name, 0) - self.allocated.get(name, 0) for name in names}
        self.allocated = wanted
        return {name: change for name, change in changes.items() if change}

    def room(self, resource: str) -> int:
        return self.allocated.get(resource, 0) - self.consumed.get(resource, 0)

    def consume(self, resource: str, amount: int) -> None:
        left = self.consumed.get(resource, 0) + amount
        if left:
            self.consumed[resource] = left
        else:
            self.consumed.pop(resource, None)

    def copy(self) -> "ClaimState":
        twin = ClaimState()
        twin.allocated, twin.consumed = dict(self.allocated), dict(self.consumed)
        twin.consumers, twin._sizes = dict(self.consumers), dict(self._sizes)
        return twin


def sizes_by_claim(demand: Demand) -> dict[str, dict[str, int]]:
    """Pools and exclusive claims of the pod, with the amounts to reserve; an exclusive claim reserves nothing extra."""
    sizes: dict[str, dict[str, int]] = {claim: {} for claim in demand.exclusive_claims}
    for claim, resource, size in demand.pools:
        of_claim = sizes.setdefault(claim, {})
        of_claim[resource] = of_claim.get(resource, 0) + size
    return sizes


def split(draw: PoolDraw, room: dict[tuple[str, str], int]) -> Taken:
    """Take from the pools in order while there is room; what is left over burdens the last one."""
    taken: list[tuple[str, str, int]] = []
    left = draw.amount
    for claim in draw.claims:
        part = min(left, max(0, room[claim, draw.resource]))
        if claim == draw.claims[-1]:
            part = left
        if part:
            taken.append((claim, draw.resource, part))
            room[claim, draw.resource] -= part
            left -= part
    return tuple(taken)
