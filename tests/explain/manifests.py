"""A small cluster in which the pod `train` fits, as documents; each test breaks one thing."""

from __future__ import annotations

import copy
from typing import Any

from tests.builders.manifests import a_claim, a_class, a_device, a_node, a_pod, a_request, a_slice

Document = dict[str, Any]
DRIVER = "gpu.example.com"
RESOURCE = "resource.k8s.io/v1"


def gpu_node(name: str = "node-1", **spec: Any) -> Document:
    labels = {"kubernetes.io/hostname": name, "zone": "a"}
    return a_node(name, {"cpu": "8", "memory": "32Gi", "pods": "110"}, labels=labels, **spec)


def gpu(name: str, **more: Any) -> Document:
    attributes = {"model": "a100", "driverVersion": {"version": "1.2.0"}, "numa": int(name[-1])}
    return a_device(name, **{"attributes": attributes, "capacity": {"memory": "40Gi"}, **more})


def gpu_slice(node: str = "node-1", devices: list[Document] | None = None, **spec: Any) -> Document:
    published = [gpu("gpu-0"), gpu("gpu-1")] if devices is None else devices
    return a_slice(f"{node}-gpus", *published, node=node, **spec)


def gpu_request(name: str = "gpu", selector: str = "", **exactly: Any) -> Document:
    return a_request(name, selector=selector, **exactly)


def gpu_claim(name: str = "train-gpu", *requests: Document, **metadata: Any) -> Document:
    return a_claim(name, *(requests or [gpu_request()]), **{"uid": f"uid-{name}", **metadata})


def held(claim: Document, *devices: str, pod: str = "other", node: str = "node-1", **result: Any) -> Document:
    """The claim allocated and reserved for a pod."""
    request = claim["spec"]["devices"]["requests"][0]["name"]
    results = [{"request": request, "driver": DRIVER, "pool": node, "device": name, **result} for name in devices]
    selector = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]}
    users = [{"resource": "pods", "name": pod, "uid": f"uid-{pod}"}] if pod else []
    claim["status"] = {"allocation": {"devices": {"results": results}, "nodeSelector": selector}, "reservedFor": users}
    return claim


def gpu_pod(name: str = "train", claim: str = "train-gpu", cpu: str = "1", **spec: Any) -> Document:
    identity = {"uid": f"uid-{name}", "labels": {"app": name}}
    return a_pod(name, claims={"gpu": claim} if claim else {}, requests={"cpu": cpu}, **identity, **spec)


class Cluster:
    """Documents by kind and name, to be changed at will."""

    def __init__(self) -> None:
        self.node = gpu_node()
        self.slice = gpu_slice()
        self.device_class = a_class()
        self.claim = gpu_claim()
        self.pod = gpu_pod()
        self.more: list[Document] = []
        self.without: set[str] = set()

    @property
    def devices(self) -> list[Document]:
        found: list[Document] = self.slice["spec"]["devices"]
        return found

    @property
    def request(self) -> Document:
        found: Document = self.claim["spec"]["devices"]["requests"][0]["exactly"]
        return found

    def select(self, expression: str) -> None:
        self.request["selectors"] = [{"cel": {"expression": expression}}]

    def add(self, *documents: Document) -> None:
        self.more += documents

    def documents(self) -> list[Document]:
        everything = [self.node, self.slice, self.device_class, self.claim, self.pod, *self.more]
        return [copy.deepcopy(each) for each in everything if each["kind"] not in self.without]
