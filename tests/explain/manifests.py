"""A small cluster in which the pod `train` fits, as documents; each test breaks one thing."""

from __future__ import annotations

import copy
from typing import Any

Document = dict[str, Any]
DRIVER = "gpu.example.com"
RESOURCE = "resource.k8s.io/v1"


def a_node(name: str = "node-1", **spec: Any) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "zone": "a"}},
        "spec": spec,
        "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"}},
    }


def a_device(name: str, **more: Any) -> Document:
    return {
        "name": name,
        "attributes": {
            "model": {"string": "a100"},
            "driverVersion": {"version": "1.2.0"},
            "numa": {"int": int(name[-1])},
        },
        "capacity": {"memory": {"value": "40Gi"}},
        **more,
    }


def a_slice(node: str = "node-1", devices: list[Document] | None = None, **spec: Any) -> Document:
    return {
        "apiVersion": RESOURCE,
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-gpus"},
        "spec": {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": devices if devices is not None else [a_device("gpu-0"), a_device("gpu-1")],
            **spec,
        },
    }


def a_class(name: str = "gpu", expression: str = f'device.driver == "{DRIVER}"') -> Document:
    return {
        "apiVersion": RESOURCE,
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


def a_request(name: str = "gpu", selector: str = "", **exactly: Any) -> Document:
    made: Document = {"deviceClassName": "gpu", **exactly}
    if selector:
        made["selectors"] = [{"cel": {"expression": selector}}]
    return {"name": name, "exactly": made}


def a_claim(name: str = "train-gpu", *requests: Document, **metadata: Any) -> Document:
    return {
        "apiVersion": RESOURCE,
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", **metadata},
        "spec": {"devices": {"requests": list(requests) or [a_request()]}},
    }


def held(claim: Document, *devices: str, pod: str = "other", node: str = "node-1", **result: Any) -> Document:
    """The claim allocated and reserved for a pod."""
    request = claim["spec"]["devices"]["requests"][0]["name"]
    results = [{"request": request, "driver": DRIVER, "pool": node, "device": name, **result} for name in devices]
    selector = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]}
    users = [{"resource": "pods", "name": pod, "uid": f"uid-{pod}"}] if pod else []
    claim["status"] = {"allocation": {"devices": {"results": results}, "nodeSelector": selector}, "reservedFor": users}
    return claim


def a_pod(name: str = "train", claim: str = "train-gpu", cpu: str = "1", **spec: Any) -> Document:
    entries = [{"name": "gpu", "resourceClaimName": claim}] if claim else []
    uses = [{"name": "gpu"}] if claim else []
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "labels": {"app": name}},
        "spec": {
            "containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": cpu}, "claims": uses}}],
            "resourceClaims": entries,
            **spec,
        },
    }


class Cluster:
    """Documents by kind and name, to be changed at will."""

    def __init__(self) -> None:
        self.node = a_node()
        self.slice = a_slice()
        self.device_class = a_class()
        self.claim = a_claim()
        self.pod = a_pod()
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
