"""The real scheduler over a copy of a cluster: no server, no waiting, the same answer every time."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from dray.accounting import NodeLedger
from dray.api.core import Node, Pod
from dray.api.dra.consumption import allocation_results
from dray.api.dra.device_use import ClusterUse
from dray.api.dra.pod_claims import claim_names
from dray.api.meta import Condition
from dray.api.reasons import Reason
from dray.api.resource import AllocatedDeviceStatus, DeviceTaintRule, ResourceClaim, ResourceSlice
from dray.clock import SimulatedClock
from dray.explain.cluster_objects import ClusterObjects
from dray.explain.reason_codes import SCHEDULED, distance
from dray.features import FeatureGates
from dray.scheduler.assembly import OURS
from dray.scheduler.config import SchedulerConfig, with_policy
from dray.scheduler.framework.profile import PluginRegistry
from dray.scheduler.scheduler import Scheduler
from dray.sim.admitted_pods import (
    PreparedPods,
    every_pod,
    prepare,
)
from dray.sim.memory_cluster import MemoryCluster

DEFAULT_POLICY = "default"
# Longer than any backoff: after this long every pod that may try again does.
PAUSE_S = 30.0
MOST_ROUNDS = 1000
# What a reading of the clock costs. A search reads it every few dozen steps, so ten seconds are about twenty million steps.
READING_S = 0.00003


class SimulationClock(SimulatedClock):
    """Time passes only in `sleep`, and a little with every reading: a long search reaches its deadline after the same
    number of steps every time."""

    def monotonic(self) -> float:
        self._elapsed += READING_S
        return self._elapsed

    async def sleep(self, seconds: float) -> None:
        self.skip(seconds)

    def skip(self, seconds: float) -> None:
        self._elapsed += max(seconds, 0.0)


class SimulatedCluster(MemoryCluster):
    """Counts what the scheduler does, and acts for the drivers: devices with binding conditions become ready at once."""

    def __init__(self) -> None:
        super().__init__()
        self.bound = 0
        self.preempted: list[Pod] = []

    async def bind(self, pod: Pod, node_name: str) -> None:
        await super().bind(pod, node_name)
        self.bound += 1

    async def evict(self, victim: Pod, preemptor: Pod) -> None:
        await super().evict(victim, preemptor)
        self.preempted.append(victim)

    async def update_claim_status(self, claim: ResourceClaim) -> ResourceClaim:
        return await super().update_claim_status(_made_ready(claim))

    def event(self, pod: Pod, event_type: str, reason: str, action: str, message: str) -> None:
        """Events are dropped: no one reads them, and a large cluster has very many."""


def _made_ready(claim: ResourceClaim) -> ResourceClaim:
    allocation = claim.status.allocation
    if allocation is None or not any(result.binding_conditions for result in allocation.devices.results):
        return claim
    told = {(row.driver, row.pool, row.device): row for row in claim.status.devices}
    for result in allocation.devices.results:
        key = (result.driver, result.pool, result.device)
        if result.binding_conditions and key not in told:
            conditions = tuple(Condition(type=name, status="True") for name in result.binding_conditions)
            told[key] = AllocatedDeviceStatus(
                driver=result.driver,
                pool=result.pool,
                device=result.device,
                share_id=result.share_id,
                conditions=conditions,
            )
    return replace(claim, status=replace(claim.status, devices=tuple(told.values())))


@dataclass(frozen=True, slots=True)
class Placed:
    """The result of one waiting pod. `outcome` is scheduled, unschedulable or error; `code` is one of `explain`'s."""

    pod: Pod
    outcome: str
    code: str
    message: str
    claims: tuple[ResourceClaim, ...]


Progress = Callable[[int, int], None]
"""Told how many of how many waiting pods have been tried."""


class Simulation:
    """Prepare, then `run`; afterwards `placed` and `ledgers` say what happened."""

    def __init__(
        self,
        world: ClusterObjects,
        *,
        config: SchedulerConfig | None = None,
        gates: FeatureGates | None = None,
        serves: Callable[[Pod], bool] = every_pod,
    ) -> None:
        self.gates = gates = gates or FeatureGates.default()
        self.config = config
        self.prepared: PreparedPods = prepare(world, gates, serves)
        self.clock = SimulationClock(_latest_time(world))
        self.cluster = SimulatedCluster()
        self._work: list[Coroutine[Any, Any, None]] = []
        self._began_with: PreparedPods | None = None
        # Only a configuration can name plugins of installed packages, and looking for these takes a while.
        registry = PluginRegistry(OURS) if config is None else None
        self.scheduler = Scheduler(
            self.cluster,
            self.clock,
            config=config,
            registry=registry,
            gates=gates,
            spawn=lambda work, pod: self._work.append(work),
        )
        handle = self.scheduler.handle
        handle.share_ids = _new_share_ids(world).__next__
        handle.chance.seed(0)
        self.cluster.apply(*self.prepared.objects, *self.prepared.waiting)
        self.cluster.watch(self.scheduler.cluster)

    # --- running

    def run(self, progress: Progress | None = None) -> None:
        asyncio.run(self.settle(progress))

    async def settle(self, progress: Progress | None = None) -> None:
        """Try pods until nothing changes any more, however long they wait."""
        for _ in range(MOST_ROUNDS):
            before = (self.cluster.bound, len(self.cluster.preempted))
            await self._try_all(progress)
            self.clock.skip(PAUSE_S)
            self.scheduler.queue.flush_backoff(self.clock.monotonic())
            if before == (self.cluster.bound, len(self.cluster.preempted)):
                return

    async def _try_all(self, progress: Progress | None) -> None:
        total = len(self.prepared.waiting)
        tried = 0
        while await self.scheduler.schedule_next():
            while self._work:
                await self._work.pop(0)
            tried += 1
            if progress is not None:
                progress(min(tried, total), total)

    # --- afterwards

    def placed(self) -> list[Placed]:
        """The waiting pods in the order in which the queue had them."""
        return [self._placed(pod) for pod in (self._began_with or self.prepared).in_queue_order()]

    def world(self) -> ClusterObjects:
        """The cluster as it is now."""
        return ClusterObjects.of(self.cluster.everything())

    def continues(self, earlier: Simulation) -> Simulation:
        """This simulation began where `earlier` ended: what became of that one's pods is told here."""
        self._began_with = earlier._began_with or earlier.prepared
        self.cluster.preempted[:0] = earlier.cluster.preempted
        return self

    def _placed(self, pod: Pod) -> Placed:
        namespace, name = pod.metadata.namespace, pod.metadata.name
        now: Pod | None = self.cluster.get(Pod, name, namespace)
        if now is None:
            return Placed(pod, "unschedulable", "preempted", "preempted by a pod of higher priority", ())
        claims = tuple(self.claims_of(now))
        if now.spec.node_name:
            return Placed(now, "scheduled", SCHEDULED, "", claims)
        why = self._why_not(now)
        return Placed(now, "error" if why.code == "scheduler-error" else "unschedulable", why.code, why.text, claims)

    def _code_of(self, pod: Pod) -> str:
        """The code of the node that was nearest to taking the pod, as `explain` ranks nodes; of equals that of most nodes."""
        known = self.scheduler.explanations.get(pod.metadata.uid)
        if known is None:
            return "not-tried"
        of_devices = list(dict.fromkeys(row.code for row in known.devices))
        codes: list[str] = []
        for row in sorted(known.nodes, key=lambda row: -row.count):
            codes += of_devices if row.code == "devices" and of_devices else [row.code]
        return min(codes, key=distance, default="no-nodes")

    def claims_of(self, pod: Pod) -> list[ResourceClaim]:
        found = [self.cluster.get(ResourceClaim, name, pod.metadata.namespace) for name in claim_names(pod)]
        return [claim for claim in found if claim is not None]

    def _why_not(self, pod: Pod) -> Reason:
        """The scheduler's reason, or why the pod never got as far."""
        problem = self.prepared.problems.get(pod.metadata.uid)
        if problem:
            return problem
        if pod.spec.scheduler_name not in self.scheduler.profiles:
            text = f"scheduler {pod.spec.scheduler_name} is responsible, which is not rehearsed here"
            return Reason("other-scheduler", text)
        held_back = self.scheduler.held_back(pod)
        if held_back is not None:
            return Reason(held_back.reason_code, held_back.message)
        for condition in pod.status.conditions:
            if condition.type == "PodScheduled" and condition.status == "False":
                code = "scheduler-error" if condition.reason == "SchedulerError" else self._code_of(pod)
                return Reason(code, condition.message)
        return Reason("not-tried", "was not tried")

    def device_use(self) -> ClusterUse:
        cluster = self.cluster
        rules: list[DeviceTaintRule] = list(cluster.all(DeviceTaintRule))
        return ClusterUse(cluster.all(ResourceSlice), cluster.all(ResourceClaim), rules)

    def ledgers(self) -> list[NodeLedger]:
        nodes = self.scheduler.handle.snapshot.nodes
        found = (nodes.get(node.metadata.name) for node in self.cluster.all(Node))
        return [state.ledger for state in found if state is not None]


def config_of_policy(policy: str, mix: Sequence[object] = ()) -> SchedulerConfig:
    """The scheduler's configuration for a policy by name; `DEFAULT_POLICY` changes nothing."""
    config = SchedulerConfig()
    return config if policy == DEFAULT_POLICY else with_policy(config, policy, mix)


def _new_share_ids(world: ClusterObjects) -> Iterator[str]:
    """The same every time, and none that a claim has from an earlier simulation."""
    taken = {str(result.share_id) for claim in world.claims for result in allocation_results(claim)}
    numbered = (f"00000000-0000-4000-8000-{number:012x}" for number in itertools.count(1))
    return (share_id for share_id in numbered if share_id not in taken)


def _latest_time(world: ClusterObjects) -> datetime:
    """Now is when the last thing happened that the objects know of."""
    latest = datetime(2024, 1, 1, tzinfo=UTC)
    metadata = [obj.metadata for obj in world.pods]
    metadata += [obj.metadata for obj in world.claims]
    for stamp in [each.creation_timestamp for each in metadata]:
        if stamp:
            try:
                latest = max(latest, datetime.fromisoformat(stamp.replace("Z", "+00:00")).astimezone(UTC))
            except ValueError:
                continue
    return latest
