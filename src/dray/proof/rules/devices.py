"""The rule that no device is given to two claims and no capacity or counter is overdrawn.

The rule adds up what claims hold, without the allocator and without the server's guard, because it checks both. A device
offers what was last published of it: slices are replaced while claims stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dray.api.resource import Device, DeviceRequestAllocationResult, ResourceClaim, ResourceSlice
from dray.client import CLAIMS
from dray.proof.history import ObjectKey
from dray.proof.replay import (
    Object,
    ReplayedCluster,
)
from dray.proof.violation import Violation

PoolID = tuple[str, str]
DeviceID = tuple[str, str, str]
CounterID = tuple[str, str, str, str]
Results = list[DeviceRequestAllocationResult]


class DeviceRule:
    def __init__(self) -> None:
        # pool -> device -> claim -> its results there; counters are drawn within a pool
        self._held: dict[PoolID, dict[DeviceID, dict[str, Results]]] = {}
        self._of_claim: dict[str, dict[DeviceID, Results]] = {}
        self._devices: dict[DeviceID, Device] = {}
        self._counters: dict[CounterID, int] = {}
        self._generations: dict[PoolID, int] = {}

    def changed(
        self, world: ReplayedCluster, revision: int, key: ObjectKey, old: Object | None, new: Object | None
    ) -> Iterator[Violation]:
        if isinstance(new, ResourceSlice):
            self._publish(new)
        elif isinstance(new or old, ResourceClaim):
            yield from self._hold(
                revision, f"{key.namespace}/{key.name}", new if isinstance(new, ResourceClaim) else None
            )

    def _publish(self, row: ResourceSlice) -> None:
        pool = (row.spec.driver, row.spec.pool.name)
        if row.spec.pool.generation < self._generations.get(pool, 0):
            return
        self._generations[pool] = row.spec.pool.generation
        for device in row.spec.devices:
            self._devices[*pool, device.name] = device
        for counters in row.spec.shared_counters:
            for name, counter in counters.counters.items():
                self._counters[*pool, counters.name, name] = counter.value.nanos

    def _hold(self, revision: int, claim: str, new: ResourceClaim | None) -> Iterator[Violation]:
        before = self._of_claim.pop(claim, {})
        for device in before:
            self._release(device, claim)
        now = _holdings(new) if new is not None else {}
        if now:
            self._of_claim[claim] = now
        for device, results in now.items():
            self._held.setdefault(device[:2], {}).setdefault(device, {})[claim] = results
        for device, results in now.items():
            if results != before.get(device):
                yield from self._check(revision, device)
        if now.keys() - before.keys():
            yield from self._check_counters(revision, now)

    def _release(self, device: DeviceID, claim: str) -> None:
        in_pool = self._held[device[:2]]
        del in_pool[device][claim]
        if not in_pool[device]:
            del in_pool[device]

    def _check(self, revision: int, device: DeviceID) -> Iterator[Violation]:
        holders = self._held[device[:2]][device]
        name = "/".join(device)
        published = self._devices.get(device)
        results = [result for each in holders.values() for result in each]
        shares = [result.share_id for result in results if result.share_id is not None]
        is_shared = len(shares) == len(results) and (published is None or bool(published.allow_multiple_allocations))
        if len(results) > 1 and (not is_shared or len(set(shares)) < len(shares)):
            message = f"held by claims {', '.join(sorted(holders))}"
            yield Violation("device-given-twice", revision, name, message, _keys(holders))
        if published is not None:
            yield from self._check_capacity(revision, device, published)

    def _check_capacity(self, revision: int, device: DeviceID, published: Device) -> Iterator[Violation]:
        holders = self._held[device[:2]][device]
        offered = {_plain(name, device[0]): each.value.nanos for name, each in published.capacity.items()}
        consumed: dict[str, int] = {}
        for result in (result for each in holders.values() for result in each):
            for name, amount in result.consumed_capacity.items():
                plain = _plain(name, device[0])
                consumed[plain] = consumed.get(plain, 0) + amount.nanos
        for name, given in consumed.items():
            if given > offered.get(name, 0):
                message = f"{name}: {given} of {offered.get(name, 0)} nano-units are given away"
                yield Violation("capacity-overdrawn", revision, "/".join(device), message, _keys(holders))

    def _check_counters(self, revision: int, now: dict[DeviceID, Results]) -> Iterator[Violation]:
        touched = {
            (device[0], device[1], draws.counter_set)
            for device in now
            if (published := self._devices.get(device)) is not None
            for draws in published.consumes_counters
        }
        drawn: dict[CounterID, int] = {}
        drawing: dict[CounterID, set[str]] = {}
        pools = {counter_set[:2] for counter_set in touched}
        in_pools = (held for pool in sorted(pools) for held in self._held[pool].items())
        for device, holders in in_pools:
            published = self._devices.get(device)
            for draws in published.consumes_counters if published is not None else ():
                if (device[0], device[1], draws.counter_set) in touched:
                    for name, counter in draws.counters.items():
                        counter_id = (device[0], device[1], draws.counter_set, name)
                        drawn[counter_id] = drawn.get(counter_id, 0) + counter.value.nanos
                        drawing.setdefault(counter_id, set()).update(holders)
        for counter_id, amount in drawn.items():
            if amount > self._counters.get(counter_id, 0):
                message = f"{amount} of {self._counters.get(counter_id, 0)} nano-units are drawn"
                claims = _keys(drawing[counter_id])
                yield Violation("counter-overdrawn", revision, "/".join(counter_id), message, claims)


def _holdings(claim: ResourceClaim) -> dict[DeviceID, Results]:
    """The results that take something; a result with admin access takes nothing."""
    held: dict[DeviceID, Results] = {}
    allocation = claim.status.allocation
    for result in allocation.devices.results if allocation is not None else ():
        if not result.admin_access:
            held.setdefault((result.driver, result.pool, result.device), []).append(result)
    return held


def _keys(claims: Iterable[str]) -> tuple[ObjectKey, ...]:
    return tuple(ObjectKey.at(CLAIMS.plural, claim) for claim in sorted(claims))


def _plain(name: str, driver: str) -> str:
    return name.removeprefix(f"{driver}/")
