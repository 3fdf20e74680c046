"""The scheduling queue: active, backoff, unschedulable and gated pods, and which change wakes which pod.

No tasks and no clock of its own: `now` comes in, pods come out. The queue remembers the events that arrive while a pod is being scheduled.
"""

import enum
import heapq
import itertools
import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from dray.api.core import Pod
from dray.scheduler.framework.interface import (
    UNSCHEDULABLE_TIMEOUT,
    Action,
    ClusterChange,
    ClusterEvent,
    EventRegistration,
    EventResource,
    Hint,
    PluginStatus,
)


class QueueName(enum.Enum):
    """The values are those of the `queue` label of scheduler_pending_pods."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    GATED = "gated"
    IN_FLIGHT = "in-flight"


@dataclass(slots=True, eq=False)
class QueuedPod:
    pod: Pod
    first_queued_at: float
    """When the pod was first seen; the scheduling latency counts from here."""
    queued_at: float
    """When it last entered a queue; pods of equal priority go by this."""
    where: QueueName = QueueName.ACTIVE
    attempts: int = 0
    rejections: int = 0
    errors_in_a_row: int = 0
    rejected_by: set[str] = field(default_factory=set)
    gated_by: str = ""
    gated_because: str = ""
    told: str = ""
    """The last `gated_because` that the pod was told."""
    parked_at: float = 0.0
    ticket: int = 0
    """Which of its heap entries is the valid one."""

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid

    @property
    def ended_in_error(self) -> bool:
        return self.errors_in_a_row > 0


@dataclass(frozen=True, slots=True)
class PodBackoff:
    """1 s after the first failure, doubled with every further one, up to a maximum; 0 switches it off."""

    initial_s: float = 1.0
    max_s: float = 10.0

    def ends_at(self, entry: QueuedPod) -> float:
        failures = entry.errors_in_a_row or entry.rejections
        if not failures or not self.max_s:
            return 0.0
        return entry.queued_at + min(self.initial_s * 2.0 ** min(failures - 1, 30), self.max_s)


class InFlight:
    def __init__(self) -> None:
        self._events: list[ClusterChange] = []
        self._dropped = 0
        self._since: OrderedDict[str, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._since)

    def __contains__(self, uid: str) -> bool:
        return uid in self._since

    def begin(self, uid: str) -> None:
        self._since[uid] = self._dropped + len(self._events)

    def saw(self, change: ClusterChange) -> None:
        if self._since:
            self._events.append(change)

    def missed_by(self, uid: str) -> Iterator[ClusterChange]:
        """What happened since the pod's attempt began."""
        since = self._since.get(uid)
        if since is not None:
            yield from self._events[since - self._dropped :]

    def end(self, uid: str) -> None:
        if self._since.pop(uid, None) is None:
            return
        if not self._since:
            self._dropped += len(self._events)
            self._events.clear()
            return
        oldest = next(iter(self._since.values()))
        # Dropping in larger pieces keeps the cost per event constant.
        if oldest - self._dropped > 256:
            del self._events[: oldest - self._dropped]
            self._dropped = oldest


class EventInterests:
    def __init__(self, registrations: Mapping[str, Iterable[EventRegistration]]) -> None:
        self._rows = [(plugin, row) for plugin, rows in registrations.items() for row in rows]
        self.by_event = lru_cache(maxsize=256)(self._matching)

    def _matching(self, event: ClusterEvent) -> tuple[tuple[str, EventRegistration], ...]:
        return tuple((plugin, row) for plugin, row in self._rows if row.event.matches(event))


PreEnqueue = Callable[[Pod], PluginStatus | None]
SortKey = Callable[[Pod, float], tuple[float, ...]]
HeapEntry = tuple[tuple[float, ...], int, int, QueuedPod]

PARKED_AT_MOST_S = 300.0
NOBODY: Mapping[str, QueuedPod] = {}

POD_ADDED = "PodAdd"
BACKOFF_COMPLETE = "BackoffComplete"
ATTEMPT_FAILED = "ScheduleAttemptFailure"


class SchedulingQueue:
    """Holds each waiting pod in exactly one place. `on_ready` is called whenever a pod may be popped.

    `waits_for_people` names the plugins whose gates are opened by people, not by the cluster itself.
    """

    def __init__(
        self,
        pre_enqueue: PreEnqueue,
        registrations: Mapping[str, Iterable[EventRegistration]],
        sort_key: SortKey,
        *,
        backoff: PodBackoff | None = None,
        pop_from_backoff: bool = True,
        waits_for_people: frozenset[str] = frozenset(),
        on_ready: Callable[[], None] = lambda: None,
        on_incoming: Callable[[str, str], None] = lambda queue, event: None,
    ) -> None:
        self._pre_enqueue = pre_enqueue
        self._interests = EventInterests(registrations)
        self._sort_key = sort_key
        self._backoff = backoff or PodBackoff()
        self._pop_from_backoff = pop_from_backoff
        self._waits_for_people = waits_for_people
        self._on_ready = on_ready
        self._on_incoming = on_incoming
        self._tickets = itertools.count(1)
        self._entries: dict[str, QueuedPod] = {}
        self._active: list[HeapEntry] = []
        self._backing_off: list[HeapEntry] = []
        # By plugin: pods that it rejected in an attempt, and pods that it holds at its gate.
        self._parked: dict[str, dict[str, QueuedPod]] = {}
        self._gated: dict[str, dict[str, QueuedPod]] = {}
        self._in_flight = InFlight()
        self.counts: Counter[QueueName] = Counter()

    # --- pods coming and going

    def add(self, pod: Pod, now: float) -> None:
        if pod.metadata.uid in self._entries or pod.metadata.uid in self._in_flight:
            self.update(pod, pod, now)
            return
        entry = QueuedPod(pod, now, now)
        self._entries[entry.uid] = entry
        self._activate_or_gate(entry, now, POD_ADDED)

    def update(self, old: Pod, new: Pod, now: float, changes: Iterable[ClusterChange] = ()) -> None:
        """The waiting pod itself changed; `changes` say how, as far as plugins may care."""
        entry = self._entries.get(new.metadata.uid)
        if entry is None:
            if new.metadata.uid not in self._in_flight:
                self.add(new, now)
            for change in changes:
                self._in_flight.saw(change)
            return
        entry.pod = new
        if entry.where in (QueueName.UNSCHEDULABLE, QueueName.GATED):
            for change in changes:
                self._in_flight.saw(change)
                if self._is_woken_by(entry, change):
                    self._wake(entry, now, change.event.label)
                    return
        elif old.spec.priority != new.spec.priority:
            self._place(entry, entry.where, now)

    def delete(self, uid: str) -> QueuedPod | None:
        entry = self._entries.pop(uid, None)
        if entry is not None:
            self._leave(entry)
        self._in_flight.end(uid)
        return entry

    def get(self, uid: str) -> QueuedPod | None:
        return self._entries.get(uid)

    def waiting(self) -> Iterator[QueuedPod]:
        return iter(self._entries.values())

    def not_told_since(self, parked_at: float) -> list[QueuedPod]:
        """Pods that have waited since then for something that the cluster itself makes, and were not told for what."""
        return [
            entry
            for plugin, gated in self._gated.items()
            if plugin not in self._waits_for_people
            for entry in gated.values()
            if entry.parked_at <= parked_at and entry.told != entry.gated_because
        ]

    def __len__(self) -> int:
        return len(self._entries)

    # --- an attempt

    def pop(self, now: float) -> QueuedPod | None:
        """The next pod to try. With nothing active, a pod that waits out a rejection is taken early."""
        entry = self._pop_heap(self._active)
        if entry is None and self._pop_from_backoff:
            entry = self._pop_early()
        if entry is None:
            return None
        self._leave(entry)
        del self._entries[entry.uid]
        entry.where, entry.gated_by = QueueName.IN_FLIGHT, ""
        entry.attempts += 1
        self._in_flight.begin(entry.uid)
        return entry

    def done(self, uid: str) -> None:
        """The pod was bound or is gone; nothing it missed matters any more."""
        self._in_flight.end(uid)

    def put_back_rejected(self, entry: QueuedPod, rejected_by: Iterable[str], now: float) -> None:
        """After a rejection the pod waits for an event that can help, unless it already came during the attempt.

        Nobody knows what helps a pod that no plugin rejected, such as one that came before the first node: it is tried again.
        """
        entry.rejected_by = set(rejected_by)
        if not entry.rejected_by:
            self.put_back_failed(entry, now)
            return
        entry.rejections += 1
        entry.errors_in_a_row = 0
        entry.queued_at = now
        self._entries[entry.uid] = entry
        missed = list(self._in_flight.missed_by(entry.uid))
        self._in_flight.end(entry.uid)
        for change in missed:
            if self._is_woken_by(entry, change):
                self._wake(entry, now, ATTEMPT_FAILED)
                return
        self._place(entry, QueueName.UNSCHEDULABLE, now)
        self._on_incoming(QueueName.UNSCHEDULABLE.value, ATTEMPT_FAILED)

    def put_back_failed(self, entry: QueuedPod, now: float) -> None:
        """After an error the pod is tried again when its backoff is over, whatever happens meanwhile."""
        entry.rejected_by = set()
        entry.errors_in_a_row += 1
        entry.queued_at = now
        self._entries[entry.uid] = entry
        self._in_flight.end(entry.uid)
        self._wake(entry, now, ATTEMPT_FAILED)

    # --- events and time

    def move(self, change: ClusterChange, now: float) -> int:
        """Wake the parked pods this change may help; how many were."""
        self._in_flight.saw(change)
        if not self._parked and not self._gated:
            return 0
        woken = 0
        for plugin, row in self._interests.by_event(change.event):
            parked, gated = self._parked.get(plugin, NOBODY), self._gated.get(plugin, NOBODY)
            if not parked and not gated:
                continue
            for entry in self._concerned(parked, gated, row, change):
                if row.hint is None or row.hint(entry.pod, change) is Hint.QUEUE:
                    self._wake(entry, now, change.event.label)
                    woken += 1
        return woken

    @staticmethod
    def _concerned(
        parked: Mapping[str, QueuedPod],
        gated: Mapping[str, QueuedPod],
        row: EventRegistration,
        change: ClusterChange,
    ) -> list[QueuedPod]:
        if row.narrow is None:
            return [*parked.values(), *gated.values()]
        uids = row.narrow(change)
        if uids is None:
            return list(parked.values())
        found = (parked.get(uid) or gated.get(uid) for uid in uids)
        return [entry for entry in found if entry is not None]

    def activate(self, uid: str, now: float, label: str = "ForceActivate") -> None:
        entry = self._entries.get(uid)
        if entry is not None and entry.where is not QueueName.ACTIVE:
            self._leave(entry)
            self._activate_or_gate(entry, now, label)

    def flush_backoff(self, now: float) -> None:
        while self._backing_off:
            key, _, ticket, entry = self._backing_off[0]
            if ticket == entry.ticket and key[0] > now:
                return
            heapq.heappop(self._backing_off)
            if ticket == entry.ticket:
                self._leave(entry)
                self._activate_or_gate(entry, now, BACKOFF_COMPLETE)

    def flush_unschedulable(self, now: float) -> None:
        for entry in list(self._entries.values()):
            is_parked = entry.where in (QueueName.UNSCHEDULABLE, QueueName.GATED)
            if is_parked and now - entry.parked_at > PARKED_AT_MOST_S:
                self._wake(entry, now, UNSCHEDULABLE_TIMEOUT.label)

    # --- places

    def _activate_or_gate(self, entry: QueuedPod, now: float, label: str) -> None:
        status = self._pre_enqueue(entry.pod)
        if status is not None and status.is_rejected:
            entry.gated_by, entry.gated_because = status.plugin, status.message
            self._place(entry, QueueName.GATED, now)
            return
        entry.gated_by = ""
        self._place(entry, QueueName.ACTIVE, now)
        self._on_incoming(QueueName.ACTIVE.value, label)
        self._on_ready()

    def _wake(self, entry: QueuedPod, now: float, label: str) -> None:
        self._leave(entry)
        if self._backoff.ends_at(entry) > now:
            self._place(entry, QueueName.BACKOFF, now)
            self._on_incoming(QueueName.BACKOFF.value, label)
            if not entry.ended_in_error:
                self._on_ready()
        else:
            self._activate_or_gate(entry, now, label)

    def _place(self, entry: QueuedPod, where: QueueName, now: float) -> None:
        self._leave(entry)
        entry.where = where
        entry.ticket = next(self._tickets)
        self.counts[where] += 1
        if where is QueueName.ACTIVE:
            key = self._sort_key(entry.pod, entry.queued_at)
            heapq.heappush(self._active, (key, entry.ticket, entry.ticket, entry))
        elif where is QueueName.BACKOFF:
            key = (math.ceil(self._backoff.ends_at(entry)), *self._sort_key(entry.pod, entry.queued_at))
            heapq.heappush(self._backing_off, (key, entry.ticket, entry.ticket, entry))
        else:
            entry.parked_at = now
            for plugin in self._waits_for(entry):
                self._waiting_for(entry).setdefault(plugin, {})[entry.uid] = entry

    def _leave(self, entry: QueuedPod) -> None:
        """Out of its place; heap entries of old tickets are skipped when they surface."""
        if entry.ticket == 0:
            return
        self.counts[entry.where] -= 1
        entry.ticket = 0
        waiting = self._waiting_for(entry)
        for plugin in self._waits_for(entry):
            pods = waiting.get(plugin)
            if pods is not None and pods.pop(entry.uid, None) is not None and not pods:
                del waiting[plugin]

    def _waiting_for(self, entry: QueuedPod) -> dict[str, dict[str, QueuedPod]]:
        return self._gated if entry.where is QueueName.GATED else self._parked

    @staticmethod
    def _waits_for(entry: QueuedPod) -> Iterable[str]:
        return (entry.gated_by,) if entry.gated_by else tuple(entry.rejected_by)

    def _is_woken_by(self, entry: QueuedPod, change: ClusterChange) -> bool:
        if change.event.resource is EventResource.WILDCARD:
            return True
        plugins = set(self._waits_for(entry))
        return any(
            plugin in plugins and (row.hint is None or row.hint(entry.pod, change) is Hint.QUEUE)
            for plugin, row in self._interests.by_event(change.event)
        )

    def _pop_heap(self, heap: list[HeapEntry]) -> QueuedPod | None:
        while heap:
            _, _, ticket, entry = heapq.heappop(heap)
            if ticket == entry.ticket:
                return entry
        return None

    def _pop_early(self) -> QueuedPod | None:
        """The next backing-off pod whose last attempt was a rejection; errors wait out their time."""
        errors: list[HeapEntry] = []
        found: QueuedPod | None = None
        while self._backing_off and found is None:
            item = heapq.heappop(self._backing_off)
            if item[2] != item[3].ticket:
                continue
            if item[3].ended_in_error:
                errors.append(item)
            elif self._is_gated(item[3]):
                continue
            else:
                found = item[3]
        for item in errors:
            heapq.heappush(self._backing_off, item)
        return found

    def _is_gated(self, entry: QueuedPod) -> bool:
        status = self._pre_enqueue(entry.pod)
        if status is None or not status.is_rejected:
            return False
        self._leave(entry)
        entry.gated_by, entry.gated_because = status.plugin, status.message
        self._place(entry, QueueName.GATED, entry.queued_at)
        return True


def pod_update(action: Action, label: str, old: Pod, new: Pod) -> ClusterChange:
    return ClusterChange(ClusterEvent(EventResource.UNSCHEDULED_POD, action, label), old, new)
