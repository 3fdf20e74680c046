"""Scored policies beside first fit: the same search, with another order in which devices are tried.

Off by default. Kubernetes knows first fit only; with a policy the devices chosen differ from it on purpose, while what can
be allocated at all stays the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dray.allocator.types import bits

if TYPE_CHECKING:
    from dray.allocator.requests import Option
    from dray.allocator.search_input import SearchInput

Score = tuple[float, ...]
Policy = Callable[["SearchInput", "Option"], list[Score]]
"""A score for each device of the node; smaller is tried first, equal scores keep the order of first fit."""


class Order:
    """Devices of a node by rank: rank 0 is tried first."""

    __slots__ = ("from_rank", "positions", "ranks")

    def __init__(self, scores: list[Score]) -> None:
        self.positions = sorted(range(len(scores)), key=lambda position: scores[position])
        self.ranks = [0] * len(scores)
        # Mask of the devices with this rank or a later one.
        self.from_rank = [0] * (len(scores) + 1)
        for rank in range(len(scores) - 1, -1, -1):
            position = self.positions[rank]
            self.ranks[position] = rank
            self.from_rank[rank] = self.from_rank[rank + 1] | 1 << position


def best_fit(given: SearchInput, option: Option) -> list[Score]:
    """The device that has the least left over afterwards; then the one that draws the least from its counters."""
    drawn = _share_of_counters(given)
    return [(_left_over(given, option, position), drawn[position]) for position in range(given.node.size)]


def least_fragmentation(given: SearchInput, option: Option) -> list[Score]:
    """Prefers resources that are partly used already: shared devices, used counter sets, the fullest pool."""
    scores: list[Score] = []
    drawn = _share_of_counters(given)
    used = _use_of_counters(given)
    for view, offset in zip(given.node.pools, given.node.offsets, strict=True):
        taken = given.ledger.taken(view)
        free = (view.shape.every & ~taken.dedicated & ~taken.shared).bit_count()
        for place in range(len(view.names)):
            position = offset + place
            is_untouched = 0.0 if taken.shared >> place & 1 else 1.0
            scores.append((is_untouched, -used[position], float(free), drawn[position]))
    return scores


def _left_over(given: SearchInput, option: Option, position: int) -> float:
    """The mean part of its capacities that stays unused, 0 to 1; for dedicated devices, what exceeds the request."""
    view, place = given.node.locate(position)
    kind = view.shape.kinds[place]
    items = option.amounts(kind).items
    if given.shareable >> position & 1:
        stored = given.ledger.taken(view).consumed.get(place, {})
        parts = [(published - stored.get(name, 0) - amount) / (published or 1) for name, published, amount in items]
    else:
        named = option.device_filter.capacity_on(kind)
        asked = [item for item in items if item[0] in named]
        # Sizes are compared across devices: a larger device leaves more unused.
        parts = [float(published - amount) for _, published, amount in asked]
    return sum(parts) / len(parts) if parts else 0.0


def _share_of_counters(given: SearchInput) -> list[float]:
    """The part of the counters' totals that each device draws."""
    shares = [0.0] * given.node.size
    for view, offset in zip(given.node.pools, given.node.offsets, strict=True):
        if view.counters is not None:
            totals = view.counters.totals
            for place in bits(view.shape.consumes):
                drawn = view.counters.drawn_by(view.shape.kinds[place])
                shares[offset + place] = sum([amount / (totals[counter] or 1) for counter, amount in drawn])
    return shares


def _use_of_counters(given: SearchInput) -> list[float]:
    """The used part, 0 to 1, of the counters that each device draws from."""
    used = [0.0] * given.node.size
    for view, offset in zip(given.node.pools, given.node.offsets, strict=True):
        if view.counters is not None:
            totals, left = view.counters.totals, given.ledger.counters(view).available
            for place in bits(view.shape.consumes):
                drawn = view.counters.drawn_by(view.shape.kinds[place])
                parts = [1 - left[counter] / (totals[counter] or 1) for counter, _ in drawn]
                used[offset + place] = sum(parts) / len(parts) if parts else 0.0
    return used


POLICIES: dict[str, Policy | None] = {
    "first-fit": None,
    "best-fit": best_fit,
    "least-fragmentation": least_fragmentation,
}
