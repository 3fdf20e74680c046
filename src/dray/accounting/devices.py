"""What devices declare to take from their node, in all spellings, as one value."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dray.accounting.charges import Policy
from dray.accounting.errors import NotNodeAllocatable, SpellingConflict, UnknownCapacityKey
from dray.accounting.resources import is_node_allocatable, is_pod_level_resource
from dray.api.quantity import Quantity
from dray.api.resource import Device, NodeAllocatableMapping, ResourceSlice

_ONE = Quantity.of(1)


@dataclass(frozen=True, slots=True)
class DeviceNeed:
    """What allocating a device takes of one resource: `multiplier` per device, or per unit of a capacity."""

    resource: str
    capacity_key: str | None
    multiplier: Quantity | None
    policy: Policy | None
    per_pod: Quantity | None = None
    per_container: Quantity | None = None
    in_mapping_list: bool = False


@dataclass(frozen=True, slots=True)
class PublishedDevice:
    """A device as its newest slice shows it."""

    driver: str
    pool: str
    generation: int
    slice_name: str
    device: Device

    @property
    def declares_needs(self) -> bool:
        return bool(self.device.node_allocatable_resources or self.device.node_allocatable_resource_mappings)


def device_needs(device: Device) -> tuple[DeviceNeed, ...]:
    """Everything the device declares, checked; `AccountingError` if it cannot be counted."""
    today, kep = device.node_allocatable_resources, device.node_allocatable_resource_mappings
    if today and kep:
        raise SpellingConflict(
            f"device {device.name}: nodeAllocatableResources and nodeAllocatableResourceMappings exclude each other"
        )
    needs = [*_needs_of_today(device), *_needs_of_kep(device)]
    for need in needs:
        _check(device, need)
    return tuple(needs)


def _needs_of_today(device: Device) -> Iterable[DeviceNeed]:
    for resource, entry in device.node_allocatable_resources.items():
        mapping, overhead = entry.mapping, entry.overhead
        yield DeviceNeed(
            resource,
            mapping.capacity_key if mapping else None,
            _multiplier(mapping) if mapping else None,
            policy=None,
            per_pod=overhead.per_pod if overhead else None,
            per_container=overhead.per_container if overhead else None,
            in_mapping_list=True,
        )


def _multiplier(mapping: NodeAllocatableMapping) -> Quantity | None:
    if mapping.capacity_key is None:
        return mapping.device_multiplier
    return _ONE if mapping.capacity_multiplier is None else mapping.capacity_multiplier


def _needs_of_kep(device: Device) -> Iterable[DeviceNeed]:
    for resource, mapping in device.node_allocatable_resource_mappings.items():
        policy = Policy.named(mapping.accounting_policy) if mapping.accounting_policy else None
        multiplier = _ONE if mapping.allocation_multiplier is None else mapping.allocation_multiplier
        yield DeviceNeed(resource, mapping.capacity_key, multiplier, policy)


def _check(device: Device, need: DeviceNeed) -> None:
    # Kubernetes 1.37 knows fewer names than the KEP, which also lets a device need ephemeral storage.
    allowed = is_pod_level_resource if need.in_mapping_list else is_node_allocatable
    if not allowed(need.resource):
        raise NotNodeAllocatable(f"device {device.name}: {need.resource} must be a node allocatable resource name")
    if need.capacity_key is not None and need.capacity_key not in device.capacity:
        raise UnknownCapacityKey(
            f"device {device.name}: {need.resource} is mapped from capacity {need.capacity_key}, "
            "which the device does not have"
        )


DeviceKey = tuple[str, str, str]


class DeviceIndex:
    """Published devices by driver, pool and name, brought forward slice by slice."""

    def __init__(self, slices: Iterable[ResourceSlice] = ()) -> None:
        self._devices: dict[DeviceKey, PublishedDevice] = {}
        # Other slices with the same device, by slice: what is left of older generations.
        self._shadowed: dict[DeviceKey, dict[str, PublishedDevice]] = {}
        self._keys_by_slice: dict[str, list[DeviceKey]] = {}
        self._needs: dict[DeviceKey, tuple[DeviceNeed, ...]] = {}
        for published in slices:
            self.apply(published)

    def apply(self, published: ResourceSlice) -> None:
        """Enter a new or changed slice. Of two slices with one device, the newer generation counts."""
        name, spec = published.metadata.name, published.spec
        self.drop(name)
        keys = self._keys_by_slice[name] = []
        for device in spec.devices:
            key = (spec.driver, spec.pool.name, device.name)
            keys.append(key)
            self._enter(key, PublishedDevice(spec.driver, spec.pool.name, spec.pool.generation, name, device))

    def _enter(self, key: DeviceKey, published: PublishedDevice) -> None:
        present = self._devices.get(key)
        if present is not None and present.slice_name != published.slice_name:
            older, published = sorted((present, published), key=lambda each: each.generation)
            self._shadowed.setdefault(key, {})[older.slice_name] = older
        self._devices[key] = published
        self._needs.pop(key, None)

    def drop(self, slice_name: str) -> None:
        for key in self._keys_by_slice.pop(slice_name, ()):
            others = self._shadowed.pop(key, {})
            others.pop(slice_name, None)
            present = self._devices.get(key)
            if present is not None and present.slice_name == slice_name:
                del self._devices[key]
                self._needs.pop(key, None)
            for other in others.values():
                self._enter(key, other)

    def find(self, driver: str, pool: str, device: str) -> PublishedDevice | None:
        return self._devices.get((driver, pool, device))

    def needs(self, published: PublishedDevice) -> tuple[DeviceNeed, ...]:
        """`device_needs`, worked out once per published device."""
        if not published.declares_needs:
            return ()
        key = (published.driver, published.pool, published.device.name)
        found = self._needs.get(key)
        if found is None:
            found = self._needs[key] = device_needs(published.device)
        return found
