"""The scheduler alone, over a cluster in memory: what one decision costs, and that it does not grow with the cluster.

Whole clusters, with API server and controllers, are measured by `dray bench`. What the API server does with the scheduler's writes is in
`bench_write_path.py`: the cluster in memory takes them without looking for devices that are given twice.
"""

import asyncio
import gc
import statistics
import sys
import time
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent))

from report import Report

from dray.api.codec import to_object
from dray.api.core import Node, Pod
from dray.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from dray.clock import RealClock
from dray.scheduler.scheduler import Scheduler
from dray.sim.bench.workload import (
    Workload,
    impossible,
    load_workload,
    node_documents,
    pod_document,
    slice_documents,
)
from dray.sim.memory_cluster import MemoryCluster
from dray.sim.memory_cluster_guard import GuardPlan, MemoryClusterGuard

WORKLOADS = Path(__file__).parent / "workloads" / "cluster"
WARM, ROUNDS, PER_ROUND = 60, 6, 30
MAX_DECISION_US = 3000.0
MAX_WHOLE_US = 1000.0


class Cost(NamedTuple):
    """Seconds: to decide; and for all of it, from the events of the pod and its claim to the bound pod seen again."""

    decision: float
    whole: float


class NoGuard(MemoryClusterGuard):
    def plan(self, old: ResourceClaim, new: ResourceClaim) -> GuardPlan:
        return GuardPlan({}, {})

    def record(self, old: object, new: object) -> None:
        pass


class Bench:
    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self.nodes = workload.nodes
        self.cluster = MemoryCluster(guard=NoGuard())
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

    async def place(self, prefix: str, count: int) -> list["Cost"]:
        """Processor time of each pod."""
        costs = []
        for index in range(count):
            created = time.process_time()
            self.create(f"{prefix}-{index}", self._workload.claim)
            started = time.process_time()
            await self.scheduler.schedule_next()
            decided = time.process_time()
            await self.scheduler.settled()
            costs.append(Cost(decided - started, time.process_time() - created))
        return costs

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
    for name in ("burst", "selector", "match", "shares", "partitions", "large"):
        bench = _bench(name)
        cost = _measure({name: bench})[name]
        where = f"{name}, {bench.nodes} nodes (median)"
        report.record(f"decision, {where}", cost.decision * 1e6, "us", MAX_DECISION_US)
        report.record(f"all for one pod, {where}", cost.whole * 1e6, "us", MAX_WHOLE_US)
    report.record("one pod, 5,000 nodes over 500 nodes", _ratio(_bench("large"), _bench("burst")), "x", 2.0)
    waiting = _bench("burst")
    asyncio.run(waiting.park(1000))
    report.record("one pod, with 1,000 pods waiting", _ratio(waiting, _bench("burst")), "x", 1.2)


def _bench(name: str) -> Bench:
    return Bench(load_workload(WORKLOADS / f"{name}.yaml"))


def _ratio(one: Bench, other: Bench) -> float:
    costs = _measure({"one": one, "other": other}, rounds=3 * ROUNDS)
    return costs["one"].whole / costs["other"].whole


def _measure(benches: dict[str, Bench], rounds: int = ROUNDS) -> dict[str, Cost]:
    """The best round of each; they take turns, so that a busy moment of the machine hits all of them."""
    for bench in benches.values():
        asyncio.run(bench.place("warm", WARM))
    best: dict[str, Cost] = {}
    gc.collect()
    gc.disable()
    try:
        for turn in range(rounds):
            for name, bench in benches.items():
                found = asyncio.run(bench.place(f"pod-{turn}", PER_ROUND))
                medians = Cost(*(statistics.median(column) for column in zip(*found, strict=True)))
                best[name] = Cost(*map(min, medians, best.get(name, medians)))
    finally:
        gc.enable()
    return best
