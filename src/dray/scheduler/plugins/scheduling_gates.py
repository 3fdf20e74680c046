"""Holds back pods whose `spec.schedulingGates` is not empty."""

from collections.abc import Iterable

from dray.api.core import Pod
from dray.api.reasons import Reason
from dray.scheduler.framework.events import Action, ClusterChange, ClusterEvent, EventRegistration, EventResource, Hint
from dray.scheduler.framework.status import PluginStatus, unresolvable


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
