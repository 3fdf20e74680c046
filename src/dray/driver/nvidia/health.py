"""Whether cards work: NVML's events and what a look at each card shows, as health and taints."""

import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dray.api.resource import DeviceTaint
from dray.driver.nvidia.cards import Card

log = logging.getLogger(__name__)

DOMAIN = "gpu.nvidia.com"
# These tell of a mistake in the program that used the card, not of the card.
APPLICATION_XIDS = frozenset({13, 31, 43, 45, 68, 109})
_LOST_XID = 79
_EVENT_WAIT_MS = 1000


@dataclass(frozen=True, slots=True)
class GpuProblem:
    """Something that is wrong with a card. `effect` is the effect of the taint that tells of it."""

    kind: str
    value: str
    message: str
    effect: str

    @property
    def taint(self) -> DeviceTaint:
        return DeviceTaint(key=f"{DOMAIN}/{self.kind}", value=self.value, effect=self.effect)

    @property
    def makes_unhealthy(self) -> bool:
        return self.effect != "None"


def xid_problem(xid: int) -> GpuProblem:
    effect = "NoExecute" if xid == _LOST_XID else "NoSchedule"
    return GpuProblem("xid", str(xid), f"the card reported Xid {xid}", effect)


ECC = GpuProblem("ecc", "double-bit", "the card reported an ECC error that it could not correct", "NoSchedule")
LOST = GpuProblem("gpu-lost", "", "the card does not answer any more", "NoExecute")
UNMONITORED = GpuProblem("unmonitored", "", "NVML reports no events for this card", "None")


def throttled(reasons: str) -> GpuProblem:
    return GpuProblem("throttled", reasons, f"the card runs slower than it could: {reasons}", "None")


@dataclass
class CardHealth:
    """The problems of one card. Xid and ECC errors stay until the driver starts anew; the others go when they are over."""

    lasting: dict[str, GpuProblem] = field(default_factory=dict)
    passing: tuple[GpuProblem, ...] = ()

    @property
    def problems(self) -> tuple[GpuProblem, ...]:
        return (*self.lasting.values(), *self.passing)

    @property
    def taints(self) -> tuple[DeviceTaint, ...]:
        return tuple(problem.taint for problem in self.problems)

    @property
    def message(self) -> str:
        """Why the card is unhealthy; empty when it is healthy."""
        return "; ".join(problem.message for problem in self.problems if problem.makes_unhealthy)


class HealthMonitor:
    """Follows the health of cards. `wait_for_events` and `look` block and answer whether anything changed."""

    def __init__(self, nvml: Any, event_file: Path | None = None) -> None:
        self._nvml = nvml
        self._event_file = event_file
        self._lines_read = 0
        self._events: Any = None
        self._cards: dict[str, CardHealth] = {}
        self._unmonitored: set[str] = set()

    def of(self, uuid: str) -> CardHealth:
        return self._cards.setdefault(uuid, CardHealth())

    def register(self, cards: Iterable[Card]) -> None:
        """Asks NVML for the events of these cards."""
        nvml = self._nvml
        wanted = nvml.nvmlEventTypeXidCriticalError | nvml.nvmlEventTypeDoubleBitEccError
        self._events = nvml.nvmlEventSetCreate()
        for card in cards:
            try:
                handle = nvml.nvmlDeviceGetHandleByUUID(card.uuid)
                supported = nvml.nvmlDeviceGetSupportedEventTypes(handle)
                nvml.nvmlDeviceRegisterEvents(handle, wanted & supported, self._events)
            except nvml.NVMLError as error:
                log.warning("NVML reports no events for card %s: %s", card.uuid, error)
                self._unmonitored.add(card.uuid)

    def wait_for_events(self) -> bool:
        """Waits at most a second for an event of NVML."""
        nvml = self._nvml
        try:
            data = nvml.nvmlEventSetWait_v2(self._events, _EVENT_WAIT_MS)
        except nvml.NVMLError as error:
            if error.value == nvml.NVML_ERROR_TIMEOUT:
                return False
            if error.value == nvml.NVML_ERROR_GPU_IS_LOST:
                return True
            raise
        uuid = nvml.nvmlDeviceGetUUID(data.device)
        if data.eventType == nvml.nvmlEventTypeDoubleBitEccError:
            return self.add(uuid, ECC)
        return self.add_xid(uuid, data.eventData)

    def add_xid(self, uuid: str, xid: int) -> bool:
        if xid in APPLICATION_XIDS:
            log.info("card %s reported Xid %d, which tells of the program that used it", uuid, xid)
            return False
        return self.add(uuid, xid_problem(xid))

    def add(self, uuid: str, problem: GpuProblem) -> bool:
        health = self.of(uuid)
        if health.lasting.get(problem.kind) == problem:
            return False
        log.warning("card %s: %s", uuid, problem.message)
        health.lasting[problem.kind] = problem
        return True

    def look(self, cards: Iterable[Card]) -> bool:
        """Asks each card how it is."""
        before = {uuid: health.problems for uuid, health in self._cards.items()}
        self._read_event_file()
        for card in cards:
            self.of(card.uuid).passing = tuple(self._passing_problems(card))
        return before != {uuid: health.problems for uuid, health in self._cards.items()}

    def _passing_problems(self, card: Card) -> Iterable[GpuProblem]:
        nvml = self._nvml
        if card.uuid in self._unmonitored:
            yield UNMONITORED
        try:
            handle = nvml.nvmlDeviceGetHandleByUUID(card.uuid)
            nvml.nvmlDeviceGetMemoryInfo(handle)
            reasons = _slowdown_reasons(nvml, handle)
        except nvml.NVMLError as error:
            if error.value in (nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_NOT_FOUND, nvml.NVML_ERROR_UNKNOWN):
                yield LOST
            return
        if reasons:
            yield throttled(reasons)

    def _read_event_file(self) -> None:
        """Events that somebody wrote to try out what happens: a line such as `{"uuid": "GPU-…", "xid": 79}` each."""
        if self._event_file is None or not self._event_file.exists():
            return
        lines = self._event_file.read_text().splitlines()
        for line in lines[self._lines_read :]:
            try:
                event = json.loads(line)
                self.add_xid(str(event["uuid"]), int(event["xid"]))
            except (ValueError, KeyError, TypeError):
                log.warning('%s: %r is not an event such as {"uuid": "GPU-...", "xid": 79}', self._event_file, line)
        self._lines_read = len(lines)


def _slowdown_reasons(nvml: Any, handle: Any) -> str:
    """Why the hardware slows the card down; a power limit that software set is normal operation and does not count."""
    try:
        bits = nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
    except nvml.NVMLError as error:
        if error.value in (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_FUNCTION_NOT_FOUND):
            return ""
        raise
    names = {
        nvml.nvmlClocksEventReasonHwThermalSlowdown: "heat",
        nvml.nvmlClocksEventReasonHwPowerBrakeSlowdown: "power-brake",
    }
    return "_".join(name for bit, name in names.items() if bits & bit)
