"""How full a node is, as points: the three scoring strategies of NodeResourcesFit."""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from dray.scheduler.framework.scoring import MAX_SCORE

ResourceScore = Callable[[int, int], int]
"""(requested, allocatable) to points, allocatable above zero."""


@dataclass(frozen=True, slots=True)
class ScoringStrategy:
    """Points per resource and the weight of each resource."""

    weights: tuple[tuple[str, int], ...]
    points: ResourceScore
    # A ratio of zero points does not pull the mean down: only resources that score have weight.
    ignores_zero: bool = False

    def score(self, used: Sequence[tuple[int, int]]) -> int:
        """`used` has (requested, allocatable) per weighted resource; what a node does not have does not count."""
        total = weights = 0
        for (_, weight), (requested, allocatable) in zip(self.weights, used, strict=True):
            if not allocatable:
                continue
            points = self.points(requested, allocatable)
            if points or not self.ignores_zero:
                total += points * weight
                weights += weight
        if not weights:
            return 0
        return round_half_up(total, weights) if self.ignores_zero else total // weights


def round_half_up(total: int, parts: int) -> int:
    return (2 * total + parts) // (2 * parts)


def least_allocated(requested: int, allocatable: int) -> int:
    return 0 if requested > allocatable else (allocatable - requested) * MAX_SCORE // allocatable


def most_allocated(requested: int, allocatable: int) -> int:
    return min(requested, allocatable) * MAX_SCORE // allocatable


@dataclass(frozen=True, slots=True)
class ScoringShape:
    """Straight lines between (utilization in percent, points) corners."""

    utilizations: tuple[int, ...]
    points: tuple[int, ...]

    def __call__(self, requested: int, allocatable: int) -> int:
        utilization = MAX_SCORE if requested > allocatable else requested * MAX_SCORE // allocatable
        at = bisect_left(self.utilizations, utilization)
        if at == 0:
            return self.points[0]
        if at == len(self.utilizations):
            return self.points[-1]
        low_u, low_p = self.utilizations[at - 1], self.points[at - 1]
        rise, run = self.points[at] - low_p, self.utilizations[at] - low_u
        return low_p + int(rise * (utilization - low_u) / run)


def strategy_from(args: Mapping[str, Any]) -> ScoringStrategy:
    """From `scoringStrategy` of the plugin's arguments; LeastAllocated over cpu and memory by default."""
    chosen = args.get("scoringStrategy") or {}
    resources = chosen.get("resources") or [{"name": "cpu"}, {"name": "memory"}]
    weights = tuple((str(row["name"]), int(row.get("weight") or 1)) for row in resources)
    match chosen.get("type", "LeastAllocated"):
        case "LeastAllocated":
            return ScoringStrategy(weights, least_allocated)
        case "MostAllocated":
            return ScoringStrategy(weights, most_allocated)
        case "RequestedToCapacityRatio":
            return ScoringStrategy(weights, _shape(chosen.get("requestedToCapacityRatio") or {}), ignores_zero=True)
        case unknown:
            raise ValueError(f"scoringStrategy.type: Unsupported value: {unknown!r}")


def _shape(args: Mapping[str, Any]) -> ScoringShape:
    corners = [(int(row["utilization"]), int(row["score"])) for row in args.get("shape") or []]
    if not corners:
        raise ValueError("scoringStrategy.requestedToCapacityRatio.shape: Required value: at least one point")
    for utilization, score in corners:
        if not (0 <= utilization <= 100 and 0 <= score <= 10):
            raise ValueError("scoringStrategy.requestedToCapacityRatio.shape: utilization is 0 to 100, score 0 to 10")
    if any(left[0] >= right[0] for left, right in pairwise(corners)):
        raise ValueError(
            "scoringStrategy.requestedToCapacityRatio.shape: utilization values must be sorted in increasing order"
        )
    return ScoringShape(tuple(u for u, _ in corners), tuple(score * 10 for _, score in corners))
