"""Random clusters as documents: nodes with devices, classes, templates, shared claims, pods that compete for them."""

from __future__ import annotations

import random
from typing import Any

Document = dict[str, Any]
DRIVER = "gpu.example.com"
RESOURCE = "resource.k8s.io/v1"


def random_cluster(seed: int) -> list[Document]:
    """In an order in which an API server accepts them."""
    chance = random.Random(seed)
    documents: list[Document] = []
    for name, value in (("low", 0), ("high", 1000)):
        documents.append(
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name},
                "value": value,
                "preemptionPolicy": "Never",
            }
        )
    documents += [_class("gpu", f"device.driver == '{DRIVER}'"), _class("fast", _selector(chance))]
    for index in range(chance.randint(1, 6)):
        documents += _node(chance, f"node-{index}")
    templates = [f"template-{index}" for index in range(chance.randint(1, 4))]
    for name in templates:
        spec = {"spec": _claim_spec(chance)}
        documents.append(_named("ResourceClaimTemplate", name, spec))
    shared = [f"shared-{index}" for index in range(chance.randint(0, 2))]
    for name in shared:
        documents.append(_named("ResourceClaim", name, _claim_spec(chance)))
    for index in range(chance.randint(1, 16)):
        documents.append(_pod(chance, f"pod-{index:02}", templates, shared))
    return documents


def _named(kind: str, name: str, spec: Document) -> Document:
    return {"apiVersion": RESOURCE, "kind": kind, "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def _class(name: str, expression: str) -> Document:
    return {
        "apiVersion": RESOURCE,
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}' && {expression}"}}]},
    }


def _selector(chance: random.Random) -> str:
    attributes = f"device.attributes['{DRIVER}']"
    return chance.choice(
        [
            f"{attributes}.model == 'a'",
            f"{attributes}.numa < 1",
            f"device.capacity['{DRIVER}'].memory.compareTo(quantity('40Gi')) >= 0",
            f"{attributes}.model in ['a', 'b']",
        ]
    )


def _node(chance: random.Random, name: str) -> list[Document]:
    taints = [{"key": "dedicated", "value": "x", "effect": "NoSchedule"}] if chance.random() < 0.15 else []
    node: Document = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"zone": chance.choice("ab"), "kubernetes.io/hostname": name}},
        "spec": {"taints": taints},
        "status": {
            "allocatable": {"cpu": str(chance.randint(2, 8)), "memory": "16Gi", "pods": str(chance.randint(3, 12))},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    devices = [_device(chance, f"gpu-{index}") for index in range(chance.randint(0, 6))]
    if not devices:
        return [node]
    published = {
        "apiVersion": RESOURCE,
        "kind": "ResourceSlice",
        "metadata": {"name": f"{name}-gpus"},
        "spec": {
            "driver": DRIVER,
            "nodeName": name,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        },
    }
    return [node, published]


def _device(chance: random.Random, name: str) -> Document:
    device: Document = {
        "name": name,
        "attributes": {"model": {"string": chance.choice("abc")}, "numa": {"int": chance.randint(0, 1)}},
        "capacity": {"memory": {"value": chance.choice(["20Gi", "40Gi", "80Gi"])}},
    }
    if chance.random() < 0.3:
        device["allowMultipleAllocations"] = True
    if chance.random() < 0.1:
        device["taints"] = [{"key": "broken", "effect": "NoSchedule"}]
    if chance.random() < 0.2:
        device["nodeAllocatableResourceMappings"] = {"cpu": {"allocationMultiplier": chance.choice(["500m", "1"])}}
    return device


def _claim_spec(chance: random.Random) -> Document:
    requests = [_request(chance, f"request-{index}") for index in range(chance.choice([1, 1, 2]))]
    devices: Document = {"requests": requests}
    if chance.random() < 0.3:
        kind = chance.choice(["matchAttribute", "distinctAttribute"])
        devices["constraints"] = [{kind: f"{DRIVER}/{chance.choice(['numa', 'model'])}"}]
    return {"devices": devices}


def _request(chance: random.Random, name: str) -> Document:
    if chance.random() < 0.2:
        return {
            "name": name,
            "firstAvailable": [
                {"name": "best", "deviceClassName": "fast", "count": chance.randint(1, 2)},
                {"name": "any", "deviceClassName": "gpu"},
            ],
        }
    exactly: Document = {"deviceClassName": chance.choice(["gpu", "gpu", "fast"]), "count": chance.choice([1, 1, 2, 3])}
    if chance.random() < 0.3:
        exactly["selectors"] = [{"cel": {"expression": _selector(chance)}}]
    if chance.random() < 0.3:
        exactly["capacity"] = {"requests": {"memory": chance.choice(["10Gi", "30Gi"])}}
    if chance.random() < 0.05:
        del exactly["count"]
        exactly["allocationMode"] = "All"
    return {"name": name, "exactly": exactly}


def _pod(chance: random.Random, name: str, templates: list[str], shared: list[str]) -> Document:
    claims: list[Document] = []
    if chance.random() < 0.8:
        claims.append({"name": "own", "resourceClaimTemplateName": chance.choice(templates)})
    if shared and chance.random() < 0.3:
        claims.append({"name": "shared", "resourceClaimName": chance.choice(shared)})
    requests = {"cpu": chance.choice(["100m", "500m", "1", "2"]), "memory": chance.choice(["128Mi", "1Gi", "4Gi"])}
    spec: Document = {
        "containers": [
            {
                "name": "main",
                "image": "example",
                "resources": {"requests": requests, "claims": [{"name": entry["name"]} for entry in claims]},
            }
        ],
        "resourceClaims": claims,
        "priorityClassName": chance.choice(["low", "low", "high"]),
    }
    if chance.random() < 0.15:
        spec["nodeSelector"] = {"zone": chance.choice("ab")}
    if chance.random() < 0.2:
        spec["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}
