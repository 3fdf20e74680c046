"""A table of all devices, one row each: published or gone, free or taken, and the holders."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from dray.allocator.device_kinds import KindTable
from dray.allocator.pools import CompiledSlice
from dray.api.dra.device_use import NONE_COUNTED, ClusterUse, Use, UseCounts, UsedPool, reach
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

    `nodes` and `drivers` leave out all others; empty ones leave out nothing. `states` does so for rows, not for the counts.
    """

    def __init__(self, world: ClusterObjects, nodes: tuple[str, ...] = (), drivers: tuple[str, ...] = ()) -> None:
        use = ClusterUse(world.slices, world.claims, world.taint_rules)
        self._world = world
        self._nodes = nodes
        self._holders = DeviceHolders(world.claims)
        self._kinds = KindTable()
        # The table of kinds forgets lists that nobody holds, and would compile them again for the next node.
        self._lists: dict[int, object] = {}
        # Nodes of one kind share their lists of devices: what a device says of itself is written out once.
        self._texts: dict[int, _Texts] = {}
        self._pools = [each for each in use.pools if not drivers or each.pool_id[0] in drivers]
        self._pools.sort(key=lambda each: each.pool_id)
        self._gone = [each for each in use.gone if not nodes and (not drivers or each.driver in drivers)]
        self._held_pools = {each[:2] for each in self._holders.devices()}

    def rows(self, states: Collection[str] | None = None) -> Iterator[DeviceRow]:
        for pool in self._pools:
            yield from self._rows_of(pool, states)
        yield from self._gone_rows(states)

    def folded_rows(self, states: Collection[str] | None = None) -> Iterator[tuple[DeviceRow, int]]:
        """Rows, each with the number of further devices that it stands for: see `_folded`."""
        known: dict[int, list[tuple[DeviceRow, int]]] = {}
        for pool in self._pools:
            node = pool.only_node()
            if not node or pool.pool_id in self._held_pools:
                yield from _folded(self._rows_of(pool, states))
            elif not self._nodes or node in self._nodes:
                # Pools that nobody uses differ by their names only if their layouts are the same.
                if id(pool.layout) not in known:
                    known[id(pool.layout)] = _folded(self._rows_of(pool, states))
                for row, more in known[id(pool.layout)]:
                    yield row._replace(device_id=DeviceID(*pool.pool_id, row.device_id.device), node=node), more
        yield from ((row, 0) for row in self._gone_rows(states))

    def _rows_of(self, pool: UsedPool, states: Collection[str] | None) -> list[DeviceRow]:
        rows = [
            row
            for row in self._rows(pool)
            if (not self._nodes or row.node in self._nodes) and (states is None or row.state in states)
        ]
        return sorted(rows, key=_by_id)

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

    def _gone_rows(self, states: Collection[str] | None) -> Iterator[DeviceRow]:
        for device_id in self._gone if states is None else ():
            holders = tuple(self._holders.of(device_id, with_admins=True))
            yield DeviceRow(device_id, "", GONE, holders, {}, {}, {}, ())

    @cached_property
    def counts(self) -> UseCounts:
        if not self._nodes:
            return sum((pool.occupancy.counts for pool in self._pools), NONE_COUNTED)
        by_node = (pool.counts_by_node() for pool in self._pools)
        return sum((counts for each in by_node for node, counts in each.items() if node in self._nodes), NONE_COUNTED)

    def _published(self) -> int:
        return sum(
            not self._nodes or pool.node_of(unit) in self._nodes
            for pool in self._pools
            for unit in pool.occupancy.units
            for _ in unit.places
        )

    def summary(self) -> dict[str, int]:
        return {**self.counts.document(), **({GONE: len(self._gone)} if self._gone else {})}

    def summary_text(self) -> str:
        """Counted as everywhere: what draws from one counter set is one device."""
        if not self.counts.all and not self._gone:
            return "no devices"
        published = self._published() if self._nodes else sum(len(pool.layout.devices) for pool in self._pools)
        listed = f" ({published} with their partitions)" if published > self.counts.all else ""
        gone = f", {len(self._gone)} gone" if self._gone else ""
        return self.counts.words().replace(":", f"{listed}:", 1) + gone


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


def devices_text(rows: Iterable[tuple[DeviceRow, int]], *, wide: bool) -> str:
    """A row stands for so many more devices than the one it names."""
    header = ["DRIVER", "POOL", "DEVICE", "NODE", "STATE", "CAPACITY", "CLAIMS", "PODS"]
    if wide:
        header += ["ATTRIBUTES", "TAINTS"]
    table = []
    for row, more in rows:
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
