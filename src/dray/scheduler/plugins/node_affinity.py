"""nodeSelector and node affinity: required terms filter, preferred terms score."""

from collections.abc import Hashable, Iterable, Mapping

from dray.api.core import NodeAffinity as Wanted
from dray.api.core import Pod
from dray.api.matching import matches_term, only_names, pod_wants_node, required_nodes
from dray.api.reasons import Reason
from dray.scheduler.framework.cycle_state import CycleState
from dray.scheduler.framework.events import Action, ClusterChange, ClusterEvent, EventRegistration, EventResource, Hint
from dray.scheduler.framework.plugin import Facet, NodeNames
from dray.scheduler.framework.scoring import MAX_SCORE
from dray.scheduler.framework.status import SKIP, PluginStatus, unresolvable
from dray.scheduler.nodes import NodeState
from dray.scheduler.snapshot import Snapshot

REASON = unresolvable(Reason("node-affinity", "node(s) didn't match Pod's node affinity/selector"))


def _wanted(pod: Pod) -> Wanted | None:
    return pod.spec.affinity.node_affinity if pod.spec.affinity else None


def matches_pod_affinity(pod: Pod, node: NodeState) -> bool:
    return pod_wants_node(pod.spec, node.node)


class NodeAffinity:
    name = "NodeAffinity"
    filter_depends_on = frozenset({Facet.OBJECT})
    score_depends_on = frozenset({Facet.OBJECT})

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
        return None if matches_pod_affinity(pod, node) else REASON

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
