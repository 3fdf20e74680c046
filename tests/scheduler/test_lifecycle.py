"""A pod's claims from missing to bound: the life-cycle situations."""

import msgspec
import pytest
from msgspec.structs import replace
from tests.builders.objects import (
    DRIVER,
    a_claim,
    a_class,
    a_node,
    a_pod,
    a_request,
    a_slice,
    template_pod,
    with_claim_status,
)
from tests.scheduler.world import World, a_world

from dray.api.resource import CLAIM_FINALIZER, DeviceClassConfiguration, OpaqueDeviceConfiguration


async def test_pod_without_claims_is_bound():
    world = a_world(a_pod())
    await world.settle()
    assert world.node_of() == "node-1"
    assert [event.message for event in world.events("Scheduled")] == ["Successfully assigned default/pod to node-1"]


async def test_claim_by_name_is_allocated_reserved_and_protected():
    world = a_world(a_claim(), a_pod("pod", "claim"))
    await world.settle()
    claim = world.claim()
    assert world.node_of() == "node-1"
    assert world.devices_of() == ["node-1/gpu-0"]
    assert [(user.name, user.uid) for user in claim.status.reserved_for] == [("pod", "uid-pod")]
    assert CLAIM_FINALIZER in claim.metadata.finalizers
    assert claim.status.allocation.allocation_timestamp == "2024-01-01T00:00:00Z"


async def test_writes_come_in_the_promised_order():
    world = a_world(a_claim(), a_pod("pod", "claim"))
    await world.settle()
    assert world.cluster.writes == ["update claim claim", "update claim status claim", "bind pod"]


async def test_attempt_that_fails_reads_and_writes_no_claim():
    world = a_world(a_claim("claim", a_request(count=3)), a_pod("pod", "claim"))
    await world.settle()
    assert world.cluster.writes == ["patch pod status pod"]


async def test_pod_without_claims_costs_the_claim_plugin_nothing():
    world = a_world(a_pod())
    plugin = world.scheduler.profiles["default-scheduler"].plugins()["DynamicResources"]
    asked = []
    for method in ("filter", "score"):
        setattr(plugin, method, lambda *_, method=method: asked.append(method))
    await world.settle()
    assert world.node_of() == "node-1"
    assert asked == []


def with_mode(mode):
    opaque = OpaqueDeviceConfiguration(driver=DRIVER, parameters=msgspec.Raw(b'{"mode":"%s"}' % mode.encode()))
    return a_class(config=(DeviceClassConfiguration(opaque=opaque),))


async def test_allocation_keeps_the_parameters_of_its_class_from_back_then():
    def modes(name):
        return [bytes(each.opaque.parameters) for each in world.claim(name).status.allocation.devices.config]

    world = a_world(with_mode("old"), a_claim("before"), a_pod("before", "before"))
    await world.settle()
    world.apply(with_mode("new"), a_claim("after"), a_pod("after", "after"))
    await world.settle()
    assert (modes("before"), modes("after")) == ([b'{"mode":"old"}'], [b'{"mode":"new"}'])


async def test_present_finalizer_is_not_written_again():
    world = a_world(a_claim(finalizers=(CLAIM_FINALIZER,)), a_pod("pod", "claim"))
    await world.settle()
    assert world.cluster.writes == ["update claim status claim", "bind pod"]


async def test_claim_that_was_allocated_by_hand_is_protected_before_a_pod_has_it():
    world = a_world(a_claim(), a_pod("first", "claim"))
    await world.settle()
    by_hand = replace(world.claim(), metadata=replace(world.claim().metadata, finalizers=()))
    world.apply(by_hand, a_pod("second", "claim"))
    await world.settle()
    assert world.cluster.writes[3:] == ["update claim claim", "update claim status claim", "bind second"]
    assert CLAIM_FINALIZER in world.claim().metadata.finalizers


async def test_claim_from_template_wakes_the_pod_when_it_exists():
    pod = a_pod("pod", "template:dev")
    world = a_world(pod)
    await world.settle()
    assert world.where() == "gated"
    assert not world.events()
    world.apply(with_claim_status(pod, dev="pod-dev"))
    await world.settle()
    assert world.where() == "gated"
    world.apply(a_claim("pod-dev", owner=pod))
    await world.settle()
    assert world.node_of() == "node-1"
    assert world.devices_of("pod-dev") == ["node-1/gpu-0"]


async def test_claim_that_comes_before_the_pods_status_is_used_as_well():
    pod = a_pod("pod", "template:dev")
    world = a_world(pod, a_claim("pod-dev", owner=pod))
    await world.settle()
    assert world.where() == "gated"
    world.apply(with_claim_status(pod, dev="pod-dev"))
    await world.settle()
    assert world.node_of() == "node-1"


async def test_claim_that_was_deliberately_not_made_is_not_waited_for():
    world = a_world(with_claim_status(a_pod("pod", "template:dev"), dev=None))
    await world.settle()
    assert world.node_of() == "node-1"


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        pytest.param([], 'could not find ResourceClaim "default/pod-dev"', id="missing"),
        pytest.param(
            [a_claim("pod-dev", deletion_timestamp="2024-01-01T00:00:00Z")],
            'resourceclaim "pod-dev" is being deleted',
            id="being-deleted",
        ),
        pytest.param(
            [a_claim("pod-dev")],
            "ResourceClaim default/pod-dev was not created for Pod default/pod (Pod is not owner)",
            id="wrong-owner",
        ),
    ],
)
async def test_pod_is_gated_while_its_claim_cannot_be_used(claims, expected):
    pod = with_claim_status(a_pod("pod", "template:dev"), dev="pod-dev")
    world = a_world(pod, *claims)
    await world.settle()
    assert world.where() == "gated"
    assert world.scheduler.held_back(pod).message == expected
    assert not world.events()


async def test_pod_claim_without_a_source_is_gated_with_a_reason():
    pod = a_pod("pod", "claim")
    entry = replace(pod.spec.resource_claims[0], resource_claim_name=None)
    pod = replace(pod, spec=replace(pod.spec, resource_claims=(entry,)))
    world = a_world(pod)
    expected = 'pod "default/pod", spec.resourceClaim "claim": none of the supported fields are set'
    assert world.scheduler.held_back(pod).message == expected


async def test_claim_deleted_between_queue_and_attempt_rejects_the_pod():
    world = a_world(a_claim(), a_pod("pod", "claim"))
    world.cluster.delete(world.claim())
    await world.settle()
    assert world.message().startswith('0/1 nodes are available: could not find ResourceClaim "default/claim".')
    assert world.where() == "unschedulable"


async def test_already_reserved_claim_needs_no_write_but_the_binding():
    world = a_world(a_claim(), a_pod("pod", "claim"))
    await world.settle()
    pod = world.pod()
    world.cluster.delete(pod)
    world.cluster.writes.clear()
    world.apply(replace(pod, spec=replace(pod.spec, node_name="")))
    await world.settle()
    assert world.cluster.writes == ["bind pod"]


async def test_second_pod_shares_an_allocated_claim_on_its_node():
    world = World(
        a_node("node-1"),
        a_node("node-2"),
        a_slice("node-1"),
        a_slice("node-2"),
        a_class(),
        a_claim(),
        a_pod("p1", "claim"),
    )
    await world.settle()
    world.apply(a_pod("p2", "claim"))
    await world.settle()
    assert world.node_of("p2") == world.node_of("p1")
    assert [user.name for user in world.claim().status.reserved_for] == ["p1", "p2"]


async def test_second_pod_waits_while_the_claim_is_being_allocated():
    world = a_world(a_claim(), a_pod("p1", "claim"), a_pod("p2", "claim"))
    assert await world.scheduler.schedule_next()
    assert await world.scheduler.schedule_next()
    assert "resource claim default/claim is in the process of being allocated" in world.events()[-1].message
    await world.settle(seconds=3)
    assert world.node_of("p1") == world.node_of("p2") == "node-1"


async def test_one_claim_under_two_entries_is_allocated_once():
    pod = a_pod("pod", "claim")
    second = replace(pod.spec.resource_claims[0], name="again")
    pod = replace(pod, spec=replace(pod.spec, resource_claims=(*pod.spec.resource_claims, second)))
    world = a_world(a_claim(), pod)
    await world.settle()
    assert world.devices_of() == ["node-1/gpu-0"]
    assert len(world.claim().status.reserved_for) == 1


async def test_terminating_pod_is_dropped_with_an_event():
    pod = a_pod()
    world = a_world(replace(pod, metadata=replace(pod.metadata, deletion_timestamp="2024-01-01T00:00:00Z")))
    await world.settle()
    assert world.events()[0].message == "skip schedule deleting pod: default/pod"
    assert not world.node_of()


async def test_pod_of_another_scheduler_is_left_alone():
    world = a_world(a_pod(scheduler="other"))
    assert not await world.attempt()


async def test_missing_class_is_named_and_its_creation_wakes_the_pod():
    world = World(a_node(), a_slice(), a_claim(), a_pod("pod", "claim"))
    await world.settle()
    assert "request req: device class gpu does not exist" in world.message()
    world.apply(a_class())
    await world.settle(seconds=2)
    assert world.node_of() == "node-1"


async def test_all_devices_are_used_and_none_twice():
    pods = [template_pod(f"p{index}") for index in range(6)]
    world = World(
        a_node("node-1"),
        a_node("node-2"),
        a_slice("node-1", 2),
        a_slice("node-2", 2),
        a_class(),
        *[x for p in pods for x in p],
    )
    await world.settle()
    bound = [name for name in (f"p{index}" for index in range(6)) if world.node_of(name)]
    assert len(bound) == 4
    assert len({device for name in bound for device in world.devices_of(f"{name}-dev")}) == 4


async def test_freed_device_wakes_a_waiting_pod():
    first, second = template_pod("p1"), template_pod("p2")
    world = World(a_node(), a_slice(devices=1), a_class(), *first, *second)
    await world.settle()
    waiting = "p1" if world.node_of("p2") else "p2"
    running = world.pod("p2" if waiting == "p1" else "p1")
    world.cluster.delete(running)
    world.cluster.release_claims_of(running)
    await world.settle(seconds=2)
    assert world.node_of(waiting) == "node-1"


async def test_pod_that_is_over_before_it_was_placed_is_forgotten():
    world = World(a_pod())
    assert world.where() == "active"
    pod = world.pod()
    world.apply(replace(pod, status=replace(pod.status, phase="Failed")))
    assert world.where() == ""
    assert not await world.attempt()


async def test_waiting_pod_that_somebody_else_bound_leaves_the_queue():
    world = a_world(a_claim("claim", a_request(count=3)), a_pod("pod", "claim", cpu="1"))
    await world.settle()
    assert world.where() == "unschedulable"
    pod = world.pod()
    world.apply(replace(pod, spec=replace(pod.spec, node_name="node-1")))
    assert (world.where(), len(world.scheduler.queue)) == ("", 0)
    assert world.requested()["cpu"] == 1000


async def test_many_pods_share_one_claim_one_after_the_other():
    world = World(a_node("node-1"), a_node("node-2"), a_slice("node-1", 1), a_class(), a_claim())
    for index in range(10):
        world.apply(a_pod(f"p{index}", "claim"))
        await world.settle()
        assert world.node_of(f"p{index}") == "node-1"
    assert len(world.claim().status.reserved_for) == 10
    assert world.devices_of() == ["node-1/gpu-0"]


async def test_finalizer_that_somebody_removed_is_put_back_before_the_allocation():
    world = World(a_node(), a_slice(), a_class(), a_claim(), a_pod("pod", "claim"))
    removed = []

    def remove(verb, name):
        if verb == "update claim status" and not removed:
            removed.append(True)
            known = world.claim()
            world.apply(replace(known, metadata=replace(known.metadata, finalizers=())))
        return

    world.cluster.fault = remove
    await world.settle(seconds=1)
    assert world.node_of() == "node-1"
    assert world.claim().metadata.finalizers == ("resource.kubernetes.io/delete-protection",)


async def test_already_allocated_claim_of_a_good_node_is_followed():
    """The devices decide where the pod goes, however much room is elsewhere."""
    world = World(a_node("node-1", cpu="64"), a_node("node-2", cpu="2"), a_slice("node-2", 1), a_class(), a_claim())
    world.apply(a_pod("first", "claim"))
    await world.settle()
    world.apply(a_pod("second", "claim", cpu="1"))
    await world.settle()
    assert world.node_of("first") == world.node_of("second") == "node-2"
