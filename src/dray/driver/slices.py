"""Which writes turn the published slices of a pool into the desired ones. Pure.

Slices of a pool are numbered; the number leads the object's name, since consumers try slices in the order of names. A pool
whose slices change in more than one place gets a new generation, so that nobody sees a mixture.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from msgspec import structs

from dray.api.meta import ObjectMeta, OwnerReference
from dray.api.quantity import Quantity
from dray.api.resource import (
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceTaint,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from dray.driver.plugin import Pool, PoolSlice

MAX_DEVICES = 128
MAX_DEVICES_WITH_DETAILS = 64
MAX_COUNTER_SETS = 8
MIN_INDEX_DIGITS = 5


Lower = Callable[[int, ResourceSliceSpec], ResourceSliceSpec]


class PoolError(ValueError):
    """The described pool contradicts itself; the server would refuse it."""


@dataclass(frozen=True, slots=True)
class Publisher:
    """The driver and node that publish; part of every slice."""

    driver: str
    node_name: str = ""
    owner: OwnerReference | None = None


@dataclass(frozen=True, slots=True)
class SlicePlan:
    """Writes, to be done in this order."""

    deletes: tuple[ResourceSlice, ...] = ()
    updates: tuple[ResourceSlice, ...] = ()
    creates: tuple[ResourceSlice, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.deletes or self.updates or self.creates)


def split_pool(pool: Pool) -> tuple[PoolSlice, ...]:
    """The pool as slices that the API server accepts; an empty pool is one empty slice, which shows that the driver is up."""
    if pool.slices:
        return pool.slices
    per_device = any(d.node_name is not None or d.node_selector is not None or d.all_nodes for d in pool.devices)
    limit = MAX_DEVICES_WITH_DETAILS if any(map(_has_details, pool.devices)) else MAX_DEVICES
    counters = [
        PoolSlice(shared_counters=pool.shared_counters[i : i + MAX_COUNTER_SETS], per_device_node_selection=per_device)
        for i in range(0, len(pool.shared_counters), MAX_COUNTER_SETS)
    ]
    devices = [
        PoolSlice(devices=pool.devices[i : i + limit], per_device_node_selection=per_device)
        for i in range(0, len(pool.devices), limit)
    ]
    return tuple(counters + devices) or (PoolSlice(),)


def _has_details(device: Device) -> bool:
    """Devices with taints, counters or list attributes are larger, so fewer go into a slice."""
    lists = (
        a.ints is not None or a.bools is not None or a.strings is not None or a.versions is not None
        for a in device.attributes.values()
    )
    return bool(device.taints or device.consumes_counters) or any(lists)


def check_pool(pool: Pool) -> None:
    """Raise PoolError where devices or counters of the pool cannot belong together, or are something else than they must be."""
    _refuse_wrong_types(pool)
    slices = split_pool(pool)
    _refuse_duplicates(pool.name, "device", [device.name for each in slices for device in each.devices])
    _refuse_duplicates(pool.name, "counter set", [s.name for each in slices for s in each.shared_counters])
    counters = {s.name: set(s.counters) for each in slices for s in each.shared_counters}
    for device in (device for each in slices for device in each.devices):
        for consumption in device.consumes_counters:
            known = counters.get(consumption.counter_set)
            if known is None:
                raise PoolError(
                    f"pool {pool.name}, device {device.name}: counter set {consumption.counter_set} does not exist in the pool"
                )
            for counter in consumption.counters:
                if counter not in known:
                    raise PoolError(
                        f"pool {pool.name}, device {device.name}: counter {counter} does not exist in counter set {consumption.counter_set}"
                    )


def _refuse_wrong_types(pool: Pool) -> None:
    """What a dynamic language lets slip; later it would fail far from its cause."""
    for device in (*pool.devices, *(device for each in pool.slices for device in each.devices)):
        if not isinstance(device, Device):
            raise PoolError(f"pool {pool.name}: its devices must be Device, not {type(device).__name__}")
        where = f"pool {pool.name}, device {device.name}"
        for name, attribute in device.attributes.items():
            if not isinstance(attribute, DeviceAttribute):
                raise PoolError(f"{where}: attribute {name} must be a DeviceAttribute, not {attribute!r}")
        for name, capacity in device.capacity.items():
            if not isinstance(capacity, DeviceCapacity):
                raise PoolError(f"{where}: capacity {name} must be a DeviceCapacity, not {capacity!r}")
            if not isinstance(capacity.value, Quantity):
                raise PoolError(f"{where}: capacity {name} must be a Quantity: Quantity.parse({capacity.value!r})")


def _refuse_duplicates(pool: str, what: str, names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise PoolError(f"pool {pool}: {what} {name} is there twice")
        seen.add(name)


def desired_specs(publisher: Publisher, pool: Pool, generation: int) -> list[ResourceSliceSpec]:
    slices = split_pool(pool)
    is_local = pool.node_selector is None and not pool.all_nodes
    return [
        ResourceSliceSpec(
            driver=publisher.driver,
            pool=ResourcePool(name=pool.name, generation=generation, resource_slice_count=len(slices)),
            node_name=publisher.node_name if is_local and not each.per_device_node_selection else None,
            node_selector=None if each.per_device_node_selection else pool.node_selector,
            all_nodes=True if pool.all_nodes and not each.per_device_node_selection else None,
            per_device_node_selection=True if each.per_device_node_selection else None,
            devices=each.devices,
            shared_counters=each.shared_counters,
            partition_type_attribute=each.partition_type_attribute,
            skip_node_operations=each.skip_node_operations,
        )
        for each in slices
    ]


def plan_pool(
    publisher: Publisher, pool: Pool, existing: Iterable[ResourceSlice], lower: Lower = lambda index, spec: spec
) -> SlicePlan:
    """The fewest writes that publish `pool`, given its slices of now.

    `lower` cuts a spec down to what the server is known to store.
    """
    existing = list(existing)
    newest = max((each.spec.pool.generation for each in existing), default=0)
    generation = max(newest, pool.generation)
    desired = [lower(i, spec) for i, spec in enumerate(desired_specs(publisher, pool, generation))]
    by_index, obsolete = _match(desired, existing, newest)
    specs = [_keep_taint_times(spec, by_index.get(i)) for i, spec in enumerate(desired)]
    changed = [i for i, spec in enumerate(specs) if i in by_index and not same_spec(by_index[i].spec, spec)]
    missing = [i for i in range(len(specs)) if i not in by_index]
    if generation == newest and (missing or len(changed) > 1):
        generation = newest + 1
        specs = [with_generation(spec, generation) for spec in specs]
        changed = sorted(by_index)
    elif generation > newest:
        changed = sorted(by_index)
    digits = max(MIN_INDEX_DIGITS, len(f"{len(specs) - 1:x}"))
    return SlicePlan(
        deletes=tuple(obsolete),
        updates=tuple(structs.replace(by_index[i], spec=specs[i]) for i in changed),
        creates=tuple(_new_slice(publisher, specs[i], f"{i:0{digits}x}") for i in missing),
    )


def _match(
    desired: Sequence[ResourceSliceSpec], existing: Sequence[ResourceSlice], newest: int
) -> tuple[dict[int, ResourceSlice], list[ResourceSlice]]:
    """Existing slices by their number, and those that cannot become a desired one: a slice's node never changes."""
    by_index: dict[int, ResourceSlice] = {}
    obsolete: list[ResourceSlice] = []
    for each in sorted(existing, key=lambda s: s.metadata.name):
        index = index_of(each)
        is_usable = (
            index is not None
            and index < len(desired)
            and index not in by_index
            and each.spec.pool.generation == newest
            and each.spec.node_name == desired[index].node_name
        )
        if index is not None and is_usable:
            by_index[index] = each
        else:
            obsolete.append(each)
    return by_index, obsolete


def index_of(slice_: ResourceSlice) -> int | None:
    """The number that leads a slice's name; None for a name that this kit did not make."""
    head, separator, _ = slice_.metadata.name.partition("-")
    if not separator or len(head) < MIN_INDEX_DIGITS or any(c not in "0123456789abcdef" for c in head):
        return None
    return int(head, 16)


def _new_slice(publisher: Publisher, spec: ResourceSliceSpec, index: str) -> ResourceSlice:
    owner = publisher.owner
    prefix = f"{index}-{publisher.driver}-" + (f"{owner.name}-" if owner else "")
    metadata = ObjectMeta(generate_name=prefix, owner_references=(owner,) if owner else ())
    return ResourceSlice(metadata=metadata, spec=spec)


def with_generation(spec: ResourceSliceSpec, generation: int) -> ResourceSliceSpec:
    return structs.replace(spec, pool=structs.replace(spec.pool, generation=generation))


# --- taints: their time is the server's or the first publication's ---------------------------------------------------


def _keep_taint_times(spec: ResourceSliceSpec, existing: ResourceSlice | None) -> ResourceSliceSpec:
    if existing is None or not any(device.taints for device in spec.devices):
        return spec
    times = {
        (device.name, taint.key, taint.value, taint.effect): taint.time_added
        for device in existing.spec.devices
        for taint in device.taints
    }
    devices = tuple(
        structs.replace(device, taints=tuple(_taint_with_time(device.name, taint, times) for taint in device.taints))
        if device.taints
        else device
        for device in spec.devices
    )
    return structs.replace(spec, devices=devices)


def _taint_with_time(
    device: str, taint: DeviceTaint, times: dict[tuple[str, str, str, str], str | None]
) -> DeviceTaint:
    stored = times.get((device, taint.key, taint.value, taint.effect))
    if stored is None or (taint.time_added is not None and not _about_equal(taint.time_added, stored)):
        return taint
    return structs.replace(taint, time_added=stored)


def _about_equal(a: str, b: str) -> bool:
    try:
        return abs((datetime.fromisoformat(a) - datetime.fromisoformat(b)).total_seconds()) <= 1
    except (ValueError, TypeError):
        return a == b


def same_spec(a: ResourceSliceSpec, b: ResourceSliceSpec) -> bool:
    """Equal in meaning; a taint without a time equals one with any."""
    return _without_open_times(a, b) == _without_open_times(b, a)


def _without_open_times(spec: ResourceSliceSpec, other: ResourceSliceSpec) -> ResourceSliceSpec:
    if not any(device.taints for device in spec.devices) or len(spec.devices) != len(other.devices):
        return spec
    devices = tuple(_device_without_open_times(a, b) for a, b in zip(spec.devices, other.devices, strict=True))
    return structs.replace(spec, devices=devices)


def _device_without_open_times(device: Device, other: Device) -> Device:
    if len(device.taints) != len(other.taints):
        return device
    taints = tuple(
        structs.replace(a, time_added=None) if a.time_added is None or b.time_added is None else a
        for a, b in zip(device.taints, other.taints, strict=True)
    )
    return structs.replace(device, taints=taints)
