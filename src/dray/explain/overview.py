"""An overview of the cluster on one screen: devices by driver, nodes, waiting pods (`dray top`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dray.accounting import AccountingError, ClusterLedger, NodeLedger, PodRef, as_quantity, pod_demand
from dray.api.core import Pod
from dray.api.dra.device_use import NONE_COUNTED, ClusterUse, UseCounts
from dray.api.dra.pod_phase import is_bound, is_finished, is_on_node
from dray.explain.cluster_objects import ClusterObjects
from dray.explain.text_columns import columns

BAR = 12


@dataclass(frozen=True)
class Overview:
    world: ClusterObjects
    devices: ClusterUse
    ledgers: list[NodeLedger]
    waiting: list[Pod]


def overview_of(world: ClusterObjects) -> Overview:
    cluster = ClusterLedger()
    for node in world.nodes:
        cluster.set_node(node)
    for pod in world.pods:
        if is_on_node(pod):
            try:
                cluster.add(pod.spec.node_name, PodRef.of(pod), pod_demand(pod))
            except AccountingError:
                continue
    waiting = [pod for pod in world.pods if not is_bound(pod) and not is_finished(pod)]
    use = ClusterUse(world.slices, world.claims, world.taint_rules)
    return Overview(world, use, list(cluster), waiting)


def overview_document(view: Overview) -> dict[str, Any]:
    """The same for programs."""
    by_node = view.devices.by_node()
    return {
        "pods": {"placed": _placed(view), "waiting": len(view.waiting)},
        "devices": {**view.devices.counts.document(), "gone": len(view.devices.gone)},
        "drivers": [
            {"name": name, "devices": counts.document()} for name, counts in sorted(view.devices.by_driver().items())
        ],
        "nodes": [
            {
                "name": ledger.name,
                "devices": by_node.get(ledger.name, NONE_COUNTED).document(),
                **{resource: _amounts(ledger, resource) for resource in ("cpu", "memory")},
                "pods": {"requested": ledger.pod_count, "allocatable": ledger.allocatable("pods")},
            }
            for ledger in _fullest_first(view)
        ],
        "waiting": [
            {"namespace": pod.metadata.namespace, "name": pod.metadata.name, "message": _why(pod)}
            for pod in view.waiting
        ],
    }


def text_of(view: Overview, lines: int | None = None, problem: str = "", *, wide: bool = False) -> str:
    """All of it, or as much as fits on so many lines: the tables share the room. A `problem` comes first."""
    counts = (len(view.devices.by_driver()), len(view.ledgers), len(view.waiting))
    drivers, nodes, waiting = _rooms(counts, lines - bool(problem) if lines is not None else None)
    parts = [_headline(view), "", _drivers(view, drivers, wide=wide), "", _nodes(view, nodes)]
    if view.waiting:
        parts += ["", _waiting(view.waiting, waiting, wide=wide)]
    text = "\n".join([problem, *parts] if problem else parts)
    return text if lines is None else "\n".join(text.splitlines()[:lines])


def _rooms(counts: tuple[int, ...], lines: int | None) -> list[int | None]:
    """How many rows each table may have: what one does not need is left to the next."""
    if lines is None:
        return [None] * len(counts)
    # Under the headline each table has a blank line and a title.
    left = lines - 1 - 2 * len([count for count in counts if count])
    rooms: list[int | None] = []
    for place, count in enumerate(counts):
        room = min(count, max(3, left // (len(counts) - place)))
        # The last table with rows takes all that is left.
        if not any(counts[place + 1 :]):
            room = max(3, left)
        rooms.append(room)
        left -= room
    return rooms


def _headline(view: Overview) -> str:
    gone = len(view.devices.gone)
    return (
        f"{_plural(len(view.ledgers), 'node')}, {_plural(_placed(view), 'pod')} placed, {len(view.waiting)} waiting; "
        f"{view.devices.counts.words()}" + (f", {gone} gone" if gone else "")
    )


def _placed(view: Overview) -> int:
    return sum(map(is_on_node, view.world.pods))


def _plural(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def _drivers(view: Overview, room: int | None, *, wide: bool) -> str:
    by_driver = view.devices.by_driver()
    if not by_driver:
        return "no devices are published"
    others = wide or any(counts.blocked or counts.tainted for counts in by_driver.values())
    header = ("DRIVER", "DEVICES", "ALL", "USED", "PARTLY", "FREE", *(("BLOCKED", "TAINTED") if others else ()))
    rows = []
    for name, counts in sorted(by_driver.items()):
        numbers = [counts.all, counts.used, counts.partly, counts.free]
        numbers += [counts.blocked, counts.tainted] if others else []
        rows.append((name, bar(counts.parts, counts.all), *map(str, numbers)))
    return columns(header, _cut(rows, room))


def _nodes(view: Overview, room: int | None) -> str:
    by_node = view.devices.by_node()
    rows = []
    for ledger in _fullest_first(view):
        counts = by_node.get(ledger.name, NONE_COUNTED)
        rows.append(
            (
                ledger.name,
                f"{bar(counts.parts, counts.all)} {_use(counts)}" if counts.all else "",
                _share(ledger, "cpu"),
                _share(ledger, "memory"),
                f"{ledger.pod_count}/{ledger.allocatable('pods')}",
            )
        )
    return columns(("NODE", "DEVICES", "CPU", "MEMORY", "PODS"), _cut(rows, room)) if rows else "no nodes"


def _fullest_first(view: Overview) -> list[NodeLedger]:
    by_node = view.devices.by_node()
    return sorted(
        view.ledgers, key=lambda each: (-_fullness(each, by_node.get(each.name, NONE_COUNTED)), natural(each.name))
    )


def _use(counts: UseCounts) -> str:
    """`3/8` devices are used; `3+2/8`: two more are partly used."""
    partly = f"+{counts.partly}" if counts.partly else ""
    return f"{counts.used}{partly}/{counts.all}"


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """node-2 before node-10."""
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name))


def _fullness(ledger: NodeLedger, counts: UseCounts) -> float:
    cpu = ledger.requested("cpu") / ledger.allocatable("cpu") if ledger.allocatable("cpu") else 0.0
    return max(cpu, counts.parts / counts.all if counts.all else 0.0)


def _share(ledger: NodeLedger, resource: str) -> str:
    used, total = ledger.requested(resource), ledger.allocatable(resource)
    return f"{bar(used, total)} {as_quantity(resource, used)}/{as_quantity(resource, total)}"


def _amounts(ledger: NodeLedger, resource: str) -> dict[str, str]:
    used, total = ledger.requested(resource), ledger.allocatable(resource)
    return {"requested": str(as_quantity(resource, used)), "allocatable": str(as_quantity(resource, total))}


def _why(pod: Pod) -> str:
    return next((row.message for row in pod.status.conditions if row.type == "PodScheduled"), "")


def _waiting(pods: Sequence[Pod], room: int | None, *, wide: bool) -> str:
    rows = []
    for pod in pods:
        said = _why(pod) if wide else _why(pod).partition(" preemption:")[0]
        rows.append((f"{pod.metadata.namespace}/{pod.metadata.name}", said))
    return columns(("WAITING POD", "WHY (dray explain pod/NAME tells more)"), _cut(rows, room))


def _cut(rows: Sequence[tuple[str, ...]], room: int | None) -> Sequence[tuple[str, ...]]:
    if room is None or len(rows) <= room:
        return rows
    more = f"... {len(rows) - room + 1} more"
    return [*rows[: room - 1], (more, *[" "] * (len(rows[0]) - 1))]


def bar(used: float, total: float) -> str:
    filled = min(BAR, round(BAR * used / total)) if total else 0
    return "█" * filled + "░" * (BAR - filled)
