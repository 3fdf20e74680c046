"""How evenly pods would be spread: the score of topology spread constraints that may be broken (`ScheduleAnyway`)."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dray.api.core import TopologySpreadConstraint
from dray.scheduler.framework.scoring import MAX_SCORE
from dray.scheduler.nodes import ZONE_LABEL, NodeList

HOSTNAME = "kubernetes.io/hostname"
# Kubernetes' own wishes for pods that have none: spread over nodes, and over zones a little less.
SYSTEM_DEFAULTS = (
    TopologySpreadConstraint(max_skew=3, topology_key=HOSTNAME, when_unsatisfiable="ScheduleAnyway"),
    TopologySpreadConstraint(max_skew=5, topology_key=ZONE_LABEL, when_unsatisfiable="ScheduleAnyway"),
)
IGNORED = -1
"""The score of a node that lacks a topology key and so takes no part."""


@dataclass(frozen=True, slots=True)
class SoftRow:
    """One constraint with the matching pods per node; only nodes that take part are counted."""

    key: str
    max_skew: int
    pods_by_node: Mapping[str, int]

    def nodes_by_pods(self, nodes: NodeList) -> dict[int, int]:
        """Nodes that have the key, by the pods in their domain."""
        found: dict[int, int] = {}
        if self.key == HOSTNAME:
            left = nodes.everything
            for name, count in self.pods_by_node.items():
                bit = nodes.mask_of((name,))
                found[count] = found.get(count, 0) | bit
                left &= ~bit
            found[0] = found.get(0, 0) | left
            return found
        in_domain: Counter[str] = Counter()
        for name, count in self.pods_by_node.items():
            state = nodes.get(name)
            if state is not None and self.key in state.labels:
                in_domain[state.labels[self.key]] += count
        for value, mask in nodes.by_label(self.key).items():
            found[in_domain[value]] = found.get(in_domain[value], 0) | mask
        return found

    def weight(self, taking_part: int, nodes: NodeList) -> float:
        """The more domains, the more a pod in one of them counts."""
        if self.key == HOSTNAME:
            domains = taking_part.bit_count()
        else:
            domains = sum(1 for mask in nodes.by_label(self.key).values() if mask & taking_part)
        return math.log(domains + 2)


@dataclass(frozen=True, slots=True)
class SoftSpread:
    """What this attempt's PreScore counted. With `needs_all_keys`, nodes without one of the keys take no part."""

    rows: tuple[SoftRow, ...]
    needs_all_keys: bool

    def scores(self, feasible: int, nodes: NodeList) -> dict[int, int]:
        """`feasible` by score: pods nearby, weighted; the fewer the better, which `evenly` turns round."""
        taking_part = feasible
        if self.needs_all_keys:
            for row in self.rows:
                taking_part &= _with_key(row.key, nodes)
        cells: dict[float, int] = {0.0: taking_part}
        for row in self.rows:
            cells = _refined(cells, row, row.weight(taking_part, nodes), nodes)
        by_score: dict[int, int] = {}
        for total, mask in cells.items():
            score = math.floor(total + 0.5)
            by_score[score] = by_score.get(score, 0) | mask
        if feasible & ~taking_part:
            by_score[IGNORED] = feasible & ~taking_part
        return {score: mask for score, mask in by_score.items() if mask}


def _with_key(key: str, nodes: NodeList) -> int:
    mask = 0
    for members in nodes.by_label(key).values():
        mask |= members
    return mask


def _refined(cells: Mapping[float, int], row: SoftRow, weight: float, nodes: NodeList) -> dict[float, int]:
    refined: dict[float, int] = {}
    counted = 0
    for pods, members in row.nodes_by_pods(nodes).items():
        counted |= members
        points = pods * weight + row.max_skew - 1
        for total, mask in cells.items():
            both = mask & members
            if both:
                refined[total + points] = refined.get(total + points, 0) | both
    for total, mask in cells.items():
        rest = mask & ~counted
        if rest:
            refined[total] = refined.get(total, 0) | rest
    return refined


def evenly(scores: Iterable[int]) -> dict[int, int]:
    """The emptiest gets the most; nodes that take no part get nothing."""
    found = set(scores)
    counted = found - {IGNORED}
    least, most = min(counted, default=0), max(counted, default=0)
    normalized = {score: MAX_SCORE * (most + least - score) // most if most else MAX_SCORE for score in counted}
    return normalized | dict.fromkeys(found & {IGNORED}, 0)
