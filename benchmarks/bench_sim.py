"""Whole clusters offline: `dray simulate` and `dray explain` on objects in memory."""

from __future__ import annotations

import resource
import time
from typing import Any

from report import Report

from dray.api.codec import shape_document, to_object
from dray.api.core import Node, Pod
from dray.api.defaults import apply_defaults
from dray.api.resource import DeviceClass, ResourceClaimTemplate, ResourceSlice
from dray.explain.cluster_objects import ClusterObjects
from dray.sim.pod_explanation import explain_pod
from dray.sim.simulation import Simulation

DRIVER = "gpu.example.com"
RESOURCE = "resource.k8s.io/v1"
DEVICES = 8
KINDS: dict[str, type] = {
    "Node": Node,
    "Pod": Pod,
    "ResourceSlice": ResourceSlice,
    "DeviceClass": DeviceClass,
    "ResourceClaimTemplate": ResourceClaimTemplate,
}


def run(report: Report) -> None:
    world = a_world(nodes=1000, pods=4000)
    simulation = Simulation(world)
    started = time.process_time()
    simulation.run()
    took_s = time.process_time() - started
    placed = sum(row.outcome == "scheduled" for row in simulation.placed())
    assert placed == 2000, placed
    report.record("simulate 1,000 nodes, 4,000 pods: per pod", took_s / 4000 * 1e6, "us", limit=5000)
    settled = ClusterObjects.of(simulation.cluster.everything())
    started = time.process_time()
    verdict = explain_pod(settled, "default", "pod-3999")
    report.record("explain one pod on 1,000 full nodes", time.process_time() - started, "s", limit=10)
    assert verdict.code == "in-use", verdict.headline
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    report.record("memory of both", peak_mb, "MB", limit=1000)


def a_world(nodes: int, pods: int) -> ClusterObjects:
    """Each node serves two pods; half of the pods wait."""
    documents: list[dict[str, Any]] = []
    for number in range(nodes):
        name = f"node-{number}"
        size = {"cpu": "16", "memory": "64Gi", "pods": "110"}
        documents.append(_named("v1", "Node", name, status={"allocatable": size}))
        model = ("a100", "h100")
        devices = [
            {"name": f"gpu-{each}", "attributes": {"model": {"string": model[each % 2]}}} for each in range(DEVICES)
        ]
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": devices}
        documents.append(_named(RESOURCE, "ResourceSlice", f"{name}-gpus", spec=spec))
    selector = [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]
    documents.append(_named(RESOURCE, "DeviceClass", "gpu", spec={"selectors": selector}))
    wanted = [{"cel": {"expression": f"device.attributes['{DRIVER}'].model == 'h100'"}}]
    exactly = {"deviceClassName": "gpu", "count": 2, "selectors": wanted}
    claim = {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}}
    documents.append(_named(RESOURCE, "ResourceClaimTemplate", "two", "default", spec=claim))
    for number in range(pods):
        resources = {"requests": {"cpu": "1", "memory": "1Gi"}, "claims": [{"name": "gpu"}]}
        spec = {
            "containers": [{"name": "main", "image": "x", "resources": resources}],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "two"}],
        }
        documents.append(_named("v1", "Pod", f"pod-{number}", "default", spec=spec))
    return ClusterObjects.of(map(_object, documents))


def _named(version: str, kind: str, name: str, namespace: str = "", **fields: Any) -> dict[str, Any]:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}


def _object(document: dict[str, Any]) -> Any:
    shaped = apply_defaults(shape_document(document).document, "2024-01-01T00:00:00Z")
    return to_object(shaped, KINDS[document["kind"]])
