"""Keeps pods off cordoned nodes, unless they tolerate being there."""

from collections.abc import Hashable, Iterable

from dray.api.core import Pod, Taint
from dray.api.dra.taints import is_tolerated
from dray.api.reasons import Reason
from dray.scheduler.framework.cycle_state import CycleState
from dray.scheduler.framework.events import Action, ClusterChange, ClusterEvent, EventRegistration, EventResource, Hint
from dray.scheduler.framework.plugin import Facet
from dray.scheduler.framework.status import PluginStatus, unresolvable
from dray.scheduler.nodes import NodeState

REASON = unresolvable(Reason("node-unschedulable", "node(s) were unschedulable"))
TAINT = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


class NodeUnschedulable:
    name = "NodeUnschedulable"
    filter_depends_on = frozenset({Facet.OBJECT})

    def filter_shape(self, cycle: CycleState, pod: Pod) -> Hashable:
        return is_tolerated(pod.spec.tolerations, TAINT)

    def filter(self, cycle: CycleState, pod: Pod, node: NodeState) -> PluginStatus | None:
        if not node.node.spec.unschedulable or is_tolerated(pod.spec.tolerations, TAINT):
            return None
        return REASON

    def events_to_register(self) -> Iterable[EventRegistration]:
        node = ClusterEvent(EventResource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT)
        mine = ClusterEvent(EventResource.UNSCHEDULED_POD, Action.UPDATE_POD_TOLERATION)
        return [EventRegistration(node, self._hint), EventRegistration(mine)]

    @staticmethod
    def _hint(pod: Pod, change: ClusterChange) -> Hint:
        return Hint.SKIP if change.new.spec.unschedulable else Hint.QUEUE
