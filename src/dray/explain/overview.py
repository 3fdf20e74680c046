"""An overview of the cluster on one screen: devices by driver, nodes, waiting pods (`dray top`)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dray.accounting import AccountingError, ClusterLedger, NodeLedger, PodRef, as_quantity, pod_demand
from dray.api.core import Pod
from dray.api.dra.pod_phase import is_bound, is_finished, is_on_node
from dray.explain.cluster_objects import ClusterObjects
from dray.explain.device_table import DeviceRow, device_rows
from dray.explain.text_columns import columns

BAR = 12


@dataclass(frozen=True)
class Overview:
    world: ClusterObjects
    devices: list[DeviceRow]
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
    return Overview(world, device_rows(world), list(cluster), waiting)


def text_of(view: Overview, lines: int | None = None, problem: str = "") -> str:
    """All of it, or as much as fits on so many lines: the tables share the room. A `problem` comes first."""
    counts = (len({row.device_id.driver for row in view.devices}), len(view.ledgers), len(view.waiting))
    drivers, nodes, waiting = _rooms(counts, lines - bool(problem) if lines is not None else None)
    parts = [_headline(view), "", _drivers(view, drivers), "", _nodes(view, nodes)]
    if view.waiting:
        parts += ["", _waiting(view.waiting, waiting)]
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
    states = Counter(row.state for row in view.devices)
    running = sum(map(is_on_node, view.world.pods))
    return (
        f"{len(view.ledgers)} nodes, {running} pods placed, {len(view.waiting)} waiting; "
        f"{len(view.devices)} devices: {states['taken'] + states['shared']} in use, {states['free']} free"
        + (f", {states['blocked']} blocked" if states["blocked"] else "")
        + (f", {states['gone']} gone" if states["gone"] else "")
    )


def _drivers(view: Overview, room: int | None) -> str:
    total, used = _use(view, lambda row: row.device_id.driver)
    rows = [(name, bar(used[name], count), f"{used[name]}/{count}") for name, count in sorted(total.items())]
    return columns(("DRIVER", "DEVICES", "USED"), _cut(rows, room)) if rows else "no devices are published"


def _use(view: Overview, group: Callable[[DeviceRow], str]) -> tuple[Counter[str], Counter[str]]:
    """Devices in use, and those together with the free ones. What is blocked is part of something in use."""
    total: Counter[str] = Counter()
    used: Counter[str] = Counter()
    for row in view.devices:
        if row.state not in ("gone", "blocked"):
            total[group(row)] += 1
            used[group(row)] += row.state != "free"
    return total, used


def _nodes(view: Overview, room: int | None) -> str:
    total, used = _use(view, lambda row: row.node)
    rows = []
    for ledger in sorted(
        view.ledgers, key=lambda each: (-_fullness(each, used[each.name], total[each.name]), natural(each.name))
    ):
        devices = f"{bar(used[ledger.name], total[ledger.name])} {used[ledger.name]}/{total[ledger.name]}"
        rows.append(
            (
                ledger.name,
                devices if total[ledger.name] else "",
                _share(ledger, "cpu"),
                _share(ledger, "memory"),
                f"{ledger.pod_count}/{ledger.allocatable('pods')}",
            )
        )
    return columns(("NODE", "DEVICES", "CPU", "MEMORY", "PODS"), _cut(rows, room)) if rows else "no nodes"


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """node-2 before node-10."""
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name))


def _fullness(ledger: NodeLedger, used: int, total: int) -> float:
    cpu = ledger.requested("cpu") / ledger.allocatable("cpu") if ledger.allocatable("cpu") else 0.0
    return max(cpu, used / total if total else 0.0)


def _share(ledger: NodeLedger, resource: str) -> str:
    used, total = ledger.requested(resource), ledger.allocatable(resource)
    return f"{bar(used, total)} {as_quantity(resource, used)}/{as_quantity(resource, total)}"


def _waiting(pods: Sequence[Pod], room: int | None) -> str:
    rows = []
    for pod in pods:
        said = next((row.message for row in pod.status.conditions if row.type == "PodScheduled"), "")
        rows.append((f"{pod.metadata.namespace}/{pod.metadata.name}", said.partition(" preemption:")[0]))
    return columns(("WAITING POD", "WHY (dray explain pod/NAME tells more)"), _cut(rows, room))


def _cut(rows: Sequence[tuple[str, ...]], room: int | None) -> Sequence[tuple[str, ...]]:
    if room is None or len(rows) <= room:
        return rows
    more = f"... {len(rows) - room + 1} more"
    return [*rows[: room - 1], (more, *[" "] * (len(rows[0]) - 1))]


def bar(used: float, total: float) -> str:
    filled = min(BAR, round(BAR * used / total)) if total else 0
    return "█" * filled + "░" * (BAR - filled)
