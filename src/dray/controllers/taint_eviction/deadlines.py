"""When a taint makes a pod leave its devices, and which taints drivers publish. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from dray.api.dra.pools import DeviceID, PoolID, newest_of_pool, pool_id, published_devices
from dray.api.dra.taints import NO_EXECUTE, selects_device, tolerates
from dray.api.resource import (
    DeviceRequestAllocationResult,
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintSelector,
    DeviceToleration,
    ResourceSlice,
)


@dataclass(frozen=True, slots=True)
class Cause:
    """A taint that evicts pods from a device; `rule` names the DeviceTaintRule it comes from, if any."""

    at: datetime
    rule: str = ""


@dataclass(frozen=True, slots=True)
class Deadline:
    """The earliest moment that any cause sets, and the rules among all causes."""

    at: datetime
    rules: frozenset[str]


def earliest(causes: Iterable[Cause]) -> Deadline | None:
    found = list(causes)
    if not found:
        return None
    return Deadline(min(cause.at for cause in found), frozenset(cause.rule for cause in found if cause.rule))


def eviction_time(taint: DeviceTaint, tolerations: Sequence[DeviceToleration], now: datetime) -> datetime | None:
    """When this taint ends the use of a device allocated with these tolerations; None for never."""
    if taint.effect != NO_EXECUTE:
        return None
    added = taint_time(taint.time_added) or now
    wait_s: int | None = None
    for toleration in tolerations:
        if not _tolerates_eviction(toleration, taint):
            continue
        if toleration.toleration_seconds is None:
            return None
        seconds = max(0, toleration.toleration_seconds)
        wait_s = seconds if wait_s is None else min(wait_s, seconds)
    try:
        return added + timedelta(seconds=wait_s or 0)
    except OverflowError:  # later than any date
        return None


def _tolerates_eviction(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    """Stricter than for allocation: the toleration must name the effect."""
    return toleration.effect == NO_EXECUTE and tolerates(toleration, taint)


def rule_selects(selector: DeviceTaintSelector | None, driver: str, pool: str, device: str) -> bool:
    """All given fields must match; no selector at all matches nothing, an empty one everything."""
    return selector is not None and selects_device(selector, driver, pool, device)


def rule_applies(rule: DeviceTaintRule, device: DeviceRequestAllocationResult) -> bool:
    return rule_selects(rule.spec.device_selector, device.driver, device.pool, device.device)


def taint_time(text: str | None) -> datetime | None:
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


# --- published taints ----------------------------------------------------------------------------------------------------


class PublishedTaints:
    """The taints of devices in the newest generation of each pool, kept up to date slice by slice."""

    def __init__(self) -> None:
        self._slices: dict[PoolID, dict[str, ResourceSlice]] = {}
        self._taints: dict[PoolID, dict[str, tuple[DeviceTaint, ...]]] = {}

    def put(self, resource_slice: ResourceSlice) -> bool:
        """Returns whether the taints of the pool changed."""
        pool = pool_id(resource_slice)
        self._slices.setdefault(pool, {})[resource_slice.metadata.name] = resource_slice
        return self._refresh(pool)

    def remove(self, resource_slice: ResourceSlice) -> bool:
        pool = pool_id(resource_slice)
        slices = self._slices.get(pool, {})
        slices.pop(resource_slice.metadata.name, None)
        if not slices:
            self._slices.pop(pool, None)
        return self._refresh(pool)

    def __bool__(self) -> bool:
        return bool(self._taints)

    def of(self, driver: str, pool: str, device: str) -> tuple[DeviceTaint, ...]:
        return self._taints.get((driver, pool), {}).get(device, ())

    def devices(self) -> Iterable[DeviceID]:
        """Every published device of the newest generations."""
        for slices in self._slices.values():
            for device, _ in published_devices(newest_of_pool(slices.values())):
                yield device

    def _refresh(self, pool: PoolID) -> bool:
        taints: dict[str, tuple[DeviceTaint, ...]] = {}
        for _, device in published_devices(newest_of_pool(self._slices.get(pool, {}).values())):
            if device.taints:
                taints[device.name] = taints.get(device.name, ()) + device.taints
        before = self._taints.get(pool, {})
        if taints:
            self._taints[pool] = taints
        else:
            self._taints.pop(pool, None)
        return taints != before
