"""How long the extension points of an attempt take."""

from collections.abc import Callable

from dray.clock import Clock
from dray.scheduler.metrics import SchedulerMetrics


class Stopwatches:
    def __init__(self, metrics: SchedulerMetrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock

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
