"""The amounts that devices declare to take from their node; all spellings become one value."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from dray.accounting.charges import Policy
from dray.accounting.errors import NotNodeAllocatable, SpellingConflict, UnknownCapacityKey
from dray.accounting.resources import is_node_allocatable
from dray.api.dra.consumption import plain_name
from dray.api.dra.qos import is_pod_level_resource
from dray.api.quantity import Quantity
from dray.api.resource import Device, NodeAllocatableMapping, ResourceSlice

_ONE = Quantity.of(1)


@dataclass(frozen=True, slots=True)
class DeviceNeed:
    """The amount of one resource that the allocation of a device takes: `multiplier` per device, or per unit of a capacity."""

    resource: str
    capacity_key: str | None
    multiplier: Quantity | None
    policy: Policy | None
    per_pod: Quantity | None = None
    per_container: Quantity | None = None
    in_mapping_list: bool = False


@dataclass(frozen=True, slots=True)
class IndexedDevice:
    """A device as its newest slice shows it."""

    driver: str
    pool: str
    generation: int
    slice_name: str
    device: Device

    @property
    def declares_needs(self) -> bool:
        return bool(self.device.node_allocatable_resources or self.device.node_allocatable_resource_mappings)


def device_needs(device: Device, driver: str = "") -> tuple[DeviceNeed, ...]:
    """Everything the device declares, checked; `AccountingError` if it cannot be counted.

    A capacity key names a capacity of the device; the domain of its own driver may be there or not, on either side.
    """
    today, kep = device.node_allocatable_resources, device.node_allocatable_resource_mappings
    if today and kep:
        raise SpellingConflict(
            f"device {device.name}: nodeAllocatableResources and nodeAllocatableResourceMappings exclude each other"
        )
    needs = [*_needs_of_today(device), *_needs_of_kep(device)]
    for need in needs:
        _check(device, need)
    return tuple([_with_published_key(device, driver, need) for need in needs])


def _with_published_key(device: Device, driver: str, need: DeviceNeed) -> DeviceNeed:
    """The need with its capacity key as the device publishes it."""
    key = need.capacity_key
    if key is None or key in device.capacity:
        return need
    plain = plain_name(key, driver)
    for published in device.capacity:
        if plain_name(published, driver) == plain:
            return replace(need, capacity_key=published)
    raise UnknownCapacityKey(
        f"device {device.name}: {need.resource} is mapped from capacity {key}, which the device does not have"
    )


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


PoolKey = tuple[str, str]


class DeviceIndex:
    """Published devices by driver, pool and name, brought forward slice by slice.

    The devices of a pool are looked through when first asked for: most pools of a large cluster never are.
    """

    def __init__(self, slices: Iterable[ResourceSlice] = ()) -> None:
        self._pool_by_slice: dict[str, PoolKey] = {}
        # The slices of a pool by name, the one that came last at the end.
        self._slices: dict[PoolKey, dict[str, ResourceSlice]] = {}
        self._devices: dict[PoolKey, dict[str, IndexedDevice]] = {}
        self._needs: dict[PoolKey, dict[str, tuple[DeviceNeed, ...]]] = {}
        for published in slices:
            self.apply(published)

    def apply(self, published: ResourceSlice) -> None:
        """Enter a new or changed slice. Of two slices with one device, the newer generation counts."""
        name, spec = published.metadata.name, published.spec
        self.drop(name)
        pool = self._pool_by_slice[name] = (spec.driver, spec.pool.name)
        self._slices.setdefault(pool, {})[name] = published
        self._forget(pool)

    def drop(self, slice_name: str) -> None:
        pool = self._pool_by_slice.pop(slice_name, None)
        if pool is None:
            return
        del self._slices[pool][slice_name]
        if not self._slices[pool]:
            del self._slices[pool]
        self._forget(pool)

    def _forget(self, pool: PoolKey) -> None:
        self._devices.pop(pool, None)
        self._needs.pop(pool, None)

    def find(self, driver: str, pool: str, device: str) -> IndexedDevice | None:
        key = (driver, pool)
        known = self._devices.get(key)
        if known is None:
            if key not in self._slices:
                return None
            known = self._devices[key] = _devices_by_name(self._slices[key].values())
        return known.get(device)

    def needs(self, published: IndexedDevice) -> tuple[DeviceNeed, ...]:
        """`device_needs`, worked out once per published device."""
        if not published.declares_needs:
            return ()
        needs = self._needs.setdefault((published.driver, published.pool), {})
        found = needs.get(published.device.name)
        if found is None:
            found = needs[published.device.name] = device_needs(published.device, published.driver)
        return found


def _devices_by_name(slices: Iterable[ResourceSlice]) -> dict[str, IndexedDevice]:
    oldest_first = sorted(slices, key=lambda each: each.spec.pool.generation)
    return {
        device.name: IndexedDevice(spec.driver, spec.pool.name, spec.pool.generation, published.metadata.name, device)
        for published in oldest_first
        for spec in (published.spec,)
        for device in spec.devices
    }
