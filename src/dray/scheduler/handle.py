"""The parts of the scheduler that plugins may use."""

import random
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from dray.clock import Clock
from dray.features import FeatureGates
from dray.scheduler.devices import DeviceState
from dray.scheduler.metrics import SchedulerMetrics
from dray.scheduler.pod_indexes import ClaimUsers, Nominations, PodGroups
from dray.scheduler.snapshot import Snapshot
from dray.scheduler.writer import ClusterWriter


def _random_uuid() -> str:
    return str(uuid.uuid4())


@dataclass(slots=True)
class Handle:
    """One per scheduler. `share_ids` and `chance` are the only sources of randomness."""

    gates: FeatureGates
    clock: Clock
    snapshot: Snapshot
    devices: DeviceState
    writer: ClusterWriter
    metrics: SchedulerMetrics
    nominations: Nominations = field(default_factory=Nominations)
    claim_users: ClaimUsers = field(default_factory=ClaimUsers)
    groups: PodGroups = field(default_factory=PodGroups)
    share_ids: Callable[[], str] = _random_uuid
    chance: random.Random = field(default_factory=random.Random)
    steps: int = 0
    """Search steps of the allocator so far; benchmarks read it."""
    waiting: int = 0
    """Bindings that wait for somebody else and do not count as work in progress."""
    on_wait: Callable[[], None] = lambda: None

    @contextmanager
    def long_wait(self) -> Iterator[None]:
        """Use it around a wait for a driver or another pod: further pods may be bound meanwhile."""
        self.waiting += 1
        self.on_wait()
        try:
            yield
        finally:
            self.waiting -= 1
