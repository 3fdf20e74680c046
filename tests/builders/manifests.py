"""JSON documents of Kubernetes objects. Further keywords become fields: of the metadata if ObjectMeta has them, else of the spec.

a_pod("web", claims={"gpu": "shared"}, node="n1", labels={"a": "b"}, priority=5)
a_claim("c", a_request(count=2), results=[a_result("gpu-0")], users=["web"])
a_slice("s", a_device("gpu-0"), node="n1", counters={"card": {"slots": "4"}})
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Document = dict[str, Any]

RESOURCE_V1 = "resource.k8s.io/v1"
DRIVER = "gpu.example.com"
METADATA_FIELDS = {
    "annotations",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "managedFields",
    "ownerReferences",
    "resourceVersion",
    "uid",
}


def _object(api_version: str, kind: str, name: str, namespace: str, fields: Document, spec: Document) -> Document:
    metadata = {"name": name} if name else {}
    if namespace:
        metadata["namespace"] = namespace
    status = fields.pop("status", None)
    for key, value in fields.items():
        (metadata if key in METADATA_FIELDS else spec)[key] = value
    document: Document = {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}
    if status is not None:
        document["status"] = status
    return document


# --- devices


def a_device(name: str = "gpu-0", **fields: Any) -> Document:
    """Attributes and capacity may be written as plain values."""
    device: Document = {"name": name, **fields}
    if "attributes" in fields:
        device["attributes"] = {key: _attribute(value) for key, value in fields["attributes"].items()}
    if "capacity" in fields:
        device["capacity"] = {
            key: value if isinstance(value, dict) else {"value": value} for key, value in fields["capacity"].items()
        }
    return device


def _attribute(value: Any) -> Document:
    if isinstance(value, dict):
        return value
    kind = "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "string"
    return {kind: value}


def a_slice(
    name: str = "slice",
    *devices: Document | str,
    node: str | None = "n1",
    driver: str = DRIVER,
    pool: str = "",
    generation: int = 1,
    slices: int = 1,
    counters: Mapping[str, Mapping[str, str]] | None = None,
    **fields: Any,
) -> Document:
    """`counters` maps counter sets to their counters. Without a node the slice is for all nodes, unless a field says otherwise."""
    spec: Document = {
        "driver": driver,
        "pool": {"name": pool or node or "pool", "generation": generation, "resourceSliceCount": slices},
    }
    if node:
        spec["nodeName"] = node
    elif not {"allNodes", "nodeSelector", "perDeviceNodeSelection"} & fields.keys():
        spec["allNodes"] = True
    if devices or not counters:
        spec["devices"] = [{"name": each} if isinstance(each, str) else each for each in devices]
    if counters:
        spec["sharedCounters"] = [
            {"name": name, "counters": {key: {"value": value} for key, value in values.items()}}
            for name, values in counters.items()
        ]
    return _object(RESOURCE_V1, "ResourceSlice", name, "", fields, spec)


def a_class(name: str = "gpu", expression: str = f'device.driver == "{DRIVER}"', **fields: Any) -> Document:
    spec: Document = {"selectors": [{"cel": {"expression": expression}}]} if expression else {}
    return _object(RESOURCE_V1, "DeviceClass", name, "", fields, spec)


def a_taint_rule(name: str = "rule", effect: str = "NoExecute", key: str = "sick", **selector: str) -> Document:
    spec = {"deviceSelector": selector, "taint": {"key": key, "effect": effect}}
    return _object(RESOURCE_V1, "DeviceTaintRule", name, "", {}, spec)


# --- claims


def a_request(name: str = "r", device_class: str = "gpu", selector: str = "", **exactly: Any) -> Document:
    if selector:
        exactly["selectors"] = [{"cel": {"expression": selector}}]
    return {"name": name, "exactly": {"deviceClassName": device_class, **exactly}}


def a_result(
    device: str = "gpu-0", request: str = "r", driver: str = DRIVER, pool: str = "n1", **fields: Any
) -> Document:
    return {"request": request, "driver": driver, "pool": pool, "device": device, **fields}


def an_allocation(*results: Document, node: str = "") -> Document:
    allocation: Document = {"devices": {"results": list(results)}}
    if node:
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        allocation["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return allocation


def a_claim(
    name: str = "claim",
    *requests: Document,
    namespace: str = "default",
    results: Iterable[Document] = (),
    users: Iterable[str] = (),
    constraints: Iterable[Document] = (),
    config: Iterable[Document] = (),
    **fields: Any,
) -> Document:
    """`results` make it allocated, `users` are the UIDs (and names) of the pods that it is reserved for."""
    devices: Document = {"requests": list(requests) or [a_request()]}
    devices |= {key: list(value) for key, value in (("constraints", constraints), ("config", config)) if value}
    status: Document = fields.pop("status", {})
    if results := list(results):
        status["allocation"] = an_allocation(*results)
    if users:
        status["reservedFor"] = [{"resource": "pods", "name": uid, "uid": uid} for uid in users]
    if status:
        fields["status"] = status
    return _object(RESOURCE_V1, "ResourceClaim", name, namespace, fields, {"devices": devices})


def a_template(
    name: str = "template",
    *requests: Document,
    namespace: str = "default",
    claim_metadata: Document | None = None,
    **fields: Any,
) -> Document:
    spec: Document = {"spec": {"devices": {"requests": list(requests) or [a_request()]}}}
    if claim_metadata:
        spec["metadata"] = claim_metadata
    return _object(RESOURCE_V1, "ResourceClaimTemplate", name, namespace, fields, spec)


def claim_entries(
    claims: Mapping[str, str] | None = None, templates: Mapping[str, str] | None = None
) -> list[Document]:
    """The `resourceClaims` of a pod or pod group: names of claims and templates by the entry's name."""
    return [
        *({"name": entry, "resourceClaimTemplateName": name} for entry, name in (templates or {}).items()),
        *({"name": entry, "resourceClaimName": name} for entry, name in (claims or {}).items()),
    ]


# --- the core


def a_container(
    name: str = "main", uses: Iterable[str] = (), requests: Mapping[str, str] | None = None, **fields: Any
) -> Document:
    """`uses` names entries of the pod's `resourceClaims`."""
    container: Document = {"name": name, "image": "image", **fields}
    resources: Document = dict(fields.get("resources", {}))
    if requests:
        resources["requests"] = dict(requests)
    if uses := list(uses):
        resources["claims"] = [{"name": entry} for entry in uses]
    if resources:
        container["resources"] = resources
    return container


def a_pod(
    name: str = "pod",
    *containers: Document,
    namespace: str = "default",
    claims: Mapping[str, str] | None = None,
    templates: Mapping[str, str] | None = None,
    requests: Mapping[str, str] | None = None,
    node: str = "",
    **fields: Any,
) -> Document:
    """`claims` and `templates` map the pod's claim entries to names; its one container uses them all and has `requests`."""
    entries = claim_entries(claims, templates)
    spec: Document = {
        "containers": list(containers) or [a_container(uses=[entry["name"] for entry in entries], requests=requests)]
    }
    if entries:
        spec["resourceClaims"] = entries
    if node:
        spec["nodeName"] = node
    return _object("v1", "Pod", name, namespace, fields, spec)


def a_node(name: str = "n1", allocatable: Mapping[str, str] | None = None, ready: str = "", **fields: Any) -> Document:
    status: Document = {}
    if allocatable:
        status["allocatable"] = dict(allocatable)
    if ready:
        status["conditions"] = [{"type": "Ready", "status": ready}]
    if status:
        fields["status"] = status | fields.get("status", {})
    return _object("v1", "Node", name, "", fields, {})


def a_namespace(name: str = "ns", **labels: str) -> Document:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def a_quota(
    name: str = "quota", hard: Mapping[str, str] | None = None, *, namespace: str = "default", **fields: Any
) -> Document:
    return _object("v1", "ResourceQuota", name, namespace, fields, {"hard": dict(hard or {})})


def a_pod_group(name: str = "group", *claims: Document, namespace: str = "default", **fields: Any) -> Document:
    spec: Document = {"schedulingPolicy": {"basic": {}}, "resourceClaims": list(claims)}
    return _object("scheduling.k8s.io/v1beta1", "PodGroup", name, namespace, fields, spec)
