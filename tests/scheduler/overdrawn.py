"""Is anything given away twice? A slow, plain count over all claims, to check what the fast paths decided."""

from collections.abc import Iterable, Iterator

from dray.api.dra.consumption import consumed_capacity, counters_left, held_by_device, is_share
from dray.api.dra.pools import DeviceID, PoolID, published_devices, slices_by_pool
from dray.api.resource import DeviceRequestAllocationResult, ResourceClaim, ResourceSlice


def overdrawn(claims: Iterable[ResourceClaim], slices: Iterable[ResourceSlice]) -> Iterator[str]:
    """A line for every device, capacity and counter of which more is given than there is."""
    slices = list(slices)
    held = held_by_device(claims)
    shared = {device: [row for row in rows if is_share(row)] for device, rows in held.items()}
    for device, rows in held.items():
        whole = len(rows) - len(shared[device])
        if whole > 1:
            yield f"device {device} is held by {whole} claims"
        if whole and shared[device]:
            yield f"device {device} is held whole and shared"
    yield from _over_capacity(slices, shared)
    yield from _over_counters(slices, held)


def _over_capacity(
    slices: list[ResourceSlice], shared: dict[DeviceID, list[DeviceRequestAllocationResult]]
) -> Iterator[str]:
    for device_id, device in published_devices(slices):
        for name, amount in consumed_capacity(shared.get(device_id, ())).items():
            if name in device.capacity and amount > device.capacity[name].value.nanos:
                yield f"device {device_id}: {name} is overdrawn"


def _over_counters(slices: list[ResourceSlice], held: Iterable[DeviceID]) -> Iterator[str]:
    held_by_pool: dict[PoolID, set[str]] = {}
    for device in held:
        held_by_pool.setdefault((device.driver, device.pool), set()).add(device.device)
    for pool, of_pool in slices_by_pool(slices).items():
        for counter, amount in counters_left(of_pool, held_by_pool.get(pool, ())).items():
            if amount < 0:
                yield f"counter {'/'.join((*pool, *counter))} is overdrawn"
