"""What a driver author imports.

Describe devices as pools, implement `prepare` and `unprepare`, call `run`. The kit does the rest: it publishes
ResourceSlices with as few writes as possible, registers with the kubelet, serves DRA v1 and v1beta1 over gRPC, fetches
and verifies claims, writes CDI files, remembers on disk what is prepared, and reports device health. It works the same
against Dray's node agent and a real kubelet.

    from dray.driver import ContainerEdits, Device, Driver, Pool, run

Not here: choosing devices (the scheduler's `dray.allocator`) and running containers (`dray.kubelet`).
"""

from dray.api.cdi import ContainerEdits, DeviceNode, Hook, Mount
from dray.api.resource import (
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
    ClaimReference,
    ClaimToPrepare,
    DeviceConfig,
    DeviceHealth,
    Driver,
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
    "Hook",
    "Mount",
    "Pool",
    "PoolSlice",
    "PrepareError",
    "PreparedDevice",
    "RunningDriver",
    "run",
]
