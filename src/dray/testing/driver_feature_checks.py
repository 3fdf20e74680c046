"""Checks for what a driver publishes: one scenario for each feature that its own slices use, and for the health it reports."""

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import grpc

from dray.api.dra.consumption import CounterID, counter_totals, counters_drawn
from dray.api.quantity import Quantity
from dray.api.resource import Device, DeviceAttribute, DeviceCapacity, ResourceSlice
from dray.client import CLAIMS, PODS
from dray.kubelet.claims import PreparedClaim
from dray.kubelet.errors import DriverError
from dray.testing.driver_test_rig import CheckFailed, Rig, Skipped, WantedDevices

MOST_KINDS = 24
MOST_AMOUNTS = 4
HEALTH_STATES = 3

Check = Callable[[Rig], Awaitable[None]]


def features_of(rig: Rig) -> Iterator[tuple[str, Check]]:
    """The checks for this driver: one for each feature that its slices use."""
    devices = [device for each in rig.slices for device in each.spec.devices]
    usual = [device for device in devices if not device.taints]
    kinds = kinds_of(usual)
    if len(kinds) > 1:
        yield f"prepares each of its {len(kinds)} kinds of devices", _each_kind(kinds)
    if shared := next((each for each in usual if each.allow_multiple_allocations), None):
        yield "lets claims share a device", _shares(shared)
    if limited := next((each for each in usual if _amounts(each)), None):
        yield "serves the amounts that its request policies allow", _requested_amounts(limited)
    if pair := partitions_of_one_card(rig.slices):
        yield "serves partitions of one card side by side", _partitions(*pair)
    if usual:
        yield "gives admin access to a device that another claim holds", _admin_access(usual[0])
    if tainted := next((each for each in devices if each.taints), None):
        yield "prepares a tainted device for a claim that tolerates it", _tainted(tainted)
    if bound := next((each for each in usual if each.binding_conditions), None):
        yield "reports the binding conditions of a device", _binding_conditions(bound)
    if charged := next((each for each in usual if _takes_from_node(each)), None):
        yield "has pods charged for what its devices take from the node", _node_resources(charged)
    if rig.endpoint.health_service is not None:
        yield "reports the health of devices that it publishes", health


# --- which devices are of a kind, and how a claim asks for one of them ----------------------------------------------------


def kinds_of(devices: Iterable[Device]) -> list[Device]:
    """One device of each kind: alike are those with the same attributes, capacities and kinds of counters."""
    kinds: dict[object, Device] = {}
    for device in devices:
        kinds.setdefault(_kind(device), device)
    return list(kinds.values())[:MOST_KINDS]


def _kind(device: Device) -> object:
    return (
        frozenset(device.attributes),
        frozenset((name, str(each.value)) for name, each in device.capacity.items()),
        tuple(sorted(counters_drawn(device).values())),
        bool(device.allow_multiple_allocations),
        device.binding_conditions,
        _takes_from_node(device),
    )


def _takes_from_node(device: Device) -> bool:
    return bool(device.node_allocatable_resources or device.node_allocatable_resource_mappings)


def selector_for(driver: str, device: Device) -> str:
    """An expression that this device matches, and others only if all their attributes and capacities are equal to its own."""
    terms = [f'device.driver == "{driver}"']
    for name, attribute in device.attributes.items():
        if (comparison := _comparison(attribute)) is not None:
            terms.append(_term("attributes", driver, name, comparison))
    for name, capacity in device.capacity.items():
        terms.append(_term("capacity", driver, name, f'.compareTo(quantity("{capacity.value}")) == 0'))
    return " && ".join(terms)


def _term(where: str, driver: str, name: str, comparison: str) -> str:
    domain, _, identifier = name.rpartition("/")
    values = f'device.{where}["{domain or driver}"]'
    return f'"{identifier}" in {values} && {values}["{identifier}"]{comparison}'


def _comparison(attribute: DeviceAttribute) -> str | None:
    """None for lists: other attributes have to tell such devices apart."""
    if attribute.string is not None:
        return f" == {json.dumps(attribute.string, ensure_ascii=False)}"
    if attribute.bool_ is not None:
        return f" == {json.dumps(attribute.bool_)}"
    if attribute.int_ is not None:
        return f" == {attribute.int_}"
    if attribute.version is not None:
        return f'.compareTo(semver("{attribute.version}")) == 0'
    return None


def _ask_for(rig: Rig, device: Device, capacity: Mapping[str, Quantity] | None = None) -> WantedDevices:
    return WantedDevices(
        selector=selector_for(rig.driver, device), capacity=capacity or {}, tolerates_taints=bool(device.taints)
    )


# --- scenarios ------------------------------------------------------------------------------------------------------------


def _each_kind(kinds: Sequence[Device]) -> Check:
    async def check(rig: Rig) -> None:
        for device in kinds:
            try:
                claim = await rig.a_claim(_ask_for(rig, device))
            except Skipped as reason:
                rig.warn(f"a device like {device.name} was not tried: {reason}")
                continue
            with _named(claim, f"which asks for a device like {device.name}"):
                await rig.usable(claim)
                await rig.give_back(claim)

    return check


def _shares(device: Device) -> Check:
    async def check(rig: Rig) -> None:
        ask = _ask_for(rig, device, _least(device))
        first, second = await rig.a_claim(ask), await rig.a_claim(ask)
        if _names(rig, first) != _names(rig, second):
            raise Skipped("the scheduler gave the second claim another device")
        await _side_by_side(rig, first, second)
        together = await rig.a_claim(WantedDevices(ask.selector, ask.capacity, requests=2))
        await rig.usable(together)
        await rig.give_back(together)

    return check


async def _side_by_side(rig: Rig, first: PreparedClaim, second: PreparedClaim) -> None:
    """Both are prepared; that one is given back does not touch the other."""
    await rig.usable(first)
    with _named(second, "while another claim uses the device, too"):
        before = await rig.usable(second)
    await rig.give_back(first)
    with _named(second, "after the other claim was given back"):
        if await rig.usable(second) != before:
            raise CheckFailed("its answer changed")
    await rig.give_back(second)


@contextlib.contextmanager
def _named(claim: PreparedClaim, when: str) -> Iterator[None]:
    try:
        yield
    except (CheckFailed, DriverError) as error:
        raise CheckFailed(f"{claim.name}, {when}: {error}") from error


def _names(rig: Rig, claim: PreparedClaim) -> list[tuple[str, str]]:
    return [(each.pool, each.device) for each in rig.given(claim)]


def _least(device: Device) -> dict[str, Quantity]:
    """As little of each capacity as its policy allows, so that others find room beside it."""
    return {name: amounts[0] for name, amounts in _amounts(device).items()}


def _amounts(device: Device) -> dict[str, list[Quantity]]:
    """Some amounts that a claim may ask for, smallest first, of each capacity with a policy."""
    return {name: found for name, each in device.capacity.items() if (found := sorted(_allowed(each)))}


def _allowed(capacity: DeviceCapacity) -> list[Quantity]:
    policy = capacity.request_policy
    if policy is None:
        return []
    if policy.valid_values:
        return list(policy.valid_values[:MOST_AMOUNTS])
    bounds = policy.valid_range
    found = [policy.default, *((bounds.min, bounds.max) if bounds is not None else ())]
    return [each for each in found if each is not None]


def _requested_amounts(device: Device) -> Check:
    async def check(rig: Rig) -> None:
        least = _least(device)
        for name, amounts in _amounts(device).items():
            for amount in dict.fromkeys(amounts):
                claim = await rig.a_claim(_ask_for(rig, device, {**least, name: amount}))
                with _named(claim, f"which asks for {name} {amount}"):
                    await rig.usable(claim)
                    await rig.give_back(claim)

    return check


def partitions_of_one_card(slices: Sequence[ResourceSlice]) -> tuple[Device, Device] | None:
    """Two devices that draw from the same counter set, and between them do not ask more of it than it has."""
    for pool in dict.fromkeys(each.spec.pool.name for each in slices):
        own = [each for each in slices if each.spec.pool.name == pool]
        totals = counter_totals(own)
        by_set: dict[frozenset[str], list[Device]] = {}
        for device in (device for each in own for device in each.spec.devices if not device.taints):
            if drawn := counters_drawn(device):
                by_set.setdefault(frozenset(name for name, _ in drawn), []).append(device)
        for devices in by_set.values():
            for first, second in combinations(devices, 2):
                if _fit(first, second, totals):
                    return first, second
    return None


def _fit(first: Device, second: Device, totals: Mapping[CounterID, int]) -> bool:
    drawn = Counter(counters_drawn(first)) + Counter(counters_drawn(second))
    return all(amount <= totals.get(counter, 0) for counter, amount in drawn.items())


def _partitions(first: Device, second: Device) -> Check:
    async def check(rig: Rig) -> None:
        claims = [await rig.a_claim(_ask_for(rig, device)) for device in (first, second)]
        await _side_by_side(rig, *claims)

    return check


def _admin_access(device: Device) -> Check:
    """An administrator looks at a device while a claim uses it, and takes nothing away when the look is over."""

    async def check(rig: Rig) -> None:
        ask = _ask_for(rig, device, _least(device))
        holder = await rig.a_claim(ask)
        before = await rig.usable(holder)
        # The scheduler counts what a device draws from counters for administrators, too: such a device is not given twice.
        admin = await rig.a_claim(
            WantedDevices("" if device.consumes_counters else ask.selector, ask.capacity, has_admin_access=True)
        )
        await _usable_or_refused(rig, admin, "it refuses admin access, so that pods with it never start")
        await rig.give_back(admin)
        with _named(holder, "after the claim with admin access was given back"):
            if await rig.usable(holder) != before:
                raise CheckFailed("its answer changed")
        await rig.give_back(holder)

    return check


def _tainted(device: Device) -> Check:
    async def check(rig: Rig) -> None:
        claim = await rig.a_claim(_ask_for(rig, device))
        await _usable_or_refused(
            rig, claim, f"it refuses tainted device {device.name} to a claim that tolerates the taint"
        )
        await rig.give_back(claim)

    return check


async def _usable_or_refused(rig: Rig, claim: PreparedClaim, refusal: str) -> None:
    """A driver may refuse with a reason of its own, but not because it stumbles."""
    exceptions = len(rig.process.exceptions())
    answer = (await rig.prepare(claim)).get(claim.uid)
    if not isinstance(answer, str):
        await rig.usable(claim)
    elif len(rig.process.exceptions()) > exceptions:
        raise CheckFailed(f"claim {claim.name} was refused: {answer}")
    else:
        rig.warn(f"{refusal}: {answer}")


def _binding_conditions(device: Device) -> Check:
    wanted = (*device.binding_conditions, *device.binding_failure_conditions)

    async def check(rig: Rig) -> None:
        claim = await rig.a_claim(_ask_for(rig, device))

        async def reported() -> bool:
            status = (await rig.client.get(CLAIMS, claim.name, claim.namespace)).status
            return any(each.type in wanted for row in status.devices for each in row.conditions)

        try:
            await rig.until(reported, "conditions")
        except CheckFailed:
            rig.warn(
                f"nobody reported {' or '.join(wanted)} of device {device.name} within {rig.limit}; unless some other "
                "program does, pods that use it are never bound"
            )
        await rig.drop(claim)

    return check


def _node_resources(device: Device) -> Check:
    async def check(rig: Rig) -> None:
        claim = await rig.a_claim(_ask_for(rig, device))

        async def charged() -> bool:
            pod = await rig.client.get(PODS, claim.name, claim.namespace)
            return any(each.resources for each in pod.status.node_allocatable_resource_claim_statuses)

        await rig.until(charged, f"a pod with device {device.name} to be charged for what the device takes")
        await rig.drop(claim)

    return check


# --- health ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _ReportedHealth:
    devices: Sequence[Any]

    def problems(self, published: set[tuple[str, str]]) -> Iterator[str]:
        for each in self.devices:
            name = f"{each.device.pool_name}/{each.device.device_name}"
            if (each.device.pool_name, each.device.device_name) not in published:
                yield f"{name} is in none of its slices"
            if each.health not in range(HEALTH_STATES):
                yield f"{name} has state {each.health}, which no kubelet knows"
            if each.health_check_timeout_seconds < 0:
                yield f"{name} has a negative timeout"


async def health(rig: Rig) -> None:
    """The first report, as a kubelet would get it after it has registered the driver."""
    exceptions = len(rig.process.exceptions())
    first = asyncio.ensure_future(_first_report(rig))

    async def over() -> bool:
        return first.done() or len(rig.process.exceptions()) > exceptions

    try:
        await rig.until(over, "a report of the health of its devices")
        if not first.done():
            raise CheckFailed("it cannot tell the health of its devices")
        problems = list(
            first.result().problems(
                {(each.spec.pool.name, device.name) for each in rig.slices for device in each.spec.devices}
            )
        )
    finally:
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
    if problems:
        more = f", and {len(problems) - 3} more" if len(problems) > 3 else ""
        raise CheckFailed(f"in its report {'; '.join(problems[:3])}{more}")


async def _first_report(rig: Rig) -> _ReportedHealth:
    stream = rig.endpoint.watch_health()
    service = rig.endpoint.health_service
    try:
        async for response in stream:
            return _ReportedHealth(response.devices)
    except grpc.aio.AioRpcError as error:
        raise CheckFailed(f"it lists {service} and answers {error.code().name}: {error.details()}") from error
    finally:
        stream.cancel()
    raise CheckFailed(f"{service} ended without a report")
