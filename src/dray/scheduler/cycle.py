"""One attempt to schedule a pod: the scheduling cycle (`Decider`) and the binding cycle (`Binder`).

The scheduling cycle finds a node for the pod, assumes the pod there and reserves; it writes nothing and awaits nothing. The binding cycle binds
the pod to its chosen node, or undoes everything that was reserved for it.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import replace

from dray.api.core import Pod
from dray.api.reasons import Reason
from dray.scheduler.framework.filtering import FilterRun, Found, nodes_to_find, positions
from dray.scheduler.framework.interface import (
    CycleState,
    DefaultBinding,
    NodeNames,
    PluginStatus,
    StatusCode,
    error,
    status_word,
    unresolvable,
    unschedulable,
)
from dray.scheduler.framework.profile import SchedulingProfile
from dray.scheduler.framework.scoring import ScoreRun, first_from
from dray.scheduler.handle import Handle
from dray.scheduler.metrics import PluginTimer, PointTimes, Stopwatches
from dray.scheduler.node_demand import DemandByNode
from dray.scheduler.outcomes import Outcome, Placement, PodRejection, SchedulingFailed
from dray.scheduler.snapshot import Nominations, Snapshot


def _no_stopwatch(point: str, status: str) -> None:
    pass


def _word(answer: PluginStatus | NodeNames | None) -> str:
    return status_word(answer if isinstance(answer, PluginStatus) else None)


@dataclass(frozen=True, slots=True)
class PreFiltered:
    """What PreFilter left: the nodes still possible, and those ruled out by name."""

    candidates: int
    ruled_out: dict[PluginStatus, int]


class Decider:
    """Schedules pods over one snapshot, and remembers where the next walk over the nodes starts."""

    def __init__(self, snapshot: Snapshot, nominations: Nominations, stopwatches: Stopwatches | None = None) -> None:
        self.snapshot = snapshot
        self._nominations = nominations
        self._stopwatches = stopwatches
        self._timer: PluginTimer | None = None
        self.next_start = 0

    def attempt(self, profile: SchedulingProfile, pod: Pod, turn: int | None = None) -> Outcome:
        """A `Placement` means the pod is assumed and reserved; its caller must bind it or undo that.

        With a `turn` it may raise `AttemptUnfinished` before it has changed anything; the caller then calls it again with the next turn.
        """
        self.snapshot.refresh()
        cycle = CycleState(turn)
        nodes = len(self.snapshot.nodes)
        if not nodes:
            return PodRejection(0, cycle)
        note = self._stopwatches.start(profile.name) if self._stopwatches else _no_stopwatch
        self._timer = self._stopwatches.plugin_timer() if self._stopwatches else None
        cycle.is_sampled = self._timer is not None
        allowed = self.pre_filter(profile, cycle, pod)
        note("PreFilter", "Success" if isinstance(allowed, PreFiltered) else "Unschedulable")
        if not isinstance(allowed, PreFiltered):
            return allowed
        found = self._find(profile, cycle, pod, allowed)
        note("Filter", "Success" if found.feasible else "Unschedulable")
        if found.failure is not None:
            return SchedulingFailed(found.failure.reasons[0], cycle)
        if not found.feasible:
            return PodRejection(nodes, cycle, nodes_by_status=found.rejected | allowed.ruled_out)
        node_name = self._choose(profile, cycle, pod, found, note)
        if isinstance(node_name, PluginStatus):
            return SchedulingFailed(node_name.reasons[0], cycle)
        failure = self._assume_and_reserve(profile, cycle, pod, node_name)
        note("Reserve", "Error" if failure else "Success")
        if failure is not None:
            return failure
        return Placement(node_name, cycle, found.walked, found.feasible.bit_count())

    # --- PreFilter

    def pre_filter(
        self, profile: SchedulingProfile, cycle: CycleState, pod: Pod
    ) -> PreFiltered | PodRejection | SchedulingFailed:
        names: frozenset[str] | None = None
        named_by: list[str] = []
        for plugin in profile.at.pre_filter:
            answer = plugin.pre_filter(cycle, pod, self.snapshot)
            if self._timer is not None:
                self._timer(plugin.name, "PreFilter", _word(answer))
            if answer is None:
                continue
            if isinstance(answer, NodeNames):
                names = answer.names if names is None else names & answer.names
                named_by.append(plugin.name)
            elif answer.code is StatusCode.SUCCESS:
                continue
            elif answer.code is StatusCode.SKIP:
                cycle.skipped_filters.add(plugin.name)
            elif answer.is_rejected:
                return PodRejection(len(self.snapshot.nodes), cycle, pre_filter=answer.by(plugin.name))
            else:
                return SchedulingFailed(answer.as_one_reason(f'running PreFilter plugin "{plugin.name}"'), cycle)
        return self._restrict(cycle, names, named_by)

    def _restrict(
        self, cycle: CycleState, names: frozenset[str] | None, named_by: list[str]
    ) -> PreFiltered | PodRejection:
        everything = self.snapshot.nodes.everything
        if names is None:
            return PreFiltered(everything, {})
        candidates = self.snapshot.nodes.mask_of(names)
        status = unresolvable(Reason("not-considered", f"node(s) didn't satisfy plugin(s) [{' '.join(named_by)}]")).by(
            named_by[-1]
        )
        ruled_out = {status: everything & ~candidates} if everything & ~candidates else {}
        if not candidates:
            return PodRejection(len(self.snapshot.nodes), cycle, nodes_by_status=ruled_out)
        return PreFiltered(candidates, ruled_out)

    # --- Filter

    def _find(self, profile: SchedulingProfile, cycle: CycleState, pod: Pod, allowed: PreFiltered) -> Found:
        run = FilterRun(profile.filter_steps, cycle, pod, self.snapshot, self._timer)
        nominated = self.snapshot.nodes.get(pod.status.nominated_node_name)
        if nominated is not None and nominated.bit & allowed.candidates:
            found = Found(run.passing(nominated.bit, {}), 0)
            self.respect_nominations(run, pod, found)
            if found.feasible:
                return found
        nodes = len(self.snapshot.nodes)
        wanted = nodes_to_find(allowed.candidates.bit_count(), profile.percentage_of_nodes_to_score)
        self.next_start %= nodes
        found = run.find(allowed.candidates, self.next_start, wanted)
        self.respect_nominations(run, pod, found)
        return found

    def respect_nominations(self, run: FilterRun, pod: Pod, found: Found) -> None:
        """Nodes where nominated pods are expected must have room for those as well."""
        if not self._nominations:
            return
        priority = pod.spec.priority or 0
        for position in positions(found.feasible & self.snapshot.nodes.mask_of(self._nominations.nodes())):
            node = self.snapshot.nodes[position]
            expected = self._nominations.at_least(node.name, priority, pod.metadata.uid)
            if not expected:
                continue
            with self.snapshot.hypothetically_with(expected, node.name):
                status = run.on_one(position)
            if status is not None:
                found.feasible &= ~node.bit
                found.rejected[status] = found.rejected.get(status, 0) | node.bit

    # --- Score

    def _choose(
        self, profile: SchedulingProfile, cycle: CycleState, pod: Pod, found: Found, note: Callable[[str, str], None]
    ) -> str | PluginStatus:
        start = self.next_start
        self.next_start = (start + found.walked) % len(self.snapshot.nodes)
        if found.feasible.bit_count() == 1:
            return self.snapshot.nodes[found.feasible.bit_length() - 1].name
        run = ScoreRun(cycle, pod, self.snapshot, found.feasible, self._timer)
        failure = run.pre_score(profile.at.pre_score)
        note("PreScore", _word(failure))
        if failure is not None:
            return failure
        best = run.best(profile.score_steps)
        note("Score", "Success")
        # Among equals the node that is met first in this attempt's walk.
        return self.snapshot.nodes[first_from(best, start)].name

    # --- Reserve

    def _assume_and_reserve(
        self, profile: SchedulingProfile, cycle: CycleState, pod: Pod, node_name: str
    ) -> SchedulingFailed | None:
        self.snapshot.assume(self._as_it_will_be(cycle, pod, node_name), node_name)
        for plugin in profile.at.reserve:
            status = plugin.reserve(cycle, pod, node_name)
            if self._timer is not None:
                self._timer(plugin.name, "Reserve", _word(status))
            if status is not None and status.code is not StatusCode.SUCCESS:
                return SchedulingFailed(
                    status.as_one_reason(f'running Reserve plugin "{plugin.name}"'), cycle, node_name
                )
        return None

    def _as_it_will_be(self, cycle: CycleState, pod: Pod, node_name: str) -> Pod:
        """The pod with its node, and with what its claims take there; leftovers of earlier attempts go."""
        devices, node = cycle.read(DemandByNode), self.snapshot.nodes.get(node_name)
        there = devices.on_node(node) if devices is not None and devices.on_node is not None and node else None
        statuses = there.statuses if there is not None else ()
        status = pod.status
        if statuses != status.node_allocatable_resource_claim_statuses:
            status = replace(status, node_allocatable_resource_claim_statuses=statuses)
        return replace(pod, spec=replace(pod.spec, node_name=node_name), status=status)


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
            status = await step(profile, cycle, pod, node_name, times)
            times.point(point, status)
            if status is not None:
                return status
        return None

    async def _pre_bind(
        self, profile: SchedulingProfile, cycle: CycleState, pod: Pod, node_name: str, times: PointTimes
    ) -> PluginStatus | None:
        if profile.binds_by_default:
            cycle.write(DefaultBinding())
        for plugin in profile.at.pre_bind:
            status = await plugin.pre_bind(cycle, pod, node_name)
            times.plugin(plugin.name, "PreBind", status)
            if status is not None and status.code is not StatusCode.SUCCESS:
                return _worded(status, "PreBind", plugin.name)
        return None

    async def _bind(
        self, profile: SchedulingProfile, cycle: CycleState, pod: Pod, node_name: str, times: PointTimes
    ) -> PluginStatus | None:
        for plugin in profile.at.bind:
            status = await plugin.bind(cycle, pod, node_name)
            times.plugin(plugin.name, "Bind", status)
            if status is None or status.code is StatusCode.SUCCESS:
                return None
            if status.code is not StatusCode.SKIP:
                return status.by(plugin.name)
        return error("no bind plugin wanted the pod")

    async def _permit(
        self, profile: SchedulingProfile, cycle: CycleState, pod: Pod, node_name: str, times: PointTimes
    ) -> PluginStatus | None:
        for plugin in profile.at.permit:
            status, wait_s = plugin.permit(cycle, pod, node_name)
            waited = 0.0
            while status is not None and status.code is StatusCode.WAIT and waited < wait_s:
                pause = min(0.1, wait_s - waited)
                with self._handle.long_wait():
                    await self._handle.clock.sleep(pause)
                waited += pause
                status, _ = plugin.permit(cycle, pod, node_name)
            times.plugin(plugin.name, "Permit", status)
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
