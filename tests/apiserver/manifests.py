"""One object of every DRA kind, and the pods and nodes around them."""

from __future__ import annotations

from typing import Any

Document = dict[str, Any]
DRA = "resource.k8s.io/v1"


def device_class(name: str = "gpu.example.com") -> Document:
    return {
        "apiVersion": DRA,
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": 'device.driver == "gpu.example.com"'}}]},
    }


def resource_slice(name: str = "slice-1", node: str = "node-1") -> Document:
    return {
        "apiVersion": DRA,
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {
            "driver": "gpu.example.com",
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "dev-0", "capacity": {"memory": {"value": "40Gi"}}}],
        },
    }


def claim_spec() -> Document:
    return {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]}}


def claim(name: str = "claim-1", namespace: str = "default") -> Document:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": DRA, "kind": "ResourceClaim", "metadata": metadata, "spec": claim_spec()}


def template(name: str = "template-1", namespace: str = "default") -> Document:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": DRA, "kind": "ResourceClaimTemplate", "metadata": metadata, "spec": {"spec": claim_spec()}}


def taint_rule(name: str = "rule-1") -> Document:
    taint = {"key": "example.com/broken", "effect": "NoSchedule"}
    return {
        "apiVersion": DRA,
        "kind": "DeviceTaintRule",
        "metadata": {"name": name},
        "spec": {"deviceSelector": {"driver": "gpu.example.com"}, "taint": taint},
    }


def pool_status_request(name: str = "question-1") -> Document:
    return {
        "apiVersion": "resource.k8s.io/v1alpha3",
        "kind": "ResourcePoolStatusRequest",
        "metadata": {"name": name},
        "spec": {"driver": "gpu.example.com"},
    }


def pod(name: str = "pod-1", namespace: str = "default", **spec: Any) -> Document:
    container = {"name": "main", "image": "app:1", "resources": {"claims": [{"name": "gpu"}]}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "containers": [container],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "template-1"}],
            **spec,
        },
    }


def node(name: str = "node-1") -> Document:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}


def service_account(namespace: str = "default") -> Document:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": namespace}}


def everything() -> list[Document]:
    return [
        device_class(), template(), claim(), resource_slice(), taint_rule(), pool_status_request(), node(),
        service_account(), pod(),
    ]  # fmt: skip
