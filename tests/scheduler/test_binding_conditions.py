"""Devices that have to be made ready before the pod is bound."""

from msgspec.structs import replace
from tests.builders.objects import DRIVER, a_claim, a_pod, a_request
from tests.scheduler.world import a_world

from dray.api.meta import Condition
from dray.api.quantity import Quantity
from dray.api.resource import AllocatedDeviceStatus, Device, DeviceCapacity
from dray.features import FeatureGates
from dray.scheduler.config import SchedulerConfig
from dray.scheduler.framework.profile import ProfileConfig

FABRIC = tuple(
    Device(name=f"gpu-{index}", binding_conditions=("attached",), binding_failure_conditions=("broken",))
    for index in range(2)
)


def fabric_world(*objects, devices=FABRIC, timeout="600s", **kwargs):
    config = SchedulerConfig(profiles=(ProfileConfig(args={"DynamicResources": {"bindingTimeout": timeout}}),))
    return a_world(*objects, devices=devices, config=config, **kwargs)


def report(world, claim, device, **conditions):
    """The driver's word on a device."""
    known = world.claim(claim)
    status = AllocatedDeviceStatus(
        driver=DRIVER,
        pool="node-1",
        device=device,
        conditions=tuple(
            Condition(type=name, status=value, reason="Driver", message="says so") for name, value in conditions.items()
        ),
    )
    others = tuple(row for row in known.status.devices if row.device != device)
    world.apply(replace(known, status=replace(known.status, devices=(*others, status))))


async def test_pod_is_bound_once_the_device_is_ready():
    world = fabric_world(a_claim(), a_pod("pod", "claim"))
    await world.scheduler.schedule_next()
    await world.clock.advance(3)
    assert world.claim().status.allocation.devices.results[0].binding_conditions == ("attached",)
    assert not world.node_of()
    assert [event.message for event in world.events("BindingConditionsPending")] == [
        "waiting for binding conditions for device on node node-1"
    ]
    report(world, "claim", "gpu-0", attached="True")
    await world.clock.advance(5)
    assert world.node_of() == "node-1"
    metrics = world.scheduler.handle.metrics
    assert metrics.binding_allocations.value("default-scheduler", DRIVER, "success") == 1
    assert metrics.binding_wait.count("default-scheduler", DRIVER, "success") == 1


async def test_failed_device_is_given_up_and_another_one_chosen():
    world = fabric_world(a_claim(), a_pod("pod", "claim"))
    await world.scheduler.schedule_next()
    await world.clock.advance(1)
    report(world, "claim", "gpu-0", attached="False", broken="True")
    await world.clock.advance(2)
    assert 'device binding failed: claim=claim, reason=Driver, message="says so"' in world.message()
    assert world.claim().status.reserved_for == ()
    # The next attempt finds the claim unavailable and deallocates it; a later one allocates again.
    world.scheduler.queue.flush_backoff(world.clock.monotonic())
    await world.scheduler.schedule_next()
    await world.clock.advance(0.1)
    assert "deallocation of ResourceClaim completed" in world.message()
    assert world.claim().status.allocation is None
    await world.clock.advance(5)
    world.scheduler.queue.flush_backoff(world.clock.monotonic())
    await world.scheduler.schedule_next()
    await world.clock.advance(0.1)
    report(world, "claim", "gpu-0", attached="True")
    await world.clock.advance(1)
    assert world.node_of() == "node-1"


async def test_device_that_takes_too_long_times_out():
    world = fabric_world(a_claim(), a_pod("pod", "claim"), timeout="5s")
    await world.scheduler.schedule_next()
    await world.clock.advance(1)
    await world.clock.advance(8)
    assert "device binding timeout: claim=claim" in world.message()
    metrics = world.scheduler.handle.metrics
    assert metrics.binding_allocations.value("default-scheduler", DRIVER, "timeout") == 1
    assert metrics.binding_wait.count("default-scheduler", DRIVER, "timeout") == 1


async def test_all_devices_of_all_claims_must_be_ready():
    world = fabric_world(a_claim("a"), a_claim("b"), a_pod("pod", "a", "b"))
    await world.scheduler.schedule_next()
    await world.clock.advance(1)
    report(world, "a", "gpu-0", attached="True")
    await world.clock.advance(2)
    assert not world.node_of()
    report(world, "b", "gpu-1", attached="True")
    await world.clock.advance(2)
    assert world.node_of() == "node-1"


async def test_one_failing_claim_of_two_fails_the_pod():
    world = fabric_world(a_claim("a"), a_claim("b"), a_pod("pod", "a", "b"))
    await world.scheduler.schedule_next()
    await world.clock.advance(1)
    report(world, "a", "gpu-0", attached="True")
    report(world, "b", "gpu-1", broken="True")
    await world.clock.advance(2)
    assert "device binding failed: claim=b" in world.message()
    assert not world.node_of()


async def test_device_without_conditions_is_preferred_and_not_waited_for():
    world = fabric_world(a_claim(), a_pod("pod", "claim"), devices=(Device(name="plain"),))
    await world.settle()
    assert world.node_of() == "node-1"
    assert not world.events("BindingConditionsPending")


async def test_feature_off_neither_uses_such_devices_nor_stamps_allocations():
    gates = FeatureGates.default().with_overrides({"DRADeviceBindingConditions": False})
    world = fabric_world(a_claim(), a_pod("pod", "claim"), gates=gates)
    await world.settle()
    assert "cannot allocate all claims" in world.message()
    plain = fabric_world(a_claim(), a_pod("pod", "claim"), devices=1, gates=gates)
    await plain.settle()
    assert plain.claim().status.allocation.allocation_timestamp is None


async def test_every_share_of_a_device_must_be_ready():
    shared = Device(
        name="gpu-0",
        allow_multiple_allocations=True,
        capacity={"memory": DeviceCapacity(value=Quantity.parse("8Gi"))},
        binding_conditions=("attached",),
        binding_failure_conditions=("broken",),
    )
    claim = a_claim("claim", a_request("one", capacity={"memory": "2Gi"}), a_request("two", capacity={"memory": "2Gi"}))
    world = fabric_world(claim, a_pod("pod", "claim"), devices=(shared,))
    await world.scheduler.schedule_next()
    await world.clock.advance(1)
    results = world.claim().status.allocation.devices.results
    assert len({result.share_id for result in results}) == 2

    def ready(count):
        known = world.claim()
        devices = tuple(
            AllocatedDeviceStatus(
                driver=result.driver,
                pool=result.pool,
                device=result.device,
                share_id=result.share_id,
                conditions=(Condition(type="attached", status="True", reason="Driver"),),
            )
            for result in results[:count]
        )
        world.apply(replace(known, status=replace(known.status, devices=devices)))

    ready(1)
    await world.clock.advance(3)
    assert not world.node_of()
    ready(2)
    await world.clock.advance(3)
    assert world.node_of() == "node-1"
