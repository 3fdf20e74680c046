"""What `dray devices` says of each device."""

from dray.api.meta import ObjectMeta
from dray.api.quantity import Quantity
from dray.api.resource import (
    AllocationResult,
    Counter,
    CounterSet,
    Device,
    DeviceAllocationResult,
    DeviceCounterConsumption,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceClaimStatus,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from dray.explain.cluster_objects import ClusterObjects
from dray.explain.device_table import DeviceTable


def drawing_device(name, draws):
    consumption = DeviceCounterConsumption(
        counter_set="card", counters={"memory": Counter(value=Quantity.parse(draws))}
    )
    return Device(name=name, consumes_counters=(consumption,))


def slice_object(name, **fields):
    pool = ResourcePool(name="pool", generation=1, resource_slice_count=2)
    return ResourceSlice(
        metadata=ObjectMeta(name=name), spec=ResourceSliceSpec(driver="d", pool=pool, node_name="n", **fields)
    )


def test_partitions_of_a_card_that_is_taken_are_blocked_and_others_stay_free():
    counters = CounterSet(name="card", counters={"memory": Counter(value=Quantity.parse(8))})
    slices = (
        slice_object("counters", shared_counters=(counters,)),
        slice_object(
            "devices",
            devices=(
                drawing_device("whole", 8),
                drawing_device("half", 4),
                drawing_device("quarter", 2),
                Device(name="other"),
            ),
        ),
    )
    result = DeviceRequestAllocationResult(request="r", driver="d", pool="pool", device="half")
    allocation = AllocationResult(devices=DeviceAllocationResult(results=(result,)))
    claim = ResourceClaim(
        metadata=ObjectMeta(name="c", namespace="ns"), status=ResourceClaimStatus(allocation=allocation)
    )
    table = DeviceTable(ClusterObjects(slices=slices, claims=(claim,)))
    states = {row.device_id.device: row.state for row in table.rows()}
    assert states == {"whole": "blocked", "half": "used", "quarter": "free", "other": "free"}
    # The card that is cut counts once, and half of it is left.
    assert table.summary_text() == "2 devices (4 with their partitions): 0 used, 1 partly used, 1 free"
    assert table.counts.parts == 0.5


def test_pools_that_share_their_devices_are_shown_with_their_own_names():
    devices = tuple(Device(name=f"d{number}") for number in range(8))

    def pool_of(node):
        pool = ResourcePool(name=node, generation=1, resource_slice_count=1)
        spec = ResourceSliceSpec(driver="d", pool=pool, node_name=node, devices=devices)
        return ResourceSlice(metadata=ObjectMeta(name=node), spec=spec)

    result = DeviceRequestAllocationResult(request="r", driver="d", pool="n2", device="d3")
    allocation = AllocationResult(devices=DeviceAllocationResult(results=(result,)))
    claim = ResourceClaim(
        metadata=ObjectMeta(name="c", namespace="ns"), status=ResourceClaimStatus(allocation=allocation)
    )
    table = DeviceTable(ClusterObjects(slices=tuple(map(pool_of, ("n1", "n2", "n3"))), claims=(claim,)))
    shown = [(row.device_id.pool, row.node, row.device_id.device, row.state, more) for row, more in table.folded_rows()]
    assert shown == [
        ("n1", "n1", "d0", "free", 7),
        ("n2", "n2", "d0", "free", 6),
        ("n2", "n2", "d3", "used", 0),
        ("n3", "n3", "d0", "free", 7),
    ]
    assert [row.device_id.device for row in table.rows({"used"})] == ["d3"]
    of_one = DeviceTable(ClusterObjects(slices=tuple(map(pool_of, ("n1", "n2", "n3")))), nodes=("n2",))
    assert [(row.node, more) for row, more in of_one.folded_rows()] == [("n2", 7)]
    assert of_one.summary_text() == "8 devices: 0 used, 8 free"
