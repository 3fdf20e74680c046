"""A table of all devices, one row each: published or gone, free or taken, and the holders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, replace

from dray.allocator.device_kinds import KindTable
from dray.allocator.pools import CompiledSlice
from dray.api.dra.consumption import counters_left, counters_suffice
from dray.api.dra.pools import DeviceID, PoolID, newest_of_each_pool, pool_id, published_devices, slices_by_pool
from dray.api.resource import Device, ResourceSlice
from dray.explain.cluster_objects import ClusterObjects
from dray.explain.device_holders import (
    DeviceHolder,
    DeviceHolders,
)
from dray.explain.text_columns import columns

# What stands for the node of a device that several nodes see.
ALL_NODES = "all nodes"
BY_SELECTOR = "by selector"
# At least so many devices that are alike share a row.
LEAST_FOLDED = 6


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """`state` is free, taken, shared, blocked by what others draw from its counters, or gone for a device that a claim
    holds and nobody publishes any more."""

    device_id: DeviceID
    node: str
    state: str
    holders: tuple[DeviceHolder, ...]
    capacity: dict[str, str]
    consumed: dict[str, str]
    attributes: dict[str, str]
    taints: tuple[str, ...]

    def document(self) -> dict[str, object]:
        return {
            "driver": self.device_id.driver,
            "pool": self.device_id.pool,
            "device": self.device_id.device,
            "node": self.node,
            "state": self.state,
            "inUse": any(holder.pods for holder in self.holders),
            "holders": [holder.document() for holder in self.holders],
            "capacity": self.capacity,
            "consumed": self.consumed,
            "attributes": self.attributes,
            "taints": list(self.taints),
        }


def device_rows(world: ClusterObjects) -> list[DeviceRow]:
    """Every device of the newest generation of each pool, and those that claims hold though they are gone."""
    holders = DeviceHolders(world.claims)
    rows: dict[DeviceID, DeviceRow] = {}
    kinds = KindTable()
    newest = newest_of_each_pool(world.slices)
    # Nodes of one kind share their lists of devices: what a device says of itself is written out once.
    texts: dict[int, _Texts] = {}
    for published in newest:
        compiled = CompiledSlice(published, kinds, world.taint_rules)
        for device, kind in zip(compiled.devices, compiled.kinds, strict=True):
            device_id = DeviceID(published.spec.driver, published.spec.pool.name, device.name)
            text = texts.get(id(device))
            if text is None:
                text = texts[id(device)] = _Texts.of(device)
            taints = tuple(_taint(taint.key, taint.value, taint.effect) for taint in kind.taints) if kind.taints else ()
            rows.setdefault(device_id, _row(device_id, _reach(published, device), text, taints, holders))
    for device_id in holders.devices():
        if device_id not in rows:
            rows[device_id] = DeviceRow(
                device_id, "", "gone", tuple(holders.of(device_id, with_admins=True)), {}, {}, {}, ()
            )
    _mark_blocked(rows, newest)
    return [rows[key] for key in sorted(rows)]


def _mark_blocked(rows: dict[DeviceID, DeviceRow], slices: list[ResourceSlice]) -> None:
    """Free devices whose counters no longer suffice, since other devices of their pool draw from them."""
    held: dict[PoolID, set[str]] = {}
    for row in rows.values():
        if row.state in ("taken", "shared"):
            held.setdefault((row.device_id.driver, row.device_id.pool), set()).add(row.device_id.device)
    by_pool = slices_by_pool(each for each in slices if pool_id(each) in held)
    for pool, newest in by_pool.items():
        left = counters_left(newest, held[pool])
        for device_id, device in published_devices(newest):
            row = rows[device_id]
            if row.state == "free" and not counters_suffice(device, left):
                rows[device_id] = replace(row, state="blocked")


@dataclass(frozen=True, slots=True)
class _Texts:
    capacity: dict[str, str]
    attributes: dict[str, str]

    @classmethod
    def of(cls, device: Device) -> _Texts:
        return cls(
            {name: str(capacity.value) for name, capacity in device.capacity.items()},
            {name: _value(attribute) for name, attribute in device.attributes.items()},
        )


def _row(device_id: DeviceID, node: str, text: _Texts, taints: tuple[str, ...], holders: DeviceHolders) -> DeviceRow:
    held = tuple(holders.of(device_id, with_admins=True))
    takers = [holder for holder in held if not holder.has_admin_access]
    state = "free"
    if takers:
        state = "shared" if any(holder.is_share for holder in takers) else "taken"
    consumed = holders.consumed(device_id) if held else {}
    return DeviceRow(device_id, node, state, held, text.capacity, consumed, text.attributes, taints)


def _reach(published: ResourceSlice, device: Device) -> str:
    spec = published.spec
    if spec.node_name or device.node_name:
        return spec.node_name or device.node_name or ""
    return ALL_NODES if spec.all_nodes or device.all_nodes else BY_SELECTOR


def _taint(key: str, value: str, effect: str) -> str:
    return f"{key}={value}:{effect}" if value else f"{key}:{effect}"


def _value(attribute: object) -> str:
    for name in ("string", "int", "bool", "version", "strings", "ints", "bools", "versions"):
        value = getattr(attribute, name, None)
        if value is None:
            value = getattr(attribute, f"{name}_", None)
        if value is not None and value != ():
            return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return ""


def devices_text(rows: list[DeviceRow], *, wide: bool) -> str:
    header = ["DRIVER", "POOL", "DEVICE", "NODE", "STATE", "CAPACITY", "CLAIMS", "PODS"]
    if wide:
        header += ["ATTRIBUTES", "TAINTS"]
    table = []
    for row, more in [(row, 0) for row in rows] if wide else _folded(rows):
        claims = ", ".join(f"{holder.claim}{' (admin)' if holder.has_admin_access else ''}" for holder in row.holders)
        pods = ", ".join(dict.fromkeys(pod for holder in row.holders for pod in holder.pods))
        driver, pool, name = row.device_id
        name = f"{name} and {more} more" if more else name
        cells = [driver, pool, name, row.node, row.state, _capacity(row), claims, pods]
        if wide:
            cells += [", ".join(f"{name}={value}" for name, value in row.attributes.items()), ", ".join(row.taints)]
        table.append(cells)
    return columns(header, table)


def _folded(rows: list[DeviceRow]) -> list[tuple[DeviceRow, int]]:
    """Devices of a pool that nobody holds and that offer the same share a row; a card has dozens of partitions."""
    alike: dict[Hashable, list[DeviceRow]] = {}
    for row in rows:
        is_plain = not row.holders and not row.taints
        key = (row.device_id[:2], row.node, row.state, _capacity(row)) if is_plain else row.device_id
        alike.setdefault(key, []).append(row)
    shown: list[tuple[DeviceRow, int]] = []
    for found in alike.values():
        shown += [(found[0], len(found) - 1)] if len(found) >= LEAST_FOLDED else [(row, 0) for row in found]
    return shown


def _capacity(row: DeviceRow) -> str:
    parts = []
    for name, value in row.capacity.items():
        short = name.rpartition("/")[2]
        parts.append(f"{short} {row.consumed[name]} of {value}" if name in row.consumed else f"{short} {value}")
    return ", ".join(parts)


def devices_summary(rows: list[DeviceRow]) -> str:
    counts = Counter(row.state for row in rows)
    words = ", ".join(
        f"{counts[state]} {state}" for state in ("free", "blocked", "taken", "shared", "gone") if counts[state]
    )
    return f"{len(rows)} devices: {words}" if rows else "no devices"
