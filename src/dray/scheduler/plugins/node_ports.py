"""A host port can be used once per node, protocol and address."""

from collections.abc import Hashable, Iterable

from dray.api.core import Pod
from dray.api.host_ports import host_ports, ports_clash
from dray.api.reasons import Reason
from dray.scheduler.framework.cycle_state import CycleState
from dray.scheduler.framework.events import Action, ClusterChange, ClusterEvent, EventRegistration, EventResource, Hint
from dray.scheduler.framework.plugin import Facet
from dray.scheduler.framework.status import SKIP, PluginStatus, unschedulable
from dray.scheduler.nodes import NodeState
from dray.scheduler.snapshot import Snapshot

REASON = unschedulable(Reason("host-port", "node(s) didn't have free ports for the requested pod ports"))


class NodePorts:
    name = "NodePorts"
    filter_depends_on = frozenset({Facet.PODS})

    def pre_filter(self, cycle: CycleState, pod: Pod, snapshot: Snapshot) -> PluginStatus | None:
        return None if host_ports(pod) else SKIP

    def filter_shape(self, cycle: CycleState, pod: Pod) -> Hashable:
        return host_ports(pod)

    def filter(self, cycle: CycleState, pod: Pod, node: NodeState) -> PluginStatus | None:
        taken = any(ports_clash(wanted, port) for wanted in host_ports(pod) for port in node.ports)
        return REASON if taken else None

    def events_to_register(self) -> Iterable[EventRegistration]:
        gone = ClusterEvent(EventResource.ASSIGNED_POD, Action.DELETE)
        return [EventRegistration(gone, self._hint), EventRegistration(ClusterEvent(EventResource.NODE, Action.ADD))]

    @staticmethod
    def _hint(pod: Pod, change: ClusterChange) -> Hint:
        freed = host_ports(change.old)
        helps = any(ports_clash(wanted, port) for wanted in host_ports(pod) for port in freed)
        return Hint.QUEUE if helps else Hint.SKIP
