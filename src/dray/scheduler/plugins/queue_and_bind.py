"""The plugins before and after the choice of a node: PrioritySort, SchedulingGates and DefaultBinder."""

from collections.abc import Iterable

from dray.api.core import Pod
from dray.api.reasons import Reason
from dray.client.errors import ApiError, ServerUnreachable
from dray.scheduler.framework.cycle_state import CycleState
from dray.scheduler.framework.events import Action, ClusterChange, ClusterEvent, EventRegistration, EventResource, Hint
from dray.scheduler.framework.status import PluginStatus, error, unresolvable
from dray.scheduler.handle import Handle


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
        try:
            await self._handle.writer.bind(pod, node_name)
        except (ApiError, ServerUnreachable) as problem:
            return error(f'running Bind plugin "{self.name}": {problem}')
        return None
