"""ResourcePoolStatusRequests: how many devices of a driver's pools are taken, free or unavailable, written once into the status."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from dray.api.dra.consumption import CounterID, consumed_capacity, counters_left, counters_suffice, held_by_device
from dray.api.dra.pools import is_complete, newest_of_pool, wanted_slices
from dray.api.dra.taints import HARD_EFFECTS
from dray.api.meta import Condition
from dray.api.quantity import Quantity
from dray.api.resource import (
    Device,
    DeviceRequestAllocationResult,
    PartitionSummary,
    PoolStatus,
    ResourceClaim,
    ResourcePoolStatusRequest,
    ResourcePoolStatusRequestSpec,
    ResourcePoolStatusRequestStatus,
    ResourceSlice,
    ShareableCapacity,
    ShareableSummary,
)
from dray.client import CLAIMS, POOL_STATUS_REQUESTS, SLICES, ApiError, Handler, WorkQueue
from dray.clock import rfc3339
from dray.controllers.context import ControllerContext

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


DEFAULT_LIMIT = 100


class PoolStatusController:
    name = "resource-pool-status-request-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client.named("resource-pool-status-request-controller")
        self._informers = context.informers
        self._requests = context.informers.of(POOL_STATUS_REQUESTS)
        self._slices = context.informers.of(SLICES)
        self._claims = context.informers.of(CLAIMS)
        self.queue: WorkQueue[str] = WorkQueue(
            "resource_pool_status_request", clock=context.clock, registry=context.registry
        )
        self._requests.add_handler(Handler(self._seen, lambda _, new: self._seen(new)))

    def _seen(self, request: ResourcePoolStatusRequest) -> None:
        if request.status is None:
            self.queue.add(request.metadata.name)

    async def run(self) -> None:
        await self._informers.synced()
        await self.queue.run(self.sync)

    async def sync(self, name: str) -> None:
        request = self._requests.get(name)
        if request is None or request.status is not None:
            return
        updated = msgspec.structs.replace(request, status=self._answer(request))
        try:
            await self._client.update_status(POOL_STATUS_REQUESTS, updated)
        except ApiError as error:
            if not error.is_not_found:
                raise

    def _answer(self, request: ResourcePoolStatusRequest) -> ResourcePoolStatusRequestStatus:
        pools = pool_statuses(request.spec, self._slices, self._claims)
        limit = DEFAULT_LIMIT if request.spec.limit is None else request.spec.limit
        shown = pools[:limit]
        message = (
            f"{len(shown)} of {len(pools)} pools are listed" if len(shown) < len(pools) else "all pools are listed"
        )
        complete = Condition(
            type="Complete",
            status="True",
            reason="CalculationComplete",
            message=message,
            last_transition_time=rfc3339(self._client.clock.now()),
        )
        return ResourcePoolStatusRequestStatus(pool_count=len(pools), pools=tuple(shown), conditions=(complete,))
