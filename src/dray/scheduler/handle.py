"""The parts of the scheduler that plugins may use, and the writes that they may ask for."""

import random
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from dray.api.core import Pod
from dray.api.resource import ResourceClaim, ResourceClaimConsumerReference
from dray.clock import Clock
from dray.features import FeatureGates
from dray.scheduler.devices import DeviceState
from dray.scheduler.metrics import SchedulerMetrics
from dray.scheduler.snapshot import ClaimUsers, Nominations, PodGroups, Snapshot


class ClusterWriter(Protocol):
    """Refusals raise `dray.client.errors.ApiError`, an unreachable server `ServerUnreachable`."""

    async def get_claim(self, namespace: str, name: str) -> ResourceClaim | None: ...

    async def create_claim(self, claim: ResourceClaim) -> ResourceClaim: ...

    async def update_claim(self, claim: ResourceClaim) -> ResourceClaim: ...

    async def update_claim_status(self, claim: ResourceClaim) -> ResourceClaim: ...

    async def unreserve_claim(self, claim: ResourceClaim, user: ResourceClaimConsumerReference) -> ResourceClaim:
        """Take the user, and nobody else, out of `reservedFor`; the claim's UID is a precondition."""
        ...

    async def delete_claim(self, claim: ResourceClaim) -> None: ...

    async def patch_pod_status(self, pod: Pod, status: dict[str, Any], *, strategic: bool = True) -> None:
        """Only the given fields of `status` change; the pod's UID is a precondition."""
        ...

    async def is_assigned(self, pod: Pod) -> bool:
        """Does this very pod have a node by now, whoever gave it?"""
        ...

    async def bind(self, pod: Pod, node_name: str) -> None: ...

    async def bind_with_claim(
        self, pod: Pod, node_name: str, before: ResourceClaim, after: ResourceClaim
    ) -> ResourceClaim | None:
        """Store the claim's new finalizers and status and bind the pod: in one commit or not at all.

        None where the server stores one object at a time.
        """
        ...

    async def evict(self, victim: Pod, preemptor: Pod) -> None:
        """Mark the victim as disrupted and delete it; its UID is a precondition."""
        ...

    def event(self, pod: Pod, event_type: str, reason: str, action: str, message: str) -> None:
        """Tell people; never waits and never fails."""
        ...


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
    on_wait: Callable[[bool], None] = lambda begins: None
    """Called by the task of the binding when such a wait begins (True) and when it is over."""

    @contextmanager
    def long_wait(self) -> Iterator[None]:
        """Use it around a wait for a driver or another pod: further pods may be bound meanwhile."""
        self.waiting += 1
        self.on_wait(True)
        try:
            yield
        finally:
            self.waiting -= 1
            self.on_wait(False)
