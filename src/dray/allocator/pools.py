"""Slices to pools: newest generation; complete, incomplete, invalid or dropped."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from enum import Enum
from itertools import chain
from operator import attrgetter
from weakref import WeakValueDictionary

from dray.allocator.device_kinds import DeviceKind, KindTable, Shape, ShapeTable
from dray.allocator.types import Features
from dray.api.dra.pools import DeviceID, PoolID, newest_by
from dray.api.dra.taints import selects_device
from dray.api.resource import Device, DeviceTaint, DeviceTaintRule, ResourceSlice

_name_of = attrgetter("name")
_draws_of = attrgetter("consumes_counters")
_groups_of = attrgetter("compatibility_groups")


class CompiledSlice:
    """One slice with its devices' kinds, and the taints that rules add."""

    __slots__ = ("devices", "has_groups", "kinds", "name", "slice", "spec")

    def __init__(self, published: ResourceSlice, kinds: KindTable, rules: Iterable[DeviceTaintRule]) -> None:
        self.slice = published
        self.spec = spec = published.spec
        self.name = published.metadata.name
        # Slices with counter sets carry no devices that could be allocated.
        self.devices = () if spec.shared_counters else spec.devices
        self.has_groups = any(map(_groups_of, chain.from_iterable(map(_draws_of, spec.devices))))
        skips = bool(spec.skip_node_operations)
        rules = [rule for rule in rules if _concerns_slice(rule, published)]
        self.kinds: list[DeviceKind] = (
            [kinds.kind_of(spec.driver, device, _taints(device, rules), skips) for device in self.devices]
            if rules
            else kinds.kinds_of(spec.driver, self.devices, skips)
        )

    def is_offered(self, features: Features) -> bool:
        """Whether its devices may be used. Otherwise it needs a feature that is off, and only counts for its pool."""
        is_partitioned = self.spec.per_device_node_selection is not None or self.spec.shared_counters
        return (features.partitionable_devices or not is_partitioned) and self.is_counted(features)

    def is_counted(self, features: Features) -> bool:
        """Whether it makes its pool complete. While groups are off, a pool with groups stays incomplete."""
        return features.compatibility_groups or not self.has_groups


def taint_rule_matches(rule: DeviceTaintRule, driver: str, pool: str, device: str) -> bool:
    wanted = rule.spec.device_selector
    return wanted is None or selects_device(wanted, driver, pool, device)


def _concerns_slice(rule: DeviceTaintRule, published: ResourceSlice) -> bool:
    wanted = rule.spec.device_selector
    spec = published.spec
    return wanted is None or (wanted.driver in (None, spec.driver) and wanted.pool in (None, spec.pool.name))


def _taints(device: Device, rules: list[DeviceTaintRule]) -> tuple[DeviceTaint, ...]:
    added = []
    for rule in rules:
        wanted = rule.spec.device_selector
        if wanted is None or wanted.device in (None, device.name):
            added.append(rule.spec.taint)
    return (*device.taints, *added)


class PoolState(Enum):
    VALID = "valid"
    INCOMPLETE = "incomplete"
    INVALID = "invalid"


class PoolCounters:
    """Counter sets of one pool and what each of its devices draws, also devices that other nodes see."""

    __slots__ = (
        "__weakref__",
        "drawn_by_name",
        "index",
        "kinds_by_name",
        "lists",
        "names",
        "names_key",
        "problem",
        "sets",
        "totals",
    )

    def __init__(self, slices: Sequence[CompiledSlice]) -> None:
        self.problem = ""
        # Keeps the lists alive by which pools are compared.
        self.lists = [(compiled.kinds, compiled.spec.shared_counters) for compiled in slices]
        self.totals: list[int] = []
        self.names: list[tuple[str, str]] = []
        self.sets: dict[str, dict[str, int]] = {}
        self.index: dict[DeviceKind, tuple[tuple[int, int], ...]] = {}
        self.drawn_by_name: dict[str, tuple[tuple[int, int], ...]] = {}
        self.kinds_by_name: dict[str, DeviceKind] = {}
        for compiled in slices:
            self._add_sets(compiled)
        for compiled in slices:
            self._add_devices(compiled)
        self.names_key = tuple(self.names)

    def _add_sets(self, compiled: CompiledSlice) -> None:
        for counter_set in compiled.spec.shared_counters:
            if counter_set.name in self.sets:
                self._report(f"duplicate counter set name {counter_set.name}")
            positions = self.sets.setdefault(counter_set.name, {})
            for name, counter in counter_set.counters.items():
                if name not in positions:
                    positions[name] = len(self.totals)
                    self.names.append((counter_set.name, name))
                    self.totals.append(counter.value.nanos)

    def _add_devices(self, compiled: CompiledSlice) -> None:
        for device, kind in zip(compiled.devices, compiled.kinds, strict=True):
            if kind.consumes:
                drawn = self.drawn_by(kind)
                self.kinds_by_name[device.name] = kind
                known = self.drawn_by_name.get(device.name)
                self.drawn_by_name[device.name] = drawn if known is None else known + drawn

    def drawn_by(self, kind: DeviceKind) -> tuple[tuple[int, int], ...]:
        """(counter, amount) pairs of such a device; counters that do not exist are reported and left out."""
        drawn = self.index.get(kind)
        if drawn is None:
            amounts: dict[int, int] = {}
            for counter_set, counters, _ in kind.consumes:
                self._collect(amounts, counter_set, counters)
            drawn = self.index[kind] = tuple(amounts.items())
        return drawn

    def _collect(self, amounts: dict[int, int], counter_set: str, counters: tuple[tuple[str, int], ...]) -> None:
        positions = self.sets.get(counter_set)
        if positions is None:
            self._report(f"counter set {counter_set} not found")
            return
        for name, amount in counters:
            position = positions.get(name)
            if position is None:
                self._report(f"counter {name} not found in counter set {counter_set}")
            else:
                amounts[position] = amounts.get(position, 0) + amount

    def _report(self, problem: str) -> None:
        self.problem = self.problem or problem


class CountersTable:
    """Finds the counters of a pool. Pools of equal nodes, whose slices share their lists of devices, share one object."""

    def __init__(self) -> None:
        self._counters: WeakValueDictionary[Hashable, PoolCounters] = WeakValueDictionary()

    def counters_of(self, slices: Sequence[CompiledSlice]) -> PoolCounters:
        ordered = sorted(slices, key=_by_name)
        # Equal lists are decoded once, and the counters keep them alive, so identity is equality here.
        key = tuple([(id(one.kinds), id(one.spec.shared_counters)) for one in ordered])
        counters = self._counters.get(key)
        if counters is None:
            counters = self._counters[key] = PoolCounters(ordered)
        return counters


class PoolView:
    """One pool as some nodes see it; its slices are in the order of their names. Immutable once built; a changed pool gets new views."""

    __slots__ = (
        "__weakref__",
        "counters",
        "devices",
        "driver",
        "generation",
        "has_binding_conditions",
        "is_live",
        "is_local",
        "is_per_device",
        "name",
        "names",
        "pool_id",
        "positions",
        "problem",
        "shape",
        "slice_names",
        "slices",
        "state",
        "wanted_slices",
    )

    def __init__(self, pool_id: PoolID, slices: Sequence[CompiledSlice], state: PoolState, shapes: ShapeTable) -> None:
        self.pool_id = pool_id
        self.driver, self.name = pool_id
        self.state = state
        self.problem = ""
        self.is_live = True
        self.is_local = all(compiled.spec.node_name for compiled in slices)
        self.generation = slices[0].spec.pool.generation
        self.wanted_slices = slices[0].spec.pool.resource_slice_count
        self.slice_names = [compiled.name for compiled in slices]
        self.devices: list[Device] = []
        self.slices: list[CompiledSlice] = []
        kinds: list[DeviceKind] = []
        for compiled in slices:
            self.devices += compiled.devices
            self.slices += [compiled] * len(compiled.devices)
            kinds += compiled.kinds
        self.names: list[str] = list(map(_name_of, self.devices))
        self.positions = dict(zip(self.names, range(len(self.names)), strict=True))
        self.is_per_device = any(compiled.spec.per_device_node_selection for compiled in slices)
        self.shape: Shape = shapes.shape_of(tuple(kinds))
        self.has_binding_conditions = self.shape.binding != 0
        self.counters: PoolCounters | None = None

    def device_id(self, position: int) -> DeviceID:
        return DeviceID(self.driver, self.name, self.names[position])

    def kinds_of_pool(self, names: Collection[str]) -> list[DeviceKind]:
        """Kinds of the named devices that draw counters, in the order in which the pool publishes them."""
        known = self.counters.kinds_by_name if self.counters is not None else {}
        return [kind for name, kind in known.items() if name in names]

    @property
    def search_key(self) -> tuple[bool, str, str]:
        return (self.has_binding_conditions, self.driver, self.name)

    def mark_invalid(self, problem: str) -> None:
        self.state = PoolState.INVALID
        self.problem = problem


def _by_name(compiled: CompiledSlice) -> str:
    return compiled.name


class Pool:
    """Every slice of one (driver, pool) in the cluster, and the views made of them."""

    __slots__ = ("_views", "pool_id", "slices")

    def __init__(self, pool_id: PoolID) -> None:
        self.pool_id = pool_id
        self.slices: dict[str, CompiledSlice] = {}
        self._views: dict[frozenset[str], PoolView | None] = {}

    def changed(self) -> None:
        for view in self._views.values():
            if view is not None:
                view.is_live = False
        self._views.clear()

    def view(
        self, relevant: frozenset[str], features: Features, shapes: ShapeTable, counters: CountersTable
    ) -> PoolView | None:
        """The pool made of these slices, or None if a newer generation has made them obsolete."""
        if relevant not in self._views:
            self._views[relevant] = self._build(relevant, features, shapes, counters)
        return self._views[relevant]

    def _build(
        self, relevant: frozenset[str], features: Features, shapes: ShapeTable, counters: CountersTable
    ) -> PoolView | None:
        seen = [self.slices[name] for name in relevant]
        kept = sorted(newest_by(seen, lambda one: one.spec.pool.generation), key=_by_name)
        newest = kept[0].spec.pool.generation
        everywhere = [
            one for one in self.slices.values() if one.spec.pool.generation == newest and one.is_counted(features)
        ]
        wanted = kept[0].spec.pool.resource_slice_count
        if len(kept) != wanted:
            if any(one.spec.pool.generation > newest for one in self.slices.values()):
                return None
            if len(everywhere) != wanted:
                return PoolView(self.pool_id, kept, PoolState.INCOMPLETE, shapes)
        view = PoolView(self.pool_id, kept, PoolState.VALID, shapes)
        self._check(view, everywhere, features, counters)
        return view

    def _check(self, view: PoolView, everywhere: list[CompiledSlice], features: Features, table: CountersTable) -> None:
        if len(view.positions) != len(view.names):
            twice = next(name for i, name in enumerate(view.names) if view.positions[name] != i)
            view.mark_invalid(f"duplicate device name {twice}")
        if not features.partitionable_devices or not (
            view.shape.consumes or any(one.spec.shared_counters or _draws(one) for one in everywhere)
        ):
            return
        view.counters = counters = table.counters_of(everywhere)
        if counters.problem and view.state is PoolState.VALID:
            view.mark_invalid(counters.problem)


def _draws(compiled: CompiledSlice) -> bool:
    return any(kind.consumes for kind in compiled.kinds)
