"""Small worlds in few words."""

from __future__ import annotations

from typing import Any

from dray.api import codec
from dray.api.core import Node
from dray.api.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from tests.builders.manifests import a_claim, a_class, a_node, a_result, a_slice, a_taint_rule

DRIVER = "gpu.example.com"


def node_object(name: str = "node-1", declared: tuple[str, ...] = (), **labels: str) -> Node:
    return codec.to_object(a_node(name, labels=labels, status={"declaredFeatures": list(declared)}), Node)


def slice_object(
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
    document = a_slice(name, *listed, node="n", driver=driver, pool=pool, generation=generation, slices=count, **spec)
    document["spec"]["nodeName"] = node or ""
    return codec.to_object(document, ResourceSlice)


def class_object(name: str = "any", *expressions: str, config: tuple[Any, ...] = ()) -> DeviceClass:
    selectors = [{"cel": {"expression": expression}} for expression in expressions]
    return codec.to_object(a_class(name, selectors=selectors, config=list(config)), DeviceClass)


def any_request(name: str = "r", count: int = 1, **fields: Any) -> dict[str, Any]:
    return {"name": name, "exactly": an_option(count, **fields)}


def an_option(count: int = 1, **fields: Any) -> dict[str, Any]:
    mode = {"allocationMode": "ExactCount", "count": count} if count else {"allocationMode": "All"}
    selectors = [{"cel": {"expression": expression}} for expression in fields.pop("selectors", ())]
    capacity = {"capacity": {"requests": fields.pop("capacity")}} if "capacity" in fields else {}
    return {"deviceClassName": "any", "selectors": selectors, **mode, **capacity, **fields}


def claim_object(*requests: dict[str, Any], name: str = "claim", **devices: Any) -> ResourceClaim:
    return codec.to_object(a_claim(name, *(requests or (any_request(),)), **devices), ResourceClaim)


def holder_object(*devices: str | dict[str, Any], name: str = "holder", pool: str = "pool") -> ResourceClaim:
    """A claim that has been given these devices."""
    held = [{"device": device} if isinstance(device, str) else device for device in devices]
    results = [a_result(driver=DRIVER, **{"pool": pool, **each}) for each in held]
    return codec.to_object(a_claim(name, namespace="others", results=results), ResourceClaim)


def taint_rule_object(name: str = "rule", effect: str = "NoSchedule", **selector: str) -> DeviceTaintRule:
    return codec.to_object(a_taint_rule(name, effect, **selector), DeviceTaintRule)
