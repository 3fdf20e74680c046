"""When must a pod leave its devices? Pure answers from claims, slices, rules and taints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from dray.api.resource import (
    DeviceRequestAllocationResult,
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintSelector,
    DeviceToleration,
)

NO_EXECUTE = "NoExecute"


@dataclass(frozen=True, slots=True)
class Cause:
    """A taint that drives pods off a device; `rule` names the DeviceTaintRule it comes from, if any."""

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
    added = parse_time(taint.time_added) or now
    wait_s: int | None = None
    for toleration in tolerations:
        if not tolerates(toleration, taint):
            continue
        if toleration.toleration_seconds is None:
            return None
        seconds = max(0, toleration.toleration_seconds)
        wait_s = seconds if wait_s is None else min(wait_s, seconds)
    return added + timedelta(seconds=wait_s or 0)


def tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    """Only a toleration that says NoExecute counts here; an empty effect is not enough."""
    if toleration.effect != taint.effect:
        return False
    if toleration.operator == "Exists":
        return toleration.key in ("", taint.key)
    if toleration.operator in ("", "Equal"):
        return toleration.key == taint.key and toleration.value == taint.value
    return False


def rule_selects(selector: DeviceTaintSelector | None, driver: str, pool: str, device: str) -> bool:
    """All given fields must match; no selector at all matches nothing, an empty one everything."""
    if selector is None:
        return False
    wanted = ((selector.driver, driver), (selector.pool, pool), (selector.device, device))
    return all(want is None or want == have for want, have in wanted)


def rule_applies(rule: DeviceTaintRule, device: DeviceRequestAllocationResult) -> bool:
    return rule_selects(rule.spec.device_selector, device.driver, device.pool, device.device)


def parse_time(text: str | None) -> datetime | None:
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
