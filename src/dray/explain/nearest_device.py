"""The device that came closest to serving a request: what it lacks, in its own values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dray import cel
from dray.allocator import Allocator
from dray.allocator.device_kinds import DeviceKind
from dray.allocator.inventory import NodePools
from dray.allocator.node_report import USABLE, DeviceReport, RequestReport
from dray.allocator.selectors import Selectors
from dray.api.dra.pools import DeviceID
from dray.cel.explain import MatchExplanation
from dray.explain.capacity_names import capacity_hint
from dray.explain.device_holders import DeviceHolder, DeviceHolders
from dray.explain.request_counts import RequestCounts, stage_failed

# In the order of the tests; later is closer.
_ORDER = (
    "other-node",
    "class-selector",
    "selector-error",
    "request-selector",
    "in-use",
    "taint",
    "binding-conditions",
    "node-operations",
    "capacity",
    "compatibility",
    "counters",
    "constraint",
)
# Kinds of devices whose selectors are taken apart for one explanation.
MOST_KINDS = 64


@dataclass(frozen=True, slots=True)
class NearestMiss:
    """`expression` is the selector, `because` the part of it that decided with the values it saw, `hints` near names."""

    device_id: DeviceID
    code: str
    detail: str
    expression: str = ""
    because: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    holders: tuple[DeviceHolder, ...] = ()
    # The capacity or attribute that the device does not have.
    missing: str = ""

    def sentence(self) -> str:
        if self.because:
            said = "; ".join(self.because)
        elif self.code == "in-use" and self.holders:
            said = "is held by " + ", ".join(map(str, self.holders))
        else:
            said = self.detail
            if self.holders:
                said += "; held: " + ", ".join(map(str, self.holders[:3]))
        return f"{self.device_id}: {said}"

    def document(self) -> dict[str, object]:
        return {
            "device": str(self.device_id),
            "code": self.code,
            "detail": self.detail,
            "expression": self.expression,
            "because": list(self.because),
            "hints": list(self.hints),
            "holders": [holder.document() for holder in self.holders],
        }


def nearest_miss(
    report: RequestReport, counts: RequestCounts, allocator: Allocator, pools: NodePools, holders: DeviceHolders
) -> NearestMiss | None:
    """The closest of the devices that the request cannot have, for what makes the request short."""
    misses = [device for device in report.devices if device.code not in (USABLE, "other-node")]
    misses = [device for device in misses if stage_failed(device.code) == counts.short_stage] or misses
    if not misses:
        return None
    furthest = max(map(_rank, misses))
    closest = [device for device in misses if _rank(device) == furthest]
    if closest[0].selector:
        return _nearest_by_selector(closest, allocator)
    device = closest[0]
    if device.code == "capacity" and device.missing:
        hint = capacity_hint(report.devices)
        return NearestMiss(
            device.device_id, device.code, device.detail, hints=(hint,) if hint else (), missing=device.missing
        )
    concerned = holders_concerned(device.device_id, device.code, pools, holders)
    return NearestMiss(device.device_id, device.code, device.detail, holders=concerned, missing=device.missing)


def _rank(device: DeviceReport) -> int:
    return _ORDER.index(device.code) if device.code in _ORDER else len(_ORDER)


def _nearest_by_selector(devices: list[DeviceReport], allocator: Allocator) -> NearestMiss:
    """Of the devices that fail at a selector, the one with the fewest parts against it."""
    selectors = allocator.selectors
    by_kind: dict[tuple[DeviceKind, str], DeviceReport] = {}
    for device in devices:
        if len(by_kind) < MOST_KINDS:
            by_kind.setdefault((device.kind, device.selector), device)
    explained = [(device, selectors.explain(device.selector, device.kind)) for device in by_kind.values()]
    device, why = min(explained, key=lambda pair: _effort(pair[1]))
    if isinstance(why, cel.CompileFailure):
        return NearestMiss(device.device_id, device.code, device.detail, device.selector, (why.message,))
    against = tuple(str(reason) for reason in why.reasons) or (device.detail,)
    # A name that other devices publish is not misspelt; this device just is of another sort.
    missing = [str(each) for each in why.missing if not allocator.inventory.kinds.publishes(*each.name)]
    hints = (*missing, *_of_another_type(device, why, selectors))
    return NearestMiss(device.device_id, device.code, device.detail, device.selector, against, hints)


def _of_another_type(device: DeviceReport, why: MatchExplanation, selectors: Selectors) -> Iterator[str]:
    """The selector with a literal of the type that the device publishes, where it compares with another."""
    found = [reason.mismatch for reason in why.reasons if reason.mismatch]
    for correction in selectors.corrections(device.selector, device.kind) if found else ():
        if correction.is_of_another_type:
            yield f"{found[0]}; did you mean `{correction.text}`?"
            return


def _effort(why: MatchExplanation | cel.CompileFailure) -> tuple[float, int]:
    """A name that is nearly right counts less than one that is nowhere near."""
    if isinstance(why, cel.CompileFailure):
        return (99, 0)
    return (sum(1 - each.likeness / 2 for each in why.missing), len(why.reasons))


def holders_concerned(
    device_id: DeviceID, code: str, pools: NodePools, holders: DeviceHolders
) -> tuple[DeviceHolder, ...]:
    """The claims that would have to release the device itself, or devices that draw from the same counter sets."""
    found: dict[str, DeviceHolder] = {row.claim: row for row in holders.of(device_id)}
    if code not in ("counters", "compatibility"):
        return tuple(found.values())
    view = next(each for each in pools.pools if each.pool_id == device_id[:2])
    sets = _counter_sets(view.shape.kinds[view.positions[device_id.device]])
    for place, kind in enumerate(view.shape.kinds):
        if sets & _counter_sets(kind):
            for row in holders.of(view.device_id(place)):
                found.setdefault(row.claim, row)
    return tuple(found.values())


def _counter_sets(kind: DeviceKind) -> set[str]:
    return {name for name, _, _ in kind.consumes}
