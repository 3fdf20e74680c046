"""The scheduler's metrics, under the names Kubernetes gives them, and the timers that feed them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from dray.api.core import Pod
from dray.clock import Clock
from dray.scheduler.framework.interface import ClusterChange, EventRegistration, Hint, PluginStatus, status_word
from dray.telemetry import Registry


def _exponential(start: float, factor: float, count: int) -> tuple[float, ...]:
    return tuple(start * factor**power for power in range(count))


ATTEMPT_BUCKETS = _exponential(0.001, 2, 15)
POINT_BUCKETS = _exponential(0.0001, 2, 12)
PLUGIN_BUCKETS = _exponential(0.00001, 1.5, 20)
SLI_BUCKETS = _exponential(0.01, 2, 20)


class SchedulerMetrics:
    def __init__(self, registry: Registry | None = None) -> None:
        self.registry = registry = registry or Registry()
        self.pending_pods = registry.gauge(
            "scheduler_pending_pods", "Number of pending pods, by the queue type.", ("queue",)
        )
        self.attempts = registry.counter(
            "scheduler_schedule_attempts_total",
            "Number of attempts to schedule pods, by the result.",
            ("result", "profile"),
        )
        self.attempt_duration = registry.histogram(
            "scheduler_scheduling_attempt_duration_seconds",
            "Scheduling attempt latency in seconds (scheduling algorithm + binding).",
            ("result", "profile"),
            ATTEMPT_BUCKETS,
        )
        self.algorithm_duration = registry.histogram(
            "scheduler_scheduling_algorithm_duration_seconds",
            "Scheduling algorithm latency in seconds.",
            (),
            ATTEMPT_BUCKETS,
        )
        self.pod_attempts = registry.histogram(
            "scheduler_pod_scheduling_attempts",
            "Number of attempts to successfully schedule a pod.",
            (),
            (1, 2, 4, 8, 16),
        )
        self.sli_duration = registry.histogram(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "E2e latency for a pod being scheduled, from the time the pod enters the scheduling queue.",
            ("attempts",),
            SLI_BUCKETS,
        )
        self.point_duration = registry.histogram(
            "scheduler_framework_extension_point_duration_seconds",
            "Latency for running all plugins of a specific extension point.",
            ("extension_point", "status", "profile"),
            POINT_BUCKETS,
        )
        self.plugin_duration = registry.histogram(
            "scheduler_plugin_execution_duration_seconds",
            "Duration for running a plugin at a specific extension point.",
            ("plugin", "extension_point", "status"),
            PLUGIN_BUCKETS,
        )
        self.unschedulable_pods = registry.gauge(
            "scheduler_unschedulable_pods",
            "The number of unschedulable pods broken down by plugin name.",
            ("plugin", "profile"),
        )
        self.incoming = registry.counter(
            "scheduler_queue_incoming_pods_total",
            "Number of pods added to scheduling queues by event and queue type.",
            ("queue", "event"),
        )
        self.preemption_attempts = registry.counter(
            "scheduler_preemption_attempts_total", "Total preemption attempts in the cluster till now"
        )
        self.preemption_victims = registry.histogram(
            "scheduler_preemption_victims", "Number of selected preemption victims", (), (1, 2, 4, 8, 16, 32, 64)
        )
        self.cache_size = registry.gauge(
            "scheduler_cache_size", "Number of nodes, pods, and assumed (bound) pods in the scheduler cache.", ("type",)
        )
        self.goroutines = registry.gauge(
            "scheduler_goroutines", "Number of running tasks split by the work they do such as binding.", ("operation",)
        )
        self.event_handling = registry.histogram(
            "scheduler_event_handling_duration_seconds", "Event handling latency in seconds.", ("event",), POINT_BUCKETS
        )
        self.hint_duration = registry.histogram(
            "scheduler_queueing_hint_execution_duration_seconds",
            "Latency for executing a queueing hint function of a plugin.",
            ("plugin", "event", "hint"),
            PLUGIN_BUCKETS,
        )
        self.binding_allocations = registry.counter(
            "scheduler_dra_bindingconditions_allocations_total",
            "Number of devices with binding conditions whose binding ended, by outcome.",
            ("profile", "driver", "status"),
        )
        self.binding_wait = registry.histogram(
            "scheduler_dra_bindingconditions_wait_duration_seconds",
            "Time spent waiting for binding conditions.",
            ("profile", "driver", "status"),
            SLI_BUCKETS,
        )
        self.claim_creates = registry.counter(
            "dynamic_resource_allocation_resourceclaim_creates_total",
            "Number of ResourceClaims created for extended resources.",
            ("status", "admin_access", "owner_api_group", "owner_api_kind"),
        )


log = logging.getLogger(__name__)

PluginTimer = Callable[[str, str, str], None]


SAMPLED_ONE_IN = 10


class PointTimes:
    """Times of extension points that wait for answers, so that other attempts run in between: each since the one before it."""

    def __init__(self, metrics: SchedulerMetrics, clock: Clock, profile: str, is_sampled: bool) -> None:
        self._metrics, self._now = metrics, clock.monotonic
        self._profile, self._is_sampled = profile, is_sampled
        self._last_point = self._last_plugin = self._now()

    def point(self, point: str, status: PluginStatus | None) -> None:
        now = self._now()
        self._metrics.point_duration.observe(now - self._last_point, point, status_word(status), self._profile)
        self._last_point = now

    def plugin(self, plugin: str, point: str, status: PluginStatus | None) -> None:
        if self._is_sampled:
            now = self._now()
            self._metrics.plugin_duration.observe(now - self._last_plugin, plugin, point, status_word(status))
            self._last_plugin = now


class Stopwatches:
    def __init__(self, metrics: SchedulerMetrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock
        self._attempts = 0

    def plugin_timer(self) -> PluginTimer | None:
        """For one attempt in ten, a function that records the time since its last call under plugin, extension point and status."""
        self._attempts += 1
        if self._attempts % SAMPLED_ONE_IN:
            return None
        observe, now = self._metrics.plugin_duration.observe, self._clock.monotonic
        last = now()

        def note(plugin: str, point: str, status: str) -> None:
            nonlocal last
            moment = now()
            observe(moment - last, plugin, point, status)
            last = moment

        return note

    def timed(self, plugin: str, row: EventRegistration) -> EventRegistration:
        """The same registration with a hint that records how long it took; a hint that raises counts as QUEUE."""
        hint = row.hint
        if hint is None:
            return row
        observe, now = self._metrics.hint_duration.observe, self._clock.monotonic

        def timed_hint(pod: Pod, change: ClusterChange) -> Hint:
            started = now()
            try:
                answer = hint(pod, change)
            except Exception:
                # Nobody knows whether the change helps, so the pod is tried; a plugin's bug must not stop the watch.
                log.exception("%s: hint about %s", plugin, change.event.label)
                answer = Hint.QUEUE
            observe(now() - started, plugin, change.event.label, answer.value)
            return answer

        return replace(row, hint=timed_hint)

    def start(self, profile: str) -> Callable[[str, str], None]:
        """A function that records the time since its last call under an extension point and a status."""
        observe, now = self._metrics.point_duration.observe, self._clock.monotonic
        last = now()

        def note(point: str, status: str) -> None:
            nonlocal last
            moment = now()
            observe(moment - last, point, status, profile)
            last = moment

        return note
