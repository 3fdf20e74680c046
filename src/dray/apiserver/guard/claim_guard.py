"""Claims into the store, together with the guard's records."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from dray.api.dra.pools import DeviceID
from dray.api.safe_get import (
    name_of,
    uid_of,
)
from dray.api.scheme import by_kind
from dray.apiserver import errors
from dray.apiserver.guard.device_records import (
    Claimant,
    ClaimHolder,
    CounterRecord,
    CounterSetID,
    CounterShortage,
    DeviceRecord,
    DeviceTaken,
    PublishedDevices,
    Share,
    counter_record,
    counter_set_key,
    device_key,
    device_record,
    holder_names,
    shares_of,
    with_draw,
    with_holder,
    without_draw,
    without_holder,
)
from dray.apiserver.request.request_info import Document
from dray.apiserver.watch.stored_object import (
    document_of,
    object_key,
    resource_prefix,
)
from dray.store.errors import Conflict
from dray.store.interface import Delete, Entry, Operation, Precondition, Put, Store

GROUP, PLURAL = "resource.k8s.io", "resourceclaims"
# Claims that meet at one counter set may pass each other this often before the client is asked to try again.
ATTEMPTS = 16

_encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class GuardRecords:
    """Guard records as read, and as they shall be."""

    read: dict[str, Entry] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)
    devices: dict[DeviceID, DeviceRecord] = field(default_factory=dict)
    counters: dict[CounterSetID, CounterRecord] = field(default_factory=dict)

    def changes(self) -> tuple[list[Operation], list[Precondition]]:
        wanted: dict[str, bytes | None] = {}
        for device, record in self.devices.items():
            wanted[device_key(device)] = _encode(record) if record.holders else None
        for counter_set, counter in self.counters.items():
            wanted[counter_set_key(counter_set)] = _encode(counter) if counter.draws else None
        operations: list[Operation] = []
        for key, value in wanted.items():
            old = self.read.get(key)
            if value is None and old:
                operations.append(Delete(key))
            elif value is not None and (old is None or old.value != value):
                operations.append(Put(key, value))
        # Also what was only looked at must not have changed: the decision rests on it.
        conditions = [Precondition(key, self.read[key].revision if key in self.read else 0) for key in wanted]
        return operations, conditions


class ClaimGuard:
    """Commits every write of a claim. `repair` makes the records of claims that have none, such as restored ones."""

    def __init__(self, store: Store, published: PublishedDevices) -> None:
        self._store = store
        self._published = published

    async def commit(
        self,
        operations: Sequence[Operation],
        preconditions: Sequence[Precondition],
        old: Document | None,
        new: Document | None,
    ) -> int:
        """Write a claim (`new` None: remove it), and with it what it holds.

        Raises 409 with the holder's name if it holds what another claim has, and the store's Conflict if the claim
        itself was changed meanwhile.
        """
        if (new or old or {}).get("kind") != "ResourceClaim":
            return await self._store.commit(operations, preconditions)
        for _ in range(ATTEMPTS):
            more_operations, more_preconditions = await self.changes(old, new)
            try:
                return await self._store.commit([*operations, *more_operations], [*preconditions, *more_preconditions])
            except Conflict as conflict:
                own = {operation.key for operation in operations} | {wanted.key for wanted in preconditions}
                if own & set(conflict.keys):
                    raise
        name = name_of(new or old)
        raise errors.DevicesHeld(by_kind("ResourceClaim"), name, "its devices are in high demand; try again")

    async def changes(self, old: Document | None, new: Document | None) -> tuple[list[Operation], list[Precondition]]:
        """What must go into the same commit as this write of any object; nothing, unless it is a claim.

        Raises 409 with the holder's name. If the commit then fails on one of these keys only, ask and try again.
        """
        claim = new or old
        if claim is None or claim.get("kind") != "ResourceClaim":
            return [], []
        before, after = shares_of(old), shares_of(new)
        if before == after:
            return [], []
        return (await self._decide(claim, before - after, after - before)).changes()

    async def _decide(self, claim: Document, gone: Iterable[Share], come: Iterable[Share]) -> GuardRecords:
        claimant = Claimant.of(claim)
        records = GuardRecords()
        gone, come = sorted(gone, key=_order), sorted(come, key=_order)
        await self._read(records, [device_key(share.device) for share in (*gone, *come)])
        drawing_before = {
            device_key(share.device): self._device(records, share.device).draws for share in (*gone, *come)
        }
        for share in gone:
            record = self._device(records, share.device)
            records.devices[share.device] = without_holder(record, claimant, share.share_id)
        for share in come:
            await self._add(records, claim, claimant, share)
        await self._settle_counters(records, claim, drawing_before)
        return records

    async def _read(self, records: GuardRecords, keys: Sequence[str]) -> None:
        unknown = [key for key in dict.fromkeys(keys) if key not in records.known]
        if unknown:
            records.known.update(unknown)
            records.read.update(await self._store.get_many(unknown))

    def _device(self, records: GuardRecords, device: DeviceID) -> DeviceRecord:
        if device not in records.devices:
            entry = records.read.get(device_key(device))
            records.devices[device] = device_record(entry.value if entry else None)
        return records.devices[device]

    async def _add(self, records: GuardRecords, claim: Document, claimant: Claimant, share: Share) -> None:
        record = self._device(records, share.device)
        answer = with_holder(record, claimant, share, self._published)
        if isinstance(answer, DeviceTaken):
            # A record may outlive its claim only by a mistake; then it must not block the device for ever.
            for holder in answer.holders:
                if not await self._still_holds(holder, share.device):
                    record = without_holder(record, holder)
            answer = with_holder(record, claimant, share, self._published)
        if isinstance(answer, DeviceTaken):
            holders = [(holder.namespace, holder.name) for holder in answer.holders]
            raise errors.DevicesHeld(by_kind("ResourceClaim"), name_of(claim), answer.message, holders)
        records.devices[share.device] = answer

    async def _still_holds(self, holder: Claimant, device: DeviceID) -> bool:
        entry = await self._store.get(object_key(GROUP, PLURAL, holder.namespace, holder.name))
        if entry is None:
            return False
        claim = document_of(entry)
        return uid_of(claim) == holder.uid and any(share.device == device for share in shares_of(claim))

    async def _settle_counters(
        self, records: GuardRecords, claim: Document, before: Mapping[str, Mapping[str, Mapping[str, int]]]
    ) -> None:
        """A device draws from counter sets from its first holder to its last."""
        draws = {device: record.draws if record.holders else {} for device, record in records.devices.items()}
        touched = {
            device: {*before.get(device_key(device), {}), *now}
            for device, now in draws.items()
            if before.get(device_key(device), {}) != now
        }
        ids = {(device.driver, device.pool, name) for device, names in touched.items() for name in names}
        await self._read(records, [counter_set_key(counter_set) for counter_set in sorted(ids)])
        for device, names in touched.items():
            for name in sorted(names):
                await self._settle(records, claim, device, (device.driver, device.pool, name), draws[device].get(name))

    async def _settle(
        self,
        records: GuardRecords,
        claim: Document,
        device: DeviceID,
        counter_set: CounterSetID,
        wanted: Mapping[str, int] | None,
    ) -> None:
        if counter_set not in records.counters:
            entry = records.read.get(counter_set_key(counter_set))
            records.counters[counter_set] = counter_record(entry.value if entry else None)
        record = records.counters[counter_set]
        if wanted is None:
            records.counters[counter_set] = without_draw(record, device)
            return
        answer = with_draw(record, device, wanted, counter_set, self._published)
        if isinstance(answer, CounterShortage):
            # Devices without holders draw nothing: such an entry is a leftover.
            holders = await self._holders(records, answer.devices)
            for other in answer.devices:
                if other not in holders:
                    record = without_draw(record, other)
            answer = with_draw(record, device, wanted, counter_set, self._published)
            if isinstance(answer, CounterShortage):
                all_holders = [holder for found in holders.values() for holder in found]
                message = f"{answer.message}; the rest is held by claim {holder_names(all_holders)}"
                named = [(holder.namespace, holder.name) for holder in all_holders]
                raise errors.DevicesHeld(by_kind("ResourceClaim"), name_of(claim), message, named)
        records.counters[counter_set] = answer

    async def _holders(
        self, records: GuardRecords, devices: Iterable[DeviceID]
    ) -> dict[DeviceID, tuple[ClaimHolder, ...]]:
        await self._read(records, [device_key(device) for device in devices])
        found = {device: self._peek(records, device).holders for device in devices}
        return {device: holders for device, holders in found.items() if holders}

    def _peek(self, records: GuardRecords, device: DeviceID) -> DeviceRecord:
        """A device's record without making it part of the commit."""
        if device in records.devices:
            return records.devices[device]
        entry = records.read.get(device_key(device))
        return device_record(entry.value if entry else None)

    async def repair(self) -> int:
        """Records for claims that have none; answers how many claims needed it."""
        page = await self._store.list(resource_prefix(GROUP, PLURAL))
        known = {entry.key: device_record(entry.value) for entry in (await self._store.list("/guard/devices/")).entries}
        repaired = 0
        for entry in page.entries:
            claim = document_of(entry)
            missing = [share for share in shares_of(claim) if not _is_recorded(known, claim, share)]
            if missing:
                repaired += await self._record(entry, claim, missing)
        return repaired

    async def _record(self, entry: Entry, claim: Document, missing: Sequence[Share]) -> bool:
        """Enter a claim that has its devices already; if they clash with another's, nothing can be undone here."""
        try:
            records = await self._decide(claim, (), missing)
            operations, preconditions = records.changes()
            await self._store.commit(operations, [*preconditions, Precondition(entry.key, entry.revision)])
        except (errors.ApiError, Conflict):
            return False
        return True


def _is_recorded(known: Mapping[str, DeviceRecord], claim: Document, share: Share) -> bool:
    record = known.get(device_key(share.device))
    uid = uid_of(claim)
    return record is not None and any(
        holder.uid == uid and holder.share_id == share.share_id for holder in record.holders
    )


def _order(share: Share) -> tuple[DeviceID, str]:
    return share.device, share.share_id
