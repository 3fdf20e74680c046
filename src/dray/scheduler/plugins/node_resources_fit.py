"""NodeResourcesFit: does the node have room for what the pod's spec asks for, and how full would it be?"""

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from msgspec.structs import replace

from dray.accounting.demand import SCHEDULING_WITHOUT_CLAIMS, Demand, pod_demand
from dray.accounting.fit import DoesNotFit, Fits
from dray.accounting.resources import is_node_allocatable
from dray.api.core import Pod
from dray.api.resource import IMPLICIT_EXTENDED_RESOURCE_PREFIX
from dray.scheduler.framework.interface import (
    Action,
    ClusterChange,
    ClusterEvent,
    CycleState,
    EventRegistration,
    EventResource,
    Hint,
    NodeFacet,
    NodeQuestion,
    PluginStatus,
    StatusCode,
)
from dray.scheduler.framework.scoring import MAX_SCORE
from dray.scheduler.node_demand import DemandByNode
from dray.scheduler.nodes import NodeState
from dray.scheduler.snapshot import Snapshot

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


@dataclass(frozen=True, slots=True)
class SpecDemand:
    """What this attempt's pod asks for without its claims."""

    demand: Demand


def spec_demand(pod: Pod) -> Demand:
    """What the spec alone asks for: amounts that devices bring along are checked where devices are chosen."""
    return pod_demand(pod, (), SCHEDULING_WITHOUT_CLAIMS)


def is_extended(name: str) -> bool:
    return name != "pods" and not is_node_allocatable(name)


def as_status(answer: DoesNotFit) -> PluginStatus:
    reasons = tuple(refusal.reason() for refusal in answer.refusals)
    return PluginStatus(StatusCode.UNRESOLVABLE if answer.is_unresolvable else StatusCode.UNSCHEDULABLE, reasons)


class NodeResourcesFit:
    name = "NodeResourcesFit"
    filter_depends_on = frozenset({NodeFacet.OBJECT, NodeFacet.RESOURCES})
    score_depends_on = frozenset({NodeFacet.OBJECT, NodeFacet.RESOURCES, NodeFacet.DEVICES})

    def __init__(self, args: Mapping[str, Any] | None = None) -> None:
        args = args or {}
        self._strategy: ScoringStrategy = strategy_from(args)
        self._ignored = frozenset(args.get("ignoredResources") or ())
        self._ignored_groups = frozenset(args.get("ignoredResourceGroups") or ())

    # --- filter

    def pre_filter(self, cycle: CycleState, pod: Pod, snapshot: Snapshot) -> None:
        demand = spec_demand(pod)
        if self._ignored or self._ignored_groups:
            demand = _without(demand, {name for name, _ in demand.scalars if self._is_ignored(name)})
        cycle.write(SpecDemand(demand))

    def filter_shape(self, cycle: CycleState, pod: Pod) -> Hashable:
        return (cycle.expect(SpecDemand).demand, _delegated(cycle), _is_left_to_claims(cycle))

    def filter(self, cycle: CycleState, pod: Pod, node: NodeState) -> PluginStatus | None:
        return self.filter_of(cycle, pod)(node)

    def filter_of(self, cycle: CycleState, pod: Pod) -> NodeQuestion:
        asked = cycle.expect(SpecDemand).demand
        if _is_left_to_claims(cycle):
            asked = _extended_part(asked)
        delegated = _delegated(cycle)
        # Most nodes that refuse a pod lack the same.
        known: dict[Hashable, PluginStatus] = {}

        def question(node: NodeState) -> PluginStatus | None:
            demand = asked
            if delegated:
                demand = _without(demand, {name for name in delegated if not node.ledger.allocatable(name)})
            answer = node.ledger.fits(demand)
            if isinstance(answer, Fits):
                return None
            status = known.get(answer.in_short)
            if status is None:
                status = known[answer.in_short] = as_status(answer).by(self.name)
            return status

        return question

    def _is_ignored(self, name: str) -> bool:
        return name in self._ignored or name.partition("/")[0] in self._ignored_groups

    # --- score

    def score_shape(self, cycle: CycleState, pod: Pod) -> Hashable:
        return (cycle.expect(SpecDemand).demand, self._strategy, device_key(cycle), _delegated(cycle))

    def score(self, cycle: CycleState, pod: Pod, node: NodeState) -> int:
        demand = demand_on(cycle, node)
        return self._strategy.score([used_of(name, demand, node, cycle) for name, _ in self._strategy.weights])

    def events_to_register(self) -> Iterable[EventRegistration]:
        pod = ClusterEvent(EventResource.ASSIGNED_POD, Action.DELETE | Action.UPDATE_POD_SCALE_DOWN)
        node = ClusterEvent(EventResource.NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE)
        mine = ClusterEvent(EventResource.UNSCHEDULED_POD, Action.UPDATE_POD_SCALE_DOWN)
        device_class = ClusterEvent(EventResource.DEVICE_CLASS, Action.ADD | Action.UPDATE_OTHER)
        return [
            EventRegistration(pod),
            EventRegistration(node, self._node_hint),
            EventRegistration(mine),
            EventRegistration(device_class, self._class_hint),
        ]

    @staticmethod
    def _node_hint(pod: Pod, change: ClusterChange) -> Hint:
        """Only a node that could hold the pod when empty is worth a try."""
        demand = spec_demand(pod)
        ledger = NodeState(change.new).ledger
        fits = all(amount <= ledger.allocatable(name) for name, amount in demand.amounts() if not is_extended(name))
        return Hint.QUEUE if fits else Hint.SKIP

    @staticmethod
    def _class_hint(pod: Pod, change: ClusterChange) -> Hint:
        """A class may begin to serve an extended resource that no node has."""
        name = change.new.metadata.name
        served = {change.new.spec.extended_resource_name, f"{IMPLICIT_EXTENDED_RESOURCE_PREFIX}{name}"}
        wanted = {resource for resource, _ in spec_demand(pod).amounts()}
        return Hint.QUEUE if wanted & served else Hint.SKIP


def _delegated(cycle: CycleState) -> frozenset[str]:
    """Extended resources that devices serve on nodes without a device plugin for them."""
    devices = cycle.read(DemandByNode)
    return devices.delegated if devices is not None else frozenset()


def _is_left_to_claims(cycle: CycleState) -> bool:
    """Do the pod's claims decide about cpu, memory, storage and huge pages? Then only the rest is checked here."""
    devices = cycle.read(DemandByNode)
    return devices is not None and devices.checks_node_resources


def _extended_part(demand: Demand) -> Demand:
    scalars = tuple(entry for entry in demand.scalars if is_extended(entry[0]))
    return replace(demand, milli_cpu=0, memory=0, ephemeral_storage=0, scalars=scalars)


def _without(demand: Demand, names: Set[str]) -> Demand:
    return replace(demand, scalars=tuple(entry for entry in demand.scalars if entry[0] not in names))


def used_of(name: str, demand: Demand, node: NodeState, cycle: CycleState) -> tuple[int, int]:
    """(requested with the pod, allocatable); an extended resource the pod does not ask for does not count.

    Where devices serve it, they are what is there and what is taken.
    """
    ledger = node.ledger
    match name:
        case "cpu":
            return ledger.non_zero_milli_cpu + demand.non_zero_milli_cpu, ledger.allocatable_milli_cpu
        case "memory":
            return ledger.non_zero_memory + demand.non_zero_memory, ledger.allocatable_memory
    wanted = demand.amount(name)
    if not wanted and is_extended(name):
        return 0, 0
    devices = cycle.read(DemandByNode)
    if devices is not None and name in devices.delegated and not ledger.allocatable(name):
        there, in_use = devices.census(name, node)
        return in_use + wanted, there
    return ledger.requested(name) + wanted, ledger.allocatable(name)


def device_key(cycle: CycleState) -> Hashable:
    """Tells apart pods whose devices take different amounts from their nodes."""
    devices = cycle.read(DemandByNode)
    return devices.key if devices is not None and devices.on_node is not None else None


def demand_on(cycle: CycleState, node: NodeState) -> Demand:
    """What the pod would ask of this node, with what its devices there bring along."""
    devices = cycle.read(DemandByNode)
    if devices is not None and devices.on_node is not None:
        there = devices.on_node(node)
        if there is not None:
            return there.demand
    return cycle.expect(SpecDemand).demand
