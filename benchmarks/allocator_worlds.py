"""Workloads of the allocator: short YAML to whole scenarios."""

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

DRIVER = "gpu.example.com"
CLASS = {"metadata": {"name": "gpu"}, "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]}}
FEATURES = [
    "adminAccess",
    "prioritizedList",
    "partitionableDevices",
    "deviceTaints",
    "consumableCapacity",
    "fractionalCapacityRange",
    "bindingConditions",
    "deviceStatus",
]
PLACE = re.compile(r"\{([^{}]+)\}")

Json = dict[str, Any]


def workloads() -> list[Json]:
    loaded: list[Json] = yaml.safe_load((Path(__file__).parent / "workloads" / "allocator.yaml").read_text())
    return loaded


def filled(template: Any, **names: int) -> Any:
    """A copy with every {expression} worked out; a text that is nothing but digits under `int` becomes a number."""
    if isinstance(template, dict):
        result = {key: filled(value, **names) for key, value in template.items()}
        return {key: int(value) if key == "int" else value for key, value in result.items()}
    if isinstance(template, list):
        return [filled(entry, **names) for entry in template]
    if isinstance(template, str):
        return PLACE.sub(lambda found: _worked_out(found, names), template)
    return deepcopy(template)


def _worked_out(found: re.Match[str], names: dict[str, int]) -> str:
    return str(eval(found[1], {"__builtins__": {}, "min": min, "max": max}, names))


def scenario(workload: Json) -> Json:
    """A scenario as `dray allocate` reads it."""
    nodes = workload.get("nodes", 1)
    slices: list[Json] = []
    allocated: list[Json] = []
    for node in range(nodes):
        slices += _slices(workload, node)
        allocated += _allocated(workload, node)
    return {
        "name": workload["name"],
        "features": dict.fromkeys(FEATURES, True),
        "nodes": [{"metadata": {"name": f"node-{node}"}} for node in range(nodes)],
        "slices": slices,
        "classes": [CLASS],
        "allocatedClaims": allocated,
        "claims": [_claim(workload)],
    }


def as_line(workload: Json) -> bytes:
    return json.dumps(scenario(workload), separators=(",", ":")).encode()


def _slices(workload: Json, node: int) -> Iterator[Json]:
    template = dict(workload["devices"])
    each = template.pop("each")
    devices = [filled(template, node=node, i=i) | {"name": f"dev-{i}"} for i in range(each)]
    carried: list[Json] = [{"devices": devices}]
    if "counters" in workload:
        sets = dict(workload["counters"])
        carried.append({"sharedCounters": [filled(sets, node=node, i=i) for i in range(sets.pop("each"))]})
    pool = {"name": f"node-{node}", "generation": 1, "resourceSliceCount": len(carried)}
    for number, content in enumerate(carried):
        spec = {"driver": DRIVER, "pool": pool, "nodeName": f"node-{node}", **content}
        yield {"metadata": {"name": f"slice-{node}-{number}"}, "spec": spec}


def _allocated(workload: Json, node: int) -> Iterator[Json]:
    for i in range(workload.get("taken", 0)):
        yield _holder(f"taken-{node}-{i}", {"device": f"dev-{i}"}, node)
    shares = workload.get("shares", {"each": 0})
    for i in range(shares["each"]):
        share = {
            "device": f"dev-{i % workload['devices']['each']}",
            "shareID": f"00000000-0000-4000-8000-{node:06d}{i:06d}",
            "consumedCapacity": shares["consumed"],
        }
        yield _holder(f"share-{node}-{i}", share, node)


def _holder(name: str, held: Json, node: int) -> Json:
    result = {"request": "r", "driver": DRIVER, "pool": f"node-{node}", **held}
    return {
        "metadata": {"namespace": "others", "name": name},
        "status": {"allocation": {"devices": {"results": [result]}}},
    }


def _claim(workload: Json) -> Json:
    requests = workload["requests"]
    if isinstance(requests, dict):
        template = dict(requests)
        requests = [filled(template, n=n) for n in range(template.pop("each"))]
    defaults = {"deviceClassName": "gpu", "allocationMode": "ExactCount"}
    devices = {
        "requests": [request | {"exactly": defaults | request["exactly"]} for request in requests],
        "constraints": workload.get("constraints", []),
    }
    return {"metadata": {"namespace": "default", "name": "claim"}, "spec": {"devices": devices}}
