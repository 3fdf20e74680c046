"""Which devices are used, partly used, free, blocked or tainted: the one definition that all tools count by. Pure.

- used: a claim holds the device, or its shares leave less of a capacity than the smallest share takes.
- partly used: shares of it are held, and there is room for another.
- blocked: no claim holds it, and none can get it: its counters are used up, devices in use share no compatibility group with it,
  or its pool is not complete and valid.
- tainted: no claim holds it, and a taint keeps away requests that do not tolerate it.
- free: no claim holds it, and one can get it.

Partitions overlap, so devices that draw from one counter set count once, as a *unit*: used if some are held and nothing else of it can be
had, partly used if something can. Every other device is a unit of its own. Numbers that people read are numbers of units.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from dray.api.dra.compatibility import Groups, groups_in_use, joined
from dray.api.dra.consumption import (
    CounterID,
    consumed_capacity,
    counter_totals,
    counters_drawn,
    counters_suffice,
    held_by_device,
    is_share,
)
from dray.api.dra.pools import DeviceID, PoolID, is_complete, newest_of_each_pool, slices_by_pool
from dray.api.dra.taints import HARD_EFFECTS, selects_device
from dray.api.resource import (
    Device,
    DeviceCapacity,
    DeviceRequestAllocationResult,
    DeviceTaintRule,
    ResourceClaim,
    ResourceSlice,
)

# The node of a device that several nodes can reach.
ALL_NODES = "all nodes"
BY_SELECTOR = "by selector"


class Use(StrEnum):
    """What is true of a device, or of a unit, at one moment."""

    USED = "used"
    PARTLY = "partly used"
    FREE = "free"
    BLOCKED = "blocked"
    TAINTED = "tainted"


IS_HELD = frozenset({Use.USED, Use.PARTLY})


@dataclass(frozen=True, slots=True)
class UseCounts:
    """Numbers of units. `parts` is how many units' worth of devices is taken; a card that is half taken adds one half."""

    used: int = 0
    partly: int = 0
    free: int = 0
    blocked: int = 0
    tainted: int = 0
    parts: float = 0.0

    @property
    def all(self) -> int:
        return self.used + self.partly + self.free + self.blocked + self.tainted

    def __add__(self, other: UseCounts) -> UseCounts:
        return UseCounts(
            self.used + other.used,
            self.partly + other.partly,
            self.free + other.free,
            self.blocked + other.blocked,
            self.tainted + other.tainted,
            self.parts + other.parts,
        )

    @property
    def left_in_parts(self) -> float:
        """What is left of the devices that are partly used, in devices."""
        return max(0.0, self.used + self.partly - self.parts)

    def of(self, use: Use) -> int:
        return (self.used, self.partly, self.free, self.blocked, self.tainted)[_ORDER[use]]

    def document(self) -> dict[str, int]:
        return {
            "all": self.all,
            "used": self.used,
            "partlyUsed": self.partly,
            "free": self.free,
            "blocked": self.blocked,
            "tainted": self.tainted,
        }

    def words(self) -> str:
        """`10 devices: 4 used, 2 partly used, 4 free`; blocked and tainted ones only where there are some."""
        parts = [f"{self.used} used"]
        parts += [f"{self.partly} partly used"] if self.partly else []
        parts.append(f"{self.free} free")
        parts += [f"{self.of(use)} {use}" for use in (Use.BLOCKED, Use.TAINTED) if self.of(use)]
        return f"{self.all} {'device' if self.all == 1 else 'devices'}: {', '.join(parts)}"


_ORDER = {use: place for place, use in enumerate(Use)}
NONE_COUNTED = UseCounts()


def counts_of(units: Iterable[Unit]) -> UseCounts:
    numbers = [0] * len(_ORDER)
    parts = 0.0
    for unit in units:
        numbers[_ORDER[unit.use]] += 1
        parts += unit.part
    used, partly, free, blocked, tainted = numbers
    return UseCounts(used, partly, free, blocked, tainted, parts)


@dataclass(frozen=True, slots=True)
class HeldDevice:
    """What claims hold of one device: the whole, or shares that consume so much of its capacities in nano-units."""

    is_whole: bool
    consumed: Mapping[str, int]

    @classmethod
    def of(cls, results: Sequence[DeviceRequestAllocationResult]) -> HeldDevice:
        return cls(not all(map(is_share, results)), consumed_capacity(results))


@dataclass(frozen=True, slots=True)
class Unit:
    """Devices that count as one, by their places in the pool. `part` is the taken part of it, from 0 to 1."""

    places: tuple[int, ...]
    use: Use
    part: float


@dataclass(frozen=True, slots=True)
class PoolOccupancy:
    """The use of each device of a pool, in the order of its layout, and of each unit."""

    uses: Sequence[Use]
    units: Sequence[Unit]
    counts: UseCounts


class PoolLayout:
    """The devices of one pool: what they draw, which of them count as one, which are tainted."""

    __slots__ = (
        "_brought",
        "_draws",
        "_groups",
        "_is_usable",
        "_tainted",
        "_totals",
        "_untouched",
        "devices",
        "places",
    )

    def __init__(
        self,
        devices: Sequence[Device],
        totals: Mapping[CounterID, int],
        tainted: Collection[int],
        *,
        is_usable: bool,
    ) -> None:
        self.devices = devices
        self.places = {device.name: place for place, device in enumerate(devices)}
        self._totals = dict(totals)
        self._tainted = tainted
        self._draws = [counters_drawn(device) for device in devices]
        self._brought = _brought_by(devices)
        # The scheduler passes over a pool with a name twice, or with a counter that no set has.
        self._is_usable = is_usable and len(self.places) == len(devices) and self._counters_exist()
        self._groups = _groups(devices)
        self._untouched: PoolOccupancy | None = None

    def _counters_exist(self) -> bool:
        return all(counter in self._totals for drawn in self._draws for counter in drawn)

    def occupancy(self, held: Mapping[str, HeldDevice]) -> PoolOccupancy:
        """The use of the devices while claims hold these, by name."""
        if held:
            return self._occupancy(held)
        if self._untouched is None:
            self._untouched = self._occupancy(held)
        return self._untouched

    def _occupancy(self, held: Mapping[str, HeldDevice]) -> PoolOccupancy:
        left, groups = self._counters_left(held), self._groups_in_use(held)
        uses = [
            self._use(place, device, held.get(device.name), left, groups) for place, device in enumerate(self.devices)
        ]
        units = [self._unit(places, uses, held) for places in self._groups]
        return PoolOccupancy(uses, units, counts_of(units))

    def _counters_left(self, held: Mapping[str, HeldDevice]) -> dict[CounterID, int]:
        left = dict(self._totals)
        for name in held:
            place = self.places.get(name)
            if place is not None:
                for counter, amount in self._draws[place].items():
                    left[counter] = left.get(counter, 0) - amount
        return left

    def _groups_in_use(self, held: Mapping[str, HeldDevice]) -> dict[str, Groups]:
        places = (self.places[name] for name in held if name in self.places)
        return groups_in_use(pair for place in places for pair in self._brought[place])

    def _use(
        self,
        place: int,
        device: Device,
        held: HeldDevice | None,
        left: dict[CounterID, int],
        groups: Mapping[str, Groups],
    ) -> Use:
        if held is not None:
            return Use.USED if held.is_whole or is_full(device, held.consumed) else Use.PARTLY
        if not self._is_usable or (device.consumes_counters and not counters_suffice(device, left)):
            return Use.BLOCKED
        if any(joined(groups.get(counter_set), brought) is None for counter_set, brought in self._brought[place]):
            return Use.BLOCKED
        return Use.TAINTED if place in self._tainted else Use.FREE

    def _unit(self, places: tuple[int, ...], uses: Sequence[Use], held: Mapping[str, HeldDevice]) -> Unit:
        if len(places) == 1:
            use = uses[places[0]]
        else:
            use = _together({uses[place] for place in places})
        if use not in IS_HELD:
            return Unit(places, use, 0.0)
        return Unit(places, use, 1.0 if use is Use.USED else min(1.0, sum(self._parts(places, held))))

    def _parts(self, places: tuple[int, ...], held: Mapping[str, HeldDevice]) -> Iterator[float]:
        """The parts of a unit that its held devices take: of its counters, and of that what their shares consume."""
        for place in places:
            device = self.devices[place]
            found = held.get(device.name)
            if found is not None:
                of_counters = _largest(self._draws[place], self._totals)
                yield of_counters * (1.0 if found.is_whole else _largest_consumed(device, found.consumed))


def _brought_by(devices: Sequence[Device]) -> Sequence[tuple[tuple[str, Groups], ...]]:
    """The compatibility groups of each device, by counter set; nothing where no device has any."""
    if not any(drawn.compatibility_groups for device in devices for drawn in device.consumes_counters):
        return [()] * len(devices)
    return [
        tuple((drawn.counter_set, frozenset(drawn.compatibility_groups)) for drawn in device.consumes_counters)
        for device in devices
    ]


def _groups(devices: Sequence[Device]) -> list[tuple[int, ...]]:
    """Places of devices that count as one, in the order of the first of each."""
    groups: dict[str | int, list[int]] = {}
    for place, device in enumerate(devices):
        key = device.consumes_counters[0].counter_set if device.consumes_counters else place
        groups.setdefault(key, []).append(place)
    return [tuple(places) for places in groups.values()]


def _together(uses: Collection[Use]) -> Use:
    if Use.USED in uses or Use.PARTLY in uses:
        return Use.PARTLY if Use.PARTLY in uses or Use.FREE in uses else Use.USED
    return next(use for use in (Use.FREE, Use.TAINTED, Use.BLOCKED) if use in uses)


def _largest(drawn: Mapping[CounterID, int], totals: Mapping[CounterID, int]) -> float:
    parts = [amount / totals[counter] for counter, amount in drawn.items() if totals.get(counter)]
    return max(parts, default=1.0)


def _largest_consumed(device: Device, consumed: Mapping[str, int]) -> float:
    parts = [amount / device.capacity[name].value.nanos for name, amount in consumed.items() if _has(device, name)]
    return max(parts, default=0.0)


def _has(device: Device, name: str) -> bool:
    return name in device.capacity and device.capacity[name].value.nanos > 0


def is_full(device: Device, consumed: Mapping[str, int]) -> bool:
    """Whether no further share fits: of some capacity less is left than the smallest share takes."""
    return any(
        _has(device, name) and capacity.value.nanos - consumed.get(name, 0) < smallest_share(capacity)
        for name, capacity in device.capacity.items()
    )


def smallest_share(capacity: DeviceCapacity) -> int:
    """The least that a request can take of it, in nano-units; never zero."""
    policy = capacity.request_policy
    if policy is not None and policy.valid_values:
        return max(1, min(value.nanos for value in policy.valid_values))
    if policy is not None and policy.valid_range is not None and policy.valid_range.min is not None:
        return max(1, policy.valid_range.min.nanos)
    return 1


# --- a whole cluster


@dataclass(frozen=True, slots=True)
class UsedPool:
    """One pool: its newest slices that have devices, its layout and its use."""

    pool_id: PoolID
    layout: PoolLayout
    occupancy: PoolOccupancy
    slices: Sequence[ResourceSlice]

    def slice_of(self, place: int) -> ResourceSlice:
        for published in self.slices:
            if place < len(published.spec.devices):
                return published
            place -= len(published.spec.devices)
        raise IndexError(place)

    def node_of(self, unit: Unit) -> str:
        return reach(self.slice_of(unit.places[0]), self.layout.devices[unit.places[0]])

    def only_node(self) -> str:
        """The node that all its slices name; empty if there is none."""
        nodes = {published.spec.node_name for published in self.slices}
        return (nodes.pop() or "") if len(nodes) == 1 else ""

    def counts_by_node(self) -> dict[str, UseCounts]:
        if only := self.only_node():
            return {only: self.occupancy.counts}
        found: dict[str, list[Unit]] = {}
        for unit in self.occupancy.units:
            found.setdefault(self.node_of(unit), []).append(unit)
        return {node: counts_of(units) for node, units in found.items()}


class ClusterUse:
    """The use of all devices. `gone` are those that claims hold and nobody publishes any more."""

    def __init__(
        self,
        slices: Iterable[ResourceSlice],
        claims: Iterable[ResourceClaim],
        rules: Sequence[DeviceTaintRule] = (),
    ) -> None:
        held: dict[PoolID, dict[str, HeldDevice]] = {}
        for (driver, pool, device), results in held_by_device(claims).items():
            held.setdefault((driver, pool), {})[device] = HeldDevice.of(results)
        self.pools: list[UsedPool] = []
        layouts = PoolLayouts()
        for pool_id, newest in slices_by_pool(newest_of_each_pool(slices)).items():
            layout = layouts.of(pool_id, newest, rules)
            with_devices = [published for published in newest if not published.spec.shared_counters]
            self.pools.append(UsedPool(pool_id, layout, layout.occupancy(held.get(pool_id, {})), with_devices))
        self.gone = sorted(self._unpublished(held))

    def _unpublished(self, held: Mapping[PoolID, Mapping[str, HeldDevice]]) -> Iterator[DeviceID]:
        layouts = {pool.pool_id: pool.layout for pool in self.pools}
        for (driver, pool), devices in held.items():
            layout = layouts.get((driver, pool))
            for name in devices:
                if layout is None or name not in layout.places:
                    yield DeviceID(driver, pool, name)

    @property
    def devices(self) -> int:
        """How many devices are published, each partition counted."""
        return sum(len(pool.layout.devices) for pool in self.pools)

    @property
    def counts(self) -> UseCounts:
        return sum((pool.occupancy.counts for pool in self.pools), NONE_COUNTED)

    def by_driver(self) -> dict[str, UseCounts]:
        return _summed((pool.pool_id[0], pool.occupancy.counts) for pool in self.pools)

    def by_node(self) -> dict[str, UseCounts]:
        """Devices that several nodes can reach are under `ALL_NODES` or `BY_SELECTOR`."""
        return _summed(row for pool in self.pools for row in pool.counts_by_node().items())

    def by_place(self, driver: str) -> dict[str, UseCounts]:
        """The devices of one driver by node; a pool that no single node owns stands for itself."""
        pools = [pool for pool in self.pools if pool.pool_id[0] == driver]
        return _summed(
            (f"pool {pool.pool_id[1]}" if node in (ALL_NODES, BY_SELECTOR) else node, counts)
            for pool in pools
            for node, counts in pool.counts_by_node().items()
        )


def _summed(rows: Iterable[tuple[str, UseCounts]]) -> dict[str, UseCounts]:
    found: dict[str, UseCounts] = {}
    for name, counts in rows:
        found[name] = found[name] + counts if name in found else counts
    return found


class PoolLayouts:
    """Layouts of pools. Nodes of one kind share their lists of devices, and then their layouts."""

    def __init__(self) -> None:
        # The layout keeps its devices, so the identity of a list stays its own for as long as the layout is known.
        self._known: dict[tuple[object, ...], tuple[PoolLayout, Sequence[ResourceSlice]]] = {}

    def of(self, pool_id: PoolID, newest: Sequence[ResourceSlice], rules: Sequence[DeviceTaintRule]) -> PoolLayout:
        concerned = [rule for rule in rules if _concerns(rule, pool_id)]
        key = (is_complete(newest), *((id(each.spec.devices), id(each.spec.shared_counters)) for each in newest))
        if concerned or key not in self._known:
            layout = layout_of(pool_id, newest, concerned)
            if concerned:
                return layout
            self._known[key] = (layout, newest)
        return self._known[key][0]


def layout_of(pool_id: PoolID, newest: Sequence[ResourceSlice], rules: Sequence[DeviceTaintRule]) -> PoolLayout:
    """Slices with counter sets carry no devices that could be allocated."""
    devices = [device for each in newest if not each.spec.shared_counters for device in each.spec.devices]
    tainted = frozenset(place for place, device in enumerate(devices) if _is_tainted(pool_id, device, rules))
    sets = [counter_set.name for each in newest for counter_set in each.spec.shared_counters]
    is_usable = is_complete(newest) and len(set(sets)) == len(sets)
    return PoolLayout(devices, counter_totals(newest), tainted, is_usable=is_usable)


def _is_tainted(pool_id: PoolID, device: Device, rules: Sequence[DeviceTaintRule]) -> bool:
    return any(taint.effect in HARD_EFFECTS for taint in device.taints) or any(
        rule.spec.taint.effect in HARD_EFFECTS and _selects(rule, pool_id, device.name) for rule in rules
    )


def _concerns(rule: DeviceTaintRule, pool_id: PoolID) -> bool:
    wanted = rule.spec.device_selector
    return wanted is None or (wanted.driver in (None, pool_id[0]) and wanted.pool in (None, pool_id[1]))


def _selects(rule: DeviceTaintRule, pool_id: PoolID, device: str) -> bool:
    wanted = rule.spec.device_selector
    return wanted is None or selects_device(wanted, *pool_id, device)


def reach(published: ResourceSlice, device: Device) -> str:
    """The node that can reach the device, or words for several."""
    spec = published.spec
    if spec.node_name or device.node_name:
        return spec.node_name or device.node_name or ""
    return ALL_NODES if spec.all_nodes or device.all_nodes else BY_SELECTOR
