"""A scheduler over a cluster in memory, for tests."""

import asyncio
from collections.abc import Sequence
from typing import Any

from tests.builders.objects import (
    NAMESPACE,
    a_class,
    a_node,
    a_slice,
)

from dray.api.core import (
    Pod,
    PodStatus,
)
from dray.api.resource import (
    ResourceClaim,
)
from dray.clock import SimulatedClock
from dray.features import FeatureGates
from dray.scheduler.config import SchedulerConfig
from dray.scheduler.scheduler import Scheduler
from dray.sim.memory_cluster import (
    MemoryCluster,
    RecordedEvent,
)


class World:
    """A scheduler over a cluster in memory, on simulated time."""

    def __init__(
        self,
        *objects: Any,
        gates: FeatureGates | None = None,
        config: SchedulerConfig | None = None,
        at_once: bool = True,
        plugins: Any = None,
    ) -> None:
        self.clock = SimulatedClock()
        self.cluster = MemoryCluster(at_once=at_once)
        self.scheduler = Scheduler(self.cluster, self.clock, gates=gates, config=config, registry=plugins)
        self.apply(*objects)
        self.cluster.watch(self.scheduler.cluster)

    def apply(self, *objects: Any) -> None:
        self.cluster.apply(*objects)

    async def attempt(self) -> bool:
        """One attempt with everything that follows from it."""
        tried = await self.scheduler.schedule_next()
        await self.finish()
        return tried

    async def settle(self, seconds: float = 0.0) -> None:
        """Try pods until none is ready; then let time pass and try again."""
        for _ in range(int(seconds) + 1):
            while await self.attempt():
                pass
            if seconds:
                await self.clock.advance(1.0)
                self.scheduler.queue.flush_backoff(self.clock.monotonic())
                self.scheduler.tell_gated(self.clock.monotonic())
        self.check()

    async def finish(self, seconds: float = 0.0) -> None:
        if seconds:
            await self.clock.advance(seconds)
        for _ in range(50):
            if not self.scheduler.running:
                return
            await asyncio.sleep(0)
            if not self.at_rest():
                await self.clock.advance(0.01)

    def at_rest(self) -> bool:
        return not self.scheduler.running

    def pod(self, name: str = "pod") -> Pod:
        found: Pod = self.cluster.get(Pod, name, NAMESPACE)
        return found

    def claim(self, name: str = "claim") -> ResourceClaim:
        found: ResourceClaim = self.cluster.get(ResourceClaim, name, NAMESPACE)
        return found

    def node_of(self, name: str = "pod") -> str:
        return self.pod(name).spec.node_name

    def devices_of(self, claim: str = "claim") -> list[str]:
        allocation = self.claim(claim).status.allocation
        return [f"{row.pool}/{row.device}" for row in allocation.devices.results] if allocation is not None else []

    def message(self, name: str = "pod") -> str:
        """What the pod's condition says about why it waits."""
        conditions = {row.type: row for row in self.pod(name).status.conditions}
        return conditions["PodScheduled"].message if "PodScheduled" in conditions else ""

    def reason(self, name: str = "pod") -> str:
        conditions = {row.type: row for row in self.pod(name).status.conditions}
        return conditions["PodScheduled"].reason if "PodScheduled" in conditions else ""

    def events(self, reason: str = "") -> list[RecordedEvent]:
        return [event for event in self.cluster.events if not reason or event.reason == reason]

    def where(self, name: str = "pod") -> str:
        """The queue that holds the pod."""
        entry = self.scheduler.queue.get(f"uid-{name}")
        return entry.where.value if entry is not None else ""

    def requested(self, node: str = "node-1") -> dict[str, int]:
        state = self.scheduler.handle.snapshot.nodes.get(node)
        assert state is not None
        return {name: state.ledger.requested(name) for name in ("cpu", "memory")}

    def check(self) -> None:
        """What must always hold."""
        self.scheduler.handle.snapshot.check()
        self.scheduler.handle.devices.check()
        held: dict[tuple[str, str, str], str] = {}
        for claim in self.cluster.all(ResourceClaim):
            allocation = claim.status.allocation
            for row in allocation.devices.results if allocation is not None else ():
                if row.share_id is None and not row.admin_access:
                    key = (row.driver, row.pool, row.device)
                    assert held.setdefault(key, claim.metadata.name) == claim.metadata.name, f"{key} is given twice"


EMPTY_STATUS = PodStatus()


def a_world(
    *objects: Any, nodes: Sequence[str] = ("node-1",), devices: Any = 2, device_class: Any = None, **kwargs: Any
) -> World:
    """Nodes with devices, and a class for them."""
    kit = [made for node in nodes for made in (a_node(node), a_slice(node, devices=devices))]
    return World(*kit, device_class or a_class(), *objects, **kwargs)
