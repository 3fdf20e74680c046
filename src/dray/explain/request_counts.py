"""Counts the devices that pass each test of one request, and names the test after which too few are left."""

from __future__ import annotations

from dataclasses import dataclass

from dray.allocator.node_report import USABLE, RequestReport

# The tests in order, with the word that a person reads after the number of devices that pass.
STAGES: dict[str, str] = {
    "exist": "exist",
    "matchClass": "match the class",
    "matchSelectors": "match the selectors",
    "free": "are free",
    "tolerated": "are tolerated",
    "fit": "fit capacity and counters",
    "satisfy": "satisfy the constraints",
}
_ORDER = list(STAGES)

# The first stage that a device with this code does not reach.
_FAILS_AT: dict[str, str] = {
    "other-node": "exist",
    "class-selector": "matchClass",
    "request-selector": "matchSelectors",
    "selector-error": "matchSelectors",
    "in-use": "free",
    "taint": "tolerated",
    "constraint": "satisfy",
}


@dataclass(frozen=True, slots=True)
class RequestCounts:
    """`by_stage` counts the devices that pass each stage and all stages before it."""

    claim: str
    request: str
    device_class: str
    wanted: int
    wants_all: bool
    by_stage: dict[str, int]

    @property
    def short_stage(self) -> str:
        """The first stage after which too few are left; empty if the request could be served alone."""
        return next((stage for stage in _ORDER if self.by_stage[stage] < self.wanted), "")

    @property
    def progress(self) -> int:
        """How many stages leave enough devices."""
        return _ORDER.index(self.short_stage) if self.short_stage else len(_ORDER)

    def sentence(self) -> str:
        """`wants 2: 8 exist, 8 match the class, 1 matches the selectors`, up to the stage that is short and on where
        later stages leave even fewer."""
        parts = []
        before = -1
        is_short = False
        for stage in _ORDER:
            count = self.by_stage[stage]
            if count != before or stage in ("exist", self.short_stage):
                name = f" {self.device_class}" if stage == "matchClass" == self.short_stage else ""
                parts.append(f"{count or 'none'} {_verb(stage, count)}{name}")
            before = count
            is_short = is_short or stage == self.short_stage
            if is_short and not count:
                break
        wanted = "all" if self.wants_all else str(self.wanted)
        return f"wants {wanted}: {', '.join(parts)}"

    def document(self) -> dict[str, object]:
        return {
            "claim": self.claim,
            "request": self.request,
            "class": self.device_class,
            "wanted": "all" if self.wants_all else self.wanted,
            "counts": dict(self.by_stage),
            "shortAt": self.short_stage or None,
        }


def _verb(stage: str, count: int) -> str:
    text = STAGES[stage]
    if count != 1:
        return text
    first, _, rest = text.partition(" ")
    single = {"exist": "exists", "are": "is", "fit": "fits", "satisfy": "satisfies", "match": "matches"}[first]
    return f"{single} {rest}".strip()


def stage_failed(code: str) -> str:
    """The first stage that a device with this code does not reach."""
    return _FAILS_AT.get(code, "fit")


def count_devices(report: RequestReport) -> RequestCounts:
    counts = dict.fromkeys(_ORDER, 0)
    for device in report.devices:
        reached = len(_ORDER) if device.code == USABLE else _ORDER.index(stage_failed(device.code))
        for stage in _ORDER[:reached]:
            counts[stage] += 1
    wants_all = not report.wanted
    # A request for all devices gets every matching device, or none.
    wanted = max(1, counts["matchSelectors"]) if wants_all else report.wanted
    return RequestCounts(report.claim, report.request, report.device_class, wanted, wants_all, counts)
