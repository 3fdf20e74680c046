"""Computes the amount of each capacity that a request takes from a device: policies, rounding, limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dray.api.dra.consumption import BLOCK_OR_SHARE, CONSUMED_OR_NEVER, either_or_capacities, plain_name
from dray.api.quantity import Quantity
from dray.api.resource import CapacityRequestPolicy, CapacityRequestPolicyRange, Device, DeviceCapacity

MAX_INT64 = 2**63 - 1
UNIT = 10**9
MILLI = 10**6


class UnrepresentableAmount(Exception):
    """Range arithmetic cannot express the request; fatal, also if another device could serve."""


@dataclass(frozen=True, slots=True)
class RequestedCapacity:
    """The amounts that one request takes from one kind of device."""

    # (name, published, taken) in nano-units, for every capacity of the device.
    items: tuple[tuple[str, int, int], ...] = ()
    consumed: Mapping[str, Quantity] | None = None
    # Capacities of which a device gives either what claims ask for, or nothing to anybody.
    either_or: frozenset[str] = frozenset()
    refusal: str = ""
    error: str = ""
    # The capacity that the device does not have, where that is the refusal.
    missing: str = ""


NO_CAPACITY = RequestedCapacity()


def with_published_names(requests: Mapping[str, Quantity], device: Device, driver: str) -> dict[str, Quantity]:
    """A request that names the domain of the device's own driver finds a capacity that is published without it.

    Not the other way round: Kubernetes finds no `<driver>/memory` for a request of `memory`, and nor do we.
    """
    found: dict[str, Quantity] = {}
    for name, amount in requests.items():
        plain = plain_name(name, driver)
        found[plain if name not in device.capacity and plain in device.capacity else name] = amount
    return found


def requested_capacity_on(device: Device, requests: Mapping[str, Quantity], fractional: bool) -> RequestedCapacity:
    """Errors are decided for all capacities before any refusal."""
    capacity = device.capacity
    for name in requests:
        if name not in capacity:
            return RequestedCapacity(refusal=f"has no capacity {name}", missing=name)
    if not capacity:
        return NO_CAPACITY
    taken: dict[str, Quantity] = {}
    for name, published in capacity.items():
        try:
            taken[name] = _amount(requests.get(name), published, fractional)
        except UnrepresentableAmount as problem:
            return RequestedCapacity(
                error=f'capacity "{name}": capacity request cannot be represented in the device\'s range arithmetic: {problem}'
            )
        if taken[name].nanos < 0:
            return RequestedCapacity(error=f'capacity "{name}": capacity value is negative')
    for name, published in capacity.items():
        refusal = _refusal(name, taken[name], published, fractional)
        if refusal:
            return RequestedCapacity(refusal=refusal)
    items = tuple([(name, capacity[name].value.nanos, amount.nanos) for name, amount in taken.items()])
    return RequestedCapacity(items=items, consumed=taken, either_or=either_or_capacities(device))


def _amount(requested: Quantity | None, published: DeviceCapacity, fractional: bool) -> Quantity:
    policy = published.request_policy
    if requested is None:
        return _amount_without_request(policy, published.value)
    if policy is None:
        return requested
    if policy.valid_values:
        return next((value for value in policy.valid_values if value >= requested), requested)
    if policy.valid_range is not None:
        return _onto_grid(requested, policy.valid_range, fractional)
    return requested


def _amount_without_request(policy: CapacityRequestPolicy | None, published: Quantity) -> Quantity:
    """The default, and without one all of it. BlockOrShare has no default: who does not ask blocks the device."""
    if policy is None:
        return published
    if policy.zero_consumption or policy.strategy == CONSUMED_OR_NEVER:
        return Quantity.ZERO
    return policy.default if policy.default is not None else published


def _onto_grid(requested: Quantity, allowed: CapacityRequestPolicyRange, fractional: bool) -> Quantity:
    minimum = allowed.min or Quantity.ZERO
    if requested < minimum:
        return minimum
    if allowed.step is None:
        return requested
    unit = grid_unit(allowed, fractional)
    wanted = _in_units(requested, unit)
    start, step = _in_units(minimum, unit), _in_units(allowed.step, unit)
    rounded = start + -(-(wanted - start) // step) * step
    if rounded > MAX_INT64:
        raise UnrepresentableAmount(f"request {requested} rounds up beyond MaxInt64")
    return Quantity(rounded * unit, requested.format)


def grid_unit(allowed: CapacityRequestPolicyRange, fractional: bool) -> int:
    """Thousandths where min, max and step are whole thousandths, else whole units."""
    if not fractional:
        return UNIT
    for edge in (allowed.min, allowed.max, allowed.step):
        if edge is not None and (edge.nanos % MILLI or edge.nanos // MILLI > MAX_INT64):
            return UNIT
    return MILLI


def _in_units(amount: Quantity, unit: int) -> int:
    if unit == MILLI and amount.nanos % MILLI:
        raise UnrepresentableAmount(f"request {amount} is not a representable milli value")
    units = -(-amount.nanos // unit)
    if units > MAX_INT64:
        problem = "is not a representable milli value" if unit == MILLI else "exceeds MaxInt64"
        raise UnrepresentableAmount(f"request {amount} {problem}")
    return units


def _refusal(name: str, amount: Quantity, published: DeviceCapacity, fractional: bool) -> str:
    policy = published.request_policy
    if (
        policy is not None
        and not _is_free_of_policy(amount, policy, published)
        and not _is_allowed(amount, policy, fractional)
    ):
        return f"capacity {name}: {amount} is not allowed by the request policy"
    if amount > published.value:
        return f"capacity {name}: {amount} is more than {published.value}"
    return ""


def _is_free_of_policy(amount: Quantity, policy: CapacityRequestPolicy, published: DeviceCapacity) -> bool:
    """Amounts that nobody asked for: the default, and nothing or everything where the strategy says so."""
    if policy.strategy == CONSUMED_OR_NEVER:
        return amount.nanos == 0
    return amount == (published.value if policy.strategy == BLOCK_OR_SHARE else policy.default)


def _is_allowed(amount: Quantity, policy: CapacityRequestPolicy, fractional: bool) -> bool:
    if policy.zero_consumption:
        return amount.nanos == 0
    if policy.valid_values:
        return amount in policy.valid_values
    allowed = policy.valid_range
    if allowed is None:
        return True
    if allowed.max is not None and amount > allowed.max:
        return False
    if allowed.step is None:
        return True
    unit = grid_unit(allowed, fractional)
    step = -(-allowed.step.nanos // unit)
    start = -(-(allowed.min or Quantity.ZERO).nanos // unit)
    return step <= 0 or (-(-amount.nanos // unit) - start) % step == 0
