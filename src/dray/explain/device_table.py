"""A table of all devices, one row each: published or gone, free or taken, and the holders."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from dray.allocator.device_kinds import KindTable
from dray.allocator.pools import CompiledSlice
from dray.api.dra.device_use import ClusterUse, Use, UseCounts, UsedPool, counts_of, reach
from dray.api.dra.pools import DeviceID
from dray.api.resource import Device
from dray.explain.cluster_objects import ClusterObjects
from dray.explain.device_holders import (
    DeviceHolder,
    DeviceHolders,
)
from dray.explain.text_columns import columns

# At least so many devices that are alike share a row.
LEAST_FOLDED = 6
GONE = "gone"
NOT_HELD = frozenset({Use.FREE, Use.TAINTED})


AttributeValue = str | int | bool | list[str | int | bool]


class DeviceRow(NamedTuple):
    """`state` is a `Use`, or gone for a device that a claim holds and nobody publishes any more."""

    device_id: DeviceID
    node: str
    state: str
    holders: tuple[DeviceHolder, ...]
    capacity: dict[str, str]
    consumed: dict[str, str]
    attributes: dict[str, AttributeValue]
    taints: tuple[str, ...]

    def document(self) -> dict[str, object]:
        return {
            "driver": self.device_id.driver,
            "pool": self.device_id.pool,
            "device": self.device_id.device,
            "node": self.node,
            "state": str(self.state),
            "inUse": any(holder.pods for holder in self.holders),
            "holders": [holder.document() for holder in self.holders],
            "capacity": self.capacity,
            "consumed": self.consumed,
            "attributes": self.attributes,
            "taints": list(self.taints),
        }


class DeviceTable:
    """Every device of the newest generation of each pool, and those that claims hold though they are gone.

    `nodes` and `drivers` leave out all others; empty ones leave out nothing.
    """

    def __init__(self, world: ClusterObjects, nodes: tuple[str, ...] = (), drivers: tuple[str, ...] = ()) -> None:
        use = ClusterUse(world.slices, world.claims, world.taint_rules)
        self.rows: list[DeviceRow] = []
        self.counts = UseCounts()
        self.gone = 0
        self._world = world
        self._holders = DeviceHolders(world.claims)
        self._kinds = KindTable()
        # The table of kinds forgets lists that nobody holds, and would compile them again for the next node.
        self._lists: dict[int, object] = {}
        # Nodes of one kind share their lists of devices: what a device says of itself is written out once.
        self._texts: dict[int, _Texts] = {}
        for pool in sorted(use.pools, key=lambda each: each.pool_id):
            if not drivers or pool.pool_id[0] in drivers:
                self._add(pool, nodes)
        if not nodes:
            self._add_gone([device_id for device_id in use.gone if not drivers or device_id.driver in drivers])

    def _add(self, pool: UsedPool, nodes: tuple[str, ...]) -> None:
        rows = list(self._rows(pool))
        if nodes:
            self.counts += counts_of(unit for unit in pool.occupancy.units if rows[unit.places[0]].node in nodes)
            rows = [row for row in rows if row.node in nodes]
        else:
            self.counts += pool.occupancy.counts
        self.rows += sorted(rows, key=_by_id)

    def _rows(self, pool: UsedPool) -> Iterator[DeviceRow]:
        driver, name = pool.pool_id
        uses = iter(pool.occupancy.uses)
        for published in pool.slices:
            kinds = CompiledSlice(published, self._kinds, self._world.taint_rules).kinds
            self._lists[id(kinds)] = kinds
            node = published.spec.node_name
            for device, kind in zip(published.spec.devices, kinds, strict=True):
                text = self._texts.get(id(device))
                if text is None:
                    text = self._texts[id(device)] = _Texts.of(device)
                device_id = DeviceID(driver, name, device.name)
                held = tuple(self._holders.of(device_id, with_admins=True))
                yield DeviceRow(
                    device_id,
                    node or reach(published, device),
                    next(uses),
                    held,
                    text.capacity,
                    self._holders.consumed(device_id) if held else {},
                    text.attributes,
                    tuple(_taint(each.key, each.value, each.effect) for each in kind.taints) if kind.taints else (),
                )

    def _add_gone(self, devices: list[DeviceID]) -> None:
        self.gone = len(devices)
        for device_id in devices:
            holders = tuple(self._holders.of(device_id, with_admins=True))
            self.rows.append(DeviceRow(device_id, "", GONE, holders, {}, {}, {}, ()))

    def summary(self) -> dict[str, int]:
        return {**self.counts.document(), **({GONE: self.gone} if self.gone else {})}

    def summary_text(self) -> str:
        """Counted as everywhere: what draws from one counter set is one device."""
        published = len(self.rows) - self.gone
        listed = f" ({published} with their partitions)" if published > self.counts.all else ""
        gone = f", {self.gone} gone" if self.gone else ""
        return self.counts.words().replace(":", f"{listed}:", 1) + gone if self.rows else "no devices"


def _by_id(row: DeviceRow) -> DeviceID:
    return row.device_id


@dataclass(frozen=True, slots=True)
class _Texts:
    capacity: dict[str, str]
    attributes: dict[str, AttributeValue]

    @classmethod
    def of(cls, device: Device) -> _Texts:
        return cls(
            {name: str(capacity.value) for name, capacity in device.capacity.items()},
            {name: _value(attribute) for name, attribute in device.attributes.items()},
        )


def _taint(key: str, value: str, effect: str) -> str:
    return f"{key}={value}:{effect}" if value else f"{key}:{effect}"


def _value(attribute: object) -> AttributeValue:
    for name in ("string", "int", "bool", "version", "strings", "ints", "bools", "versions"):
        value = getattr(attribute, name, None)
        if value is None:
            value = getattr(attribute, f"{name}_", None)
        if value is not None and value != ():
            return list(value) if isinstance(value, tuple) else value
    return ""


def _shown(value: AttributeValue) -> str:
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


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
            cells += [
                ", ".join(f"{name}={_shown(value)}" for name, value in row.attributes.items()),
                ", ".join(row.taints),
            ]
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
