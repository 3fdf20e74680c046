"""What a waiting pod says about itself: the words of Kubernetes, in its condition and its events."""

import pytest
from msgspec.structs import replace
from tests.builders.objects import a_claim, a_class, a_node, a_pod, a_request, a_slice, with_claim_status
from tests.scheduler.world import World, a_world

from dray.api.core import PodSchedulingGate
from dray.api.quantity import Quantity
from dray.api.resource import Device, DeviceRequest, NodeAllocatableResourceMapping
from dray.client.errors import ApiError
from dray.scheduler.assembly import OURS
from dray.scheduler.config import SchedulerConfig
from dray.scheduler.framework.interface import error
from dray.scheduler.framework.profile import EnabledPlugin, PluginRegistry, PluginSet, ProfileConfig
from dray.sim.memory_cluster import conflict


def refuse(verb, problem=None):
    return lambda asked, name: (problem or ApiError(500, "InternalError", "no luck")) if asked == verb else None


# --- before an attempt


def test_claim_of_a_template_that_is_not_made_yet():
    world = a_world(a_pod("pod", "template:dev"))
    assert world.where() == "gated"
    assert world.scheduler.held_back(world.pod()).message == 'pod "default/pod": ResourceClaim not created yet'
    assert world.events() == []
    assert world.message() == "", "a gated pod says nothing at first"


async def test_request_of_a_kind_that_nobody_knows():
    """Of a newer API: neither `exactly` nor `firstAvailable` is there."""
    world = a_world(a_claim("claim", DeviceRequest(name="new")), a_pod("pod", "claim"))
    await world.settle()
    assert "resource claim default/claim, request new: unknown request type" in world.message()
    assert world.reason() == "Unschedulable"


class Broken:
    """A plugin whose extension points answer with an error."""

    name = "Broken"

    def __init__(self, *points):
        for point in points:
            setattr(self, point, lambda *_: error("out of order"))


@pytest.mark.parametrize(
    ("point", "message"),
    [
        ("pre_filter", 'running PreFilter plugin "Broken": out of order'),
        ("filter", 'running "Broken" filter plugin: out of order'),
        ("pre_score", 'running PreScore plugin "Broken": out of order'),
    ],
)
async def test_errors_name_the_plugin_and_the_extension_point(point, message):
    registry = PluginRegistry({**OURS, "Broken": lambda args, handle: Broken(point)})
    plugins = {"multiPoint": PluginSet((EnabledPlugin("Broken"),))}
    config = SchedulerConfig(profiles=(ProfileConfig(plugins=plugins),))
    world = World(a_node("node-1"), a_node("node-2"), a_pod(), config=config, plugins=registry)
    await world.attempt()
    assert world.message() == message
    assert world.reason() == "SchedulerError"
    assert world.where() == "backoff"
    (event,) = world.events("FailedScheduling")
    assert (event.type, event.action, event.message) == ("Warning", "Scheduling", message)


# --- while claims are written


async def test_finalizer_that_cannot_be_added():
    world = a_world(a_claim(), a_pod("pod", "claim"))
    world.cluster.fault = refuse("update claim")
    await world.attempt()
    expected = 'running PreBind plugin "DynamicResources": add finalizer to claim default/claim: no luck'
    assert world.message() == expected
    assert world.claim().status.allocation is None
    assert not world.scheduler.handle.devices.in_flight


async def test_claim_that_is_deleted_between_decision_and_write():
    world = a_world(a_claim(), a_pod("pod", "claim"))
    tried = []

    def deleting(verb, name):
        if verb == "update claim" and not tried:
            tried.append(verb)
            known = world.claim()
            world.apply(replace(known, metadata=replace(known.metadata, deletion_timestamp="2026-01-01T00:00:00Z")))
            return conflict("the object has been modified; please apply your changes to the latest version")
        return None

    world.cluster.fault = deleting
    await world.attempt()
    assert "claim default/claim got deleted in the meantime" in world.message()
    assert world.claim().status.allocation is None


async def test_reservation_that_cannot_be_written():
    world = a_world(a_claim(), a_pod("p1", "claim"))
    await world.settle()
    world.cluster.fault = refuse("update claim status")
    world.apply(a_pod("p2", "claim"))
    await world.attempt()
    assert "add reservation to claim default/claim: no luck" in world.message("p2")


async def test_pod_status_that_cannot_be_written():
    mapping = {"cpu": NodeAllocatableResourceMapping(allocation_multiplier=Quantity.parse("1"))}
    cores = (Device(name="core-0", node_allocatable_resource_mappings=mapping),)
    world = World(a_node(), a_slice(devices=cores), a_class(), a_claim(), a_pod("pod", "claim"))
    failing = [True]

    def fault(verb, name):
        if verb == "patch pod status" and failing.pop() if failing else False:
            return ApiError(500, "InternalError", "no luck")
        return None

    world.cluster.fault = fault
    await world.attempt()
    assert "updating pod default/pod NodeAllocatableResourceClaimStatuses: no luck" in world.message()
    assert world.requested()["cpu"] == 0


async def test_allocation_that_got_lost_between_filter_and_reserve():
    world = a_world(a_claim(), a_pod("pod", "claim"))
    plugin = world.scheduler.profiles["default-scheduler"].plugins()["DynamicResources"]
    plugin._allocation = lambda attempt, node: None
    await world.attempt()
    assert world.message() == 'running Reserve plugin "DynamicResources": claim allocation not found for node'
    assert world.requested() == {"cpu": 0, "memory": 0}


# --- what else a pod's status says


async def test_nominated_node_is_taken_back_when_the_attempt_fails():
    world = World(a_node(cpu="1"), a_pod("low", cpu="1", node_name="node-1", priority=0))
    pod = a_pod("pod", cpu="2", priority=10)
    world.apply(replace(pod, status=replace(pod.status, nominated_node_name="node-1")))
    await world.settle()
    assert world.pod().status.nominated_node_name == ""


async def test_pod_goes_to_its_nominated_node_before_others_are_asked():
    world = World(*(a_node(f"node-{index}") for index in range(1, 6)))
    pod = a_pod()
    world.apply(replace(pod, status=replace(pod.status, nominated_node_name="node-4")))
    await world.settle()
    assert world.node_of() == "node-4"


async def test_condition_goes_from_waiting_to_scheduled_with_one_transition():
    world = World(a_node(cpu="1"), a_pod(cpu="2"))
    await world.settle()
    first = next(row for row in world.pod().status.conditions if row.type == "PodScheduled")
    await world.clock.advance(30)
    world.apply(a_node(cpu="1", labels={"new": "label"}), a_node("node-2", cpu="1"))
    world.scheduler.queue.activate("uid-pod", world.clock.monotonic())
    await world.settle()
    second = next(row for row in world.pod().status.conditions if row.type == "PodScheduled")
    assert "0/2 nodes" in second.message
    assert second.last_transition_time == first.last_transition_time, "it waits all the time"


async def test_deallocation_that_fails_is_an_error():
    """PostFilter wanted to free an unused claim that blocks, and the API server would not let it."""
    world = World(a_node("node-1"), a_node("node-2"), a_slice("node-1"), a_slice("node-2"), a_class(), a_claim())
    world.apply(a_pod("first", "claim"))
    await world.settle()
    first = world.pod("first")
    node = first.spec.node_name
    world.cluster.delete(first)
    known = world.claim()
    world.apply(replace(known, status=replace(known.status, reserved_for=())))
    world.apply(a_node(node, unschedulable=True), a_pod("second", "claim"))
    world.cluster.fault = refuse("update claim status")
    await world.attempt()
    assert 'running PostFilter plugin "DynamicResources": deallocate claim default/claim: no luck' in world.message(
        "second"
    )
    assert world.reason("second") == "SchedulerError"
    assert world.where("second") == "backoff"


async def test_claim_status_of_a_template_that_made_none_is_skipped():
    pod = with_claim_status(a_pod("pod", "template:dev"), dev=None)
    world = a_world(pod)
    await world.settle()
    assert world.node_of() == "node-1"


async def test_unknown_class_of_the_second_request_is_named():
    requests = (a_request("one"), a_request("two", device_class="none"))
    world = a_world(a_claim("claim", *requests), a_pod("pod", "claim"))
    await world.settle()
    assert world.message().startswith("0/1 nodes are available: request two: device class none does not exist.")


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ("claim", 'could not find ResourceClaim "default/claim"'),
        ("template:dev", 'pod "default/pod": ResourceClaim not created yet'),
    ],
)
async def test_a_pod_whose_claim_does_not_come_is_told(entry, text):
    world = a_world(a_pod("pod", entry))
    await world.settle()
    assert world.events() == [], "most claims are made at once: nobody is told of those"
    await world.settle(5)
    assert (world.reason(), world.message()) == ("Unschedulable", text)
    assert [(event.reason, event.type, event.message) for event in world.events()] == [
        ("FailedScheduling", "Warning", text)
    ]
    await world.settle(60)
    assert len(world.events()) == 1
    assert world.where() == "gated"


async def test_a_pod_that_waits_for_people_is_not_told_by_the_scheduler():
    world = a_world(a_pod("pod", scheduling_gates=(PodSchedulingGate(name="mine"),)))
    await world.settle(5)
    assert world.events() == []
