"""Objects for tests, as documents: each case says only what it is about."""

from __future__ import annotations

from typing import Any

Document = dict[str, Any]

CLASS = "gpu"
DRIVER = "gpu.example.com"
FINALIZER = "resource.kubernetes.io/delete-protection"


def a_namespace(name: str = "ns", **labels: str) -> Document:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def a_device_request(name: str = "req", **fields: Any) -> Document:
    return {"name": name, "exactly": {"deviceClassName": CLASS, **fields}}


def a_template(
    name: str = "template", namespace: str = "ns", metadata: Document | None = None, **request: Any
) -> Document:
    spec = {"devices": {"requests": [a_device_request(**request)]}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"metadata": metadata or {}, "spec": spec},
    }


def a_claim(name: str = "claim", namespace: str = "ns", **metadata: Any) -> Document:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": {"devices": {"requests": [a_device_request()]}},
    }


def a_pod(
    name: str = "pod",
    namespace: str = "ns",
    *,
    templates: dict[str, str] | None = None,
    claims: dict[str, str] | None = None,
    node: str = "",
    **metadata: Any,
) -> Document:
    """`templates` and `claims` map the pod claim's name to a template or claim."""
    entries = _entries(templates, claims)
    spec: Document = {"containers": [{"name": "main", "image": "image"}], "resourceClaims": entries}
    if node:
        spec["nodeName"] = node
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": spec,
    }


def _entries(templates: dict[str, str] | None, claims: dict[str, str] | None) -> list[Document]:
    entries = [{"name": entry, "resourceClaimTemplateName": name} for entry, name in (templates or {}).items()]
    return entries + [{"name": entry, "resourceClaimName": name} for entry, name in (claims or {}).items()]


def a_group(
    name: str = "group",
    namespace: str = "ns",
    *,
    templates: dict[str, str] | None = None,
    claims: dict[str, str] | None = None,
    **metadata: Any,
) -> Document:
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": {"schedulingPolicy": {"basic": {}}, "resourceClaims": _entries(templates, claims)},
    }


def a_node(name: str = "node", ready: str = "True", taints: list[Document] | None = None, **labels: str) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints or []},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }


def an_allocation(device: str = "dev", pool: str = "pool", node: str = "", tolerations: Any = ()) -> Document:
    result: Document = {"request": "req", "driver": DRIVER, "pool": pool, "device": device}
    if tolerations:
        result["tolerations"] = list(tolerations)
    allocation: Document = {"devices": {"results": [result]}}
    if node:
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        allocation["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return allocation


def a_slice(
    name: str = "slice", devices: list[Document] | None = None, pool: str = "pool", generation: int = 1, count: int = 1
) -> Document:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {
            "driver": DRIVER,
            "pool": {"name": pool, "generation": generation, "resourceSliceCount": count},
            "nodeName": "node",
            "devices": devices if devices is not None else [{"name": "dev"}],
        },
    }


def a_rule(name: str = "rule", effect: str = "NoExecute", key: str = "sick", **selector: str) -> Document:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {"name": name},
        "spec": {"deviceSelector": selector, "taint": {"key": key, "effect": effect}},
    }
