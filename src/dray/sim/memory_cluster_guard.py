"""The API server's guard for `MemoryCluster`: no write allocates a device, a capacity or a counter twice.

The decisions are those of `apiserver.guard.device_records`; here are only the records and the published slices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from dray.api.dra.consumption import either_or_capacities, held_results, plain_name
from dray.api.dra.pools import DeviceID, PoolID, device_id, newest_of_pool, pool_id
from dray.api.resource import Device, DeviceRequestAllocationResult, ResourceClaim, ResourceSlice
from dray.apiserver.guard.device_records import (
    WHOLE,
    Claimant,
    ClaimHolder,
    CounterRecord,
    CounterSetID,
    CounterShortage,
    DeviceOffer,
    DeviceRecord,
    DeviceTaken,
    Share,
    with_draw,
    with_holder,
    without_draw,
    without_holder,
)

_HELD_BY_NOBODY = DeviceRecord()


class GuardPlan(NamedTuple):
    """The records that an allowed write changes."""

    devices: dict[DeviceID, DeviceRecord]
    counters: dict[CounterSetID, CounterRecord]


class MemoryClusterGuard:
    """`plan` judges an allocation before it is written, and `keep` notes it then; `record` notes any other write."""

    def __init__(self) -> None:
        self._published = _PublishedSlices()
        self._devices: dict[DeviceID, DeviceRecord] = {}
        self._counters: dict[CounterSetID, CounterRecord] = {}

    def plan(self, old: ResourceClaim, new: ResourceClaim) -> GuardPlan | str:
        """What changes when the claim gets the devices of its new status, or why it may not have them."""
        claimant = _claimant(new)
        devices: dict[DeviceID, DeviceRecord] = {}
        counters: dict[CounterSetID, CounterRecord] = {}
        before, after = _shares(old), _shares(new)
        for share in before:
            if share not in after:
                devices[share.device] = without_holder(self._device(share.device, devices), claimant, share.share_id)
        for share in after:
            if share in before:
                continue
            answer = with_holder(self._device(share.device, devices), claimant, share, self._published)
            if isinstance(answer, DeviceTaken):
                return answer.message
            devices[share.device] = answer
        drawing = [(device, record) for device, record in devices.items() if record.draws]
        if not drawing:
            return GuardPlan(devices, counters)
        for device, record in drawing:
            if not record.holders:
                for counter_set in _counter_sets(device, record):
                    counters[counter_set] = without_draw(self._counter(counter_set, counters), device)
        for device, record in drawing:
            for name, draws in record.draws.items() if record.holders else ():
                counter_set = (device[0], device[1], name)
                found = with_draw(self._counter(counter_set, counters), device, draws, counter_set, self._published)
                if isinstance(found, CounterShortage):
                    return found.message
                counters[counter_set] = found
        return GuardPlan(devices, counters)

    def keep(self, plan: GuardPlan) -> None:
        self._counters.update(plan.counters)
        for device, record in plan.devices.items():
            if record.holders:
                self._devices[device] = record
            else:
                self._devices.pop(device, None)

    def record(self, old: Any, new: Any) -> None:
        """Notes a write: of a slice what it offers, of a claim what it holds."""
        kind = type(old if new is None else new)
        if kind is ResourceSlice:
            self._published.replace(old, new)
        elif kind is ResourceClaim:
            # Most writes are of claims without devices.
            if old is not None and old.status.allocation is not None:
                for share in _shares(old):
                    self._release(share, _claimant(old))
            if new is not None and new.status.allocation is not None:
                for share in _shares(new):
                    self._hold(share, _claimant(new))

    def _release(self, share: Share, claimant: Claimant) -> None:
        device = share.device
        record = self._devices.get(device)
        if record is None:
            return
        left = without_holder(record, claimant)
        if left.holders:
            self._devices[device] = left
            return
        for counter_set in _counter_sets(device, record):
            self._counters[counter_set] = without_draw(self._counter(counter_set, {}), device)
        del self._devices[device]

    def _hold(self, share: Share, claimant: Claimant) -> None:
        record = self._device(share.device, {})
        draws = record.draws if record.holders else (self._published.offer(share.device) or WHOLE).draws
        self._devices[share.device] = DeviceRecord((*record.holders, ClaimHolder.of(claimant, share)), draws)
        for name, amounts in draws.items():
            counter_set = (share.device[0], share.device[1], name)
            known = self._counter(counter_set, {})
            self._counters[counter_set] = CounterRecord({**known.draws, share.device[2]: dict(amounts)})

    def _device(self, device: DeviceID, changed: dict[DeviceID, DeviceRecord]) -> DeviceRecord:
        return changed.get(device) or self._devices.get(device) or _HELD_BY_NOBODY

    def _counter(self, counter_set: CounterSetID, changed: dict[CounterSetID, CounterRecord]) -> CounterRecord:
        return changed.get(counter_set) or self._counters.get(counter_set) or CounterRecord()


class _PublishedSlices:
    """The newest slices of each pool; what their devices and counter sets offer is worked out when it is first asked for."""

    def __init__(self) -> None:
        self._slices: dict[PoolID, dict[str, ResourceSlice]] = {}
        self._devices: dict[PoolID, dict[str, Device]] = {}
        # Of devices that can be shared or draw counters: of others there is nothing to work out.
        self._offers: dict[DeviceID, DeviceOffer] = {}
        self._counters: dict[CounterSetID, dict[str, int] | None] = {}

    def replace(self, old: ResourceSlice | None, new: ResourceSlice | None) -> None:
        self._offers.clear()
        self._counters.clear()
        for each in (old, new):
            if each is not None:
                self._devices.pop(pool_id(each), None)
        if old is not None:
            self._slices[pool_id(old)].pop(old.metadata.name, None)
        if new is not None:
            self._slices.setdefault(pool_id(new), {})[new.metadata.name] = new

    def offer(self, device: DeviceID) -> DeviceOffer | None:
        pool = device[:2]
        found = (self._devices.get(pool) or self._devices_of(pool)).get(device.device)
        if found is None:
            return None
        if not found.allow_multiple_allocations and not found.consumes_counters:
            return WHOLE
        known = self._offers.get(device)
        if known is None:
            known = self._offers[device] = _offer(found, device.driver)
        return known

    def counters(self, counter_set: CounterSetID) -> dict[str, int] | None:
        if counter_set not in self._counters:
            self._counters[counter_set] = self._published_counters(counter_set)
        return self._counters[counter_set]

    def _published_counters(self, counter_set: CounterSetID) -> dict[str, int] | None:
        driver, pool, name = counter_set
        for each in self._newest((driver, pool)):
            for found in each.spec.shared_counters:
                if found.name == name:
                    return {counter: amount.value.nanos for counter, amount in found.counters.items()}
        return None

    def _devices_of(self, pool: PoolID) -> dict[str, Device]:
        found = {device.name: device for each in self._newest(pool) for device in each.spec.devices}
        self._devices[pool] = found
        return found

    def _newest(self, pool: PoolID) -> list[ResourceSlice]:
        return newest_of_pool(self._slices.get(pool, {}).values())


def _offer(device: Device, driver: str) -> DeviceOffer:
    return DeviceOffer(
        bool(device.allow_multiple_allocations),
        {plain_name(name, driver): amount.value.nanos for name, amount in device.capacity.items()},
        frozenset(plain_name(name, driver) for name in either_or_capacities(device)),
        {
            draw.counter_set: {name: amount.value.nanos for name, amount in draw.counters.items()}
            for draw in device.consumes_counters
        },
    )


def _claimant(claim: ResourceClaim) -> Claimant:
    return Claimant(claim.metadata.namespace, claim.metadata.name, claim.metadata.uid)


def _shares(claim: ResourceClaim) -> Sequence[Share]:
    return [_share(result) for result in held_results(claim)] if claim.status.allocation is not None else ()


def _share(result: DeviceRequestAllocationResult) -> Share:
    if not result.consumed_capacity:
        return Share(device_id(result), result.share_id or "", ())
    consumed = {plain_name(name, result.driver): amount.nanos for name, amount in result.consumed_capacity.items()}
    return Share(device_id(result), result.share_id or "", tuple(sorted(consumed.items())))


def _counter_sets(device: DeviceID, record: DeviceRecord) -> list[CounterSetID]:
    return [(device[0], device[1], name) for name in record.draws]
