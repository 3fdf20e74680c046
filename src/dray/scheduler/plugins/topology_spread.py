"""PodTopologySpread: keeps pods spread over zones and nodes, as a filter and as a score."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from dray.api.codec import to_object
from dray.api.core import Pod, TopologySpreadConstraint
from dray.api.dra.taints import first_untolerated
from dray.api.matching import matches_labels
from dray.api.meta import LabelSelector, LabelSelectorRequirement
from dray.api.reasons import Reason
from dray.scheduler.framework.interface import (
    SKIP,
    Action,
    ClusterChange,
    ClusterEvent,
    CycleState,
    EventRegistration,
    EventResource,
    Hint,
    PluginStatus,
    unresolvable,
    unschedulable,
)
from dray.scheduler.framework.scoring import MAX_SCORE
from dray.scheduler.nodes import ZONE_LABEL, NodeList, NodeState
from dray.scheduler.plugins.pod_spec_plugins import matches_pod_affinity
from dray.scheduler.snapshot import Snapshot, controller_of

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


TOO_UNEVEN = unschedulable(Reason("topology-spread", "node(s) didn't match pod topology spread constraints"))
NO_LABEL = unresolvable(
    Reason("topology-spread", "node(s) didn't match pod topology spread constraints (missing required label)")
)


@dataclass(slots=True)
class Spread:
    """One constraint with the matching pods counted per value of its topology key."""

    constraint: TopologySpreadConstraint
    selector: LabelSelector | None
    counts_itself: bool
    pods_by_value: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    @property
    def least(self) -> int:
        """The emptiest domain; too few domains count as one that is empty."""
        if len(self.pods_by_value) < (self.constraint.min_domains or 1):
            return 0
        return min(self.pods_by_value.values(), default=0)


@dataclass(slots=True)
class Spreads:
    """What this attempt's PreFilter counted."""

    rows: tuple[Spread, ...]


class PodTopologySpread:
    name = "PodTopologySpread"

    def __init__(self, args: Mapping[str, Any] | None = None) -> None:
        args = args or {}
        is_list = args.get("defaultingType", "System") == "List"
        rows = [to_object(row, TopologySpreadConstraint) for row in args.get("defaultConstraints") or ()]
        if rows and not is_list:
            raise ValueError("defaultConstraints: Invalid value: when .defaultingType is not List")
        if any(row.label_selector is not None for row in rows):
            raise ValueError("defaultConstraints: Forbidden: a default constraint must not have a labelSelector")
        self._are_system_defaults = not is_list
        self._defaults = tuple(rows) if is_list else SYSTEM_DEFAULTS

    # --- filter

    def pre_filter(self, cycle: CycleState, pod: Pod, snapshot: Snapshot) -> PluginStatus | None:
        own = pod.spec.topology_spread_constraints
        hard = [row for row in own if row.when_unsatisfiable == "DoNotSchedule"] if own else ()
        if not hard:
            return SKIP
        rows = tuple(_spread(row, pod) for row in hard)
        for node in snapshot.nodes:
            _count(rows, pod, node)
        cycle.write(Spreads(rows))
        return None

    def filter(self, cycle: CycleState, pod: Pod, node: NodeState) -> PluginStatus | None:
        for row in cycle.expect(Spreads).rows:
            value = node.labels.get(row.constraint.topology_key)
            if value is None:
                return NO_LABEL
            skew = row.pods_by_value.get(value, 0) + row.counts_itself - row.least
            if skew > row.constraint.max_skew:
                return TOO_UNEVEN
        return None

    # --- score

    def pre_score(self, cycle: CycleState, pod: Pod, snapshot: Snapshot, feasible: int) -> PluginStatus | None:
        own = pod.spec.topology_spread_constraints
        if own:
            soft = [row for row in own if row.when_unsatisfiable != "DoNotSchedule"]
            rows = _count_soft([_spread(row, pod) for row in soft], pod, snapshot)
        else:
            rows = self._default_rows(pod, snapshot)
        if not rows:
            return SKIP
        cycle.write(SoftSpread(rows, needs_all_keys=bool(own) or not self._are_system_defaults))
        return None

    def _default_rows(self, pod: Pod, snapshot: Snapshot) -> tuple[SoftRow, ...]:
        """For pods without constraints that have siblings: those of one ReplicaSet or the like."""
        controller = controller_of(pod)
        if not controller:
            return ()
        counts = {
            name: count
            for name, count in snapshot.pods_of_controller(controller).items()
            if (state := snapshot.nodes.get(name)) is not None and matches_pod_affinity(pod, state)
        }
        soft = (row for row in self._defaults if row.when_unsatisfiable != "DoNotSchedule")
        return tuple(SoftRow(row.topology_key, row.max_skew, counts) for row in soft)

    def scores(self, cycle: CycleState, pod: Pod, snapshot: Snapshot, feasible: int) -> dict[int, int]:
        return cycle.expect(SoftSpread).scores(feasible, snapshot.nodes)

    def normalize(self, scores: Iterable[int]) -> Mapping[int, int]:
        return evenly(scores)

    # --- queue

    def events_to_register(self) -> Iterable[EventRegistration]:
        pods = Action.ADD | Action.DELETE | Action.UPDATE_POD_LABEL
        nodes = Action.ADD | Action.DELETE | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_TAINT
        return [
            EventRegistration(ClusterEvent(EventResource.ASSIGNED_POD, pods), self._pod_hint),
            EventRegistration(ClusterEvent(EventResource.NODE, nodes)),
        ]

    @staticmethod
    def _pod_hint(pod: Pod, change: ClusterChange) -> Hint:
        other: Pod = change.new if change.new is not None else change.old
        if other.metadata.namespace != pod.metadata.namespace:
            return Hint.SKIP
        counts = any(
            matches_labels(_selector(row, pod), other.metadata.labels) for row in pod.spec.topology_spread_constraints
        )
        return Hint.QUEUE if counts else Hint.SKIP


def _selector(constraint: TopologySpreadConstraint, pod: Pod) -> LabelSelector | None:
    """The constraint's selector, narrowed to pods that share the values of `matchLabelKeys`."""
    labels, selector = pod.metadata.labels, constraint.label_selector
    extra = tuple(
        LabelSelectorRequirement(key=key, operator="In", values=(labels[key],))
        for key in constraint.match_label_keys
        if key in labels
    )
    if selector is None or not extra:
        return selector
    return msgspec.structs.replace(selector, match_expressions=(*selector.match_expressions, *extra))


def _spread(constraint: TopologySpreadConstraint, pod: Pod) -> Spread:
    selector = _selector(constraint, pod)
    return Spread(constraint, selector, matches_labels(selector, pod.metadata.labels))


def _count(rows: tuple[Spread, ...], pod: Pod, node: NodeState) -> None:
    if any(row.constraint.topology_key not in node.labels for row in rows):
        return
    for row in rows:
        if not _takes_part(row.constraint, pod, node):
            continue
        value = node.labels[row.constraint.topology_key]
        row.pods_by_value[value] += _matching(row.selector, pod, node)


def _count_soft(spreads: list[Spread], pod: Pod, snapshot: Snapshot) -> tuple[SoftRow, ...]:
    """Every node that has all the keys counts, whether or not it is feasible."""
    counts: list[dict[str, int]] = [{} for _ in spreads]
    keys = {row.constraint.topology_key for row in spreads}
    for node in snapshot.nodes if spreads else ():
        if not node.pods or not keys <= node.labels.keys():
            continue
        for row, by_node in zip(spreads, counts, strict=True):
            if _takes_part(row.constraint, pod, node):
                found = _matching(row.selector, pod, node)
                if found:
                    by_node[node.name] = found
    return tuple(
        SoftRow(row.constraint.topology_key, row.constraint.max_skew, by_node)
        for row, by_node in zip(spreads, counts, strict=True)
    )


def _matching(selector: LabelSelector | None, pod: Pod, node: NodeState) -> int:
    return sum(
        placed.pod.metadata.namespace == pod.metadata.namespace
        and placed.pod.metadata.deletion_timestamp is None
        and matches_labels(selector, placed.pod.metadata.labels)
        for placed in node.pods.values()
    )


def _takes_part(constraint: TopologySpreadConstraint, pod: Pod, node: NodeState) -> bool:
    if (constraint.node_affinity_policy or "Honor") == "Honor" and not matches_pod_affinity(pod, node):
        return False
    if (constraint.node_taints_policy or "Ignore") == "Honor":
        return first_untolerated(node.node.spec.taints, pod.spec.tolerations) is None
    return True
