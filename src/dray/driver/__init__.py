"""What a driver author imports.

Describe devices as pools, implement `prepare` and `unprepare`, call `run`. The kit does the rest: it publishes
ResourceSlices with as few writes as possible, registers with the kubelet, serves DRA v1 and v1beta1 over gRPC, fetches
and verifies claims, writes CDI files, remembers on disk what is prepared, and reports device health. It works the same
against Dray's node agent and a real kubelet.

    from dray.driver import ContainerEdits, Device, Driver, Pool, run

Not here: choosing devices (the scheduler's `dray.allocator`) and running containers (`dray.kubelet`).
"""

from dray.api.cdi import ContainerEdits, DeviceNode, Hook, Mount, NetDevice
from dray.api.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from dray.api.quantity import Quantity, QuantityError
from dray.api.resource import (
    AllocatedDeviceStatus,
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    Counter,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceCounterConsumption,
    DeviceTaint,
    NetworkDeviceData,
    NodeAllocatableMapping,
    NodeAllocatableOverhead,
    NodeAllocatableResource,
    NodeAllocatableResourceMapping,
)
from dray.driver.plugin import (
    AllocatedDevice,
    ClaimReference,
    ClaimToPrepare,
    DeviceConfig,
    DeviceHealth,
    Driver,
    Health,
    Pool,
    PoolSlice,
    PreparedDevice,
    PrepareError,
)
from dray.driver.running_driver import (
    DriverPaths,
    RunningDriver,
    run,
)

__all__ = [
    "AllocatedDevice",
    "AllocatedDeviceStatus",
    "CapacityRequestPolicy",
    "CapacityRequestPolicyRange",
    "ClaimReference",
    "ClaimToPrepare",
    "ContainerEdits",
    "Counter",
    "CounterSet",
    "Device",
    "DeviceAttribute",
    "DeviceCapacity",
    "DeviceConfig",
    "DeviceCounterConsumption",
    "DeviceHealth",
    "DeviceNode",
    "DeviceTaint",
    "Driver",
    "DriverPaths",
    "Health",
    "Hook",
    "Mount",
    "NetDevice",
    "NetworkDeviceData",
    "NodeAllocatableMapping",
    "NodeAllocatableOverhead",
    "NodeAllocatableResource",
    "NodeAllocatableResourceMapping",
    "NodeSelector",
    "NodeSelectorRequirement",
    "NodeSelectorTerm",
    "Pool",
    "PoolSlice",
    "PrepareError",
    "PreparedDevice",
    "Quantity",
    "QuantityError",
    "RunningDriver",
    "run",
]
