"""Benchmark workloads: a cluster, the pods to put on it, and what is expected, as YAML."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

Document = dict[str, Any]
NAMESPACE = "default"
BURST, STEADY, FILL = "burst", "steady", "fill"
SCHEDULER_NAME = "default-scheduler"


@dataclass(frozen=True, slots=True)
class Workload:
    """`before` pods are bound first, then `pods` are measured: all at once, or so many `outstanding` at a time; `steady` deletes bound pods
    again. `unschedulable` pods wait all the while for a device that nobody has. Each node renews its lease every `lease_period_s`.
    The cost of a pod is compared with that on `reference_nodes`, if there are any."""

    name: str
    about: str
    nodes: int
    pods: int
    before: int = 0
    unschedulable: int = 0
    mode: str = BURST
    outstanding: int = 64
    lease_period_s: float = 0.0
    reference_nodes: int = 0
    reference_pods: int = 0
    claim: Document = field(default_factory=dict)
    classes: tuple[Document, ...] = ()
    slices: tuple[Document, ...] = ()
    node: Document = field(default_factory=dict)
    pods_per_second: float | None = None
    attempt_p99_ms: float | None = None
    decision_p99_ms: float | None = None
    cost_ratio: float | None = None
    memory_mb: float | None = None

    def scaled(self, part: float) -> Workload:
        """The same shape, smaller."""

        def less(number: int, least: int) -> int:
            return max(least, int(number * part)) if number else 0

        return replace(
            self._without_expectations(),
            nodes=less(self.nodes, 5),
            pods=less(self.pods, 10),
            before=less(self.before, 5),
            unschedulable=less(self.unschedulable, 5),
            reference_nodes=less(self.reference_nodes, 5),
            reference_pods=less(self.reference_pods, 10),
        )

    @property
    def leases_per_second(self) -> float:
        return self.nodes / self.lease_period_s if self.lease_period_s else 0.0

    def part(self, pods: int) -> Workload:
        """The same cluster with fewer pods; what is expected stays."""
        return replace(self, pods=min(pods, self.pods))

    def reference(self) -> Workload:
        """The smaller cluster whose cost of a pod is compared."""
        return replace(
            self._without_expectations(), nodes=self.reference_nodes, pods=self.reference_pods, reference_nodes=0
        )

    def _without_expectations(self) -> Workload:
        return replace(
            self, pods_per_second=None, attempt_p99_ms=None, decision_p99_ms=None, cost_ratio=None, memory_mb=None
        )


def load_workload(path: Path) -> Workload:
    document = yaml.safe_load(path.read_text())
    expected = document.get("expect") or {}
    return Workload(
        name=document.get("name") or path.stem,
        about=document.get("about", ""),
        nodes=document["nodes"],
        pods=document["pods"],
        before=document.get("before", 0),
        unschedulable=document.get("unschedulable", 0),
        mode=document.get("mode", BURST),
        outstanding=document.get("outstanding", 64),
        lease_period_s=document.get("leasePeriodSeconds", 0.0),
        reference_nodes=(document.get("reference") or {}).get("nodes", 0),
        reference_pods=(document.get("reference") or {}).get("pods", 0),
        claim=document["claim"],
        classes=tuple(document["classes"]),
        slices=tuple(document["slices"]),
        node=document.get("node") or {},
        pods_per_second=expected.get("podsPerSecond"),
        attempt_p99_ms=expected.get("attemptP99Milliseconds"),
        decision_p99_ms=expected.get("decisionP99Milliseconds"),
        cost_ratio=expected.get("costRatio"),
        memory_mb=expected.get("memoryMegabytes"),
    )


def node_documents(workload: Workload) -> Iterator[Document]:
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", **workload.node}
    for index in range(workload.nodes):
        name = f"node-{index}"
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "status": {"allocatable": amounts, "capacity": amounts},
        }


def slice_documents(workload: Workload) -> Iterator[Document]:
    """One slice per node and entry; an entry with `counters` publishes its counter sets in a slice of their own."""
    for index in range(workload.nodes):
        for entry in workload.slices:
            yield from _slices(entry, f"node-{index}")


def _slices(entry: Document, node: str) -> Iterator[Document]:
    counters = entry.get("sharedCounters")
    pool = {"name": node, "generation": 1, "resourceSliceCount": 2 if counters else 1}
    base = {"driver": entry["driver"], "nodeName": node, "pool": pool}
    name = f"{node}-{entry['driver']}"
    if counters:
        yield _slice(f"{name}-counters", {**base, "sharedCounters": counters})
    yield _slice(name, {**base, "devices": list(_devices(entry))})


def _slice(name: str, spec: Document) -> Document:
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}


def _devices(entry: Document) -> Iterator[Document]:
    """`devices` is a list of templates, each with a `count`; {i} in any text becomes the number of the device."""
    number = 0
    for template in entry["devices"]:
        device = {key: value for key, value in template.items() if key != "count"}
        for _ in range(template.get("count", 1)):
            yield {"name": f"device-{number}", **_numbered(device, number)}
            number += 1


def _numbered(value: Any, number: int) -> Any:
    if isinstance(value, str):
        return value.replace("{i}", str(number)).replace("{i/2}", str(number // 2)).replace("{i/4}", str(number // 4))
    if isinstance(value, dict):
        return {_numbered(key, number): _numbered(entry, number) for key, entry in value.items()}
    if isinstance(value, list):
        return [_numbered(entry, number) for entry in value]
    return value


def template_document(name: str, claim: Document) -> Document:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"spec": claim},
    }


def impossible(claim: Document) -> Document:
    """The same claim for a device that nobody has."""
    nothing = {"cel": {"expression": 'device.driver == "nobody.example.com"'}}
    requests = [
        {**request, "exactly": {**request["exactly"], "selectors": [nothing]}}
        for request in claim["devices"]["requests"]
    ]
    return {"devices": {**claim["devices"], "requests": requests}}


def pod_document(name: str, template: str) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "schedulerName": SCHEDULER_NAME,
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": "main",
                    "image": "none.example.com/none:1",
                    "resources": {"requests": {"cpu": "10m"}, "claims": [{"name": "devices"}]},
                }
            ],
            "resourceClaims": [{"name": "devices", "resourceClaimTemplateName": template}],
        },
    }
