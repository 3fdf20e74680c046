"""The scheduler without its edges: changes come in, decisions and writes go out through the handle."""

import asyncio
import itertools
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from dray.accounting import SCHEDULING, SCHEDULING_WITHOUT_CLAIMS
from dray.allocator import Features
from dray.api.core import Pod
from dray.client.errors import ApiError, ServerUnreachable
from dray.clock import Clock, rfc3339
from dray.features import FeatureGates
from dray.scheduler.assembly import WAITS_FOR_PEOPLE, default_registry, make_profiles
from dray.scheduler.config import SchedulerConfig
from dray.scheduler.cycle import Binder, Bound, Decider
from dray.scheduler.devices import DeviceState
from dray.scheduler.event_handlers import ClusterEventHandlers
from dray.scheduler.explanations import Explanations
from dray.scheduler.framework.interface import (
    ASSIGNED_POD_DELETED,
    AttemptUnfinished,
    ClusterChange,
    PluginStatus,
    StatusCode,
)
from dray.scheduler.framework.profile import PluginRegistry, SchedulingProfile
from dray.scheduler.handle import ClusterWriter, Handle
from dray.scheduler.metrics import PointTimes, SchedulerMetrics, Stopwatches
from dray.scheduler.outcomes import (
    SCHEDULER_ERROR,
    UNSCHEDULABLE,
    Outcome,
    Placement,
    PodRejection,
    SchedulingFailed,
    event_text,
    failure_patch,
)
from dray.scheduler.queue import PodBackoff, QueuedPod, SchedulingQueue
from dray.scheduler.snapshot import Snapshot
from dray.telemetry import VerboseLog

log = logging.getLogger(__name__)
decisions = VerboseLog(__name__)

# Claims of templates are made within milliseconds; two more writes for each pod would be for nothing.
TOLD_AFTER_S = 2.0

# Starts work about a pod in the background.
Spawn = Callable[[Coroutine[Any, Any, None], Pod], None]


class Scheduler:
    """One pod at a time through `schedule_next`; bindings go on in the background through `spawn`."""

    def __init__(
        self,
        writer: ClusterWriter,
        clock: Clock,
        *,
        config: SchedulerConfig | None = None,
        gates: FeatureGates | None = None,
        metrics: SchedulerMetrics | None = None,
        registry: PluginRegistry | None = None,
        spawn: Spawn | None = None,
        on_ready: Callable[[], None] = lambda: None,
    ) -> None:
        self.config = config or SchedulerConfig()
        gates = gates or FeatureGates.default()
        metrics = metrics or SchedulerMetrics()
        counts = SCHEDULING if gates.enabled("DRANodeAllocatableResources") else SCHEDULING_WITHOUT_CLAIMS
        snapshot = Snapshot(counts)
        devices = DeviceState(Features.from_gates(gates), snapshot.log, snapshot.nodes, self._claim_changed)
        self.handle = Handle(gates, clock, snapshot, devices, writer, metrics)
        self.profiles = make_profiles(self.config, registry or default_registry(), self.handle)
        self._stopwatches = Stopwatches(metrics, clock)
        self.queue = self._make_queue(gates, on_ready)
        self.cluster = ClusterEventHandlers(self.handle, self.queue, self.profiles)
        self.explanations = Explanations()
        self.cluster.on_pod_gone = self.explanations.drop
        self.decider = Decider(snapshot, self.handle.nominations, self._stopwatches)
        self._binder = Binder(self.handle)
        self._tasks: set[asyncio.Task[None]] = set()
        self._spawn = spawn or self._spawn_task

    def _make_queue(self, gates: FeatureGates, on_ready: Callable[[], None]) -> SchedulingQueue:
        plugins = {name: plugin for profile in self.profiles.values() for name, plugin in profile.plugins().items()}
        first = next(iter(self.profiles.values()))
        return SchedulingQueue(
            self.held_back,
            {
                name: [self._stopwatches.timed(name, row) for row in plugin.events_to_register()]
                for name, plugin in plugins.items()
                if hasattr(plugin, "events_to_register")
            },
            first.at.queue_sort[0].sort_key,
            backoff=PodBackoff(self.config.pod_initial_backoff_s, self.config.pod_max_backoff_s),
            pop_from_backoff=gates.enabled("SchedulerPopFromBackoffQ"),
            waits_for_people=WAITS_FOR_PEOPLE,
            on_ready=on_ready,
            on_incoming=self.handle.metrics.incoming.inc,
        )

    def held_back(self, pod: Pod) -> PluginStatus | None:
        """Why the pod may not enter the queue yet; None if it may."""
        profile = self.profiles.get(pod.spec.scheduler_name)
        for plugin in profile.at.pre_enqueue if profile is not None else ():
            status = plugin.pre_enqueue(pod)
            if status is not None and status.code is not StatusCode.SUCCESS:
                decisions.say(
                    4, "Status after running PreEnqueue plugin", pod=pod, plugin=plugin.name, status=status.message
                )
                return status.by(plugin.name)
        return None

    def tell_gated(self, now: float) -> None:
        """Tells pods why they may not enter the queue, once they have waited for a moment: most claims are made within it."""
        for entry in self.queue.not_told_since(now - TOLD_AFTER_S):
            entry.told = entry.gated_because
            self._tell(entry.pod, UNSCHEDULABLE, entry.gated_because, None)

    def _claim_changed(self, old: Any, new: Any) -> None:
        self.cluster.claim_changed(old, new)

    # --- one attempt

    async def schedule_next(self) -> bool:
        """Try the next waiting pod; False if none is ready."""
        clock = self.handle.clock
        entry = self.queue.pop(clock.monotonic())
        if entry is None:
            return False
        pod = entry.pod
        profile = self.profiles.get(pod.spec.scheduler_name)
        if profile is None or self._is_settled(pod):
            self.queue.done(entry.uid)
            return True
        decisions.say(4, "Attempting to schedule pod", pod=pod, attempt=entry.attempts)
        started = clock.monotonic()
        try:
            outcome = await self._decide(entry, profile)
        except Exception as problem:
            # A plugin's bug costs this attempt, not the scheduler.
            log.exception("scheduling pod %s/%s", pod.metadata.namespace, pod.metadata.name)
            self.handle.snapshot.forget(entry.uid)
            await self._failed(entry, profile, str(problem) or repr(problem), started)
            return True
        if outcome is None:
            self.queue.done(entry.uid)
            return True
        self.handle.metrics.algorithm_duration.observe(clock.monotonic() - started)
        if isinstance(outcome, Placement):
            self.handle.nominations.withdraw(entry.uid)
            self._spawn(self._bind(entry, profile, outcome, started), pod)
        elif isinstance(outcome, PodRejection):
            await self._rejected(entry, profile, outcome, started)
        else:
            await self._could_not_reserve(entry, profile, outcome, started)
        return True

    async def _decide(self, entry: QueuedPod, profile: SchedulingProfile) -> Outcome | None:
        """One attempt, in turns if it takes long; every turn sees the cluster as it is then. None: the pod has gone."""
        for turn in itertools.count():
            try:
                return self.decider.attempt(profile, entry.pod, turn)
            except AttemptUnfinished:
                await asyncio.sleep(0)
            current = self.cluster.unscheduled(entry.uid)
            if current is None:
                break
            entry.pod = current
        return None

    def _is_settled(self, pod: Pod) -> bool:
        """Nothing to do: the pod goes away, or is on a node already."""
        if pod.metadata.deletion_timestamp is not None:
            text = f"skip schedule deleting pod: {pod.metadata.namespace}/{pod.metadata.name}"
            self.handle.writer.event(pod, "Warning", "FailedScheduling", "Scheduling", text)
            return True
        return self.handle.snapshot.node_of(pod.metadata.uid) is not None

    async def _could_not_reserve(
        self, entry: QueuedPod, profile: SchedulingProfile, failed: SchedulingFailed, started: float
    ) -> None:
        if failed.assumed_on:
            await self._binder.undo(profile, failed.cycle, entry.pod, failed.assumed_on)
        await self._failed(entry, profile, failed.message, started)

    async def _bind(self, entry: QueuedPod, profile: SchedulingProfile, placement: Placement, started: float) -> None:
        pod, metrics, clock = entry.pod, self.handle.metrics, self.handle.clock
        outcome = await self._binder.bind(profile, placement.cycle, pod, placement.node_name)
        if isinstance(outcome, Bound):
            self.queue.done(entry.uid)
            self.explanations.drop(entry.uid)
            decisions.say(4, "Successfully bound pod to node", pod=pod, node=placement.node_name)
            where = f"{pod.metadata.namespace}/{pod.metadata.name}"
            message = f"Successfully assigned {where} to {placement.node_name}"
            self.handle.writer.event(pod, "Normal", "Scheduled", "Binding", message)
            now = clock.monotonic()
            metrics.attempts.inc("scheduled", profile.name)
            metrics.attempt_duration.observe(now - started, "scheduled", profile.name)
            metrics.pod_attempts.observe(entry.attempts)
            metrics.sli_duration.observe(now - entry.first_queued_at, str(min(entry.attempts, 16)))
            return
        # The room that was held for the pod is free again, which may help others.
        self.queue.move(ClusterChange(ASSIGNED_POD_DELETED, old=pod), clock.monotonic())
        if outcome.rejected_by:
            await self._put_back(entry, profile, {outcome.rejected_by}, outcome.message, started)
        else:
            await self._failed(entry, profile, outcome.message, started)

    # --- when there is no node

    async def _rejected(
        self, entry: QueuedPod, profile: SchedulingProfile, rejection: PodRejection, started: float
    ) -> None:
        nominated, failure = await self._post_filter(profile, entry.pod, rejection)
        if failure is not None:
            await self._failed(entry, profile, failure, started)
            return
        if nominated:
            self.handle.nominations.nominate(entry.pod, nominated)
        elif nominated is not None:
            self.handle.nominations.withdraw(entry.uid)
        at = rfc3339(self.handle.clock.now())
        self.explanations.note(entry.pod, rejection, self.handle.snapshot.nodes, profile.device_explaining, at)
        await self._put_back(entry, profile, rejection.rejected_by, rejection.message, started, nominated)

    async def _post_filter(
        self, profile: SchedulingProfile, pod: Pod, rejection: PodRejection
    ) -> tuple[str | None, str | None]:
        """(what to do about the nominated node, error text); every text goes into the message."""
        if not rejection.nodes:
            return None, None
        texts: list[str] = []
        nominated: str | None = None
        by_status = rejection.nodes_by_status
        if rejection.pre_filter is not None:
            by_status = {rejection.pre_filter: self.handle.snapshot.nodes.everything}
        times = PointTimes(self.handle.metrics, self.handle.clock, profile.name, rejection.cycle.is_sampled)
        for plugin in profile.at.post_filter:
            result = await plugin.post_filter(rejection.cycle, pod, self.handle.snapshot, by_status)
            times.plugin(plugin.name, "PostFilter", result.status)
            is_last = (
                result.status.code in (StatusCode.ERROR, StatusCode.SUCCESS) or plugin is profile.at.post_filter[-1]
            )
            if is_last:
                times.point("PostFilter", result.status)
            if result.status.code is StatusCode.ERROR:
                return None, f'running PostFilter plugin "{plugin.name}": {result.status.message}'
            if result.status.code is StatusCode.SUCCESS:
                return result.nominated_node, None
            nominated = result.nominated_node if result.nominated_node is not None else nominated
            texts.append(result.status.message)
        rejection.post_filter = tuple(texts)
        return nominated, None

    async def _put_back(
        self,
        entry: QueuedPod,
        profile: SchedulingProfile,
        rejected_by: set[str],
        message: str,
        started: float,
        nominated: str | None = None,
    ) -> None:
        now = self.handle.clock.monotonic()
        self.handle.metrics.attempts.inc("unschedulable", profile.name)
        self.handle.metrics.attempt_duration.observe(now - started, "unschedulable", profile.name)
        decisions.say(4, "Unable to schedule pod", pod=entry.pod, plugins=sorted(rejected_by), err=message)
        if self._refresh(entry):
            self.queue.put_back_rejected(entry, rejected_by, now)
        self._tell(entry.pod, UNSCHEDULABLE, message, nominated)

    async def _failed(self, entry: QueuedPod, profile: SchedulingProfile, message: str, started: float) -> None:
        now = self.handle.clock.monotonic()
        self.handle.metrics.attempts.inc("error", profile.name)
        self.handle.metrics.attempt_duration.observe(now - started, "error", profile.name)
        if self._refresh(entry):
            self.queue.put_back_failed(entry, now)
        self.handle.nominations.withdraw(entry.uid)
        self._tell(entry.pod, SCHEDULER_ERROR, message, "")

    def _refresh(self, entry: QueuedPod) -> bool:
        """The pod as it is now goes back into the queue; False if it is gone or has a node."""
        current = self.cluster.unscheduled(entry.uid)
        if current is None:
            self.queue.done(entry.uid)
            return False
        entry.pod = current
        return True

    def _tell(self, pod: Pod, reason: str, message: str, nominated: str | None) -> None:
        self.handle.writer.event(pod, "Warning", "FailedScheduling", "Scheduling", event_text(message))
        patch = failure_patch(pod, reason, message, nominated, self.handle.clock)
        if patch:
            self._spawn(self._patch(pod, patch), pod)

    async def _patch(self, pod: Pod, patch: dict[str, Any]) -> None:
        try:
            await self.handle.writer.patch_pod_status(pod, patch)
        except (ApiError, ServerUnreachable) as problem:
            log.info("pod %s/%s: condition not written: %s", pod.metadata.namespace, pod.metadata.name, problem)

    def parked_by_plugin(self) -> Iterator[tuple[dict[str, str], int]]:
        """How many waiting pods each plugin turned away, per profile; for the gauge."""
        counts: Counter[tuple[str, str]] = Counter()
        for entry in self.queue.waiting():
            for plugin in entry.rejected_by or ({entry.gated_by} if entry.gated_by else ()):
                counts[plugin, entry.pod.spec.scheduler_name] += 1
        for (plugin, profile), count in counts.items():
            yield {"plugin": plugin, "profile": profile}, count

    # --- tasks

    def _spawn_task(self, work: Coroutine[Any, Any, None], _: Pod) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @property
    def running(self) -> int:
        """Bindings and status writes under way."""
        return len(self._tasks)

    async def settled(self) -> None:
        """Wait for everything that is under way."""
        # Those that have ended leave the set in the loop's next turn.
        while under_way := [task for task in self._tasks if not task.done()]:
            await asyncio.gather(*under_way, return_exceptions=True)
