"""How many devices of a pool are taken, free, or out of reach. Pure: slices and claims in, counts out."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from dray.api.dra.consumption import CounterID, consumed_capacity, counters_left, counters_suffice, held_by_device
from dray.api.dra.pools import is_complete, newest_of_pool, wanted_slices
from dray.api.dra.taints import HARD_EFFECTS
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
    """Allocations by pool and device."""
    taken: dict[str, Uses] = defaultdict(dict)
    for device, results in held_by_device(claims).items():
        if device.driver == driver:
            taken[device.pool][device.device] = results
    return taken


def _status(driver: str, pool: str, slices: Sequence[ResourceSlice], taken: Uses, attribute: str | None) -> PoolStatus:
    newest = newest_of_pool(slices)
    generation, count = newest[0].spec.pool.generation, wanted_slices(newest)
    nodes = {item.spec.node_name for item in newest}
    node_name = nodes.pop() if len(nodes) == 1 else None
    if not is_complete(newest):
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
    room = counters_left(newest, taken)
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


def _is_free(device: Device, room: dict[CounterID, int]) -> bool:
    """Nothing keeps a new claim from it: no taint, and counters that suffice."""
    if any(taint.effect in HARD_EFFECTS for taint in device.taints):
        return False
    return counters_suffice(device, room)


def _partitions(
    attribute: str | None, devices: Iterable[Device], taken: Uses, room: dict[CounterID, int]
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
        used = consumed_capacity(taken.get(device.name, ()))
        has_room = not any(used.get(name, 0) >= c.value.nanos for name, c in device.capacity.items() if c.value.nanos)
        partly += device.name in taken and has_room
        for name, capacity in device.capacity.items():
            shown_as.setdefault(name, capacity.value)
            totals[name] += capacity.value.nanos
            consumed[name] += used.get(name, 0)
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
