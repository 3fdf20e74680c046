"""Who holds what: read from a claim's allocation, and from the guard's own records."""

from dataclasses import dataclass
from typing import Any

import msgspec

from dray.api.quantity import Quantity, QuantityError
from dray.apiserver.request.request_info import Document
from dray.apiserver.safe_get import (
    mapping,
    mappings,
    name_of,
    namespace_of,
    text,
    uid_of,
)
from dray.apiserver.watch.stored_object import GUARD

# driver, pool, device
DeviceID = tuple[str, str, str]
# driver, pool, counter set
CounterSetID = tuple[str, str, str]


def device_key(device: DeviceID) -> str:
    return f"{GUARD}devices/{'/'.join(device)}"


def counter_set_key(counter_set: CounterSetID) -> str:
    return f"{GUARD}counters/{'/'.join(counter_set)}"


@dataclass(frozen=True, slots=True)
class Claimant:
    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @staticmethod
    def of(claim: Document) -> "Claimant":
        return Claimant(namespace_of(claim), name_of(claim), uid_of(claim))


@dataclass(frozen=True, slots=True)
class Share:
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
    device = (driver, text(result, "pool"), text(result, "device"))
    return Share(device, text(result, "shareID"), tuple(sorted(consumed.items())))


def plain_name(name: str, driver: str) -> str:
    """Names without a domain belong to the driver's, so both spellings mean the same."""
    return name.removeprefix(f"{driver}/")


def amount(value: Any) -> int:
    """Nano-units; what is no quantity counts nothing (validation has refused it before)."""
    try:
        return Quantity.parse(value).nanos
    except (QuantityError, TypeError, ValueError):
        return 0


class Holder(msgspec.Struct, frozen=True, omit_defaults=True):
    """An entry of a device's record."""

    namespace: str
    name: str
    uid: str
    share_id: str = ""
    capacity: dict[str, int] = {}

    @property
    def claimant(self) -> Claimant:
        return Claimant(self.namespace, self.name, self.uid)


class DeviceRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """Holders of one device, and what the device draws from counter sets for as long as it has any."""

    holders: tuple[Holder, ...] = ()
    draws: dict[str, dict[str, int]] = {}


class CounterRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """What held devices draw from one counter set: device -> counter -> nano-units."""

    draws: dict[str, dict[str, int]] = {}


_devices = msgspec.json.Decoder(DeviceRecord)
_counters = msgspec.json.Decoder(CounterRecord)


def device_record(value: bytes | None) -> DeviceRecord:
    return _devices.decode(value) if value else DeviceRecord()


def counter_record(value: bytes | None) -> CounterRecord:
    return _counters.decode(value) if value else CounterRecord()
