"""Runs one workload on a cluster and measures from the first pod's creation to the last pod's binding."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from dray.api.base import ApiStruct
from dray.api.meta import ObjectMeta
from dray.client import DEVICE_CLASSES, NODES, PODS, SLICES, TEMPLATES, Handler, Kind
from dray.event_loop import fast_runner, spare_the_collector
from dray.sim.bench.cluster_processes import (
    BenchCluster,
    MeasuredProcess,
    bench_cluster,
)
from dray.sim.bench.workload import (
    BURST,
    NAMESPACE,
    STEADY,
    Document,
    Workload,
    impossible,
    node_documents,
    pod_document,
    slice_documents,
    template_document,
)

WRITERS = 16
STUCK_S = 120.0
POLL_S = 0.05
LEASES_ALONE_S = 10.0
# Of the leases that are due, so many were renewed: the last ones may still be under way.
LEASES_KEPT_UP = 0.98


@dataclass(frozen=True, slots=True)
class Measured:
    """`attempt` is one scheduling attempt with its binding, `decision` its synchronous part, in milliseconds."""

    workload: str
    nodes: int
    pods: int
    seconds: float
    pods_per_second: float
    decision_p50_ms: float
    decision_p99_ms: float
    attempt_p50_ms: float
    attempt_p99_ms: float
    latency_p50_ms: float
    latency_p99_ms: float
    steps: int
    memory_mb: float
    cpu_ms_per_pod: float
    plane_cpu_ms_per_pod: float
    # What the machine took for a fixed loop of plain Python meanwhile: 0.19 s where the limits were set.
    loop_s: float = 0.0
    leases_per_second: float = 0.0
    lease_late_s: float = 0.0
    lease_cpu_ms: float = 0.0
    # A pod's cost compared with that on the reference's nodes.
    cost_ratio: float = 0.0

    def document(self) -> dict[str, object]:
        return asdict(self)


class MeasuredPodSpec(ApiStruct, frozen=True):
    node_name: str = ""


class MeasuredPod(ApiStruct, frozen=True, tag_field="kind", tag="Pod"):
    """What the load has to know of each of a hundred thousand pods."""

    api_version: str = "v1"
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: MeasuredPodSpec = msgspec.field(default_factory=MeasuredPodSpec)


MEASURED_PODS: Kind[MeasuredPod] = Kind(PODS.row, MeasuredPod, PODS.version, is_view=True)


def percentile(numbers: list[float], part: float) -> float:
    return sorted(numbers)[min(len(numbers) - 1, int(len(numbers) * part))] if numbers else 0.0


class Load:
    def __init__(self, cluster: BenchCluster, workload: Workload) -> None:
        self._cluster = cluster
        self._workload = workload
        self._bound: dict[str, float] = {}
        self._created: dict[str, float] = {}
        self._bindings: dict[str, asyncio.Future[None]] = {}
        self._changed = asyncio.Event()

    async def run(self) -> Measured:
        await self._observe()
        await self._set_up()
        if self._workload.before:
            await self._burst("before", self._workload.before, "claims")
        if self._workload.unschedulable:
            await self._park("waiting", self._workload.unschedulable)
        if not self._workload.lease_period_s:
            return await self._measure()
        async with self._cluster.renewed_leases(self._workload.nodes, self._workload.lease_period_s) as leases:
            return await self._measure_beside(leases)

    async def _measure_beside(self, leases: MeasuredProcess) -> Measured:
        """The cost of the renewals is measured first, alone, and taken out of the cost of the pods."""
        await self._cluster.plane.mark()
        await leases.ask("mark")
        await asyncio.sleep(LEASES_ALONE_S)
        alone, cpu_s = await leases.ask("report"), (await self._cluster.plane.report())["cpuSeconds"]
        lease_cpu_s = cpu_s / max(alone["leasesPerSecond"] * LEASES_ALONE_S, 1.0)
        await leases.ask("mark")
        measured = await self._measure()
        beside = await leases.ask("report")
        of_leases_ms = beside["leasesPerSecond"] * measured.seconds * lease_cpu_s * 1e3 / self._workload.pods
        return replace(
            measured,
            plane_cpu_ms_per_pod=round(measured.plane_cpu_ms_per_pod - of_leases_ms, 2),
            leases_per_second=round(beside["leasesPerSecond"], 1),
            lease_late_s=round(beside["lateSeconds"], 2),
            lease_cpu_ms=round(lease_cpu_s * 1e3, 3),
        )

    async def _measure(self) -> Measured:
        await self._cluster.plane.mark()
        started, own_cpu = time.perf_counter(), _cpu_seconds()
        prefix = "pod"
        if self._workload.mode == BURST:
            await self._burst(prefix, self._workload.pods, "claims")
        else:
            await self._few_at_a_time(prefix, self._workload.pods, deleting=self._workload.mode == STEADY)
        seconds, own_cpu = time.perf_counter() - started, _cpu_seconds() - own_cpu
        return self._measured(prefix, seconds, own_cpu, await self._cluster.plane.report())

    async def _observe(self) -> None:
        pods = self._cluster.informers.of(MEASURED_PODS)
        pods.add_handler(Handler(on_add=self._seen, on_update=lambda old, new: self._seen(new)))
        self._cluster.informers.start()
        await self._cluster.informers.synced()

    def _seen(self, pod: MeasuredPod) -> None:
        if pod.spec.node_name and pod.metadata.name not in self._bound:
            self._bound[pod.metadata.name] = time.perf_counter()
            self._changed.set()
            awaited = self._bindings.pop(pod.metadata.name, None)
            if awaited is not None and not awaited.done():
                awaited.set_result(None)

    async def _set_up(self) -> None:
        workload = self._workload
        await self._create(DEVICE_CLASSES, workload.classes)
        await self._create(TEMPLATES, [template_document("claims", workload.claim)])
        if workload.unschedulable:
            await self._create(TEMPLATES, [template_document("impossible", impossible(workload.claim))])
        await self._create_nodes()
        await self._create(SLICES, slice_documents(workload))
        published = workload.nodes * sum(2 if entry.get("sharedCounters") else 1 for entry in workload.slices)
        await self._until_plane(slices=published, nodes=workload.nodes)

    async def _create(self, kind: Kind[Any], documents: Iterable[Document]) -> None:
        queue = iter(documents)

        async def write() -> None:
            for document in queue:
                await self._cluster.users.create(kind, document)

        await asyncio.gather(*(write() for _ in range(WRITERS)))

    async def _create_nodes(self) -> None:
        """New nodes are tainted until a kubelet reports; here nobody will."""
        queue = iter(node_documents(self._workload))

        async def write() -> None:
            for document in queue:
                node = await self._cluster.users.create(NODES, document)
                await self._cluster.users.patch(NODES, node.metadata.name, {"spec": {"taints": None}})

        await asyncio.gather(*(write() for _ in range(WRITERS)))

    async def _create_pods(self, names: Iterable[str], template: str) -> None:
        queue = iter(names)

        async def write() -> None:
            for name in queue:
                self._created[name] = time.perf_counter()
                await self._cluster.users.create(PODS, pod_document(name, template))

        await asyncio.gather(*(write() for _ in range(WRITERS)))

    async def _burst(self, prefix: str, count: int, template: str) -> None:
        target = len(self._bound) + count
        await self._create_pods((f"{prefix}-{index}" for index in range(count)), template)
        await self._until(lambda: len(self._bound) >= target)

    async def _park(self, prefix: str, count: int) -> None:
        await self._create_pods((f"{prefix}-{index}" for index in range(count)), "impossible")
        await self._until_plane(parked=count)

    async def _few_at_a_time(self, prefix: str, count: int, *, deleting: bool) -> None:
        """The next pod comes when one is bound; that one is deleted or stays."""
        names = iter([f"{prefix}-{index}" for index in range(count)])

        async def lane() -> None:
            for name in names:
                self._bindings[name] = bound = asyncio.get_running_loop().create_future()
                self._created[name] = time.perf_counter()
                await self._cluster.users.create(PODS, pod_document(name, "claims"))
                async with asyncio.timeout(STUCK_S):
                    await bound
                if deleting:
                    await self._cluster.users.delete(PODS, name, NAMESPACE, grace_seconds=0)

        await asyncio.gather(*(lane() for _ in range(self._workload.outstanding)))

    async def _until_plane(self, **least: int) -> None:
        async with asyncio.timeout(STUCK_S):
            while True:
                state = await self._cluster.plane.state()
                if all(state[name] >= number for name, number in least.items()):
                    return
                await asyncio.sleep(POLL_S)

    async def _until(self, condition: Callable[[], bool]) -> None:
        """Raises if nothing is bound for long."""
        last, progress = time.perf_counter(), -1
        while not condition():
            await self._next_change()
            if len(self._bound) != progress:
                last, progress = time.perf_counter(), len(self._bound)
            elif time.perf_counter() - last > STUCK_S:
                raise RuntimeError(f"{self._workload.name}: no pod was bound for {STUCK_S:g} s")

    async def _next_change(self) -> None:
        """Something was bound, or a moment passed."""
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                await self._changed.wait()

    def _measured(self, prefix: str, seconds: float, own_cpu: float, report: Document) -> Measured:
        count = self._workload.pods
        decisions, attempts = report["decisions"], report["attempts"]
        latencies = [
            (bound - self._created[name]) * 1e3
            for name, bound in self._bound.items()
            if name.startswith(f"{prefix}-") and name in self._created
        ]
        return Measured(
            self._workload.name,
            self._workload.nodes,
            count,
            round(seconds, 3),
            round(count / seconds, 1),
            round(percentile(decisions, 0.5) * 1e3, 3),
            round(percentile(decisions, 0.99) * 1e3, 3),
            round(percentile(attempts, 0.5) * 1e3, 2),
            round(percentile(attempts, 0.99) * 1e3, 2),
            round(percentile(latencies, 0.5), 1),
            round(percentile(latencies, 0.99), 1),
            report["steps"],
            round(self._cluster.memory_mb(), 1),
            round(own_cpu * 1e3 / count, 2),
            round(report["cpuSeconds"] * 1e3 / count, 2),
            round(fixed_loop_s(), 3),
        )


def fixed_loop_s() -> float:
    """Processor time of a loop of plain Python: how fast the machine is just now."""
    started, total = time.process_time(), 0
    for number in range(5_000_000):
        total += number
    return time.process_time() - started


def _cpu_seconds() -> float:
    own = resource.getrusage(resource.RUSAGE_SELF)
    return own.ru_utime + own.ru_stime


def measure_workload(workload: Workload, processes: int = 2, profile: Path | None = None) -> Measured:
    """Starts a cluster in processes of its own, runs the workload on it, and stops it."""
    reference = measure_workload(workload.reference(), processes) if workload.reference_nodes else None
    with fast_runner() as runner:
        measured = runner.run(_measure(replace(workload, reference_nodes=0), processes, profile))
    if reference is None:
        return measured
    return replace(measured, cost_ratio=round(measured.plane_cpu_ms_per_pod / reference.plane_cpu_ms_per_pod, 2))


async def _measure(workload: Workload, processes: int, profile: Path | None) -> Measured:
    spare_the_collector()
    async with bench_cluster(processes, profile) as cluster:
        return await Load(cluster, workload).run()


def missed(workload: Workload, measured: Measured) -> list[str]:
    """Expectations of the workload that were not met."""
    misses = []
    if workload.pods_per_second is not None and measured.pods_per_second < workload.pods_per_second:
        misses.append(f"{measured.pods_per_second:g} pods/s instead of {workload.pods_per_second:g}")
    if workload.attempt_p99_ms is not None and measured.attempt_p99_ms > workload.attempt_p99_ms:
        misses.append(f"attempt p99 {measured.attempt_p99_ms:g} ms instead of {workload.attempt_p99_ms:g}")
    if workload.decision_p99_ms is not None and measured.decision_p99_ms > workload.decision_p99_ms:
        misses.append(f"decision p99 {measured.decision_p99_ms:g} ms instead of {workload.decision_p99_ms:g}")
    if workload.lease_period_s and measured.leases_per_second < LEASES_KEPT_UP * workload.leases_per_second:
        misses.append(f"{measured.leases_per_second:g} leases/s instead of {workload.leases_per_second:g}")
    if workload.cost_ratio is not None and measured.cost_ratio > workload.cost_ratio:
        misses.append(f"a pod costs {measured.cost_ratio:g} times as much instead of {workload.cost_ratio:g}")
    if workload.memory_mb is not None and measured.memory_mb > workload.memory_mb:
        misses.append(f"{measured.memory_mb:g} MB instead of {workload.memory_mb:g}")
    return misses


def limits_text(workload: Workload) -> str:
    """What the workload expects, in a few words."""
    limits = (
        ("{:g} pods/s", workload.pods_per_second),
        ("attempt p99 {:g} ms", workload.attempt_p99_ms),
        ("decision p99 {:g} ms", workload.decision_p99_ms),
        ("cost x{:g}", workload.cost_ratio),
        ("{:g} MB", workload.memory_mb),
    )
    return ", ".join(text.format(limit) for text, limit in limits if limit is not None)
