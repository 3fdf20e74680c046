"""A waiting pod and its history."""

import enum
from dataclasses import dataclass, field

from dray.api.core import Pod


class Where(enum.Enum):
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
    where: Where = Where.ACTIVE
    attempts: int = 0
    rejections: int = 0
    errors_in_a_row: int = 0
    rejected_by: set[str] = field(default_factory=set)
    gated_by: str = ""
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
class Backoff:
    """1 s after the first failure, doubled with every further one, up to a maximum; 0 switches it off."""

    initial_s: float = 1.0
    max_s: float = 10.0

    def ends_at(self, entry: QueuedPod) -> float:
        failures = entry.errors_in_a_row or entry.rejections
        if not failures or not self.max_s:
            return 0.0
        return entry.queued_at + min(self.initial_s * 2.0 ** min(failures - 1, 30), self.max_s)
