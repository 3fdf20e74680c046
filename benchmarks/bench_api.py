"""Reading, shaping and judging objects: a full slice, a pod, quantities."""

import json
from itertools import count

from report import Report

from dray.api import core, resource
from dray.api.codec import decode, read_document, to_object
from dray.api.quantity import Quantity
from dray.validation import ValidationContext, validate_create


def run(report: Report) -> None:
    _quantities(report)
    _slice(report)
    _pod(report)


def _quantities(report: Report) -> None:
    numbers = count(1)
    Quantity.parse("80Gi")
    report.measure("parse a quantity, not seen before", lambda: Quantity.parse(f"{next(numbers)}Mi"), limit_us=3)
    report.measure("parse a quantity, seen before", lambda: Quantity.parse("80Gi"), limit_us=0.3)


def _slice(report: Report) -> None:
    data = json.dumps(full_slice()).encode()
    document = read_document(data).document
    context = ValidationContext()
    assert not validate_create(document, context)
    report.measure("decode a slice of 128 devices", lambda: decode(resource.ResourceSlice, data), limit_us=1500)
    report.measure("validate a slice of 128 devices", lambda: validate_create(document, context), limit_us=3000)
    report.measure("read a slice of 128 devices, naming unknown fields", lambda: read_document(data))
    report.measure("document to object, 128 devices", lambda: to_object(document, resource.ResourceSlice))


def _pod(report: Report) -> None:
    data = json.dumps(a_pod()).encode()
    report.measure("decode a pod", lambda: decode(core.Pod, data), limit_us=60)
    report.measure("read a pod, naming unknown fields", lambda: read_document(data))


def full_slice() -> dict[str, object]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "node-1-gpu.example.com", "generation": 1},
        "spec": {
            "driver": "gpu.example.com",
            "nodeName": "node-1",
            "pool": {"name": "node-1", "generation": 1, "resourceSliceCount": 1},
            "devices": [_device(i) for i in range(128)],
        },
    }


def _device(i: int) -> dict[str, object]:
    return {
        "name": f"gpu-{i}",
        "attributes": {
            "type": {"string": "gpu"},
            "index": {"int": i},
            "productName": {"string": "Example H200"},
            "driverVersion": {"version": "550.54.15"},
            "uuid": {"string": f"GPU-{i:032d}"},
            "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{i:02x}"},
            "numa": {"int": i % 2},
            "healthy": {"bool": True},
        },
        "capacity": {"memory": {"value": "141Gi"}, "cores": {"value": "132"}},
    }


def a_pod() -> dict[str, object]:
    container = {
        "name": "main",
        "image": "app:1",
        "resources": {
            "limits": {"cpu": "1", "memory": "1Gi"},
            "requests": {"cpu": "1"},
            "claims": [{"name": "gpu"}],
        },
        "env": [{"name": "A", "value": "b"}],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web-0", "namespace": "default", "labels": {"app": "web"}},
        "spec": {
            "containers": [container, {**container, "name": "side"}],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}],
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
            "volumes": [{"name": "data", "emptyDir": {}}],
        },
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }
