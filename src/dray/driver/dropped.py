"""Which features a server has turned off, judged by what it left out of a slice. Pure."""

from collections.abc import Callable, Iterator
from typing import Any

from dray.api.resource import Device, DeviceAttribute, ResourceSliceSpec

_OfSlice = Callable[[ResourceSliceSpec], Any]
_OfDevice = Callable[[Device], Any]

_BY_SLICE: tuple[tuple[str, _OfSlice], ...] = (
    ("DRAPartitionableDevices", lambda spec: (spec.shared_counters, spec.per_device_node_selection)),
    ("DRAOptionalNodeOperations", lambda spec: spec.skip_node_operations),
)
_BY_DEVICE: tuple[tuple[str, _OfDevice], ...] = (
    (
        "DRAPartitionableDevices",
        lambda device: (device.consumes_counters, device.node_name, device.node_selector, device.all_nodes),
    ),
    ("DRADeviceTaints", lambda device: [(each.key, each.value, each.effect) for each in device.taints]),
    (
        "DRAConsumableCapacity",
        lambda device: (
            device.allow_multiple_allocations,
            {name: each.request_policy for name, each in device.capacity.items()},
        ),
    ),
    (
        "DRADeviceBindingConditions",
        lambda device: (device.binding_conditions, device.binding_failure_conditions, device.binds_to_node),
    ),
    ("DRAListTypeAttributes", lambda device: [_lists(each) for each in device.attributes.values()]),
    ("DRANodeAllocatableResources", lambda device: device.node_allocatable_resource_mappings),
)


def dropped_features(wanted: ResourceSliceSpec, stored: ResourceSliceSpec) -> list[str]:
    """Gates whose fields are not as they were sent, in alphabetical order; none if only other fields differ."""
    return sorted(set(_dropped(wanted, stored)))


def _dropped(wanted: ResourceSliceSpec, stored: ResourceSliceSpec) -> Iterator[str]:
    yield from (gate for gate, part in _BY_SLICE if part(wanted) != part(stored))
    for mine, theirs in zip(wanted.devices, stored.devices, strict=False):
        yield from (gate for gate, part in _BY_DEVICE if part(mine) != part(theirs))


def _lists(attribute: DeviceAttribute) -> tuple[Any, ...]:
    return attribute.ints, attribute.bools, attribute.strings, attribute.versions
