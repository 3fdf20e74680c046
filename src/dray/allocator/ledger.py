"""The ledger of taken devices, shares, consumed capacity and counters, for stored claims and for claims in flight."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from dray.allocator.change_log import ChangeLog
from dray.allocator.pools import PoolCounters, PoolView
from dray.allocator.types import Features
from dray.api.dra.consumption import add_consumed
from dray.api.dra.pools import PoolID
from dray.api.resource import AllocationResult, DeviceRequestAllocationResult, ResourceClaim

# After so many changes a pool's log starts afresh; who has not caught up by then counts anew.
LONGEST_LOG = 256

CapacitySums = dict[str, int]
"""Capacity name to nano-units."""


class LedgerError(AssertionError):
    """The ledger does not say what the claims say: a bug, with both sides named."""


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """The devices and shares that one claim holds."""

    results: tuple[DeviceRequestAllocationResult, ...]
    is_tentative: bool


class Taken:
    """One pool view's devices that are in use, as masks over the view."""

    __slots__ = ("_consumed_key", "consumed", "dedicated", "seen", "shared")

    def __init__(self) -> None:
        self._consumed_key: Hashable = None
        self.seen = -1
        self.dedicated = 0
        # Devices with at least one share, and what the shares of a device consume.
        self.shared = 0
        self.consumed: dict[int, CapacitySums] = {}

    @property
    def consumed_key(self) -> Hashable:
        """The capacity that the shares consume, as a value that can be compared."""
        if self._consumed_key is None and self.consumed:
            sums = [(place, tuple(sorted(amounts.items()))) for place, amounts in self.consumed.items()]
            self._consumed_key = tuple(sorted(sums))
        return self._consumed_key

    def forget_key(self) -> None:
        self._consumed_key = None


NOTHING_TAKEN = Taken()


class CounterState:
    """The remaining amounts in the counter sets of a pool; they may be negative where a driver published less than is in use."""

    __slots__ = ("available", "charged", "overdrawn", "seen")

    def __init__(self, counters: PoolCounters) -> None:
        self.seen = -1
        self.available = list(counters.totals)
        self.charged: set[str] = set()
        self.overdrawn = min(self.available, default=0) < 0


class PoolUse:
    """Everything taken in one pool, published or not."""

    __slots__ = ("_counters", "_taken", "consumed", "dedicated", "log", "log_start", "shares", "version")

    def __init__(self) -> None:
        self.version = 0
        self.dedicated: dict[str, int] = {}
        self.shares: dict[str, int] = {}
        self.consumed: dict[str, CapacitySums] = {}
        self.log: list[str] = []
        self.log_start = 0
        self._taken: dict[PoolView, Taken] = {}
        self._counters: dict[PoolCounters, CounterState] = {}

    def changed(self, device: str) -> None:
        log = self.log
        if len(log) >= LONGEST_LOG:
            self.log_start = self.version
            log.clear()
            self._taken = {view: taken for view, taken in self._taken.items() if view.is_live}
            self._counters.clear()
        log.append(device)
        self.version += 1

    def drop_zeros(self, device: str) -> None:
        sums = {name: amount for name, amount in self.consumed.pop(device).items() if amount}
        if sums:
            self.consumed[device] = sums

    def _changes_since(self, seen: int) -> Iterable[str] | None:
        return None if seen < self.log_start else self.log[seen - self.log_start :]

    def is_allocated(self, device: str) -> bool:
        return device in self.dedicated or device in self.shares or device in self.consumed

    def allocated(self) -> set[str]:
        return {*self.dedicated, *self.shares, *self.consumed}

    def taken(self, view: PoolView) -> Taken:
        taken = self._taken.get(view)
        if taken is None:
            taken = self._taken[view] = Taken()
            self._drop_dead_views()
        if taken.seen != self.version:
            taken.forget_key()
            changes = self._changes_since(taken.seen)
            if changes is None or taken.seen < 0:
                taken.dedicated = taken.shared = 0
                taken.consumed.clear()
                changes = self.allocated()
            for device in changes:
                position = view.positions.get(device)
                if position is not None:
                    self._mark(taken, position, device)
            taken.seen = self.version
        return taken

    def _drop_dead_views(self) -> None:
        if len(self._taken) > 4:
            self._taken = {view: taken for view, taken in self._taken.items() if view.is_live}

    def _mark(self, taken: Taken, position: int, device: str) -> None:
        bit = 1 << position
        taken.dedicated = taken.dedicated | bit if device in self.dedicated else taken.dedicated & ~bit
        taken.shared = taken.shared | bit if device in self.shares else taken.shared & ~bit
        amounts = self.consumed.get(device)
        if amounts:
            taken.consumed[position] = amounts
        else:
            taken.consumed.pop(position, None)

    def counters(self, counters: PoolCounters) -> CounterState:
        state = self._counters.get(counters)
        if state is None:
            if len(self._counters) > 4:
                self._counters.clear()
            state = self._counters[counters] = CounterState(counters)
        if state.seen != self.version:
            changes = self._changes_since(state.seen)
            if changes is None or state.seen < 0:
                changes = self.allocated()
            for device in changes:
                self._charge(state, counters, device)
            state.overdrawn = min(state.available, default=0) < 0
            state.seen = self.version
        return state

    def _charge(self, state: CounterState, counters: PoolCounters, device: str) -> None:
        """A device draws once, however many shares of it there are."""
        drawn = counters.drawn_by_name.get(device)
        if not drawn or self.is_allocated(device) == (device in state.charged):
            return
        if device in state.charged:
            state.charged.remove(device)
            sign = 1
        else:
            state.charged.add(device)
            sign = -1
        for counter, amount in drawn:
            state.available[counter] += sign * amount


class Ledger:
    """Built from claims and kept up to date by claim events; `check` compares the two."""

    def __init__(self, features: Features | None = None, claims: Iterable[ResourceClaim] = ()) -> None:
        self.features = features or Features()
        self._uses: dict[PoolID, PoolUse] = {}
        self._entries: dict[tuple[str, str], LedgerEntry] = {}
        # Pools in which something was taken or freed.
        self.changes: ChangeLog[PoolID] = ChangeLog()
        for claim in claims:
            self.apply_claim(claim)

    # --- changes -----------------------------------------------------------------------------------------------------

    def apply_claim(self, claim: ResourceClaim) -> None:
        """A claim was added or changed. Without an allocation it frees what it held, but not what is in flight."""
        key = (claim.metadata.namespace, claim.metadata.name)
        held = self._entries.get(key)
        allocation = claim.status.allocation
        if allocation is None:
            if held is not None and not held.is_tentative:
                self._drop(key)
            return
        results = allocation.devices.results
        if held is not None:
            if held.results is results or held.results == results:
                if held.is_tentative:
                    self._entries[key] = LedgerEntry(held.results, is_tentative=False)
                return
            self._drop(key)
        self._enter(key, LedgerEntry(results, is_tentative=False))

    def remove_claim(self, namespace: str, name: str) -> None:
        """The claim is gone, and with it everything it held."""
        self._drop((namespace, name))

    def assume(self, namespace: str, name: str, allocation: AllocationResult) -> None:
        """An allocation that is on its way to the API server counts at once."""
        self._drop((namespace, name))
        self._enter((namespace, name), LedgerEntry(allocation.devices.results, is_tentative=True))

    def forget(self, namespace: str, name: str) -> None:
        """The write did not happen; a confirmed entry stays."""
        held = self._entries.get((namespace, name))
        if held is not None and held.is_tentative:
            self._drop((namespace, name))

    def is_tentative(self, namespace: str, name: str) -> bool:
        held = self._entries.get((namespace, name))
        return held is not None and held.is_tentative

    def holds(self, namespace: str, name: str) -> bool:
        return (namespace, name) in self._entries

    def _enter(self, key: tuple[str, str], entry: LedgerEntry) -> None:
        self._entries[key] = entry
        for result in entry.results:
            if not result.admin_access:
                self._book(result, 1)

    def _drop(self, key: tuple[str, str]) -> None:
        entry = self._entries.pop(key, None)
        if entry is None:
            return
        for result in entry.results:
            if not result.admin_access:
                self._book(result, -1)

    def _book(self, result: DeviceRequestAllocationResult, sign: int) -> None:
        """Adds a device or a share, or takes it away again. What comes to nothing is not kept."""
        pool, device = (result.driver, result.pool), result.device
        use = self._uses.get(pool) or self.use(pool)
        is_share = result.share_id is not None and self.features.consumable_capacity
        counts = use.shares if is_share else use.dedicated
        number = counts.get(device, 0) + sign
        if number > 0:
            counts[device] = number
        else:
            del counts[device]
        if is_share and result.consumed_capacity:
            sums = use.consumed.setdefault(device, {})
            add_consumed(sums, result, sign)
            if 0 in sums.values():
                use.drop_zeros(device)
        use.changed(device)
        self.changes.append(pool)

    # --- questions ---------------------------------------------------------------------------------------------------

    def use(self, pool_id: PoolID) -> PoolUse:
        use = self._uses.get(pool_id)
        if use is None:
            use = self._uses[pool_id] = PoolUse()
        return use

    def taken(self, view: PoolView) -> Taken:
        use = self._uses.get(view.pool_id)
        return NOTHING_TAKEN if use is None else use.taken(view)

    def counters(self, view: PoolView) -> CounterState:
        assert view.counters is not None
        return self.use(view.pool_id).counters(view.counters)

    def holders(self, driver: str, pool: str, device: str) -> list[tuple[str, str]]:
        """(namespace, name) of the claims that hold the device; for people, it looks at every claim."""
        return sorted(
            key
            for key, entry in self._entries.items()
            for result in entry.results
            if (result.driver, result.pool, result.device) == (driver, pool, device) and not result.admin_access
        )

    def check(self, claims: Iterable[ResourceClaim]) -> None:
        """Compares what is confirmed here with a ledger built from `claims`, and the sums with the entries."""
        fresh = Ledger(self.features, claims)
        confirmed = {key: entry for key, entry in self._entries.items() if not entry.is_tentative}
        if confirmed != fresh._entries:
            differing = (confirmed.keys() | fresh._entries.keys()) - {
                key for key in confirmed.keys() & fresh._entries.keys() if confirmed[key] == fresh._entries[key]
            }
            raise LedgerError(f"ledger and claims disagree about {sorted(differing)}")
        for key, entry in self._entries.items():
            if entry.is_tentative:
                fresh._enter(key, entry)
        mine, theirs = self.totals(), fresh.totals()
        if mine != theirs:
            raise LedgerError(f"ledger sums {mine} but its entries come to {theirs}")

    def totals(self) -> dict[PoolID, tuple[dict[str, int], dict[str, int], dict[str, CapacitySums]]]:
        """By pool: dedicated devices, shares and consumed nano-units by device."""
        return {
            pool_id: (dict(use.dedicated), dict(use.shares), {name: dict(sums) for name, sums in use.consumed.items()})
            for pool_id, use in sorted(self._uses.items())
            if use.dedicated or use.shares or use.consumed
        }
