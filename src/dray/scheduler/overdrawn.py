"""Is anything given away twice? A slow, plain count over all claims, to check what the fast paths decided."""

from collections import Counter
from collections.abc import Iterable, Iterator

from dray.api.resource import Device, ResourceClaim, ResourceSlice

DeviceKey = tuple[str, str, str]


def overdrawn(claims: Iterable[ResourceClaim], slices: Iterable[ResourceSlice]) -> Iterator[str]:
    """A line for every device, capacity and counter of which more is given than there is."""
    slices = list(slices)
    published = {
        (row.spec.driver, row.spec.pool.name, device.name): device for row in slices for device in row.spec.devices
    }
    whole: Counter[DeviceKey] = Counter()
    consumed: dict[DeviceKey, Counter[str]] = {}
    for claim in claims:
        for key, amounts in _held(claim):
            if amounts is None:
                whole[key] += 1
            else:
                consumed.setdefault(key, Counter()).update(amounts)
    yield from (f"device {'/'.join(key)} is held by {count} claims" for key, count in whole.items() if count > 1)
    yield from (f"device {'/'.join(key)} is held whole and shared" for key in whole if key in consumed)
    for key, amounts in consumed.items():
        yield from _over_capacity(key, amounts, published.get(key))
    yield from _over_counters(slices, whole.keys() | consumed.keys())


def _held(claim: ResourceClaim) -> Iterator[tuple[DeviceKey, dict[str, int] | None]]:
    """Devices of one claim, with what is consumed of a shared one."""
    allocation = claim.status.allocation
    for result in allocation.devices.results if allocation is not None else ():
        if not result.admin_access:
            key = (result.driver, result.pool, result.device)
            shares = result.share_id is not None
            yield key, {name: amount.nanos for name, amount in result.consumed_capacity.items()} if shares else None


def _over_capacity(key: DeviceKey, amounts: Counter[str], device: Device | None) -> Iterator[str]:
    for name, amount in amounts.items():
        if device is not None and name in device.capacity and amount > device.capacity[name].value.nanos:
            yield f"device {'/'.join(key)}: {name} is overdrawn"


def _over_counters(slices: list[ResourceSlice], held: set[DeviceKey]) -> Iterator[str]:
    left: dict[tuple[str, str, str, str], int] = {}
    for row in slices:
        for counters in row.spec.shared_counters:
            for name, counter in counters.counters.items():
                left[row.spec.driver, row.spec.pool.name, counters.name, name] = counter.value.nanos
    for row in slices:
        for device in row.spec.devices:
            if (row.spec.driver, row.spec.pool.name, device.name) in held:
                for draws in device.consumes_counters:
                    for name, counter in draws.counters.items():
                        left[row.spec.driver, row.spec.pool.name, draws.counter_set, name] -= counter.value.nanos
    yield from (f"counter {'/'.join(key)} is overdrawn" for key, amount in left.items() if amount < 0)
