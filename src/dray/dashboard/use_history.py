"""The use of devices and the number of waiting pods over the last hours: one sample a minute, in memory, the oldest dropped."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dray.api.dra.device_use import UseCounts

SAMPLE_S = 60.0
# Six hours.
MOST_SAMPLES = 360


@dataclass(frozen=True, slots=True)
class UseSample:
    at: datetime
    counts: UseCounts
    waiting: int

    @property
    def key(self) -> str:
        return str(int(self.at.timestamp()))

    def document(self) -> dict[str, Any]:
        counts = self.counts.document()
        return {"at": int(self.at.timestamp()), "parts": round(self.counts.parts, 2), "waiting": self.waiting, **counts}


class UseHistory:
    """Outlives the watches of the cluster: where nobody looked, samples are missing."""

    def __init__(self) -> None:
        self.samples: deque[UseSample] = deque(maxlen=MOST_SAMPLES)

    def is_due(self, now: datetime) -> bool:
        return not self.samples or (now - self.samples[-1].at).total_seconds() >= SAMPLE_S

    def add(self, sample: UseSample) -> UseSample | None:
        """Returns the sample that had to go."""
        gone = self.samples[0] if len(self.samples) == MOST_SAMPLES else None
        self.samples.append(sample)
        return gone
