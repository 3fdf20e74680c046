"""Which devices would this claim get? The allocator as a library, without a cluster."""

from uuid import uuid4

from dray.allocator import Allocation, Allocator, Inventory, Ledger, NoFit
from dray.api import codec
from dray.api.core import Node
from dray.api.resource import DeviceClass, ResourceClaim, ResourceSlice

GPU = "gpu.example.com"

node = codec.to_object({"metadata": {"name": "worker-1"}}, Node)
published = codec.to_object(
    {
        "metadata": {"name": "worker-1-gpus"},
        "spec": {
            "driver": GPU,
            "pool": {"name": "worker-1", "generation": 1, "resourceSliceCount": 1},
            "nodeName": "worker-1",
            "devices": [
                {
                    "name": f"gpu-{i}",
                    "attributes": {"model": {"string": "h100"}, "numa": {"int": i // 2}},
                    "capacity": {"memory": {"value": "80Gi"}},
                }
                for i in range(4)
            ],
        },
    },
    ResourceSlice,
)
device_class = codec.to_object(
    {"metadata": {"name": "gpu"}, "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{GPU}"'}}]}},
    DeviceClass,
)


def a_claim(name: str, count: int) -> ResourceClaim:
    """`count` GPUs on one NUMA node."""
    request = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
    devices = {
        "requests": [{"name": "gpus", "exactly": request}],
        "constraints": [{"matchAttribute": f"{GPU}/numa"}],
    }
    return codec.to_object(
        {"metadata": {"namespace": "default", "name": name}, "spec": {"devices": devices}}, ResourceClaim
    )


inventory = Inventory()
inventory.apply_slice(published)
ledger = Ledger()
allocator = Allocator(inventory, ledger, [device_class])

for name, count in (("first", 1), ("second", 2), ("third", 2)):
    answer = allocator.question([a_claim(name, count)]).on(node)
    if isinstance(answer, Allocation):
        (result,) = answer.results(lambda: str(uuid4()))
        ledger.assume("default", name, result)  # counts from now on, before anything is written
        print(name, "gets", [entry.device for entry in result.devices.results])
    elif isinstance(answer, NoFit):
        print(name, "must wait:", answer)
        print("  nearest miss:", answer.nearest_miss)
    else:
        print(name, "failed:", answer.message)
