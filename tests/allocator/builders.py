"""Small worlds in few words."""

from __future__ import annotations

from typing import Any

from dray.api import codec
from dray.api.core import Node
from dray.api.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice

DRIVER = "gpu.example.com"


def a_node(name: str = "node-1", declared: tuple[str, ...] = (), **labels: str) -> Node:
    document = {"metadata": {"name": name, "labels": labels}, "status": {"declaredFeatures": list(declared)}}
    return codec.to_object(document, Node)


def a_device(name: str, **fields: Any) -> dict[str, Any]:
    """Attributes may be written as plain values: str, int or bool."""
    attributes = {key: _attribute(value) for key, value in fields.pop("attributes", {}).items()}
    capacity = {key: _capacity(value) for key, value in fields.pop("capacity", {}).items()}
    return {"name": name, "attributes": attributes, "capacity": capacity, **fields}


def _attribute(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    if isinstance(value, bool):
        return {"bool": value}
    return {"int": value} if isinstance(value, int) else {"string": value}


def _capacity(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {"value": value}


def a_slice(
    devices: int | list[Any] = 2,
    *,
    name: str = "slice-1",
    driver: str = DRIVER,
    pool: str = "pool",
    generation: int = 1,
    count: int = 1,
    node: str | None = "node-1",
    **spec: Any,
) -> ResourceSlice:
    listed = [f"dev-{i}" for i in range(devices)] if isinstance(devices, int) else devices
    where = {"nodeName": node} if node else {}
    document = {
        "metadata": {"name": name},
        "spec": {
            "driver": driver,
            "pool": {"name": pool, "generation": generation, "resourceSliceCount": count},
            "devices": [a_device(one) if isinstance(one, str) else one for one in listed],
            **where,
            **spec,
        },
    }
    return codec.to_object(document, ResourceSlice)


def a_class(name: str = "any", *expressions: str, config: tuple[Any, ...] = ()) -> DeviceClass:
    selectors = [{"cel": {"expression": expression}} for expression in expressions]
    document = {"metadata": {"name": name}, "spec": {"selectors": selectors, "config": list(config)}}
    return codec.to_object(document, DeviceClass)


def a_request(name: str = "r", count: int = 1, **fields: Any) -> dict[str, Any]:
    return {"name": name, "exactly": an_option(count, **fields)}


def an_option(count: int = 1, **fields: Any) -> dict[str, Any]:
    mode = {"allocationMode": "ExactCount", "count": count} if count else {"allocationMode": "All"}
    selectors = [{"cel": {"expression": expression}} for expression in fields.pop("selectors", ())]
    capacity = {"capacity": {"requests": fields.pop("capacity")}} if "capacity" in fields else {}
    return {"deviceClassName": "any", "selectors": selectors, **mode, **capacity, **fields}


def a_claim(*requests: dict[str, Any], name: str = "claim", **devices: Any) -> ResourceClaim:
    document = {
        "metadata": {"namespace": "default", "name": name},
        "spec": {"devices": {"requests": list(requests or (a_request(),)), **devices}},
    }
    return codec.to_object(document, ResourceClaim)


def a_holder(*devices: str | dict[str, Any], name: str = "holder", pool: str = "pool") -> ResourceClaim:
    """A claim that has been given these devices."""
    results = []
    for device in devices:
        held = {"device": device} if isinstance(device, str) else device
        results.append({"request": "r", "driver": DRIVER, "pool": pool, **held})
    document = {
        "metadata": {"namespace": "others", "name": name},
        "status": {"allocation": {"devices": {"results": results}}},
    }
    return codec.to_object(document, ResourceClaim)


def a_taint_rule(name: str = "rule", effect: str = "NoSchedule", **selector: str) -> DeviceTaintRule:
    document = {
        "metadata": {"name": name},
        "spec": {"deviceSelector": selector, "taint": {"key": "sick", "effect": effect}},
    }
    return codec.to_object(document, DeviceTaintRule)
