"""Binds a pod to its chosen node, or undoes everything that was reserved for it."""

import asyncio
import logging
from dataclasses import dataclass

from dray.api.core import Pod
from dray.scheduler.framework.cycle_state import CycleState
from dray.scheduler.framework.profile import SchedulingProfile
from dray.scheduler.framework.status import PluginStatus, StatusCode, error, status_word, unschedulable
from dray.scheduler.handle import Handle
from dray.scheduler.metrics import PointTimes

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Bound:
    """The API server knows the pod's node."""


@dataclass(frozen=True, slots=True)
class NotBound:
    """Everything is undone; `rejected_by` names the plugin if it was a no and not a failure."""

    message: str
    rejected_by: str = ""


class Binder:
    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    async def bind(self, profile: SchedulingProfile, cycle: CycleState, pod: Pod, node_name: str) -> Bound | NotBound:
        """Permit, PreBind, Bind, PostBind; after a failure Unreserve, in reverse order."""
        try:
            status = await self._steps(profile, cycle, pod, node_name)
        except Exception as problem:
            # A plugin's bug must not leave the pod assumed for ever.
            log.exception("binding pod %s/%s", pod.metadata.namespace, pod.metadata.name)
            status = error(str(problem) or repr(problem))
        if status is None:
            for plugin in profile.at.post_bind:
                plugin.post_bind(cycle, pod, node_name)
            return Bound()
        await self.undo(profile, cycle, pod, node_name)
        return NotBound(status.message, status.plugin if status.is_rejected else "")

    async def _steps(
        self, profile: SchedulingProfile, cycle: CycleState, pod: Pod, node_name: str
    ) -> PluginStatus | None:
        times = PointTimes(self._handle.metrics, self._handle.clock, profile.name, cycle.is_sampled)
        steps = (("Permit", self._permit), ("PreBind", self._pre_bind), ("Bind", self._bind))
        for point, step in steps:
            started = times.now()
            status = await step(profile, cycle, pod, node_name, times)
            times.point(point, status_word(status), started)
            if status is not None:
                return status
        return None

    async def _pre_bind(
        self, profile: SchedulingProfile, cycle: CycleState, pod: Pod, node_name: str, times: PointTimes
    ) -> PluginStatus | None:
        for plugin in profile.at.pre_bind:
            started = times.now()
            status = await plugin.pre_bind(cycle, pod, node_name)
            times.plugin(plugin.name, "PreBind", status_word(status), started)
            if status is not None and status.code is not StatusCode.SUCCESS:
                return _worded(status, "PreBind", plugin.name)
        return None

    async def _bind(
        self, profile: SchedulingProfile, cycle: CycleState, pod: Pod, node_name: str, times: PointTimes
    ) -> PluginStatus | None:
        for plugin in profile.at.bind:
            started = times.now()
            status = await plugin.bind(cycle, pod, node_name)
            times.plugin(plugin.name, "Bind", status_word(status), started)
            if status is None or status.code is StatusCode.SUCCESS:
                return None
            if status.code is not StatusCode.SKIP:
                return status.by(plugin.name)
        return error("no bind plugin wanted the pod")

    async def _permit(
        self, profile: SchedulingProfile, cycle: CycleState, pod: Pod, node_name: str, times: PointTimes
    ) -> PluginStatus | None:
        for plugin in profile.at.permit:
            started = times.now()
            status, wait_s = plugin.permit(cycle, pod, node_name)
            waited = 0.0
            while status is not None and status.code is StatusCode.WAIT and waited < wait_s:
                pause = min(0.1, wait_s - waited)
                with self._handle.long_wait():
                    await self._handle.clock.sleep(pause)
                waited += pause
                status, _ = plugin.permit(cycle, pod, node_name)
            times.plugin(plugin.name, "Permit", status_word(status), started)
            if status is None or status.code is StatusCode.SUCCESS:
                continue
            if status.code is StatusCode.WAIT:
                text = f"rejected due to timeout after waiting {wait_s:g}s at plugin {plugin.name}"
                return unschedulable(text).by(plugin.name)
            return _worded(status, "Permit", plugin.name)
        return None

    async def undo(self, profile: SchedulingProfile, cycle: CycleState, pod: Pod, node_name: str) -> None:
        """Give back in reverse order what the Reserve plugins took, then forget the pod."""
        for plugin in reversed(profile.at.reserve):
            try:
                await plugin.unreserve(cycle, pod, node_name)
            except asyncio.CancelledError:
                raise
            except Exception:
                log.exception("%s: unreserve of pod %s/%s", plugin.name, pod.metadata.namespace, pod.metadata.name)
        self._handle.snapshot.forget(pod.metadata.uid)


def _worded(status: PluginStatus, point: str, plugin: str) -> PluginStatus:
    if status.is_rejected:
        return status.by(plugin)
    return PluginStatus(status.code, (status.as_one_reason(f'running {point} plugin "{plugin}"'),), plugin)
