"""A pod in the scheduling queue, its backoff, and the events that arrive while it is being scheduled."""

import enum
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

from dray.api.core import Pod
from dray.scheduler.framework.events import ClusterChange


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
