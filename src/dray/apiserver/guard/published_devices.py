"""What slices offer, as far as the guard needs it: which devices can be shared, their capacity, the counter sets of pools.

Only slices of a pool's newest generation count, as for everyone who reads slices.
"""

from dataclasses import dataclass, field
from typing import Any

import msgspec

from dray.api.caching import SharedDecoder
from dray.api.dra.consumption import plain_name
from dray.api.dra.pools import DeviceID, PoolID, newest_by
from dray.api.projections import PublishedAmount, PublishedDevice, PublishedSlice, PublishedSliceSpec
from dray.api.quantity import Quantity, QuantityError
from dray.apiserver.watch.store_follower import StoreFollower
from dray.apiserver.watch.stored_object import resource_prefix

# driver, pool, counter set
CounterSetID = tuple[str, str, str]

SLICES = resource_prefix("resource.k8s.io", "resourceslices")


_decoder = msgspec.json.Decoder(PublishedSlice)
_devices_decoder = msgspec.json.Decoder(list[PublishedDevice] | None)


def _devices_by_name(text: bytes) -> dict[str, PublishedDevice]:
    return {device.name: device for device in _devices_decoder.decode(text) or ()}


# Nodes of one kind publish the same devices: equal lists are read once and shared.
_read_devices = SharedDecoder(_devices_by_name, most_bytes=4 * 1024 * 1024)


@dataclass(frozen=True, slots=True)
class DeviceOffer:
    """A published device. `capacity` matters only where many may share it."""

    is_shareable: bool = False
    capacity: dict[str, int] = field(default_factory=dict)
    draws: dict[str, dict[str, int]] = field(default_factory=dict)  # counter set -> counter -> nano-units


# Most devices are whole and draw from nothing: they share this value.
WHOLE = DeviceOffer()


@dataclass(frozen=True, slots=True)
class _SliceFacts:
    pool: PoolID
    generation: int
    devices: dict[str, PublishedDevice]
    counters: dict[str, dict[str, int]]


class PublishedDevices:
    """An index over all slices, fed by the follower of the store."""

    def __init__(self) -> None:
        self._slices: dict[str, _SliceFacts] = {}
        self._keys_by_pool: dict[PoolID, set[str]] = {}

    @classmethod
    def following(cls, follower: StoreFollower) -> "PublishedDevices":
        published = cls()
        follower.subscribe_index([SLICES], published.apply)
        return published

    def apply(self, key: str, value: bytes | None) -> None:
        old = self._slices.pop(key, None)
        if old:
            keys = self._keys_by_pool[old.pool]
            keys.discard(key)
            if not keys:
                del self._keys_by_pool[old.pool]
        if value is None:
            return
        facts = _facts(_decoder.decode(value).spec)
        self._slices[key] = facts
        self._keys_by_pool.setdefault(facts.pool, set()).add(key)

    def offer(self, device: DeviceID) -> DeviceOffer | None:
        """None if nobody publishes the device now."""
        driver, pool, name = device
        found = next((facts.devices[name] for facts in self._newest(driver, pool) if name in facts.devices), None)
        return None if found is None else _offer(found, driver)

    def counters(self, counter_set: CounterSetID) -> dict[str, int] | None:
        driver, pool, name = counter_set
        return next((facts.counters[name] for facts in self._newest(driver, pool) if name in facts.counters), None)

    def _newest(self, driver: str, pool: str) -> list[_SliceFacts]:
        found = [self._slices[key] for key in self._keys_by_pool.get((driver, pool), ())]
        return newest_by(found, lambda facts: facts.generation)


def _facts(spec: PublishedSliceSpec) -> _SliceFacts:
    return _SliceFacts(
        pool=(spec.driver, spec.pool.name),
        generation=spec.pool.generation,
        devices=_read_devices(bytes(spec.devices)),
        counters={counter_set.name: _amounts(counter_set.counters) for counter_set in spec.shared_counters or ()},
    )


def _offer(device: PublishedDevice, driver: str) -> DeviceOffer:
    if not device.allow_multiple_allocations and not device.consumes_counters:
        return WHOLE
    return DeviceOffer(
        is_shareable=bool(device.allow_multiple_allocations),
        capacity={plain_name(name, driver): amount(value.value) for name, value in (device.capacity or {}).items()},
        draws={draw.counter_set: _amounts(draw.counters) for draw in device.consumes_counters or ()},
    )


def _amounts(values: dict[str, PublishedAmount] | None) -> dict[str, int]:
    return {name: amount(value.value) for name, value in (values or {}).items()}


def amount(value: Any) -> int:
    """Nano-units; what is no quantity counts nothing (validation has refused it before)."""
    try:
        return Quantity.parse(value).nanos
    except (QuantityError, TypeError, ValueError):
        return 0
