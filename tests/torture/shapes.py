"""What the random work creates: classes, templates, claims and pods of several shapes."""

from __future__ import annotations

import random
from typing import Any

Document = dict[str, Any]

NAMESPACE = "default"
GROUP = "resource.k8s.io/v1"


def device_class(name: str, expression: str) -> Document:
    spec = {"selectors": [{"cel": {"expression": expression}}]}
    return {"apiVersion": GROUP, "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}


def classes() -> list[Document]:
    gpu = 'device.driver == "gpu.example.com" && device.attributes["gpu.example.com"].type == '
    return [
        device_class("gpu", gpu + '"gpu"'),
        device_class("gpu-partition", gpu + '"partition"'),
        device_class("nic", 'device.driver == "nic.example.com"'),
        device_class("cpu", 'device.driver == "dra.cpu"'),
    ]


def exactly(request: str, device_class_name: str, **fields: Any) -> Document:
    return {"name": request, "exactly": {"deviceClassName": device_class_name, **fields}}


def claim_specs() -> dict[str, Document]:
    """By shape: whole cards, partitions over counters, shares of bandwidth, cpus in the ledger, alternatives."""
    large = 'device.capacity["gpu.example.com"].memory.compareTo(quantity("30Gi")) >= 0'
    alternatives = [{"name": "card", "deviceClassName": "gpu"}, {"name": "part", "deviceClassName": "gpu-partition"}]
    return {
        "one-gpu": {"requests": [exactly("gpu", "gpu")]},
        "two-gpus": {"requests": [exactly("gpus", "gpu", count=2)]},
        "one-part": {"requests": [exactly("part", "gpu-partition")]},
        "two-parts": {
            "requests": [exactly("parts", "gpu-partition", count=2, selectors=[{"cel": {"expression": large}}])],
            "constraints": [{"requests": ["parts"], "matchAttribute": "gpu.example.com/parentCard"}],
        },
        "some-bandwidth": {"requests": [exactly("nic", "nic", capacity={"requests": {"bandwidth": "30G"}})]},
        "two-rails": {
            "requests": [exactly("nics", "nic", count=2, capacity={"requests": {"bandwidth": "20G"}})],
            "constraints": [{"requests": ["nics"], "distinctAttribute": "nic.example.com/rail"}],
        },
        "one-cpu": {"requests": [exactly("cpus", "cpu", capacity={"requests": {"dra.cpu/cpu": "1"}})]},
        "best": {"requests": [{"name": "gpu", "firstAvailable": alternatives}]},
    }


def templates() -> list[Document]:
    return [
        {
            "apiVersion": GROUP,
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"spec": {"devices": spec}},
        }
        for name, spec in claim_specs().items()
    ]


def claim(name: str, shape: str) -> Document:
    return {
        "apiVersion": GROUP,
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"devices": claim_specs()[shape]},
    }


def pod(name: str, marker: str, chance: random.Random, shared_claims: list[str]) -> Document:
    """A pod with none, one or two claims, of which one may be shared; some ask for cpu, some end by themselves."""
    claims: list[Document] = []
    for index in range(chance.choice([0, 1, 1, 1, 2])):
        if shared_claims and chance.random() < 0.2:
            claims.append({"name": f"c{index}", "resourceClaimName": chance.choice(shared_claims)})
        else:
            claims.append({"name": f"c{index}", "resourceClaimTemplateName": chance.choice(list(claim_specs()))})
    ends = chance.random() < 0.2
    container = {
        "name": "main",
        "image": "example.com/work:latest",
        "command": ["sh", "-c", "sleep 0.3" if ends else "sleep 3600"],
        "env": [{"name": "RUN", "value": marker}],
        "resources": {
            "claims": [{"name": each["name"]} for each in claims],
            "requests": {"cpu": chance.choice(["100m", "500m", "1500m"]), "memory": "64Mi"},
        },
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "containers": [container],
            "resourceClaims": claims,
            "restartPolicy": "Never" if ends else "Always",
            "terminationGracePeriodSeconds": chance.choice([0, 1, 2]),
        },
    }


def lasting_pod(name: str, template: str) -> Document:
    """A pod with one claim that runs until it is deleted."""
    container = {
        "name": "main",
        "image": "example.com/work:latest",
        "command": ["sleep", "3600"],
        "resources": {"claims": [{"name": "c0"}], "requests": {"cpu": "100m"}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "containers": [container],
            "resourceClaims": [{"name": "c0", "resourceClaimTemplateName": template}],
            "terminationGracePeriodSeconds": 0,
        },
    }


def taint_rule(name: str, node: str, device: str, effect: str) -> Document:
    return {
        "kind": "DeviceTaintRule",
        "metadata": {"name": name},
        "spec": {
            "deviceSelector": {"driver": "gpu.example.com", "pool": node, "device": device},
            "taint": {"key": "example.com/torture", "value": "yes", "effect": effect},
        },
    }


def quota(name: str, gpus: int) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"hard": {"gpu.deviceclass.resource.k8s.io/devices": str(gpus), "count/pods": "40"}},
    }
