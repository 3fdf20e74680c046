"""Node taints: NoSchedule and NoExecute keep a pod away, PreferNoSchedule costs points."""

from collections.abc import Hashable, Iterable, Mapping

from dray.api.core import Pod
from dray.api.dra.taints import PREFER_NO_SCHEDULE, first_untolerated, is_tolerated
from dray.api.reasons import Reason
from dray.scheduler.framework.cycle_state import CycleState
from dray.scheduler.framework.events import Action, ClusterChange, ClusterEvent, EventRegistration, EventResource, Hint
from dray.scheduler.framework.plugin import Facet
from dray.scheduler.framework.scoring import MAX_SCORE
from dray.scheduler.framework.status import PluginStatus, unresolvable
from dray.scheduler.nodes import NodeState

REASON = unresolvable(Reason("node-taint", "node(s) had untolerated taint(s)"))


class TaintToleration:
    name = "TaintToleration"
    filter_depends_on = frozenset({Facet.OBJECT})
    score_depends_on = frozenset({Facet.OBJECT})

    def filter_shape(self, cycle: CycleState, pod: Pod) -> Hashable:
        return pod.spec.tolerations

    score_shape = filter_shape

    def filter(self, cycle: CycleState, pod: Pod, node: NodeState) -> PluginStatus | None:
        taints = node.node.spec.taints
        return REASON if taints and first_untolerated(taints, pod.spec.tolerations) else None

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
