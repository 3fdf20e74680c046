"""A pod that names its node goes nowhere else."""

from collections.abc import Hashable, Iterable

from dray.api.core import Pod
from dray.api.reasons import Reason
from dray.scheduler.framework.cycle_state import CycleState
from dray.scheduler.framework.events import Action, ClusterEvent, EventRegistration, EventResource
from dray.scheduler.framework.plugin import Facet
from dray.scheduler.framework.status import SKIP, PluginStatus, unresolvable
from dray.scheduler.nodes import NodeState
from dray.scheduler.snapshot import Snapshot

REASON = unresolvable(Reason("node-name", "node(s) didn't match the requested node name"))


class NodeName:
    name = "NodeName"
    filter_depends_on = frozenset({Facet.OBJECT})

    def pre_filter(self, cycle: CycleState, pod: Pod, snapshot: Snapshot) -> PluginStatus | None:
        return None if pod.spec.node_name else SKIP

    def filter_shape(self, cycle: CycleState, pod: Pod) -> Hashable:
        return pod.spec.node_name

    def filter(self, cycle: CycleState, pod: Pod, node: NodeState) -> PluginStatus | None:
        return None if pod.spec.node_name in ("", node.name) else REASON

    def events_to_register(self) -> Iterable[EventRegistration]:
        return [EventRegistration(ClusterEvent(EventResource.NODE, Action.ADD))]
