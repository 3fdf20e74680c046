"""Which plugin wants to hear of which event."""

from collections.abc import Iterable, Mapping
from functools import lru_cache

from dray.scheduler.framework.events import ClusterEvent, EventRegistration


class Interests:
    def __init__(self, registrations: Mapping[str, Iterable[EventRegistration]]) -> None:
        self._rows = [(plugin, row) for plugin, rows in registrations.items() for row in rows]
        self.by_event = lru_cache(maxsize=256)(self._matching)

    def _matching(self, event: ClusterEvent) -> tuple[tuple[str, EventRegistration], ...]:
        return tuple((plugin, row) for plugin, row in self._rows if row.event.matches(event))
