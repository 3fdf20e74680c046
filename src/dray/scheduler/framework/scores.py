"""From the scores of many plugins to one node."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

MAX_SCORE = 100


@dataclass(frozen=True, slots=True)
class WeightedScores:
    """One plugin's normalized scores: nodes by score."""

    plugin: str
    weight: int
    nodes_by_score: Mapping[int, int]


def totals(feasible: int, scores: Iterable[WeightedScores]) -> dict[int, int]:
    """`feasible` sorted by the weighted sum over all plugins.

    Works on groups of nodes with equal scores, so nodes that look alike cost nothing extra.
    """
    cells: dict[int, int] = {0: feasible}
    for row in scores:
        refined: dict[int, int] = {}
        for score, nodes in row.nodes_by_score.items():
            for total, members in cells.items():
                both = members & nodes
                if both:
                    summed = total + score * row.weight
                    refined[summed] = refined.get(summed, 0) | both
        cells = refined
    return cells


def first_from(mask: int, start: int) -> int:
    """The first set position at or after `start`, going round."""
    ahead = mask >> start
    if ahead:
        return start + (ahead & -ahead).bit_length() - 1
    return (mask & -mask).bit_length() - 1


def best_node(cells: Mapping[int, int], start: int) -> int:
    """The node with the highest total; among equals the one met first in this attempt's walk."""
    return first_from(cells[max(cells)], start)
