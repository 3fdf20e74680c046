"""Cards and MIG instances as DRA devices, under the names that NVIDIA's own driver gives them. Pure."""

from collections.abc import Iterable, Mapping

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
from dray.driver.nvidia.cards import Card, MigInstance, MigProfile

_GIB = 1 << 30
_MIB = 1 << 20


def devices_of(
    card: Card, *, is_shared: bool = False, has_partitions: bool = False, taints: tuple[DeviceTaint, ...] = ()
) -> tuple[Device, ...]:
    """What one card offers: itself, or its MIG instances where MIG is on.

    With `is_shared`, claims may take a part of a card. With `has_partitions`, a card with MIG on offers each partition that
    it could have, and the counters of `counter_set_of` keep them apart.
    """
    if card.is_mig_on and has_partitions:
        return tuple(_partition(card, profile, start, taints) for profile in card.profiles for start in profile.starts)
    if card.is_mig_on:
        return tuple(_instance(card, instance, taints) for instance in card.instances)
    return (_whole(card, is_shared, taints),)


def counter_set_of(card: Card) -> CounterSet:
    """What all partitions of a card draw from: one counter for each memory slice and each kind of engine."""
    most: dict[str, int] = {}
    for profile in card.profiles:
        for name, count in _engines(profile).items():
            most[name] = max(most.get(name, 0), count)
    slices = max((start + profile.size for profile in card.profiles for start in profile.starts), default=0)
    counters = {_counter_name(name): count for name, count in most.items()} | _memory_slices(0, slices)
    return CounterSet(name=_counter_set_name(card), counters=_counters(counters))


def partition_name(card: Card, profile: MigProfile, start: int) -> str:
    name = profile.name.replace(".", "").replace("+", "-").lower()
    return f"{card.name}-mig-{name}-{profile.id}-{start}"


def largest_share(card: Card) -> int:
    """The memory that one claim can take of a shared card, in bytes: whole GiB."""
    return card.memory_bytes // _GIB * _GIB


def _whole(card: Card, is_shared: bool, taints: tuple[DeviceTaint, ...]) -> Device:
    capacity = {"memory": DeviceCapacity(value=_bytes(card.memory_bytes))}
    if is_shared:
        capacity = {"memory": _shared_memory(card)}
        if card.multiprocessors:
            capacity["multiprocessors"] = _shared_multiprocessors(card.multiprocessors)
    return Device(
        name=card.name,
        attributes={"type": _string("gpu"), "uuid": _string(card.uuid), **_common_attributes(card)},
        capacity=capacity,
        allow_multiple_allocations=True if is_shared else None,
        taints=taints,
    )


def _shared_memory(card: Card) -> DeviceCapacity:
    """A claim that does not say how much it needs gets all of it, and thus the card for itself."""
    everything = Quantity.parse(f"{largest_share(card) // _GIB}Gi")
    gib = Quantity.parse("1Gi")
    policy = CapacityRequestPolicy(
        default=everything, valid_range=CapacityRequestPolicyRange(min=gib, max=everything, step=gib)
    )
    return DeviceCapacity(value=_bytes(card.memory_bytes), request_policy=policy)


def _shared_multiprocessors(count: int) -> DeviceCapacity:
    """Zero, the default, sets no limit: the card's own scheduler shares out the time."""
    one, nothing = Quantity.parse("1"), Quantity.parse("0")
    valid = CapacityRequestPolicyRange(min=nothing, max=Quantity.parse(count), step=one)
    return DeviceCapacity(
        value=Quantity.parse(count), request_policy=CapacityRequestPolicy(default=nothing, valid_range=valid)
    )


def _instance(card: Card, instance: MigInstance, taints: tuple[DeviceTaint, ...]) -> Device:
    profile = instance.profile
    slices = {f"memorySlice{i}": _amount(1) for i in range(instance.start, instance.start + profile.size)}
    return Device(
        name=partition_name(card, profile, instance.start),
        attributes={"uuid": _string(instance.uuid), **_partition_attributes(card, profile)},
        capacity=_partition_capacity(profile) | slices,
        taints=taints,
    )


def _partition(card: Card, profile: MigProfile, start: int, taints: tuple[DeviceTaint, ...]) -> Device:
    counters = {_counter_name(name): count for name, count in _engines(profile).items()}
    counters |= _memory_slices(start, profile.size)
    return Device(
        name=partition_name(card, profile, start),
        attributes=_partition_attributes(card, profile),
        capacity=_partition_capacity(profile),
        consumes_counters=(
            DeviceCounterConsumption(counter_set=_counter_set_name(card), counters=_counters(counters)),
        ),
        taints=taints,
    )


# --- attributes


def _common_attributes(card: Card) -> dict[str, DeviceAttribute]:
    major, minor = card.compute_capability
    attributes = {
        "productName": _string(card.product_name),
        "brand": _string(card.brand),
        "architecture": _string(card.architecture),
        "cudaComputeCapability": _version([major, minor, 0]),
        "driverVersion": _version(card.driver_version.split(".")),
        "cudaDriverVersion": _version([card.cuda_version // 1000, card.cuda_version % 1000 // 10, 0]),
        "resource.kubernetes.io/pciBusID": _string(card.pci_bus_id),
    }
    if card.pcie_root is not None:
        attributes["resource.kubernetes.io/pcieRoot"] = _string(card.pcie_root)
    if card.addressing_mode is not None:
        attributes["addressingMode"] = _string(card.addressing_mode)
    if card.numa_node is not None:
        attributes["numaNode"] = DeviceAttribute(int_=card.numa_node)
    if card.is_ecc_on is not None:
        attributes["eccEnabled"] = DeviceAttribute(bool_=card.is_ecc_on)
    if card.power_limit_watts is not None:
        attributes["powerLimitWatts"] = DeviceAttribute(int_=card.power_limit_watts)
    if card.nvlink_peers:
        attributes["nvlinkPeers"] = DeviceAttribute(strings=card.nvlink_peers)
    return attributes


def _partition_attributes(card: Card, profile: MigProfile) -> dict[str, DeviceAttribute]:
    return {
        "type": _string("mig"),
        "parentUUID": _string(card.uuid),
        "profile": _string(profile.name),
        **_common_attributes(card),
    }


def _string(text: str) -> DeviceAttribute:
    return DeviceAttribute(string=text)


def _version(parts: Iterable[str | int]) -> DeviceAttribute:
    """Three numbers, without leading zeros: `580.159.04` is 580.159.4."""
    numbers = [int(part) for part in parts][:3]
    return DeviceAttribute(version=".".join(map(str, [*numbers, 0, 0, 0][:3])))


# --- capacity and counters


def _engines(profile: MigProfile) -> dict[str, int]:
    return {
        "multiprocessors": profile.multiprocessors,
        "copyEngines": profile.copy_engines,
        "decoders": profile.decoders,
        "encoders": profile.encoders,
        "jpegEngines": profile.jpeg_engines,
        "ofaEngines": profile.ofa_engines,
        "memory": profile.memory_mib * _MIB,
    }


def _partition_capacity(profile: MigProfile) -> dict[str, DeviceCapacity]:
    engines = _engines(profile)
    memory = engines.pop("memory")
    return {name: _amount(count) for name, count in engines.items()} | {"memory": DeviceCapacity(value=_bytes(memory))}


def _memory_slices(start: int, size: int) -> dict[str, int]:
    return {f"memory-slice-{i}": 1 for i in range(start, start + size)}


def _counters(counts: Mapping[str, int]) -> dict[str, Counter]:
    return {
        name: Counter(value=_bytes(count) if name == "memory" else Quantity.parse(count))
        for name, count in counts.items()
    }


def _counter_set_name(card: Card) -> str:
    return f"{card.name}-counter-set"


def _counter_name(capacity: str) -> str:
    """`copyEngines` as a counter is `copy-engines`: counters are DNS labels."""
    return "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in capacity)


def _amount(count: int) -> DeviceCapacity:
    return DeviceCapacity(value=Quantity.parse(count))


def _bytes(count: int) -> Quantity:
    return Quantity.parse(f"{count // _MIB}Mi" if count % _MIB == 0 else str(count))
