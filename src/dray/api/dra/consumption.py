"""Computes the use of allocations: devices, shares of their capacity, and the counters of their pools. Pure.

Amounts are in nano-units. Admin access takes nothing. The first share of a device pays its counters; more shares of
the same device add consumed capacity only.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from dray.api.dra.pools import DeviceID, device_id
from dray.api.quantity import Quantity
from dray.api.resource import Device, DeviceRequestAllocationResult, ResourceClaim, ResourceSlice

CounterID = tuple[str, str]
"""Counter set and counter, within one pool."""


def allocation_results(claim: ResourceClaim) -> tuple[DeviceRequestAllocationResult, ...]:
    """The devices that the claim was given; empty while it is not allocated."""
    allocation = claim.status.allocation
    return allocation.devices.results if allocation is not None else ()


def held_results(claim: ResourceClaim) -> list[DeviceRequestAllocationResult]:
    """The devices and shares that the claim takes from others."""
    return [result for result in allocation_results(claim) if not result.admin_access]


def held_by_device(claims: Iterable[ResourceClaim]) -> dict[DeviceID, list[DeviceRequestAllocationResult]]:
    held: dict[DeviceID, list[DeviceRequestAllocationResult]] = {}
    for claim in claims:
        for result in held_results(claim):
            held.setdefault(device_id(result), []).append(result)
    return held


# Strategies of a request policy (KEP-5075's future possibilities). The first is the default: a request that does not name a capacity gets
# its default, or all of it.
ALWAYS_CONSUMED = "AlwaysConsumed"
# Whoever holds the device first decides: either everybody asks for the capacity, or nobody may.
CONSUMED_OR_NEVER = "ConsumedOrNever"
# A request that does not name the capacity takes all of it.
BLOCK_OR_SHARE = "BlockOrShare"


# --- shares ----------------------------------------------------------------------------------------------------------


def is_share(result: DeviceRequestAllocationResult) -> bool:
    """Whether the claim holds a part of the device and not the whole."""
    return result.share_id is not None


def plain_name(name: str, driver: str) -> str:
    """A capacity's name without the domain of its driver; both spellings mean the same capacity."""
    return name.removeprefix(f"{driver}/")


def either_or_capacities(device: Device) -> frozenset[str]:
    """Capacities with the strategy ConsumedOrNever: of these either all holders of the device have some, or none."""
    return frozenset(
        name
        for name, published in device.capacity.items()
        if published.request_policy is not None and published.request_policy.strategy == CONSUMED_OR_NEVER
    )


def add_consumed(sums: dict[str, int], result: DeviceRequestAllocationResult, sign: int = 1) -> None:
    """Adds what one result consumes to the sums of its device; `sign=-1` takes it away again."""
    for name, amount in result.consumed_capacity.items():
        sums[name] = sums.get(name, 0) + sign * amount.nanos


def consumed_capacity(results: Iterable[DeviceRequestAllocationResult]) -> dict[str, int]:
    """The sum over all shares of one device, by capacity."""
    sums: dict[str, int] = {}
    for result in results:
        add_consumed(sums, result)
    return sums


def consumed_quantities(results: Iterable[DeviceRequestAllocationResult]) -> dict[str, Quantity]:
    """`consumed_capacity` for people: in the format that the first share was written in."""
    sums: dict[str, Quantity] = {}
    for result in results:
        for name, amount in result.consumed_capacity.items():
            sums[name] = sums[name] + amount if name in sums else amount
    return sums


# --- counters --------------------------------------------------------------------------------------------------------


def counter_totals(slices: Iterable[ResourceSlice]) -> dict[CounterID, int]:
    """The totals of the counter sets of one pool."""
    return {
        (counter_set.name, name): counter.value.nanos
        for published in slices
        for counter_set in published.spec.shared_counters
        for name, counter in counter_set.counters.items()
    }


def counters_drawn(device: Device) -> dict[CounterID, int]:
    """The amounts that the device draws from its pool's counters while it is in use."""
    drawn: dict[CounterID, int] = {}
    for draw in device.consumes_counters:
        for name, counter in draw.counters.items():
            drawn[draw.counter_set, name] = drawn.get((draw.counter_set, name), 0) + counter.value.nanos
    return drawn


def counters_left(newest: Iterable[ResourceSlice], held: Container[str]) -> dict[CounterID, int]:
    """The remaining amounts of one pool's counters after the devices in `held` have drawn; they may be negative."""
    newest = list(newest)
    left = counter_totals(newest)
    for published in newest:
        for device in published.spec.devices:
            if device.consumes_counters and device.name in held:
                for counter, amount in counters_drawn(device).items():
                    left[counter] = left.get(counter, 0) - amount
    return left


def counters_suffice(device: Device, left: dict[CounterID, int]) -> bool:
    return all(left.get(counter, 0) >= amount for counter, amount in counters_drawn(device).items())
