"""A stand-in for `libnvidia-ml.so.1`, below the real Python binding: C functions that fill what they are pointed at.

Its answers are those of one NVIDIA H200 with driver 580.159.04, read from the real card through the same binding on
2026-11-16 with MIG turned off. What a card with MIG turned on answers follows NVML's documentation and the recorded
profiles and placements of that card; it was not read from a card.
"""

import ctypes
from dataclasses import dataclass, field
from typing import Any

import pynvml

NOT_SUPPORTED, NOT_FOUND, TIMEOUT = (
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_NOT_FOUND,
    pynvml.NVML_ERROR_TIMEOUT,
)
INVALID, IN_USE, LOST = pynvml.NVML_ERROR_INVALID_ARGUMENT, pynvml.NVML_ERROR_IN_USE, pynvml.NVML_ERROR_GPU_IS_LOST

UUID = "GPU-e3916f6d-ed41-67ef-e7d4-2852ce408e0a"
# Number, id, name, slices, memory MiB, multiprocessors, copy, decoders, jpeg, ofa, size, starts.
PROFILES = (
    (0, 19, "1g.18gb", 1, 16384, 16, 1, 1, 1, 0, 1, (0, 1, 2, 3, 4, 5, 6)),
    (1, 14, "2g.35gb", 2, 33280, 32, 2, 2, 2, 0, 2, (0, 2, 4)),
    (2, 9, "3g.71gb", 3, 71424, 60, 3, 3, 3, 0, 4, (0, 4)),
    (3, 5, "4g.71gb", 4, 71424, 64, 4, 4, 4, 0, 4, (0,)),
    (4, 0, "7g.141gb", 7, 143360, 132, 8, 7, 7, 1, 8, (0,)),
    (7, 20, "1g.18gb+me", 1, 16384, 16, 1, 1, 1, 1, 1, (0, 1, 2, 3, 4, 5, 6)),
    (9, 15, "1g.35gb", 1, 33280, 26, 1, 1, 1, 0, 2, (0, 2, 4, 6)),
)


@dataclass
class StandInInstance:
    id: int
    profile: int
    start: int
    has_compute: bool = True


@dataclass
class StandInCard:
    uuid: str = UUID
    minor: int = 0
    bus_id: str = "00000000:00:06.0"
    has_mig: bool = False
    is_lost: bool = False
    clock_reasons: int = 1
    used: int = 644939776
    instances: list[StandInInstance] = field(default_factory=list)
    processes: list[tuple[int, int]] = field(default_factory=list)
    """Process number and bytes. On the real card the MPS server and each of its clients had a row of its own:
    69206016 bytes for the server of two clients, which had 32923189248 and 76059508736 bytes."""


@dataclass
class StandInNvml:
    """Functions by their names in the library. Handles are numbers: cards from 1, MIG devices from 1001, instances from 2001."""

    cards: list[StandInCard] = field(default_factory=lambda: [StandInCard()])
    events: list[tuple[str, int, int]] = field(default_factory=list)
    fails: dict[str, int] = field(default_factory=dict)
    """Return codes for functions that shall fail."""

    def __getattribute__(self, name: str) -> Any:
        code = object.__getattribute__(self, "fails").get(name)
        if code is not None:
            return lambda *arguments: code
        return object.__getattribute__(self, name)

    def _card(self, handle: Any) -> StandInCard:
        return self.cards[_number(handle) - 1]

    # --- the library

    def nvmlInitWithFlags(self, flags: Any) -> int:
        return 0

    def nvmlErrorString(self, code: int) -> bytes:
        return f"error {code}".encode()

    def nvmlSystemGetDriverVersion(self, text: Any, size: Any) -> int:
        return _write(text, "580.159.04")

    def nvmlSystemGetCudaDriverVersion(self, version: Any) -> int:
        return _set(version, 13000)

    # --- cards

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        return _set(count, len(self.cards))

    def nvmlDeviceGetHandleByIndex_v2(self, index: Any, handle: Any) -> int:
        if self.cards[index.value].is_lost:
            return LOST
        return _point(handle, index.value + 1)

    def nvmlDeviceGetHandleByUUID(self, uuid: Any, handle: Any) -> int:
        for number, card in enumerate(self.cards, 1):
            if card.uuid == uuid.value.decode():
                return LOST if card.is_lost else _point(handle, number)
        return NOT_FOUND

    def nvmlDeviceGetUUID(self, handle: Any, text: Any, size: Any) -> int:
        number = _number(handle)
        if number > 1000:
            card, instance = self._mig(number)
            return _write(text, f"MIG-{card.minor}-{instance.id}")
        return _write(text, self._card(handle).uuid)

    def nvmlDeviceGetMinorNumber(self, handle: Any, number: Any) -> int:
        return _set(number, self._card(handle).minor)

    def nvmlDeviceGetName(self, handle: Any, text: Any, size: Any) -> int:
        return _write(text, "NVIDIA H200")

    def nvmlDeviceGetBrand(self, handle: Any, brand: Any) -> int:
        return _set(brand, 14)

    def nvmlDeviceGetArchitecture(self, handle: Any, architecture: Any) -> int:
        return _set(architecture, 9)

    def nvmlDeviceGetCudaComputeCapability(self, handle: Any, major: Any, minor: Any) -> int:
        return _set(major, 9) or _set(minor, 0)

    def nvmlDeviceGetMemoryInfo(self, handle: Any, memory: Any) -> int:
        total, used = 150754820096, self._card(handle).used
        memory._obj.total, memory._obj.used, memory._obj.free = total, used, total - used
        return 0

    def nvmlDeviceGetPciInfo_v3(self, handle: Any, info: Any) -> int:
        info._obj.busId = self._card(handle).bus_id.encode()
        return 0

    def nvmlDeviceGetAddressingMode(self, handle: Any, mode: Any) -> int:
        mode._obj.value = 0
        return 0

    def nvmlDeviceGetEccMode(self, handle: Any, now: Any, pending: Any) -> int:
        return _set(now, 1) or _set(pending, 1)

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: Any, limit: Any) -> int:
        return _set(limit, 700000)

    def nvmlDeviceGetNumGpuCores(self, handle: Any, cores: Any) -> int:
        return _set(cores, 16896)

    def nvmlDeviceGetNvLinkState(self, handle: Any, link: Any, state: Any) -> int:
        return NOT_SUPPORTED

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: Any, reasons: Any) -> int:
        return _set(reasons, self._card(handle).clock_reasons)

    def nvmlDeviceGetUtilizationRates(self, handle: Any, rates: Any) -> int:
        rates._obj.gpu = 25
        return 0

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: Any, energy: Any) -> int:
        return _set(energy, 2881358)

    def nvmlDeviceGetPowerUsage(self, handle: Any, power: Any) -> int:
        return _set(power, 80418)

    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle: Any, count: Any, processes: Any) -> int:
        running = self._card(handle).processes
        _set(count, len(running))
        if processes is None:
            return pynvml.NVML_ERROR_INSUFFICIENT_SIZE if running else 0
        for row, (pid, used) in zip(processes, running, strict=False):
            row.pid, row.usedGpuMemory = pid, used
        return 0

    # --- events

    def nvmlDeviceGetSupportedEventTypes(self, handle: Any, types: Any) -> int:
        return _set(types, 65439)

    def nvmlEventSetCreate(self, events: Any) -> int:
        return _point(events, 3001)

    def nvmlDeviceRegisterEvents(self, handle: Any, types: Any, events: Any) -> int:
        return 0

    def nvmlEventSetWait_v2(self, events: Any, data: Any, timeout: Any) -> int:
        if not self.events:
            return TIMEOUT
        uuid, kind, number = self.events.pop(0)
        data._obj.eventType, data._obj.eventData = kind, number
        index = next(index for index, card in enumerate(self.cards, 1) if card.uuid == uuid)
        data._obj.device = ctypes.cast(index, pynvml.c_nvmlDevice_t)
        return 0

    # --- MIG

    def nvmlDeviceGetMigMode(self, handle: Any, now: Any, pending: Any) -> int:
        mode = int(self._card(handle).has_mig)
        return _set(now, mode) or _set(pending, mode)

    def nvmlDeviceGetGpuInstanceProfileInfoV(self, handle: Any, number: int, info: Any) -> int:
        found = next((each for each in PROFILES if each[0] == number), None)
        if found is None:
            return NOT_SUPPORTED
        _, id_, name, slices, memory, multiprocessors, copies, decoders, jpegs, ofas, _, _ = found
        info._obj.id, info._obj.name = id_, f"MIG {name}".encode()
        info._obj.sliceCount, info._obj.memorySizeMB = slices, memory
        info._obj.multiprocessorCount, info._obj.copyEngineCount = multiprocessors, copies
        info._obj.decoderCount, info._obj.jpegCount, info._obj.ofaCount = decoders, jpegs, ofas
        return 0

    def nvmlDeviceGetGpuInstancePossiblePlacements_v2(self, handle: Any, id_: int, places: Any, count: Any) -> int:
        size, starts = next((each[10], each[11]) for each in PROFILES if each[1] == id_)
        if places is not None:
            for place, start in zip(places, starts, strict=False):
                place.start, place.size = start, size
        return _set(count, len(starts))

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Any, count: Any) -> int:
        return _set(count, 7 if self._card(handle).has_mig else 0)

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Any, index: Any, device: Any) -> int:
        ready = [each for each in self._card(handle).instances if each.has_compute]
        if index.value >= len(ready):
            return NOT_FOUND
        return _point(device, 1000 + 100 * _number(handle) + ready[index.value].id)

    def nvmlDeviceGetGpuInstanceId(self, device: Any, id_: Any) -> int:
        return _set(id_, self._mig(_number(device))[1].id)

    def nvmlDeviceGetComputeInstanceId(self, device: Any, id_: Any) -> int:
        return _set(id_, 0)

    def nvmlDeviceGetGpuInstanceById(self, handle: Any, id_: int, instance: Any) -> int:
        return _point(instance, 2000 + 100 * _number(handle) + id_)

    def nvmlGpuInstanceGetInfo(self, instance: Any, info: Any) -> int:
        found = self._mig(_number(instance) - 1000)[1]
        info._obj.id, info._obj.profileId, info._obj.placement.start = found.id, found.profile, found.start
        return 0

    def nvmlDeviceCreateGpuInstanceWithPlacement(self, handle: Any, id_: int, place: Any, instance: Any) -> int:
        card = self._card(handle)
        wanted = set(range(place.start, place.start + place.size))
        sizes = {each[1]: each[10] for each in PROFILES}
        for each in card.instances:
            if wanted & set(range(each.start, each.start + sizes[each.profile])):
                return pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES
        number = max((each.id for each in card.instances), default=0) + 1
        card.instances.append(StandInInstance(number, id_, place.start, has_compute=False))
        return _point(instance, 2000 + 100 * _number(handle) + number)

    def nvmlGpuInstanceGetComputeInstanceProfileInfoV(self, instance: Any, profile: int, engine: int, info: Any) -> int:
        info._obj.id = profile
        return 0

    def nvmlGpuInstanceCreateComputeInstance(self, instance: Any, profile: int, compute: Any) -> int:
        self._mig(_number(instance) - 1000)[1].has_compute = True
        return _point(compute, _number(instance) + 1000)

    def nvmlGpuInstanceGetComputeInstanceById(self, instance: Any, id_: int, compute: Any) -> int:
        return _point(compute, _number(instance) + 1000)

    def nvmlComputeInstanceDestroy(self, compute: Any) -> int:
        self._mig(_number(compute) - 2000)[1].has_compute = False
        return 0

    def nvmlGpuInstanceDestroy(self, instance: Any) -> int:
        card, found = self._mig(_number(instance) - 1000)
        if found.has_compute:
            return IN_USE
        card.instances.remove(found)
        return 0

    def _mig(self, number: int) -> tuple[StandInCard, StandInInstance]:
        card = self.cards[(number - 1000) // 100 - 1]
        return card, next(each for each in card.instances if each.id == number % 100)


def put_below_binding(library: StandInNvml) -> Any:
    """The real binding, which calls the stand-in instead of the driver's library."""
    pynvml.nvmlLib = library
    pynvml._nvmlGetFunctionPointer_cache.clear()
    return pynvml


def _set(pointer: Any, value: int) -> int:
    pointer._obj.value = value
    return 0


def _write(buffer: Any, text: str) -> int:
    buffer.value = text.encode()
    return 0


def _point(handle: Any, number: int) -> int:
    ctypes.memmove(handle, ctypes.byref(ctypes.c_void_p(number)), ctypes.sizeof(ctypes.c_void_p))
    return 0


def _number(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
