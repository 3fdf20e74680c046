"""What NVML and the kernel say about the cards of this machine, as plain values."""

import contextlib
import ctypes
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from dray.driver.sysfs import SYSFS, numa_node_of, pcie_root_of

T = TypeVar("T")

_ARCHITECTURES = {
    2: "Kepler",
    3: "Maxwell",
    4: "Pascal",
    5: "Volta",
    6: "Turing",
    7: "Ampere",
    8: "Ada Lovelace",
    9: "Hopper",
    10: "Blackwell",
}
_BRANDS = {
    1: "Quadro",
    2: "Tesla",
    3: "NVS",
    4: "Grid",
    5: "GeForce",
    6: "Titan",
    7: "NvidiaVApps",
    8: "NvidiaVPC",
    9: "NvidiaVCS",
    10: "NvidiaVWS",
    11: "NvidiaCloudGaming",
    12: "QuadroRTX",
    13: "NvidiaRTX",
    14: "Nvidia",
    15: "GeForceRTX",
    16: "TitanRTX",
}
_ADDRESSING_MODES = {0: "None", 1: "HMM", 2: "ATS"}
_CORES_PER_MULTIPROCESSOR = 128
# Volta, Turing and the data-centre Ampere have half as many.
_FEWER_CORES = {(7, 0), (7, 2), (7, 5), (8, 0)}


class NvmlMissing(OSError):
    """NVML cannot be used here: no driver, no card, or no Python binding."""


@dataclass(frozen=True, slots=True)
class MigProfile:
    """A kind of MIG instance that a card can have, and where among the card's memory slices it may start."""

    id: int
    name: str
    memory_mib: int
    multiprocessors: int
    copy_engines: int
    decoders: int
    encoders: int
    jpeg_engines: int
    ofa_engines: int
    size: int
    starts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MigInstance:
    """A MIG device that exists now."""

    uuid: str
    profile: MigProfile
    start: int
    gpu_instance: int
    compute_instance: int


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU. None stands for what NVML does not know about this card."""

    index: int
    minor: int
    uuid: str
    product_name: str
    brand: str
    architecture: str
    compute_capability: tuple[int, int]
    driver_version: str
    cuda_version: int
    memory_bytes: int
    multiprocessors: int | None
    pci_bus_id: str
    pcie_root: str | None = None
    numa_node: int | None = None
    addressing_mode: str | None = None
    is_ecc_on: bool | None = None
    power_limit_watts: int | None = None
    nvlink_peers: tuple[str, ...] = ()
    is_mig_on: bool = False
    profiles: tuple[MigProfile, ...] = ()
    instances: tuple[MigInstance, ...] = ()

    @property
    def name(self) -> str:
        return f"gpu-{self.minor}"


def load_nvml() -> Any:
    """The NVML binding, ready for use; NvmlMissing says why there is none."""
    try:
        import pynvml
    except ImportError:
        raise NvmlMissing("the NVIDIA driver needs the package nvidia-ml-py: pip install 'dray[nvidia]'") from None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise NvmlMissing(f"NVML cannot be used on this machine: {error}") from error
    return pynvml


def read_cards(nvml: Any, sysfs: Path = SYSFS) -> tuple[Card, ...]:
    """All cards that NVML lists."""
    return tuple(_CardReader(nvml, sysfs).card(index) for index in range(nvml.nvmlDeviceGetCount()))


class _CardReader:
    def __init__(self, nvml: Any, sysfs: Path) -> None:
        self._nvml = nvml
        self._sysfs = sysfs

    def card(self, index: int) -> Card:
        nvml, handle = self._nvml, self._nvml.nvmlDeviceGetHandleByIndex(index)
        capability = tuple(nvml.nvmlDeviceGetCudaComputeCapability(handle))
        bus_id = pci_address(_text(nvml.nvmlDeviceGetPciInfo(handle).busId))
        folder = self._sysfs / "bus/pci/devices" / bus_id
        profiles = tuple(self._profiles(handle))
        is_mig_on = self._is_mig_on(handle)
        return Card(
            index=index,
            minor=nvml.nvmlDeviceGetMinorNumber(handle),
            uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
            product_name=_text(nvml.nvmlDeviceGetName(handle)),
            brand=_BRANDS.get(nvml.nvmlDeviceGetBrand(handle), "Unknown"),
            architecture=_ARCHITECTURES.get(nvml.nvmlDeviceGetArchitecture(handle), "Unknown"),
            compute_capability=(capability[0], capability[1]),
            driver_version=_text(nvml.nvmlSystemGetDriverVersion()),
            cuda_version=nvml.nvmlSystemGetCudaDriverVersion(),
            memory_bytes=nvml.nvmlDeviceGetMemoryInfo(handle).total,
            multiprocessors=self._multiprocessors(handle, profiles, capability),
            pci_bus_id=bus_id,
            pcie_root=pcie_root_of(folder),
            numa_node=numa_node_of(folder),
            addressing_mode=self._addressing_mode(handle),
            is_ecc_on=self._if_known(lambda: bool(nvml.nvmlDeviceGetEccMode(handle)[0])),
            power_limit_watts=self._if_known(lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) // 1000),
            nvlink_peers=tuple(self._nvlink_peers(handle)),
            is_mig_on=is_mig_on,
            profiles=profiles,
            instances=tuple(self._instances(handle, profiles)) if is_mig_on else (),
        )

    def _if_known(self, ask: Callable[[], T]) -> T | None:
        try:
            return ask()
        except self._nvml.NVMLError:
            return None

    def _is_mig_on(self, handle: Any) -> bool:
        mode = self._if_known(lambda: self._nvml.nvmlDeviceGetMigMode(handle)[0])
        return mode == 1

    def _multiprocessors(self, handle: Any, profiles: Iterable[MigProfile], capability: tuple[int, ...]) -> int | None:
        whole = max((profile.multiprocessors for profile in profiles), default=0)
        if whole:
            return whole
        cores = self._if_known(lambda: int(self._nvml.nvmlDeviceGetNumGpuCores(handle)))
        per_multiprocessor = 64 if capability in _FEWER_CORES else _CORES_PER_MULTIPROCESSOR
        return cores // per_multiprocessor if cores else None

    def _addressing_mode(self, handle: Any) -> str | None:
        mode = self._if_known(lambda: self._nvml.nvmlDeviceGetAddressingMode(handle))
        number = getattr(mode, "value", mode)
        return None if number is None else _ADDRESSING_MODES.get(int(number))

    def _nvlink_peers(self, handle: Any) -> Iterator[str]:
        """PCI addresses at the other end of active links, each once."""
        seen: set[str] = set()
        for link in range(getattr(self._nvml, "NVML_NVLINK_MAX_LINKS", 18)):
            with contextlib.suppress(self._nvml.NVMLError):
                if not self._nvml.nvmlDeviceGetNvLinkState(handle, link):
                    continue
                address = pci_address(_text(self._nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId))
                if address not in seen:
                    seen.add(address)
                    yield address

    # --- MIG

    def _profiles(self, handle: Any) -> Iterator[MigProfile]:
        for number in range(self._nvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
            with contextlib.suppress(self._nvml.NVMLError):
                info = self._nvml.nvmlDeviceGetGpuInstanceProfileInfo(handle, number)
                yield self._profile(handle, info)

    def _profile(self, handle: Any, info: Any) -> MigProfile:
        places = self._if_known(lambda: placements(self._nvml, handle, info.id)) or []
        return MigProfile(
            id=info.id,
            name=_text(info.name).removeprefix("MIG "),
            memory_mib=info.memorySizeMB,
            multiprocessors=info.multiprocessorCount,
            copy_engines=info.copyEngineCount,
            decoders=info.decoderCount,
            encoders=info.encoderCount,
            jpeg_engines=info.jpegCount,
            ofa_engines=info.ofaCount,
            size=max((place.size for place in places), default=0),
            starts=tuple(sorted(place.start for place in places)),
        )

    def _instances(self, handle: Any, profiles: Iterable[MigProfile]) -> Iterator[MigInstance]:
        nvml = self._nvml
        by_id = {profile.id: profile for profile in profiles}
        for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
            device = self._if_known(partial(nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, index))
            if device is None:
                continue
            gpu_instance = nvml.nvmlDeviceGetGpuInstanceId(device)
            info = nvml.nvmlGpuInstanceGetInfo(nvml.nvmlDeviceGetGpuInstanceById(handle, gpu_instance))
            yield MigInstance(
                uuid=_text(nvml.nvmlDeviceGetUUID(device)),
                profile=by_id[info.profileId],
                start=info.placement.start,
                gpu_instance=gpu_instance,
                compute_instance=nvml.nvmlDeviceGetComputeInstanceId(device),
            )


def placements(nvml: Any, handle: Any, profile_id: int) -> list[Any]:
    """Where a GPU instance of the profile may lie among the card's memory slices."""
    count = ctypes.c_uint(0)
    nvml.nvmlDeviceGetGpuInstancePossiblePlacements(handle, profile_id, None, ctypes.byref(count))
    found = (nvml.c_nvmlGpuInstancePlacement_t * count.value)()
    nvml.nvmlDeviceGetGpuInstancePossiblePlacements(handle, profile_id, found, ctypes.byref(count))
    return list(found)[: count.value]


def pci_address(text: str) -> str:
    """NVML's `00000000:00:06.0` as the kernel writes it: `0000:00:06.0`."""
    domain, _, rest = text.partition(":")
    return f"{int(domain, 16):04x}:{rest}".lower()


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
