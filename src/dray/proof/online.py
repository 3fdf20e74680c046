"""Checks the same promises while the cluster runs.

Watches of different kinds are not in step with each other. Changes wait until they are `LAG_S` old and are then replayed in
the order of their revisions. A change that arrives later than that is replayed at once.
"""

from __future__ import annotations

from collections.abc import Callable

from dray.client import Client
from dray.proof.history import Listed, Read, Record, SeenEvent, Write
from dray.proof.object_past import ObjectPasts
from dray.proof.recording import FOLLOWED, Sink, WatchRecorder
from dray.proof.replay import (
    TYPES,
    Replay,
)
from dray.proof.rules import DeviceRule, LedgerRule, UseRule
from dray.proof.rules.claim_use import examine
from dray.proof.violation import Violation
from dray.proof.watch_streams import StreamCheck

LAG_S = 2.0


class OnlineCheck:
    """A sink for a `WatchRecorder`: `add` takes records, `due` replays those that have waited long enough."""

    def __init__(self, report: Callable[[Violation], None], *, bound_must_fit: bool = False) -> None:
        self._report = report
        self._replay = Replay([DeviceRule(), LedgerRule(bound_must_fit=bound_must_fit), UseRule()])
        self._streams = StreamCheck()
        self._waiting: list[Listed | SeenEvent] = []
        self.pasts = ObjectPasts()
        self._awaited = {kind.plural for kind in FOLLOWED}
        self.violations = 0
        self.events = 0

    def add(self, record: Record) -> None:
        if isinstance(record, Write | Read):
            return
        self.pasts.take(record)
        self._tell(self._streams.take(record))
        if isinstance(record, Listed):
            self._awaited.discard(record.resource)
            self._waiting.append(record)
        elif isinstance(record, SeenEvent) and record.type != "BOOKMARK":
            self.events += 1
            self._waiting.append(record)

    @property
    def objects(self) -> int:
        return sum(len(self._replay.world.keys(resource)) for resource in TYPES)

    def due(self, now: float) -> None:
        """Replays changes that are old enough at `now`, once every kind has been listed."""
        if self._awaited:
            return
        ready = [each for each in self._waiting if each.at <= now - LAG_S]
        self._waiting = [each for each in self._waiting if each.at > now - LAG_S]
        for record in sorted(ready, key=_moment):
            found = self._replay.start_from(record) if isinstance(record, Listed) else self._replay.apply(record)
            self._tell(found)
        if any(isinstance(record, Listed) for record in ready):
            newest = max(each.revision for each in ready)
            self._tell(list(examine(self._replay.world, newest)))

    def _tell(self, found: list[Violation]) -> None:
        for violation in found:
            self.violations += 1
            self._report(violation)


# Kinds that others refer to come first where lists have the same revision.
_ORDER = {kind.plural: position for position, kind in enumerate(FOLLOWED)}


def _moment(record: Listed | SeenEvent) -> tuple[bool, int, int]:
    """Lists first, by kind; then changes by revision."""
    if isinstance(record, Listed):
        return False, _ORDER.get(record.resource, 0), record.revision
    return True, record.revision, _ORDER.get(record.key.resource, 0)


async def watch_cluster(client: Client, check: OnlineCheck, sink: Sink, *, for_s: float = 0.0) -> None:
    """Follows the cluster until cancelled, or for the given number of seconds. `sink` is the check, or passes records on to it."""
    follower = WatchRecorder(client, sink, "watch")
    await follower.start()
    clock = client.clock
    started = clock.monotonic()
    try:
        while not for_s or clock.monotonic() < started + for_s + LAG_S:
            await clock.sleep(min(0.5, LAG_S))
            check.due(clock.monotonic())
    finally:
        await follower.stop()
