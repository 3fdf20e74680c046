"""Runs the scheduler against an API server: informers feed it, pods are scheduled and bound until it is stopped, and a client writes."""

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import msgspec

from dray.api.core import Pod
from dray.api.projections import DiscoveredResourceList
from dray.api.resource import ResourceClaim, ResourceClaimConsumerReference
from dray.client import (
    CLAIMS,
    DEVICE_CLASSES,
    NAMESPACES,
    NODES,
    POD_GROUPS,
    PODS,
    SLICES,
    TAINT_RULES,
    ApiError,
    Client,
    EventRecorder,
    Handler,
    Informers,
    ServerUnreachable,
    reference_to,
)
from dray.client.kinds import Kind
from dray.client.rest import MERGE_PATCH, STRATEGIC_PATCH
from dray.clock import rfc3339
from dray.features import FeatureGates
from dray.scheduler.config import SchedulerConfig
from dray.scheduler.framework.profile import PluginRegistry
from dray.scheduler.metrics import SchedulerMetrics
from dray.scheduler.queue import QueueName
from dray.scheduler.scheduler import Scheduler

# Writes that reach the server together cost it less each, but a pod with a higher priority that comes late finds all of these ahead of it.
MOST_BINDINGS = 12
# A pod with a claim whose writes travel together counts for as many bindings as it has writes.
JOINED_WRITES = 3


class ClientWriter:
    """Events are recorded under the scheduler name of their pod, one recorder each.

    The server is asked to put what binds a pod before the writes of others: a pod that is nearly placed should not wait for new ones.
    """

    def __init__(self, client: Client, *, joins_writes: bool = False) -> None:
        self._client = client
        self._joins_writes = joins_writes
        self._urgent = client.urgent()
        self._recorders: dict[str, EventRecorder] = {}

    async def get_claim(self, namespace: str, name: str) -> ResourceClaim | None:
        return await self._client.find(CLAIMS, name, namespace)

    async def create_claim(self, claim: ResourceClaim) -> ResourceClaim:
        return await self._client.create(CLAIMS, claim)

    async def update_claim(self, claim: ResourceClaim) -> ResourceClaim:
        return await self._urgent.update(CLAIMS, claim)

    async def update_claim_status(self, claim: ResourceClaim) -> ResourceClaim:
        return await self._urgent.update_status(CLAIMS, claim)

    async def unreserve_claim(self, claim: ResourceClaim, user: ResourceClaimConsumerReference) -> ResourceClaim:
        metadata = claim.metadata
        return await self._client.patch(
            CLAIMS,
            metadata.name,
            {"status": {"reservedFor": [{"$patch": "delete", "uid": user.uid}]}},
            metadata.namespace,
            patch_type=STRATEGIC_PATCH,
            subresource="status",
            uid=metadata.uid,
        )

    async def delete_claim(self, claim: ResourceClaim) -> None:
        try:
            await self._client.delete(CLAIMS, claim.metadata.name, claim.metadata.namespace, uid=claim.metadata.uid)
        except ApiError as problem:
            if not problem.is_not_found:
                raise

    async def patch_pod_status(self, pod: Pod, status: dict[str, Any], *, strategic: bool = True) -> None:
        await self._urgent.patch(
            PODS,
            pod.metadata.name,
            {"status": status},
            pod.metadata.namespace,
            patch_type=STRATEGIC_PATCH if strategic else MERGE_PATCH,
            subresource="status",
            uid=pod.metadata.uid,
        )

    async def is_assigned(self, pod: Pod) -> bool:
        current = await self._client.find(PODS, pod.metadata.name, pod.metadata.namespace)
        return current is not None and current.metadata.uid == pod.metadata.uid and bool(current.spec.node_name)

    async def bind(self, pod: Pod, node_name: str) -> None:
        await self._urgent.bind(pod, node_name)

    async def bind_with_claim(
        self, pod: Pod, node_name: str, before: ResourceClaim, after: ResourceClaim
    ) -> ResourceClaim | None:
        if not self._joins_writes:
            return None
        return await self._urgent.bind_with_claim(pod, node_name, before, after)

    async def evict(self, victim: Pod, preemptor: Pod) -> None:
        scheduler = preemptor.spec.scheduler_name
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": f"{scheduler}: preempting to accommodate a higher priority pod",
            "lastTransitionTime": rfc3339(self._client.clock.now()),
        }
        await self.patch_pod_status(victim, {"conditions": [condition]})
        await self._client.delete(PODS, victim.metadata.name, victim.metadata.namespace, uid=victim.metadata.uid)

    def event(self, pod: Pod, event_type: str, reason: str, action: str, message: str) -> None:
        scheduler = pod.spec.scheduler_name
        recorder = self._recorders.get(scheduler)
        if recorder is None:
            recorder = self._recorders[scheduler] = EventRecorder(self._client, scheduler)
        recorder.event(reference_to(PODS, pod), event_type, reason, message, action=action)

    async def flush(self) -> None:
        for recorder in self._recorders.values():
            await recorder.flush()


log = logging.getLogger(__name__)

NEWEST_FIRST = ("v1", "v1beta2", "v1beta1", "v1alpha3")


RETRY_S = 1.0


async def served_version(client: Client, kind: Kind[Any]) -> str | None:
    """The newest version under which the server lists the kind; None if it does not. Waits for a server that is not there."""
    while True:
        try:
            return await _newest(client, kind)
        except (ApiError, ServerUnreachable) as problem:
            log.warning("waiting for the API server: %s", problem)
            await client.clock.sleep(RETRY_S)


async def _newest(client: Client, kind: Kind[Any]) -> str | None:
    for version in NEWEST_FIRST:
        try:
            answer = await client.raw("GET", f"/apis/{kind.row.group}/{version}")
        except ApiError as problem:
            if not problem.is_not_found:
                raise
            continue
        listed = msgspec.json.decode(answer.body, type=DiscoveredResourceList)
        if any(resource.name == kind.row.plural for resource in listed.resources or ()):
            return version
    return None


T = TypeVar("T")

FLUSH_BACKOFF_S = 1.0
FLUSH_UNSCHEDULABLE_S = 30.0
# One turn of decisions, before the loop's other work.
TURN_S = 0.005
MOST_IN_A_TURN = 32


class SchedulerService:
    def __init__(
        self,
        client: Client,
        *,
        config: SchedulerConfig | None = None,
        gates: FeatureGates | None = None,
        metrics: SchedulerMetrics | None = None,
        plugins: PluginRegistry | None = None,
        informers: Informers | None = None,
        joins_writes: bool = False,
    ) -> None:
        """`joins_writes`: the API server is a part of the same program, and stores several writes in one commit."""
        self.client = client
        self.metrics = metrics or SchedulerMetrics()
        self.writer = ClientWriter(client, joins_writes=joins_writes)
        self._joins_writes = joins_writes
        self._wake = asyncio.Event()
        # How many are under way and wait for nobody else.
        self._bindings = 0
        # What is under way, and how much of it counts.
        self._tasks: dict[asyncio.Task[None], int] = {}
        self.scheduler = Scheduler(
            self.writer,
            client.clock,
            config=config,
            gates=gates,
            metrics=self.metrics,
            registry=plugins,
            spawn=self._spawn,
            on_ready=self._wake.set,
        )
        self.scheduler.handle.on_wait = self._waits
        self._owns_informers = informers is None
        self.informers = informers or Informers(client)
        self.ready = asyncio.Event()
        self._publish_gauges()

    # --- life

    async def run(self) -> None:
        """Schedule until cancelled."""
        self._subscribe()
        await self._follow_taint_rules()
        await self._follow_pod_groups()
        if self._owns_informers:
            self.informers.start()
        await self.informers.synced()
        self.ready.set()
        log.info("scheduling for %s", ", ".join(self.scheduler.profiles))
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._schedule(), name="scheduling")
                group.create_task(self._every(FLUSH_BACKOFF_S, self.scheduler.queue.flush_backoff), name="backoff")
                group.create_task(self._every(FLUSH_BACKOFF_S, self.scheduler.tell_gated), name="gated")
                group.create_task(
                    self._every(FLUSH_UNSCHEDULABLE_S, self.scheduler.queue.flush_unschedulable), name="flush"
                )
        finally:
            await self._stop()

    async def _stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._owns_informers:
            await self.informers.stop()

    async def _schedule(self) -> None:
        while True:
            if await self._turn():
                # Let watches and bindings have their turn: what they bring makes the next decision better.
                await asyncio.sleep(0)
                continue
            self._wake.clear()
            await self._wake.wait()

    async def _turn(self) -> bool:
        """Decide about some pods. Where the loop is shared with a busy server, one pod a round would be a trickle."""
        monotonic = self.client.clock.monotonic
        end, tried = monotonic() + TURN_S, 0
        while tried < MOST_IN_A_TURN and self._takes_more() and await self.scheduler.schedule_next():
            tried += 1
            if monotonic() >= end:
                break
        return tried > 0

    def _takes_more(self) -> bool:
        """Whether another pod may be bound beside those that are."""
        return self._bindings < MOST_BINDINGS

    async def _every(self, seconds: float, flush: Callable[[float], None]) -> None:
        clock = self.client.clock
        while True:
            now = clock.monotonic()
            await clock.sleep(math.floor(now / seconds) * seconds + seconds - now)
            flush(clock.monotonic())

    def _spawn(self, work: Coroutine[Any, Any, None], pod: Pod) -> None:
        counts = JOINED_WRITES if self._joins_writes and len(pod.spec.resource_claims) == 1 else 1
        self._bindings += counts
        task = asyncio.create_task(work)
        self._tasks[task] = counts
        task.add_done_callback(self._done)

    def _waits(self, begins: bool) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._bindings -= self._tasks[task] if begins else -self._tasks[task]
        self._wake.set()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._bindings -= self._tasks.pop(task)
        self._wake.set()
        if not task.cancelled() and task.exception() is not None:
            log.error("binding failed unexpectedly", exc_info=task.exception())

    # --- watches

    def _subscribe(self) -> None:
        cluster = self.scheduler.cluster
        if self.scheduler.handle.gates.enabled("DynamicResourceAllocation"):
            self._follow(CLAIMS, cluster.set_claim, cluster.remove_claim)
            self._follow(DEVICE_CLASSES, cluster.set_class, cluster.remove_class, told_of_old=True)
            self._follow(SLICES, cluster.set_slice, cluster.remove_slice, told_of_old=True)
        self._follow(NAMESPACES, cluster.set_namespace, cluster.remove_namespace)
        self._follow(NODES, cluster.set_node, cluster.remove_node)
        self._follow(PODS, cluster.set_pod, cluster.remove_pod)

    async def _follow_taint_rules(self) -> None:
        """Taint rules came late to Kubernetes: follow them in the newest version that is served, or not at all."""
        cluster = self.scheduler.cluster
        is_on = self.scheduler.handle.gates.enabled("DRADeviceTaintRules")
        version = await served_version(self.client, TAINT_RULES) if is_on else None
        if version is None:
            log.info("device taint rules are not followed")
            return
        kind = TAINT_RULES.at_version(version)
        self._follow(kind, cluster.set_taint_rule, cluster.remove_taint_rule, told_of_old=True)

    async def _follow_pod_groups(self) -> None:
        """Their pods share claims where the feature is on and the server serves them."""
        if not self.scheduler.handle.gates.enabled("DRAWorkloadResourceClaims"):
            return
        version = await served_version(self.client, POD_GROUPS)
        if version is not None:
            cluster = self.scheduler.cluster
            self._follow(POD_GROUPS.at_version(version), cluster.set_pod_group, cluster.remove_pod_group)

    def _follow(
        self,
        kind: Kind[Any],
        on_set: Callable[..., None],
        on_remove: Callable[[Any], None],
        *,
        told_of_old: bool = False,
    ) -> None:
        observe, now = self.metrics.event_handling.observe, self.client.clock.monotonic

        def timed(event: str, handle: Callable[..., None]) -> Callable[..., None]:
            def handler(*objects: Any) -> None:
                started = now()
                handle(*objects)
                observe(now() - started, event)

            return handler

        def updated(old: Any, new: Any) -> None:
            if told_of_old:
                on_set(new, old)
            else:
                on_set(new)

        handler: Handler[Any] = Handler(
            on_add=timed(f"{kind.name}Add", on_set),
            on_update=timed(f"{kind.name}Update", updated),
            on_delete=timed(f"{kind.name}Delete", on_remove),
        )
        self.informers.of(kind).add_handler(handler)

    # --- metrics

    def _publish_gauges(self) -> None:
        registry, scheduler = self.metrics.registry, self.scheduler
        registry.computed_gauge(
            "scheduler_pending_pods",
            "Number of pending pods, by the queue type.",
            lambda: [
                ({"queue": where.value}, scheduler.queue.counts[where])
                for where in (QueueName.ACTIVE, QueueName.BACKOFF, QueueName.UNSCHEDULABLE, QueueName.GATED)
            ],
        )
        registry.computed_gauge(
            "scheduler_unschedulable_pods",
            "The number of unschedulable pods broken down by plugin name.",
            scheduler.parked_by_plugin,
        )
        registry.computed_gauge(
            "scheduler_cache_size",
            "Number of nodes, pods, and assumed (bound) pods in the scheduler cache.",
            lambda: [({"type": kind}, count) for kind, count in scheduler.handle.snapshot.sizes().items()],
        )
        registry.computed_gauge(
            "scheduler_goroutines",
            "Number of running tasks split by the work they do such as binding.",
            lambda: [({"operation": "binding"}, len(self._tasks))],
        )
