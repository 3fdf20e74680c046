"""Made-up GPUs from a profile: whole cards, partitions over counters, or shares; with taints and failures on demand."""

from collections.abc import Iterable, Mapping
from functools import cache, cached_property
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
import yaml

from dray.api.cdi import ContainerEdits
from dray.api.quantity import Quantity
from dray.api.resource import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    Counter,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceCounterConsumption,
    DeviceTaint,
)
from dray.driver.plugin import (
    AllocatedDevice,
    ClaimToPrepare,
    DeviceConfig,
    DeviceHealth,
    Driver,
    Pool,
    PreparedDevice,
    PrepareError,
)


class Partition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A kind of partition: how much it takes, and where in the card's memory it may start."""

    name: str
    memory: str
    slices: int
    places: tuple[int, ...]
    engines: dict[str, int] = {}


class ShareRange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a claim may take of a capacity; without a value it is the card's own amount."""

    default: str
    min: str
    step: str
    value: str = ""


class GpuProfile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A node's cards. Cards have partitions or are shared, not both."""

    driver: str
    cards: int
    model: str
    memory: str
    version: str = "1.0.0"
    attributes: dict[str, str] = {}
    engines: dict[str, int] = {}
    memory_slices: int = 0
    partitions: tuple[Partition, ...] = ()
    sharing: dict[str, ShareRange] = {}
    taints: dict[str, tuple[DeviceTaint, ...]] = {}


class Faults(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What shall go wrong, by device name: for trying out how a cluster copes."""

    prepare: dict[str, str] = {}
    unprepare: dict[str, str] = {}
    unhealthy: dict[str, str] = {}
    taints: dict[str, tuple[DeviceTaint, ...]] = {}


class GpuConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Opaque parameters of this driver: `{"kind": "GpuConfig", "timeSlice": "Short"}`.

    `debugging` opens the card's debug interface, through which one can see the memory of others: only a class may say it.
    """

    kind: str = "GpuConfig"
    time_slice: str = "Default"
    debugging: bool = False


TIME_SLICES = ("Default", "Short", "Medium", "Long")


def load_profile(name: str) -> GpuProfile:
    """A profile that comes with Dray, by name, or any other by its path."""
    shipped = resources.files("dray.driver.example") / "profiles" / f"{name}.yaml"
    text = shipped.read_text() if shipped.is_file() else Path(name).read_text()
    return msgspec.convert(yaml.safe_load(text), GpuProfile)


class GpuDriver(Driver):
    def __init__(self, profile: GpuProfile, faults: Path | None = None) -> None:
        self.name = profile.driver
        self._profile = profile
        self._faults_file = faults

    def check_config(self, config: DeviceConfig) -> None:
        _checked(config)

    def pools(self, node_name: str) -> Iterable[Pool]:
        devices = self._devices() if self._faults_file is not None else self._devices_without_faults
        counters = tuple(map(self._counter_set, self._cards())) if self._profile.partitions else ()
        return [Pool(node_name, devices, counters)]

    @cached_property
    def _devices_without_faults(self) -> tuple[Device, ...]:
        """The same on every node and at any time."""
        return self._devices()

    def _devices(self) -> tuple[Device, ...]:
        cards = list(enumerate(self._cards()))
        partitions = (each for index, card in cards for each in self._partitions(card, index))
        return (*(self._card(card, index) for index, card in cards), *partitions)

    def _cards(self) -> list[str]:
        return [f"gpu-{index}" for index in range(self._profile.cards)]

    # --- devices

    def _card(self, name: str, index: int) -> Device:
        profile = self._profile
        capacity = {"memory": DeviceCapacity(value=Quantity.parse(profile.memory))}
        if profile.sharing:
            capacity |= {key: self._shared(key, each) for key, each in profile.sharing.items()}
        consumption = (DeviceCounterConsumption(counter_set=f"{name}-counters", counters=self._all_counters()),)
        return Device(
            name=name,
            attributes=self._attributes("gpu", index),
            capacity=capacity,
            consumes_counters=consumption if profile.partitions else (),
            allow_multiple_allocations=True if profile.sharing else None,
            taints=self._taints(name),
        )

    def _shared(self, key: str, share: ShareRange) -> DeviceCapacity:
        valid = CapacityRequestPolicyRange(min=Quantity.parse(share.min), step=Quantity.parse(share.step))
        policy = CapacityRequestPolicy(default=Quantity.parse(share.default), valid_range=valid)
        value = share.value or (self._profile.memory if key == "memory" else "1")
        return DeviceCapacity(value=Quantity.parse(value), request_policy=policy)

    def _partitions(self, card: str, index: int) -> Iterable[Device]:
        for kind in self._profile.partitions:
            for place in kind.places:
                name = f"{card}-{kind.name.replace('.', '-')}-{place}"
                counters = {f"memory-slice-{place + i}": _counter(1) for i in range(kind.slices)}
                counters |= {engine: _counter(count) for engine, count in kind.engines.items()}
                yield Device(
                    name=name,
                    attributes=self._attributes("partition", index)
                    | {"profile": DeviceAttribute(string=kind.name), "parentCard": DeviceAttribute(string=card)},
                    capacity={
                        "memory": DeviceCapacity(value=Quantity.parse(kind.memory)),
                        **{
                            _camel(engine): DeviceCapacity(value=Quantity.parse(count))
                            for engine, count in kind.engines.items()
                        },
                    },
                    consumes_counters=(DeviceCounterConsumption(counter_set=f"{card}-counters", counters=counters),),
                    taints=self._taints(card) or self._taints(name),
                )

    def _attributes(self, type_: str, index: int) -> dict[str, DeviceAttribute]:
        profile = self._profile
        return {
            "type": DeviceAttribute(string=type_),
            "model": DeviceAttribute(string=profile.model),
            "index": DeviceAttribute(int_=index),
            "driverVersion": DeviceAttribute(version=profile.version),
            "resource.kubernetes.io/pcieRoot": DeviceAttribute(string=f"pci0000:{index // 2:02x}"),
            "resource.kubernetes.io/pciBusID": DeviceAttribute(string=f"0000:{0x10 + index:02x}:00.0"),
            **{key: DeviceAttribute(string=value) for key, value in profile.attributes.items()},
        }

    def _counter_set(self, card: str) -> CounterSet:
        return CounterSet(name=f"{card}-counters", counters=self._all_counters())

    def _all_counters(self) -> dict[str, Counter]:
        slices = {f"memory-slice-{i}": _counter(1) for i in range(self._profile.memory_slices)}
        return slices | {engine: _counter(count) for engine, count in self._profile.engines.items()}

    def _taints(self, device: str) -> tuple[DeviceTaint, ...]:
        return self._profile.taints.get(device, ()) + self._faults().taints.get(device, ())

    # --- claims

    def prepare(self, claim: ClaimToPrepare) -> Iterable[PreparedDevice]:
        faults = self._faults()
        for device in claim.devices:
            if device.device in faults.prepare:
                raise PrepareError(faults.prepare[device.device])
        return [
            PreparedDevice(device, ContainerEdits(env=self._environment(claim, device))) for device in claim.devices
        ]

    def unprepare(self, claim: Any) -> None:
        for text in self._faults().unprepare.values():
            raise PrepareError(text)

    def _environment(self, claim: ClaimToPrepare, device: AllocatedDevice) -> tuple[str, ...]:
        config = _config_of(device.config)
        key = device.device.upper().replace("-", "_")
        entries = {
            f"GPU_DEVICE_{key}": device.device,
            f"GPU_DEVICE_{key}_CLAIM": claim.reference.name,
            f"GPU_DEVICE_{key}_TIME_SLICE": config.time_slice,
        }
        entries |= {f"GPU_DEVICE_{key}_{_word(name)}": str(amount) for name, amount in device.consumed_capacity.items()}
        if config.debugging:
            entries[f"GPU_DEVICE_{key}_DEBUGGING"] = "true"
        if device.share_id:
            entries[f"GPU_DEVICE_{key}_SHARE"] = device.share_id
        return tuple(f"{name}={value}" for name, value in entries.items())

    def health(self) -> Iterable[DeviceHealth]:
        unhealthy = self._faults().unhealthy
        # A pool is named after its node; the kubelet asks on the node itself, so every pool is meant.
        return [
            DeviceHealth(pool, name, "Unhealthy" if name in unhealthy else "Healthy", unhealthy.get(name, ""))
            for pool, names in self._published.items()
            for name in names
        ]

    @property
    def _published(self) -> Mapping[str, list[str]]:
        return {pool.name: [device.name for device in pool.devices] for pool in self.published_pools}

    def _faults(self) -> Faults:
        if self._faults_file is None or not self._faults_file.exists():
            return Faults()
        return msgspec.convert(yaml.safe_load(self._faults_file.read_text()) or {}, Faults)


@cache
def _counter(count: int) -> Counter:
    return Counter(value=Quantity.parse(count))


def _config_of(configs: Iterable[DeviceConfig]) -> GpuConfig:
    """The last of the given parameters, checked; PrepareError tells the user what is wrong with them."""
    config = GpuConfig()
    for each in configs:
        config = _checked(each)
    return config


def _checked(given: DeviceConfig) -> GpuConfig:
    config = given.read(GpuConfig)
    if config.kind != "GpuConfig":
        raise PrepareError(f"opaque parameters: kind {config.kind!r} is not known, must be GpuConfig")
    if config.debugging and not given.is_from_class:
        raise PrepareError("opaque parameters: debugging can be set only by a DeviceClass, not by a claim")
    if config.time_slice not in TIME_SLICES:
        raise PrepareError(
            f"opaque parameters: timeSlice {config.time_slice!r}: must be one of {', '.join(TIME_SLICES)}"
        )
    return config


def _camel(name: str) -> str:
    """A counter's name as a capacity's: capacities are C identifiers."""
    first, *rest = name.split("-")
    return first + "".join(word.capitalize() for word in rest)


def _word(name: str) -> str:
    return "".join(character if character.isalnum() else "_" for character in name).upper()
