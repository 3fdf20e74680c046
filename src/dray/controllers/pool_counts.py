"""How many devices of a pool are taken, free, or out of reach. Pure: slices and claims in, counts out."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from dray.api.quantity import Quantity
from dray.api.resource import (
    Device,
    DeviceRequestAllocationResult,
    PartitionSummary,
    PoolStatus,
    ResourceClaim,
    ResourcePoolStatusRequestSpec,
    ResourceSlice,
    ShareableCapacity,
    ShareableSummary,
)

MAX_SUMMARY = 32
BLOCKING = ("NoSchedule", "NoExecute")
CounterKey = tuple[str, str]


def pool_statuses(
    wanted: ResourcePoolStatusRequestSpec, slices: Iterable[ResourceSlice], claims: Iterable[ResourceClaim]
) -> list[PoolStatus]:
    """One status per pool of the driver, sorted by pool name."""
    by_pool: dict[str, list[ResourceSlice]] = defaultdict(list)
    for item in slices:
        pool = item.spec.pool.name
        if item.spec.driver == wanted.driver and wanted.pool_name in (None, pool):
            by_pool[pool].append(item)
    taken = _taken(wanted.driver, claims)
    attribute = wanted.default_partition_type_attribute
    return [_status(wanted.driver, pool, by_pool[pool], taken.get(pool, {}), attribute) for pool in sorted(by_pool)]


Uses = dict[str, list[DeviceRequestAllocationResult]]


def _taken(driver: str, claims: Iterable[ResourceClaim]) -> dict[str, Uses]:
    """Allocations by pool and device; admin access takes nothing."""
    taken: dict[str, Uses] = defaultdict(lambda: defaultdict(list))
    for claim in claims:
        for result in claim.status.allocation.devices.results if claim.status.allocation else ():
            if result.driver == driver and not result.admin_access:
                taken[result.pool][result.device].append(result)
    return taken


def _status(driver: str, pool: str, slices: Sequence[ResourceSlice], taken: Uses, attribute: str | None) -> PoolStatus:
    generation = max(item.spec.pool.generation for item in slices)
    newest = [item for item in slices if item.spec.pool.generation == generation]
    count = max(item.spec.pool.resource_slice_count for item in newest)
    nodes = {item.spec.node_name for item in newest}
    node_name = nodes.pop() if len(nodes) == 1 else None
    if len(newest) != count:
        problem = f"pool is incomplete: {len(newest)} of {count} slices of generation {generation} are published"
        return PoolStatus(
            driver=driver, pool_name=pool, generation=generation, node_name=node_name, validation_error=problem
        )
    devices = [device for item in newest for device in item.spec.devices]
    if len({device.name for device in devices}) != len(devices):
        name = next(name for name, number in Counter(d.name for d in devices).items() if number > 1)
        return PoolStatus(
            driver=driver,
            pool_name=pool,
            generation=generation,
            node_name=node_name,
            validation_error=f"device {name} is published more than once",
        )
    room = _counter_room(newest, devices, taken)
    allocated = sum(device.name in taken for device in devices)
    unavailable = sum(device.name not in taken and not _is_free(device, room) for device in devices)
    attribute = next((s.spec.partition_type_attribute for s in newest if s.spec.partition_type_attribute), attribute)
    return PoolStatus(
        driver=driver,
        pool_name=pool,
        generation=generation,
        node_name=node_name,
        resource_slice_count=count,
        total_devices=len(devices),
        allocated_devices=allocated,
        unavailable_devices=unavailable,
        available_devices=len(devices) - allocated - unavailable,
        partition_summary=tuple(_partitions(attribute, devices, taken, room))[:MAX_SUMMARY],
        shareable_summary=_shareable(devices, taken),
    )


def _counter_room(slices: Iterable[ResourceSlice], devices: Iterable[Device], taken: Uses) -> dict[CounterKey, int]:
    """What is left of the pool's counters after every device in use has paid."""
    room: dict[CounterKey, int] = {}
    for item in slices:
        for counters in item.spec.shared_counters:
            for name, counter in counters.counters.items():
                room[counters.name, name] = counter.value.nanos
    for device in devices:
        if device.name in taken:
            for key, amount in _needs(device):
                room[key] = room.get(key, 0) - amount
    return room


def _needs(device: Device) -> Iterator[tuple[CounterKey, int]]:
    for consumption in device.consumes_counters:
        for name, counter in consumption.counters.items():
            yield (consumption.counter_set, name), counter.value.nanos


def _is_free(device: Device, room: dict[CounterKey, int]) -> bool:
    """Nothing keeps a new claim from it: no taint, and counters that suffice."""
    if any(taint.effect in BLOCKING for taint in device.taints):
        return False
    return all(room.get(key, 0) >= amount for key, amount in _needs(device))


def _partitions(
    attribute: str | None, devices: Iterable[Device], taken: Uses, room: dict[CounterKey, int]
) -> Iterator[PartitionSummary]:
    if attribute is None:
        return
    totals: Counter[str] = Counter()
    allocatable: Counter[str] = Counter()
    for device in devices:
        value = device.attributes.get(attribute)
        if value is None or value.string is None:
            continue
        totals[value.string] += 1
        allocatable[value.string] += device.name not in taken and _is_free(device, room)
    for kind in sorted(totals):
        yield PartitionSummary(attribute=attribute, type=kind, total=totals[kind], allocatable=allocatable[kind])


def _shareable(devices: Iterable[Device], taken: Uses) -> ShareableSummary | None:
    shared = [device for device in devices if device.allow_multiple_allocations]
    if not shared:
        return None
    totals: dict[str, int] = defaultdict(int)
    consumed: dict[str, int] = defaultdict(int)
    shown_as: dict[str, Quantity] = {}
    partly = 0
    for device in shared:
        used: dict[str, int] = defaultdict(int)
        for result in taken.get(device.name, ()):
            for name, amount in result.consumed_capacity.items():
                used[name] += amount.nanos
        has_room = not any(used[name] >= c.value.nanos for name, c in device.capacity.items() if c.value.nanos)
        partly += device.name in taken and has_room
        for name, capacity in device.capacity.items():
            shown_as.setdefault(name, capacity.value)
            totals[name] += capacity.value.nanos
            consumed[name] += used[name]
    capacities = tuple(
        ShareableCapacity(
            name=name,
            total=Quantity(totals[name], shown_as[name].format),
            consumed=Quantity(consumed[name], shown_as[name].format),
            available=Quantity(totals[name] - consumed[name], shown_as[name].format),
        )
        for name in sorted(totals)[:MAX_SUMMARY]
    )
    untouched = sum(device.name not in taken for device in shared)
    return ShareableSummary(fully_available_devices=untouched, partially_available_devices=partly, capacity=capacities)
