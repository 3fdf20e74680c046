"""The scheduler alone, over a cluster in memory: what one decision costs, and that it does not grow with the cluster.

Whole clusters, with API server and controllers, are measured by `dray bench`.
"""

import asyncio
import gc
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from report import Report

from dray.api.codec import to_object
from dray.api.core import Node, Pod
from dray.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from dray.cli.bench_workload import (
    Workload,
    impossible,
    load_workload,
    node_documents,
    pod_document,
    slice_documents,
)
from dray.clock import RealClock
from dray.scheduler.memory_cluster import MemoryCluster
from dray.scheduler.scheduler import Scheduler

WORKLOADS = Path(__file__).parent / "workloads" / "cluster"
WARM, MEASURED = 60, 240
MAX_DECISION_US = 3000.0


class Bench:
    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self.cluster = MemoryCluster()
        self.scheduler = Scheduler(self.cluster, RealClock())
        self.cluster.apply(*(to_object(document, DeviceClass) for document in workload.classes))
        self.cluster.apply(*(to_object(document, Node) for document in node_documents(workload)))
        self.cluster.apply(*(to_object(document, ResourceSlice) for document in slice_documents(workload)))
        self.cluster.watch(self.scheduler.cluster)

    def create(self, name: str, claim: dict) -> None:
        """A pod and the claim that a controller would have made for it."""
        document = pod_document(name, "claims")
        document["metadata"]["uid"] = f"uid-{name}"
        document["status"] = {"resourceClaimStatuses": [{"name": "devices", "resourceClaimName": f"{name}-claim"}]}
        owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": f"uid-{name}", "controller": True}
        metadata = {"name": f"{name}-claim", "namespace": "default", "ownerReferences": [owner]}
        made = {"kind": "ResourceClaim", "metadata": metadata, "spec": _defaulted(claim)}
        self.cluster.apply(to_object(made, ResourceClaim), to_object(document, Pod))

    async def place(self, prefix: str, count: int) -> list[float]:
        """Seconds of processor time per decision."""
        times = []
        for index in range(count):
            self.create(f"{prefix}-{index}", self._workload.claim)
            started = time.process_time()
            await self.scheduler.schedule_next()
            times.append(time.process_time() - started)
            await self.scheduler.settled()
        return times

    async def park(self, count: int) -> None:
        for index in range(count):
            self.create(f"waiting-{index}", impossible(self._workload.claim))
        while await self.scheduler.schedule_next():
            pass
        await self.scheduler.settled()


def _defaulted(claim: dict) -> dict:
    requests = [
        {**request, "exactly": {"allocationMode": "ExactCount", "count": 1, **request["exactly"]}}
        for request in claim["devices"]["requests"]
    ]
    return {"devices": {**claim["devices"], "requests": requests}}


def run(report: Report) -> None:
    medians = {}
    for name in ("burst", "selector", "match", "shares", "partitions", "large"):
        workload = load_workload(WORKLOADS / f"{name}.yaml")
        bench = Bench(workload)
        medians[name] = _measure(bench)
        report.record(f"decision, {name}, {workload.nodes} nodes (median)", medians[name], "us", MAX_DECISION_US)
    report.record("decision, 5,000 nodes over 500 nodes", medians["large"] / medians["burst"], "x", 2.0)
    workload = load_workload(WORKLOADS / "burst.yaml")
    waiting = Bench(workload)
    asyncio.run(waiting.park(1000))
    report.record("decision, with 1,000 pods waiting", _measure(waiting) / medians["burst"], "x", 1.5)


def _measure(bench: Bench) -> float:
    asyncio.run(bench.place("warm", WARM))
    gc.collect()
    gc.disable()
    try:
        return statistics.median(asyncio.run(bench.place("pod", MEASURED))) * 1e6
    finally:
        gc.enable()
