"""Small plugins that compare the spec of a pod with one node at most: gates, priority, node filters, the binder.

SchedulingGates and PrioritySort come before the choice of a node; NodeName, NodeUnschedulable, TaintToleration, NodeAffinity and NodePorts filter
nodes; DefaultBinder binds.
"""

from collections.abc import Hashable, Iterable, Mapping

from dray.api.core import NodeAffinity as Wanted
from dray.api.core import Pod, Taint
from dray.api.dra.taints import PREFER_NO_SCHEDULE, first_untolerated, is_tolerated
from dray.api.matching import host_ports, matches_term, only_names, pod_wants_node, ports_clash, required_nodes
from dray.api.reasons import Reason
from dray.client.errors import ApiError, ServerUnreachable
from dray.scheduler.framework.interface import (
    SKIP,
    Action,
    ClusterChange,
    ClusterEvent,
    CycleState,
    DefaultBinding,
    EventRegistration,
    EventResource,
    Hint,
    NodeFacet,
    NodeNames,
    PluginStatus,
    error,
    unresolvable,
    unschedulable,
)
from dray.scheduler.framework.scoring import MAX_SCORE
from dray.scheduler.handle import Handle
from dray.scheduler.nodes import NodeState
from dray.scheduler.snapshot import Snapshot

OTHER_NODE = unresolvable(Reason("node-name", "node(s) didn't match the requested node name"))


class NodeName:
    name = "NodeName"
    filter_depends_on = frozenset({NodeFacet.OBJECT})

    def pre_filter(self, cycle: CycleState, pod: Pod, snapshot: Snapshot) -> PluginStatus | None:
        return None if pod.spec.node_name else SKIP

    def filter_shape(self, cycle: CycleState, pod: Pod) -> Hashable:
        return pod.spec.node_name

    def filter(self, cycle: CycleState, pod: Pod, node: NodeState) -> PluginStatus | None:
        return None if pod.spec.node_name in ("", node.name) else OTHER_NODE

    def events_to_register(self) -> Iterable[EventRegistration]:
        return [EventRegistration(ClusterEvent(EventResource.NODE, Action.ADD))]


UNSCHEDULABLE_NODE = unresolvable(Reason("node-unschedulable", "node(s) were unschedulable"))
TAINT = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


class NodeUnschedulable:
    name = "NodeUnschedulable"
    filter_depends_on = frozenset({NodeFacet.OBJECT})

    def filter_shape(self, cycle: CycleState, pod: Pod) -> Hashable:
        return is_tolerated(pod.spec.tolerations, TAINT)

    def filter(self, cycle: CycleState, pod: Pod, node: NodeState) -> PluginStatus | None:
        if not node.node.spec.unschedulable or is_tolerated(pod.spec.tolerations, TAINT):
            return None
        return UNSCHEDULABLE_NODE

    def events_to_register(self) -> Iterable[EventRegistration]:
        node = ClusterEvent(EventResource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT)
        mine = ClusterEvent(EventResource.UNSCHEDULED_POD, Action.UPDATE_POD_TOLERATION)
        return [EventRegistration(node, self._hint), EventRegistration(mine)]

    @staticmethod
    def _hint(pod: Pod, change: ClusterChange) -> Hint:
        return Hint.SKIP if change.new.spec.unschedulable else Hint.QUEUE


UNTOLERATED_TAINT = unresolvable(Reason("node-taint", "node(s) had untolerated taint(s)"))


class TaintToleration:
    name = "TaintToleration"
    filter_depends_on = frozenset({NodeFacet.OBJECT})
    score_depends_on = frozenset({NodeFacet.OBJECT})

    def filter_shape(self, cycle: CycleState, pod: Pod) -> Hashable:
        return pod.spec.tolerations

    score_shape = filter_shape

    def filter(self, cycle: CycleState, pod: Pod, node: NodeState) -> PluginStatus | None:
        taints = node.node.spec.taints
        return UNTOLERATED_TAINT if taints and first_untolerated(taints, pod.spec.tolerations) else None

    def score(self, cycle: CycleState, pod: Pod, node: NodeState) -> int:
        """How many soft taints the pod would have to put up with."""
        tolerations = [row for row in pod.spec.tolerations if row.effect in ("", PREFER_NO_SCHEDULE)]
        soft = (taint for taint in node.node.spec.taints if taint.effect == PREFER_NO_SCHEDULE)
        return sum(not is_tolerated(tolerations, taint) for taint in soft)

    def normalize(self, scores: Iterable[int]) -> Mapping[int, int]:
        found = set(scores)
        most = max(found, default=0)
        return {score: MAX_SCORE - (score * MAX_SCORE // most if most else 0) for score in found}

    def events_to_register(self) -> Iterable[EventRegistration]:
        node = ClusterEvent(EventResource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT)
        mine = ClusterEvent(EventResource.UNSCHEDULED_POD, Action.UPDATE_POD_TOLERATION)
        return [EventRegistration(node, self._hint), EventRegistration(mine)]

    @staticmethod
    def _hint(pod: Pod, change: ClusterChange) -> Hint:
        return Hint.SKIP if first_untolerated(change.new.spec.taints, pod.spec.tolerations) else Hint.QUEUE


AFFINITY_MISMATCH = unresolvable(Reason("node-affinity", "node(s) didn't match Pod's node affinity/selector"))


def _wanted(pod: Pod) -> Wanted | None:
    return pod.spec.affinity.node_affinity if pod.spec.affinity else None


def matches_pod_affinity(pod: Pod, node: NodeState) -> bool:
    return pod_wants_node(pod.spec, node.node)


class NodeAffinity:
    name = "NodeAffinity"
    filter_depends_on = frozenset({NodeFacet.OBJECT})
    score_depends_on = frozenset({NodeFacet.OBJECT})

    def pre_filter(self, cycle: CycleState, pod: Pod, snapshot: Snapshot) -> PluginStatus | NodeNames | None:
        required = required_nodes(pod.spec)
        if required is None and not pod.spec.node_selector:
            return SKIP
        names = only_names(required)
        return NodeNames(names) if names is not None else None

    def filter_shape(self, cycle: CycleState, pod: Pod) -> Hashable:
        required = required_nodes(pod.spec)
        return (tuple(sorted(pod.spec.node_selector.items())), required)

    def filter(self, cycle: CycleState, pod: Pod, node: NodeState) -> PluginStatus | None:
        return None if matches_pod_affinity(pod, node) else AFFINITY_MISMATCH

    def pre_score(self, cycle: CycleState, pod: Pod, snapshot: Snapshot, feasible: int) -> PluginStatus | None:
        wanted = _wanted(pod)
        return None if wanted and wanted.preferred_during_scheduling_ignored_during_execution else SKIP

    def score_shape(self, cycle: CycleState, pod: Pod) -> Hashable:
        wanted = _wanted(pod)
        return wanted.preferred_during_scheduling_ignored_during_execution if wanted else ()

    def score(self, cycle: CycleState, pod: Pod, node: NodeState) -> int:
        wanted = _wanted(pod)
        if wanted is None:
            return 0
        terms = wanted.preferred_during_scheduling_ignored_during_execution
        return sum(term.weight for term in terms if matches_term(term.preference, node.node))

    def normalize(self, scores: Iterable[int]) -> Mapping[int, int]:
        return scaled_to_best(scores)

    def events_to_register(self) -> Iterable[EventRegistration]:
        node = ClusterEvent(EventResource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL)
        return [EventRegistration(node, self._hint)]

    @staticmethod
    def _hint(pod: Pod, change: ClusterChange) -> Hint:
        return Hint.QUEUE if matches_pod_affinity(pod, NodeState(change.new)) else Hint.SKIP


def scaled_to_best(scores: Iterable[int]) -> dict[int, int]:
    """The best score becomes 100, the others their share of it; all zero stays zero."""
    found = set(scores)
    best = max(found, default=0)
    return {score: score * MAX_SCORE // best if best else score for score in found}


NO_FREE_PORT = unschedulable(Reason("host-port", "node(s) didn't have free ports for the requested pod ports"))


class NodePorts:
    name = "NodePorts"
    filter_depends_on = frozenset({NodeFacet.PODS})

    def pre_filter(self, cycle: CycleState, pod: Pod, snapshot: Snapshot) -> PluginStatus | None:
        return None if host_ports(pod) else SKIP

    def filter_shape(self, cycle: CycleState, pod: Pod) -> Hashable:
        return host_ports(pod)

    def filter(self, cycle: CycleState, pod: Pod, node: NodeState) -> PluginStatus | None:
        taken = any(ports_clash(wanted, port) for wanted in host_ports(pod) for port in node.ports)
        return NO_FREE_PORT if taken else None

    def events_to_register(self) -> Iterable[EventRegistration]:
        gone = ClusterEvent(EventResource.ASSIGNED_POD, Action.DELETE)
        return [EventRegistration(gone, self._hint), EventRegistration(ClusterEvent(EventResource.NODE, Action.ADD))]

    @staticmethod
    def _hint(pod: Pod, change: ClusterChange) -> Hint:
        freed = host_ports(change.old)
        helps = any(ports_clash(wanted, port) for wanted in host_ports(pod) for port in freed)
        return Hint.QUEUE if helps else Hint.SKIP


class PrioritySort:
    name = "PrioritySort"

    def sort_key(self, pod: Pod, queued_at: float) -> tuple[float, ...]:
        return (-(pod.spec.priority or 0), queued_at)


class SchedulingGates:
    name = "SchedulingGates"

    def pre_enqueue(self, pod: Pod) -> PluginStatus | None:
        gates = [gate.name for gate in pod.spec.scheduling_gates]
        if not gates:
            return None
        return unresolvable(Reason("scheduling-gates", f"waiting for scheduling gates: [{' '.join(gates)}]"))

    def events_to_register(self) -> Iterable[EventRegistration]:
        event = ClusterEvent(EventResource.UNSCHEDULED_POD, Action.UPDATE_POD_GATES)
        return [EventRegistration(event, self._hint)]

    @staticmethod
    def _hint(pod: Pod, change: ClusterChange) -> Hint:
        mine = change.new is not None and change.new.metadata.uid == pod.metadata.uid
        return Hint.QUEUE if mine and not change.new.spec.scheduling_gates else Hint.SKIP


class DefaultBinder:
    name = "DefaultBinder"

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    async def bind(self, cycle: CycleState, pod: Pod, node_name: str) -> PluginStatus | None:
        binding = cycle.read(DefaultBinding)
        if binding is not None and binding.is_done:
            return None
        try:
            await self._handle.writer.bind(pod, node_name)
        except (ApiError, ServerUnreachable) as problem:
            return error(f'running Bind plugin "{self.name}": {problem}')
        return None
