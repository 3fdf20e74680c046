"""Whole clusters, from pod creation over HTTPS to binding: the workloads of `dray bench`.

The control plane is one process, the load another. Waiting pods must not make the others dear, and ten times the nodes may cost a pod
at most twice as much.
"""

from pathlib import Path

from report import Report

from dray.sim.bench.load import LEASES_KEPT_UP, Measured, measure_workload
from dray.sim.bench.workload import load_workload

WORKLOADS = Path(__file__).parent / "workloads" / "cluster"
# `dray bench` runs all pods of a workload; a part says as much about the limits.
MOST_PODS = 10_000
MOST_FOR_WAITING, MOST_FOR_NODES = 1.2, 2.0


def run(report: Report) -> None:
    results: dict[str, Measured] = {}
    for path in sorted(WORKLOADS.glob("*.yaml")):
        workload = load_workload(path)
        measured = results[workload.name] = measure_workload(workload.part(MOST_PODS))
        report.record(workload.name, measured.pods_per_second, "pods/s", workload.pods_per_second, at_least=True)
        report.record(f"{workload.name}: CPU of the control plane", measured.plane_cpu_ms_per_pod, "ms/pod")
        report.record(f"{workload.name}: decision, p99", measured.decision_p99_ms, "ms", workload.decision_p99_ms)
        report.record(f"{workload.name}: attempt with binding, p50", measured.attempt_p50_ms, "ms")
        report.record(
            f"{workload.name}: attempt with binding, p99", measured.attempt_p99_ms, "ms", workload.attempt_p99_ms
        )
        report.record(f"{workload.name}: memory", measured.memory_mb, "MB", workload.memory_mb)
        if workload.lease_period_s:
            least = LEASES_KEPT_UP * workload.leases_per_second
            report.record(f"{workload.name}: leases", measured.leases_per_second, "1/s", least, at_least=True)
        if workload.cost_ratio is not None:
            report.record(f"{workload.name}: cost of a pod", measured.cost_ratio, "x", workload.cost_ratio)
    cost = {name: measured.plane_cpu_ms_per_pod for name, measured in results.items()}
    report.record("cost of a pod with 1,000 waiting", cost["waiting"] / cost["burst"], "x", MOST_FOR_WAITING)
    report.record("cost of a pod on 5,000 nodes", cost["large"] / cost["burst"], "x", MOST_FOR_NODES)
