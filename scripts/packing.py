"""How much of a cluster's devices a policy gives away, pod by pod as they arrive; worlds from CSV files, curves and their plot.

python scripts/packing.py world nodes.csv pods.csv --seed 42 > world.json
dray simulate -f world.json --policy least-fragmentation -o json > result.json
python scripts/packing.py score world.json result.json
python scripts/packing.py causes world.json result.json
python scripts/packing.py plot world.json result-a.json result-b.json > docs/images/packing.svg

nodes.csv has the columns name, cpu_milli, memory_mib, devices, model; pods.csv cpu_milli, memory_mib, devices, milli, models. A device
is divided in 1,000 parts; a pod takes `milli` of each of its devices. `score` and `plot` also read any other dump: there each claimed
device counts as a whole one, or as the part of its capacity that is asked for. `causes` counts the devices that stay free, by the reason.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import json
import random
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Document = dict[str, Any]
Row = dict[str, str]

DRIVER = "device.example.com"
WHOLE = 1000
COLOURS = ("#1b6ac9", "#c9541b", "#2a9d57", "#8a4fbf", "#777777", "#b8860b", "#008b8b")


# --- worlds


def arrivals(rows: list[Row], total: int, seed: int, arrive: float) -> Iterator[Row]:
    """All pods in random order, again and again, until `arrive` times the devices that exist have been asked for."""
    rng, pool, asked = random.Random(seed), [], 0
    while asked < arrive * total:
        if not pool:
            pool = list(rows)
            rng.shuffle(pool)
        row = pool.pop()
        asked += int(row["devices"]) * int(row["milli"])
        yield row


def node_objects(row: Row) -> Iterator[Document]:
    name = row["name"]
    resources = {"cpu": f"{row['cpu_milli']}m", "memory": f"{row['memory_mib']}Mi", "pods": "1000"}
    status = {
        "capacity": resources,
        "allocatable": resources,
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    yield {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}
    device = {
        "allowMultipleAllocations": True,
        "attributes": {"model": {"string": row["model"]}},
        "capacity": {"milli": {"value": str(WHOLE)}},
    }
    spec = {
        "driver": DRIVER,
        "nodeName": name,
        "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": f"device-{number}", **device} for number in range(int(row["devices"]))],
    }
    yield {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}


def pod_objects(number: int, row: Row) -> Iterator[Document]:
    name, count = f"p{number:05d}", int(row["devices"])
    resources: Document = {"requests": {"cpu": f"{row['cpu_milli']}m", "memory": f"{row['memory_mib']}Mi"}}
    spec: Document = {"containers": [{"name": "main", "image": "trace", "resources": resources}]}
    if count:
        exactly: Document = {
            "deviceClassName": "device",
            "count": count,
            "capacity": {"requests": {"milli": row["milli"]}},
        }
        if row["models"]:
            models = json.dumps(row["models"].split("|"))
            exactly["selectors"] = [{"cel": {"expression": f'device.attributes["{DRIVER}"].model in {models}'}}]
        yield {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": "default", "uid": f"claim-{number}"},
            "spec": {"devices": {"requests": [{"name": "device", "exactly": exactly}]}},
        }
        resources["claims"] = [{"name": "device"}]
        spec["resourceClaims"] = [{"name": "device", "resourceClaimName": name}]
    created = datetime.datetime(2026, 1, 1) + datetime.timedelta(seconds=number)
    metadata = {
        "name": name,
        "namespace": "default",
        "uid": f"pod-{number}",
        "creationTimestamp": created.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


def world(nodes_file: Path, pods_file: Path, seed: int, arrive: float) -> Document:
    with open(nodes_file) as nodes_text, open(pods_file) as pods_text:
        nodes, rows = list(csv.DictReader(nodes_text)), list(csv.DictReader(pods_text))
    total = WHOLE * sum(int(node["devices"]) for node in nodes)
    selectors = [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]
    items: list[Document] = [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": "device"},
            "spec": {"selectors": selectors},
        }
    ]
    for node in nodes:
        items += node_objects(node)
    for number, row in enumerate(arrivals(rows, total, seed, arrive)):
        items += pod_objects(number, row)
    return {"apiVersion": "v1", "kind": "List", "items": items}


# --- scores


def asked_of(pod: Document, claims: dict[tuple[str, str], Document]) -> float:
    """Devices that the pod's claims ask for; a share counts as the part of 1,000 that it names."""
    total = 0.0
    for entry in pod["spec"].get("resourceClaims", ()):
        claim = claims.get((pod["metadata"].get("namespace", "default"), entry.get("resourceClaimName", "")))
        requests = claim["spec"]["devices"]["requests"] if claim is not None else ()
        for request in requests:
            exactly = request.get("exactly") or request["firstAvailable"][0]
            milli = exactly.get("capacity", {}).get("requests", {}).get("milli", WHOLE)
            total += int(exactly.get("count", 1)) * int(milli) / WHOLE
    return total


def curve(given: Document, result: Document) -> list[tuple[float, float]]:
    """(arrived, allocated) as parts of all devices, after each pod."""
    items = given["items"]
    devices = sum(len(item["spec"].get("devices", ())) for item in items if item["kind"] == "ResourceSlice")
    claims = {
        (item["metadata"].get("namespace", "default"), item["metadata"]["name"]): item
        for item in items
        if item["kind"] == "ResourceClaim"
    }
    node_of = {(pod["namespace"], pod["name"]): pod.get("node") for pod in result["pods"]}
    arrived = allocated = 0.0
    points = [(0.0, 0.0)]
    for pod in (item for item in items if item["kind"] == "Pod"):
        asked = asked_of(pod, claims)
        arrived += asked
        if node_of.get((pod["metadata"].get("namespace", "default"), pod["metadata"]["name"])):
            allocated += asked
        points.append((arrived / devices, allocated / devices))
    return points


def at_full(points: list[tuple[float, float]]) -> float:
    """What was allocated when as much had arrived as exists."""
    return next((allocated for arrived, allocated in points if arrived >= 1.0), points[-1][1])


# --- what stays free, and why


def quantity(text: str) -> float:
    """Plain numbers, milli, and binary units: all that the worlds and results here contain."""
    for suffix, factor in (("m", 1e-3), ("Ki", 2.0**10), ("Mi", 2.0**20), ("Gi", 2.0**30), ("Ti", 2.0**40), ("k", 1e3)):
        if text.endswith(suffix):
            return float(text.removesuffix(suffix)) * factor
    return float(text)


def shares_taken(result: Document) -> dict[tuple[str, str], float]:
    """The taken part of each device, by pool and device."""
    taken: dict[tuple[str, str], float] = {}
    for pod in result["pods"]:
        for claim in pod["claims"]:
            for row in ((claim["allocation"] or {}).get("devices") or {}).get("results", ()):
                consumed = row.get("consumedCapacity") or {}
                part = quantity(str(consumed["milli"])) / WHOLE if "milli" in consumed else 1.0
                key = (row["pool"], row["device"])
                taken[key] = taken.get(key, 0.0) + part
    return taken


@dataclass(frozen=True)
class Shape:
    """What pods that ask for devices need; `part` is that of each device."""

    cpu: float
    memory: float
    part: float
    count: int


def shapes_of(given: Document) -> dict[Shape, float]:
    """The shapes of the pods that ask for devices, with their shares."""
    claims = {item["metadata"]["name"]: item for item in given["items"] if item["kind"] == "ResourceClaim"}
    found: Counter[Shape] = Counter()
    for pod in (item for item in given["items"] if item["kind"] == "Pod"):
        for entry in pod["spec"].get("resourceClaims", ()):
            exactly = claims[entry["resourceClaimName"]]["spec"]["devices"]["requests"][0]["exactly"]
            milli = exactly.get("capacity", {}).get("requests", {}).get("milli", WHOLE)
            asked = pod["spec"]["containers"][0]["resources"].get("requests", {})
            cpu, memory = quantity(asked.get("cpu", "0")), quantity(asked.get("memory", "0"))
            found[Shape(cpu, memory, int(milli) / WHOLE, int(exactly.get("count", 1)))] += 1
    return {shape: count / found.total() for shape, count in found.items()}


CAUSES = ("part too small", "too few devices", "too little cpu", "too little memory", "would fit")


def causes(given: Document, result: Document) -> dict[str, float]:
    """Free devices, divided by what keeps the pods of the mix away from them: the first obstacle of each shape counts with its share."""
    taken, shapes = shares_taken(result), shapes_of(given)
    nodes = {node["name"]: node for node in result["nodes"]}
    found = dict.fromkeys(CAUSES, 0.0)
    for item in (each for each in given["items"] if each["kind"] == "ResourceSlice"):
        spec = item["spec"]
        have, used = nodes[spec["nodeName"]]["allocatable"], nodes[spec["nodeName"]]["requested"]
        cpu, memory = (quantity(have[name]) - quantity(used.get(name, "0")) for name in ("cpu", "memory"))
        parts = [1.0 - taken.get((spec["pool"]["name"], device["name"]), 0.0) + 1e-9 for device in spec["devices"]]
        for shape, share in shapes.items():
            enough = sum(part >= shape.part for part in parts) >= shape.count
            for part in parts:
                obstacles = (part < shape.part, not enough, cpu < shape.cpu, memory < shape.memory, True)
                found[CAUSES[obstacles.index(True)]] += part * share
    return found


def stranded(given: Document, result: Document) -> int:
    """Devices of which nothing is taken."""
    devices = sum(len(item["spec"]["devices"]) for item in given["items"] if item["kind"] == "ResourceSlice")
    return devices - len(shares_taken(result))


# --- the plot


def svg(curves: dict[str, list[tuple[float, float]]]) -> str:
    """Allocated over arrived, from 80 % on, where policies differ."""
    low, high = 0.8, 1.3
    width, height, left, top = 760, 380, 60, 20
    bottom, right = 60, 230

    def at(arrived: float, allocated: float) -> str:
        x = left + (arrived - low) / (high - low) * (width - left - right)
        y = top + (1.0 - allocated) / (1.0 - low) * (height - top - bottom)
        return f"{x:.1f},{y:.1f}"

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for percent in range(80, 101, 5):
        start, end = at(low, percent / 100), at(high, percent / 100)
        out.append(f'<polyline points="{start} {end}" stroke="#dddddd" fill="none"/>')
        x, y = start.split(",")
        out.append(f'<text x="{float(x) - 8}" y="{float(y) + 4}" text-anchor="end">{percent} %</text>')
    for percent in range(80, 131, 10):
        x, y = at(percent / 100, low).split(",")
        out.append(f'<text x="{x}" y="{float(y) + 18}" text-anchor="middle">{percent} %</text>')
    x, y = at((low + high) / 2, low).split(",")
    out.append(f'<text x="{x}" y="{float(y) + 40}" text-anchor="middle">devices asked for so far</text>')
    for number, (name, points) in enumerate(curves.items()):
        colour = COLOURS[number % len(COLOURS)]
        shown = thinned([point for point in points if low <= point[0] <= high and point[1] >= low])
        line = " ".join(at(*point) for point in shown)
        out.append(f'<polyline points="{line}" stroke="{colour}" fill="none" stroke-width="1.6"/>')
        y_of_name = top + 14 + 18 * number
        out.append(f'<rect x="{width - right + 10}" y="{y_of_name - 9}" width="12" height="4" fill="{colour}"/>')
        last = f"{100 * points[-1][1]:.1f} %"
        out.append(f'<text x="{width - right + 28}" y="{y_of_name - 3}">{name}: {last}</text>')
    return "\n".join([*out, "</svg>", ""])


def thinned(points: list[tuple[float, float]], most: int = 160) -> list[tuple[float, float]]:
    step = max(1, len(points) // most)
    return [*points[::step], *points[-1:]]


def published(path: Path) -> dict[str, list[tuple[float, float]]]:
    """Curves from a file: {"name": [[arrived, allocated], ...]}, as parts."""
    return {name: [(point[0], point[1]) for point in points] for name, points in json.loads(path.read_text()).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("world")
    making.add_argument("nodes", type=Path)
    making.add_argument("pods", type=Path)
    making.add_argument("--seed", type=int, default=42)
    making.add_argument("--arrive", type=float, default=1.3)
    scoring = commands.add_parser("score")
    explaining = commands.add_parser("causes")
    plotting = commands.add_parser("plot")
    for each in (scoring, explaining, plotting):
        each.add_argument("world", type=Path)
        each.add_argument("results", type=Path, nargs="+", help="what dray simulate -o json printed; [NAME=]FILE")
    plotting.add_argument("--published", type=Path, help="a JSON file with further curves")
    given = parser.parse_args()
    if given.command == "world":
        json.dump(world(given.nodes, given.pods, given.seed, given.arrive), sys.stdout)
        return
    objects = json.loads(given.world.read_text())
    results = {}
    for text in map(str, given.results):
        name, _, path = text.rpartition("=")
        results[name or Path(path).stem] = json.loads(Path(path).read_text())
    if given.command == "causes":
        for name, result in results.items():
            shown = ", ".join(f"{cause} {free:.1f}" for cause, free in causes(objects, result).items())
            print(f"{name}: devices free: {shown}; untouched {stranded(objects, result)}")
        return
    curves = {name: curve(objects, result) for name, result in results.items()}
    if given.command == "score":
        for name, points in curves.items():
            print(
                f"{name}: {100 * at_full(points):.2f} % when 100 % had arrived, {100 * points[-1][1]:.2f} % at the end"
            )
    else:
        print(svg({**curves, **(published(given.published) if given.published else {})}), end="")


if __name__ == "__main__":
    main()
