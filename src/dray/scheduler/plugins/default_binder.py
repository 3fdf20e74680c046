"""Bind: tell the API server which node the pod got."""

from dray.api.core import Pod
from dray.client.errors import ApiError, ServerUnreachable
from dray.scheduler.framework.cycle_state import CycleState
from dray.scheduler.framework.status import PluginStatus, error
from dray.scheduler.handle import Handle


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
