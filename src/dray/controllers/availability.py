"""When a pod counts as available: ready, and ready for long enough."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from dray.api.core import Pod
from dray.api.times import parse_time


@dataclass(frozen=True, slots=True)
class Availability:
    """`next_s` is when the next ready pod becomes available, if one is still waited for."""

    ready: int
    available: int
    next_s: float | None


def availability(pods: Iterable[Pod], min_ready_s: int, now: datetime) -> Availability:
    waits = [wait for wait in (_wait_s(pod, min_ready_s, now) for pod in pods) if wait is not None]
    ahead = [wait for wait in waits if wait > 0]
    return Availability(
        len(waits), len(waits) - len(ahead), min((wait for wait in ahead if wait < math.inf), default=None)
    )


def _wait_s(pod: Pod, min_ready_s: int, now: datetime) -> float | None:
    """How long until the pod is available; None if it is not even ready."""
    for condition in pod.status.conditions:
        if condition.type == "Ready" and condition.status == "True":
            if not min_ready_s:
                return 0.0
            since = condition.last_transition_time
            # Without a time there is nothing to count from, and nothing to wait for.
            return max(0.0, min_ready_s - (now - parse_time(since)).total_seconds()) if since else math.inf
    return None
