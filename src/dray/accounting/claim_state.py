"""Claims on one node that pods hold or share: who uses them, and how much is left of a pool."""

from dray.accounting.demand import PodRef, PoolDraw

# Parts of a pod's draws: claim, resource, amount.
Taken = tuple[tuple[str, str, int], ...]
# (claim, resource) to an amount.
PoolAmounts = dict[tuple[str, str], int]


class ClaimState:
    """One claim on one node. A pool's whole size is reserved as long as any pod uses it."""

    __slots__ = ("_sizes", "allocated", "consumed", "consumers")

    def __init__(self) -> None:
        self.allocated: dict[str, int] = {}
        self.consumed: dict[str, int] = {}
        # In order of arrival.
        self.consumers: dict[PodRef, None] = {}
        # How many consumers know the pool by which size: an allocation may have been replaced between two pods.
        self._sizes: dict[str, dict[int, int]] = {}

    def hold(self, resource: str, size: int) -> int:
        """One more consumer counts on a pool of this size. Returns by how much the reservation grows."""
        counts = self._sizes.setdefault(resource, {})
        counts[size] = counts.get(size, 0) + 1
        present = self.allocated.get(resource, 0)
        if size > present:
            self.allocated[resource] = size
            return size - present
        return 0

    def release(self, resource: str, size: int) -> int:
        """One consumer less. Returns by how much the reservation shrinks: all of it when the last one leaves."""
        counts = self._sizes[resource]
        counts[size] -= 1
        if counts[size]:
            return 0
        del counts[size]
        present = self.allocated.get(resource, 0)
        left = max(counts, default=0)
        if counts:
            self.allocated[resource] = left
        else:
            self.allocated.pop(resource, None)
            del self._sizes[resource]
        return present - left

    def consume(self, resource: str, amount: int) -> None:
        left = self.consumed.get(resource, 0) + amount
        if left:
            self.consumed[resource] = left
        else:
            self.consumed.pop(resource, None)

    def copy(self) -> "ClaimState":
        twin = ClaimState()
        twin.allocated, twin.consumed = dict(self.allocated), dict(self.consumed)
        twin.consumers = dict(self.consumers)
        twin._sizes = {resource: dict(counts) for resource, counts in self._sizes.items()}
        return twin


def split(draw: PoolDraw, room: PoolAmounts) -> Taken:
    """Takes from the pools in order while they have room; the last pool is charged the rest."""
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
