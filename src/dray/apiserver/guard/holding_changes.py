"""From a claim's old and new allocation to the records that change with it, or to the reason why it may not.

Nothing is written here. Records are read first, decided on, and handed back with the revisions they were read at.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import msgspec

from dray.api.quantity import Quantity
from dray.apiserver.guard.holdings import (
    Claimant,
    CounterRecord,
    CounterSetID,
    DeviceID,
    DeviceRecord,
    Holder,
    Share,
)
from dray.apiserver.guard.published_devices import (
    WHOLE,
    Published,
)


@dataclass(frozen=True, slots=True)
class Taken:
    """Why a claim may not have what it was given, and who has it."""

    message: str
    holders: tuple[Claimant, ...]
    # Which record said so: if its holder turns out to be gone, that record is wrong.
    device: DeviceID


@dataclass(frozen=True, slots=True)
class Drained:
    """A counter that does not suffice, and the devices that draw from it."""

    message: str
    devices: tuple[DeviceID, ...]


def without(record: DeviceRecord, claimant: Claimant, share_id: str | None = None) -> DeviceRecord:
    """The record without a claim's holding (of one share, or of all)."""
    kept = tuple(
        holder
        for holder in record.holders
        if holder.uid != claimant.uid or (share_id is not None and holder.share_id != share_id)
    )
    return msgspec.structs.replace(record, holders=kept)


def added(record: DeviceRecord, claimant: Claimant, share: Share, published: Published) -> DeviceRecord | Taken:
    """The record with one more holder, or who stands in the way."""
    offer = published.offer(share.device)
    # Of a device that nobody publishes (any more) the allocation itself says whether it is shared.
    is_shareable = offer.is_shareable if offer else bool(share.share_id)
    name = "/".join(share.device)
    in_the_way = [
        holder
        for holder in record.holders
        if not is_shareable or not share.share_id or not holder.share_id or holder.share_id == share.share_id
    ]
    if in_the_way:
        return Taken(
            f"device {name} is already allocated to claim {holder_names(in_the_way)}",
            _claimants(in_the_way),
            share.device,
        )
    if offer and (short := _overdrawn_capacity(record, share, offer.capacity)):
        return Taken(
            f"device {name}: {short}; the rest is held by claim {holder_names(record.holders)}",
            _claimants(record.holders),
            share.device,
        )
    holder = Holder(claimant.namespace, claimant.name, claimant.uid, share.share_id, dict(share.capacity))
    draws = record.draws if record.holders else (offer or WHOLE).draws
    return DeviceRecord((*record.holders, holder), draws)


def _overdrawn_capacity(record: DeviceRecord, share: Share, capacity: Mapping[str, int]) -> str:
    for name, wanted in share.capacity:
        if name not in capacity:
            continue
        held = sum(holder.capacity.get(name, 0) for holder in record.holders)
        if wanted > 0 and held + wanted > capacity[name]:
            free = max(capacity[name] - held, 0)
            return f"capacity {name}: {_text(wanted)} wanted, {_text(free)} of {_text(capacity[name])} free"
    return ""


def drawn(
    record: CounterRecord, device: DeviceID, draws: Mapping[str, int], counter_set: CounterSetID, published: Published
) -> CounterRecord | Drained:
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
            return Drained(message, tuple((device[0], device[1], name) for name in sorted(others)))
    return CounterRecord({**others, device[2]: dict(draws)})


def released(record: CounterRecord, device: DeviceID) -> CounterRecord:
    return CounterRecord({name: amounts for name, amounts in record.draws.items() if name != device[2]})


def holder_names(holders: Collection[Holder]) -> str:
    return ", ".join(dict.fromkeys(str(holder.claimant) for holder in holders)) or "nobody"


def _claimants(holders: Collection[Holder]) -> tuple[Claimant, ...]:
    return tuple(dict.fromkeys(holder.claimant for holder in holders))


def _text(nanos: int) -> str:
    quantity = Quantity(nanos)
    binary = Quantity(nanos, "BinarySI")
    return min((str(quantity), str(binary)), key=len)
