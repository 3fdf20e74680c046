"""How long the extension points of an attempt take."""

import logging
from collections.abc import Callable
from dataclasses import replace

from dray.api.core import Pod
from dray.clock import Clock
from dray.scheduler.framework.events import Change, EventRegistration, Hint
from dray.scheduler.metrics import SchedulerMetrics

log = logging.getLogger(__name__)

PluginTimer = Callable[[str, str, str], None]


SAMPLED_ONE_IN = 10


class Stopwatches:
    def __init__(self, metrics: SchedulerMetrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock
        self._attempts = 0

    def plugin_timer(self) -> PluginTimer | None:
        """For one attempt in ten: told plugin, extension point and status word, it notes the time since it was told last."""
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
        """The same interest, whose hint notes how long it took; one that fails counts as yes."""
        hint = row.hint
        if hint is None:
            return row
        observe, now = self._metrics.hint_duration.observe, self._clock.monotonic

        def timed_hint(pod: Pod, change: Change) -> Hint:
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
        """Each call notes the time since the one before under an extension point and a status."""
        observe, now = self._metrics.point_duration.observe, self._clock.monotonic
        last = now()

        def note(point: str, status: str) -> None:
            nonlocal last
            moment = now()
            observe(moment - last, point, status, profile)
            last = moment

        return note
