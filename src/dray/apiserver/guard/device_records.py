"""What slices offer and which claims hold it, as far as the guard needs it, and whether one more claim may hold a device.

`PublishedDevices` knows which devices can be shared, their capacity, and the counter sets of pools; only slices of a pool's newest generation
count. The records say who holds devices and counter sets. Nothing is written here: `claim_guard` reads the records, asks this
module, and commits the changed records together with the claim.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from dray.api.caching import SharedDecoder
from dray.api.dra.consumption import CONSUMED_OR_NEVER, plain_name
from dray.api.dra.pools import DeviceID, PoolID, newest_by
from dray.api.projections import (
    PublishedAmount,
    PublishedCounterSet,
    PublishedDevice,
    PublishedSlice,
    PublishedSliceSpec,
)
from dray.api.quantity import Quantity, QuantityError
from dray.api.safe_get import mapping, mappings, name_of, namespace_of, text, uid_of
from dray.api.slice_text import is_stand_in, learn
from dray.apiserver.watch.stored_object import GUARD, Document, resource_prefix

if TYPE_CHECKING:
    from dray.apiserver.watch.kind_cache import StoreFollower

# driver, pool, counter set
CounterSetID = tuple[str, str, str]

SLICES = resource_prefix("resource.k8s.io", "resourceslices")


_decoder = msgspec.json.Decoder(PublishedSlice)
_devices_decoder = msgspec.json.Decoder(list[PublishedDevice] | None)
_counters_decoder = msgspec.json.Decoder(list[PublishedCounterSet] | None)


def _devices_by_name(text: bytes) -> dict[str, PublishedDevice]:
    return {device.name: device for device in _devices_decoder.decode(text) or ()}


def _counters_by_set(text: bytes) -> dict[str, dict[str, int]]:
    """In nano-units, by the names of counter set and counter."""
    return {counter_set.name: _amounts(counter_set.counters) for counter_set in _counters_decoder.decode(text) or ()}


# Nodes of one kind publish the same devices and counters: equal lists are read once and shared.
_read_devices = SharedDecoder(_devices_by_name, most_bytes=4 * 1024 * 1024)
_read_counters = SharedDecoder(_counters_by_set, most_bytes=1024 * 1024)


@dataclass(frozen=True, slots=True)
class DeviceOffer:
    """A published device. `capacity` matters only where many may share it."""

    is_shareable: bool = False
    capacity: dict[str, int] = field(default_factory=dict)
    # Capacities that either all holders have some of, or none.
    either_or: frozenset[str] = frozenset()
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
    def following(cls, follower: StoreFollower) -> PublishedDevices:
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
        facts = _facts_in(value)
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


def _facts_in(value: bytes) -> _SliceFacts:
    found = learn(value)
    if found is not None:
        spec = _decoder.decode(found.short()).spec
        if is_stand_in(spec.devices):
            return _facts(spec, found.devices)
    spec = _decoder.decode(value).spec
    return _facts(spec, bytes(spec.devices))


def _facts(spec: PublishedSliceSpec, devices: bytes) -> _SliceFacts:
    return _SliceFacts(
        pool=(spec.driver, spec.pool.name),
        generation=spec.pool.generation,
        devices=_read_devices(devices),
        counters=_read_counters(bytes(spec.shared_counters)),
    )


def _offer(device: PublishedDevice, driver: str) -> DeviceOffer:
    if not device.allow_multiple_allocations and not device.consumes_counters:
        return WHOLE
    return DeviceOffer(
        is_shareable=bool(device.allow_multiple_allocations),
        capacity={plain_name(name, driver): amount(value.value) for name, value in (device.capacity or {}).items()},
        either_or=frozenset(
            plain_name(name, driver)
            for name, value in (device.capacity or {}).items()
            if value.request_policy is not None and value.request_policy.strategy == CONSUMED_OR_NEVER
        ),
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


class PublishedOffers(Protocol):
    """What slices offer now: `PublishedDevices` over the store, or the objects of a simulation."""

    def offer(self, device: DeviceID) -> DeviceOffer | None: ...

    def counters(self, counter_set: CounterSetID) -> dict[str, int] | None: ...


def device_key(device: DeviceID) -> str:
    return f"{GUARD}devices/{device}"


def counter_set_key(counter_set: CounterSetID) -> str:
    return f"{GUARD}counters/{'/'.join(counter_set)}"


class Claimant(msgspec.Struct, frozen=True, gc=False):
    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @staticmethod
    def of(claim: Document) -> Claimant:
        return Claimant(namespace_of(claim), name_of(claim), uid_of(claim))


class Share(msgspec.Struct, frozen=True):
    """One allocation result: a whole device (`share_id` empty) or a part of one that allows many."""

    device: DeviceID
    share_id: str
    capacity: tuple[tuple[str, int], ...]  # name without the driver's domain, nano-units; sorted


def shares_of(claim: Document | None) -> frozenset[Share]:
    """What the claim's allocation takes from others."""
    return frozenset(
        _share(result)
        for result in mappings(claim, "status", "allocation", "devices", "results")
        if result.get("adminAccess") is not True
    )


def _share(result: Document) -> Share:
    driver = text(result, "driver")
    consumed = {plain_name(name, driver): amount(value) for name, value in mapping(result, "consumedCapacity").items()}
    device = DeviceID(driver, text(result, "pool"), text(result, "device"))
    return Share(device, text(result, "shareID"), tuple(sorted(consumed.items())))


# Most holders have whole devices: they share this value, which nobody changes.
_NO_CAPACITY: dict[str, int] = {}


class ClaimHolder(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """An entry of a device's record."""

    namespace: str
    name: str
    uid: str
    share_id: str = ""
    capacity: dict[str, int] = {}

    @staticmethod
    def of(claimant: Claimant, share: Share) -> ClaimHolder:
        capacity = dict(share.capacity) if share.capacity else _NO_CAPACITY
        return ClaimHolder(claimant.namespace, claimant.name, claimant.uid, share.share_id, capacity)

    @property
    def claimant(self) -> Claimant:
        return Claimant(self.namespace, self.name, self.uid)


class DeviceRecord(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Holders of one device, and what the device draws from counter sets for as long as it has any."""

    holders: tuple[ClaimHolder, ...] = ()
    draws: dict[str, dict[str, int]] = {}


class CounterRecord(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What held devices draw from one counter set: device -> counter -> nano-units."""

    draws: dict[str, dict[str, int]] = {}


_devices = msgspec.json.Decoder(DeviceRecord)
_counters = msgspec.json.Decoder(CounterRecord)


def device_record(value: bytes | None) -> DeviceRecord:
    return _devices.decode(value) if value else DeviceRecord()


def counter_record(value: bytes | None) -> CounterRecord:
    return _counters.decode(value) if value else CounterRecord()


@dataclass(frozen=True, slots=True)
class DeviceTaken:
    """Why a claim may not have what it was given, and who has it."""

    message: str
    holders: tuple[Claimant, ...]
    # Which record said so: if its holder turns out to be gone, that record is wrong.
    device: DeviceID


@dataclass(frozen=True, slots=True)
class CounterShortage:
    """A counter that does not suffice, and the devices that draw from it."""

    message: str
    devices: tuple[DeviceID, ...]


def without_holder(record: DeviceRecord, claimant: Claimant, share_id: str | None = None) -> DeviceRecord:
    """The record without a claim's holding (of one share, or of all)."""
    kept = tuple(
        holder
        for holder in record.holders
        if holder.uid != claimant.uid or (share_id is not None and holder.share_id != share_id)
    )
    return msgspec.structs.replace(record, holders=kept)


def with_holder(
    record: DeviceRecord, claimant: Claimant, share: Share, published: PublishedOffers
) -> DeviceRecord | DeviceTaken:
    """The record with one more holder, or who stands in the way."""
    offer = published.offer(share.device)
    if record.holders and (in_the_way := _in_the_way(record, share, offer)):
        return DeviceTaken(
            f"device {share.device} is already allocated to claim {holder_names(in_the_way)}",
            _claimants(in_the_way),
            share.device,
        )
    if offer and (short := _shortage(record, share, offer)):
        return DeviceTaken(
            f"device {share.device}: {short}; the rest is held by claim {holder_names(record.holders)}",
            _claimants(record.holders),
            share.device,
        )
    draws = record.draws if record.holders else (offer or WHOLE).draws
    return DeviceRecord((*record.holders, ClaimHolder.of(claimant, share)), draws)


def _in_the_way(record: DeviceRecord, share: Share, offer: DeviceOffer | None) -> list[ClaimHolder]:
    # Of a device that nobody publishes (any more) the allocation itself says whether it is shared.
    is_shareable = offer.is_shareable if offer else bool(share.share_id)
    return [
        holder
        for holder in record.holders
        if not is_shareable or not share.share_id or not holder.share_id or holder.share_id == share.share_id
    ]


def _shortage(record: DeviceRecord, share: Share, offer: DeviceOffer) -> str:
    if not share.capacity and not offer.either_or:
        return ""
    return _overdrawn_capacity(record, share, offer.capacity) or _clash(record, share, offer.either_or)


def _overdrawn_capacity(record: DeviceRecord, share: Share, capacity: Mapping[str, int]) -> str:
    for name, wanted in share.capacity:
        if name not in capacity:
            continue
        held = sum(holder.capacity.get(name, 0) for holder in record.holders)
        if wanted > 0 and held + wanted > capacity[name]:
            free = max(capacity[name] - held, 0)
            return f"capacity {name}: {_text(wanted)} wanted, {_text(free)} of {_text(capacity[name])} free"
    return ""


def _clash(record: DeviceRecord, share: Share, either_or: frozenset[str]) -> str:
    """A capacity of which this share takes some and the holders none, or the other way round."""
    wanted = dict(share.capacity)
    for name in sorted(either_or) if record.holders else ():
        is_held = any(holder.capacity.get(name, 0) for holder in record.holders)
        if is_held != bool(wanted.get(name, 0)):
            return f"capacity {name}: {'everybody has to ask for it' if is_held else 'nobody may ask for it'} (ConsumedOrNever)"
    return ""


def with_draw(
    record: CounterRecord,
    device: DeviceID,
    draws: Mapping[str, int],
    counter_set: CounterSetID,
    published: PublishedOffers,
) -> CounterRecord | CounterShortage:
    """The counter set with one more device drawing from it, or which counter does not suffice."""
    others = {name: amounts for name, amounts in record.draws.items() if name != device[2]}
    values = published.counters(counter_set)
    for counter, wanted in draws.items() if values is not None else ():
        total = (values or {}).get(counter, 0)
        held = sum(amounts.get(counter, 0) for amounts in others.values())
        if wanted > 0 and held + wanted > total:
            free = max(total - held, 0)
            message = (
                f"counter {counter} of counter set {'/'.join(counter_set)}: {_text(wanted)} wanted by device "
                f"{device[2]}, {_text(free)} of {_text(total)} free"
            )
            return CounterShortage(
                message, tuple(DeviceID(device.driver, device.pool, name) for name in sorted(others))
            )
    return CounterRecord({**others, device[2]: dict(draws)})


def without_draw(record: CounterRecord, device: DeviceID) -> CounterRecord:
    return CounterRecord({name: amounts for name, amounts in record.draws.items() if name != device[2]})


def holder_names(holders: Collection[ClaimHolder]) -> str:
    return ", ".join(dict.fromkeys(str(holder.claimant) for holder in holders)) or "nobody"


def _claimants(holders: Collection[ClaimHolder]) -> tuple[Claimant, ...]:
    return tuple(dict.fromkeys(holder.claimant for holder in holders))


def _text(nanos: int) -> str:
    quantity = Quantity(nanos)
    binary = Quantity(nanos, "BinarySI")
    return min((str(quantity), str(binary)), key=len)
