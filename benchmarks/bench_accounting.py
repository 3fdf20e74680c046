"""Accounting: the demand of a pod, the node's answer, events on the ledger, and how they grow with the cluster."""

import resource as process
import subprocess
import sys
import timeit
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any

import msgspec
from report import Report

from dray.accounting import (
    AllocatedClaim,
    ClusterLedger,
    Demand,
    DeviceIndex,
    DeviceLookup,
    NodeLedger,
    PodRef,
    claim_charges,
    pod_demand,
)
from dray.api.codec import to_object
from dray.api.core import ContainerStatus, Node, Pod, PodStatus, ResourceRequirements
from dray.api.quantity import Quantity
from dray.api.resource import AllocationResult, ResourceClaim, ResourceSlice

CAPACITY = {"cpu": "256", "memory": "1Ti", "ephemeral-storage": "1Ti", "hugepages-2Mi": "64Gi", "pods": "110"}
NODES, PODS_PER_NODE = 5_000, 110


def run(report: Report) -> None:
    pods = [a_pod(i) for i in range(2_000)]
    world = claims_world()
    turn = cycle(pods)
    report.measure("demand-3-containers-2-claims", lambda: pod_demand(next(turn)), limit_us=40)
    report.measure(
        "demand-3-containers-2-claims-from-devices",
        lambda: pod_demand(pods[0], claim_charges(pods[0], *world)),
        limit_us=40,
    )
    plain = [a_pod(i, claims=False) for i in range(2_000)]
    turn_plain = cycle(plain)
    report.measure("demand-3-containers-no-claims", lambda: pod_demand(next(turn_plain)), limit_us=40)
    running = [with_statuses(pod) for pod in plain]
    turn_running = cycle(running)
    report.measure("demand-3-containers-running", lambda: pod_demand(next(turn_running)), limit_us=40)
    ledger, demand = a_full_ledger(), pod_demand(a_pod(1, claims=False))
    report.measure("fits-yes", lambda: ledger.fits(demand), limit_us=5)
    with_claims = pod_demand(pods[7])
    report.measure("fits-yes-2-claims", lambda: ledger.fits(with_claims), limit_us=5)
    huge = pod_demand(to_object({"spec": {"containers": [{"resources": {"requests": {"cpu": "999"}}}]}}, Pod))
    report.measure("fits-no", lambda: ledger.fits(huge), limit_us=5)
    report.measure("add-and-remove-a-pod", add_and_remove(ledger, demand), limit_us=20)
    report.measure("add-and-remove-a-pod-2-claims", add_and_remove(ledger, with_claims), limit_us=20)
    measure_pools(report)
    measure_growth(report, demand)
    report.record("memory-5000-nodes-110-pods", memory_of_large_cluster_mb(), "MB", limit=600)


def add_and_remove(ledger: NodeLedger, demand: Demand) -> Callable[[], object]:
    ref = PodRef("default", "comes-and-goes", "uid")

    def both() -> None:
        ledger.add(ref, demand)
        ledger.remove(ref)

    return both


def measure_pools(report: Report) -> None:
    """Pods that draw from a pool which many pods share."""
    pod = a_pod(1)
    pool = {"name": "cpu", "quantity": "100", "accountingPolicy": "ConsumeFrom"}
    status = {"resourceClaimName": "pool", "containers": ["c0"], "accounting": [pool]}
    shared = to_object({"nodeAllocatableResourceClaimStatuses": [status]}, PodStatus)
    pod = msgspec.structs.replace(pod, status=shared)
    report.measure("demand-3-containers-pool", lambda: pod_demand(pod), limit_us=40)
    demand = pod_demand(pod)
    ledger = NodeLedger("n", {name: Quantity.parse(text) for name, text in CAPACITY.items()})
    for i in range(100):
        ledger.add(PodRef("default", f"p{i}", f"u{i}"), demand)
    report.measure("fits-yes-pool-of-100-pods", lambda: ledger.fits(demand), limit_us=5)
    report.measure("add-and-remove-a-pod-pool-of-100-pods", add_and_remove(ledger, demand), limit_us=20)


def measure_growth(report: Report, demand: Demand) -> None:
    """The next event on a large cluster must cost what it costs on a small one; measured in turns, best of each."""
    small, large = (event_on(a_cluster(nodes, pods_per_node=20), demand) for nodes in (10, 1_000))
    report.measure("event-on-10-nodes", small, limit_us=20)
    report.measure("event-on-1000-nodes", large, limit_us=20)
    turns = [(timeit.timeit(small, number=500), timeit.timeit(large, number=500)) for _ in range(40)]
    ratio = min(turn[1] for turn in turns) / min(turn[0] for turn in turns)
    report.record("event-on-1000-nodes-over-10-nodes", ratio, "x", limit=1.5)


def event_on(cluster: ClusterLedger, demand: Demand) -> Callable[[], object]:
    ref = PodRef("default", "next", "uid-next")

    def event() -> None:
        cluster.add("node-7", ref, demand)
        cluster.remove(ref)

    return event


def a_full_ledger() -> NodeLedger:
    ledger = NodeLedger("n", {name: Quantity.parse(text) for name, text in CAPACITY.items()})
    for i in range(100):
        ledger.add(PodRef("default", f"p{i}", f"u{i}"), pod_demand(a_pod(i)))
    return ledger


def a_cluster(nodes: int, pods_per_node: int) -> ClusterLedger:
    cluster = ClusterLedger()
    for ref, node_name, demand in placements(nodes, pods_per_node):
        cluster.add(node_name, ref, demand)
    for i in range(nodes):
        cluster.set_node(to_object({"metadata": {"name": f"node-{i}"}, "status": {"allocatable": CAPACITY}}, Node))
    return cluster


def placements(nodes: int, pods_per_node: int) -> Iterator[tuple[PodRef, str, Demand]]:
    """One pod in ten has claims of its own; the rest come from a few hundred templates."""
    for n in range(nodes):
        for p in range(pods_per_node):
            i = n * pods_per_node + p
            pod = a_pod(i, claims=i % 10 == 0)
            yield PodRef.of(pod), f"node-{n}", pod_demand(pod)


def a_pod(i: int, claims: bool = True) -> Pod:
    cpu, memory = f"{100 + i % 300}m", f"{128 + i % 7}Mi"
    listed = {"claims": [{"name": "cpus"}, {"name": "gpu"}]} if claims else {}
    requests = {"requests": {"cpu": cpu, "memory": memory}}
    document: dict[str, Any] = {
        "metadata": {"name": f"web-{i}", "namespace": "default", "uid": f"00000000-0000-0000-0000-{i:012}"},
        "spec": {
            "containers": [{"name": f"c{k}", "resources": {**requests, **(listed if k < 2 else {})}} for k in range(3)]
        },
    }
    if claims:
        document["spec"]["resourceClaims"] = [
            {"name": "cpus", "resourceClaimName": f"web-{i}-cpus"},
            {"name": "gpu", "resourceClaimName": f"web-{i}-gpu"},
        ]
        document["status"] = {
            "nodeAllocatableResourceClaimStatuses": [
                {"resourceClaimName": f"web-{i}-cpus", "containers": ["c0", "c1"], "resources": {"cpu": "1"}},
                {
                    "resourceClaimName": f"web-{i}-gpu",
                    "containers": ["c0", "c1"],
                    "overhead": [{"name": "memory", "perPod": "512Mi", "perContainer": "64Mi"}],
                },
            ]
        }
    return to_object(document, Pod)


def with_statuses(pod: Pod) -> Pod:
    """As the kubelet reports a pod that runs with what it asked for."""
    statuses = tuple(
        ContainerStatus(
            name=container.name,
            allocated_resources=container.resources.requests,
            resources=ResourceRequirements(requests=container.resources.requests),
        )
        for container in pod.spec.containers
    )
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, container_statuses=statuses))


def claims_world() -> tuple[dict[str, AllocatedClaim], DeviceLookup]:
    cpu = {"name": "cpu0", "nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "1"}}}
    gpu = {"name": "gpu0", "nodeAllocatableResources": {"memory": {"overhead": {"perPod": "512Mi"}}}}
    published = to_object(
        {"metadata": {"name": "s"}, "spec": {"driver": "d", "pool": {"name": "p"}, "devices": [cpu, gpu]}},
        ResourceSlice,
    )
    claims = {}
    for name, device in (("cpus", "cpu0"), ("gpu", "gpu0")):
        result = {"request": "r", "driver": "d", "pool": "p", "device": device}
        allocation = to_object({"devices": {"results": [result]}}, AllocationResult)
        claims[name] = AllocatedClaim(to_object({"metadata": {"name": name}}, ResourceClaim), allocation)
    return claims, DeviceLookup(DeviceIndex([published]), {})


def memory_of_large_cluster_mb() -> float:
    """Measured in a process of its own, from before the first pod to after the last."""
    done = subprocess.run([sys.executable, __file__], check=True, capture_output=True, text=True)
    return float(done.stdout)


def main() -> None:
    before = process.getrusage(process.RUSAGE_SELF).ru_maxrss
    cluster = a_cluster(NODES, PODS_PER_NODE)
    after = process.getrusage(process.RUSAGE_SELF).ru_maxrss
    assert sum(ledger.pod_count for ledger in cluster) == NODES * PODS_PER_NODE
    print((after - before) / 1024)


if __name__ == "__main__":
    main()
