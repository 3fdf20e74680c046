"""Making room by priority, also for devices."""

import pytest
from msgspec.structs import replace
from tests.builders.objects import a_claim, a_class, a_node, a_pod, a_request, a_slice, template_pod
from tests.scheduler.world import World

from dray.api.quantity import Quantity
from dray.api.resource import Device, NodeAllocatableResourceMapping
from dray.scheduler.plugins.default_preemption import PreemptionPlan, best_plan


async def test_lower_pod_leaves_and_the_higher_one_takes_its_place():
    world = World(a_node(cpu="1"), a_pod("low", cpu="1", priority=0))
    await world.settle()
    world.apply(a_pod("high", cpu="1", priority=10))
    await world.settle(seconds=2)
    assert world.node_of("high") == "node-1"
    assert world.pod("low") is None
    assert [event.reason for event in world.events("Preempted")] == ["Preempted"]
    assert world.scheduler.handle.metrics.preemption_victims.count() == 1


async def test_equal_priority_is_not_removed():
    world = World(a_node(cpu="1"), a_pod("first", cpu="1", priority=5))
    await world.settle()
    world.apply(a_pod("second", cpu="1", priority=5))
    await world.settle()
    assert world.pod("first") is not None
    assert world.message("second") == (
        "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: "
        "1 No preemption victims found for incoming pod."
    )


async def test_mixed_reasons_read_as_users_know_them():
    world = World(a_node("node-1", cpu="1"), a_node("node-2", unschedulable=True), a_pod("first", cpu="1", priority=5))
    await world.settle()
    world.apply(a_pod("second", cpu="1", priority=5))
    await world.settle()
    assert world.message("second") == (
        "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable. preemption: 0/2 nodes are available: "
        "1 No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling."
    )


async def test_never_means_never():
    world = World(a_node(cpu="1"), a_pod("low", cpu="1", priority=0))
    await world.settle()
    world.apply(a_pod("high", cpu="1", priority=10, preemption_policy="Never"))
    await world.settle()
    assert "preemption: not eligible due to preemptionPolicy=Never." in world.message("high")
    assert world.pod("low") is not None


async def test_as_few_as_needed_and_the_least_important():
    world = World(a_node(cpu="3"))
    for name, priority in (("a", 1), ("b", 2), ("c", 3)):
        world.apply(a_pod(name, cpu="1", priority=priority))
    await world.settle()
    world.apply(a_pod("high", cpu="1", priority=10))
    await world.settle(seconds=2)
    assert world.node_of("high")
    assert [name for name in "abc" if world.pod(name) is None] == ["a"]


async def test_devices_are_freed_as_well():
    world = World(a_node(), a_slice(devices=1), a_class(), *template_pod("low", priority=0))
    await world.settle()
    world.apply(*template_pod("high", priority=10))
    await world.settle(seconds=3)
    assert world.node_of("high") == "node-1"
    assert world.devices_of("high-dev") == ["node-1/gpu-0"]
    assert world.pod("low") is None


async def test_only_pods_whose_devices_help_are_removed():
    world = World(a_node(), a_slice(devices=2), a_class(), a_pod("plain", priority=0))
    world.apply(*template_pod("one", priority=1), *template_pod("two", priority=2))
    await world.settle()
    world.apply(*template_pod("high", priority=10))
    await world.settle(seconds=3)
    assert world.node_of("high")
    assert world.pod("plain") is not None
    assert world.pod("two") is not None
    assert world.pod("one") is None


async def test_no_preemption_when_even_all_devices_are_too_few():
    world = World(a_node(), a_slice(devices=1), a_class(), *template_pod("low", priority=0))
    await world.settle()
    world.apply(*template_pod("high", a_request(count=2), priority=10))
    await world.settle()
    assert world.pod("low") is not None
    assert "1 No preemption victims found for incoming pod" in world.message("high")


async def test_room_for_a_nominated_pod_is_kept():
    """While the victim is still leaving, a lower pod must not slip in."""
    world = World(a_node(cpu="2"), a_pod("low", cpu="2", priority=0))
    await world.settle()
    evicted = []

    async def slow_eviction(victim, preemptor):
        evicted.append(victim.metadata.name)
        known = world.pod(victim.metadata.name)
        world.apply(replace(known, metadata=replace(known.metadata, deletion_timestamp="2024-01-01T00:00:00Z")))

    world.cluster.evict = slow_eviction
    world.apply(a_pod("high", cpu="2", priority=10))
    await world.settle()
    assert evicted == ["low"]
    assert world.pod("high").status.nominated_node_name == "node-1"
    world.apply(a_pod("small", cpu="1", priority=0))
    world.cluster.delete(world.pod("low"))
    # The small pod is tried first here: its queue entry is ready, the high one still backs off.
    await world.settle(seconds=3)
    assert world.node_of("high") == "node-1"
    assert not world.node_of("small")


def victim(name, priority, started="2024-01-01T00:00:00Z"):
    pod = a_pod(name, priority=priority)
    return replace(pod, status=replace(pod.status, start_time=started))


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        pytest.param(
            PreemptionPlan("a", (victim("x", 1),)), PreemptionPlan("b", (victim("y", 2),)), id="lower-top-victim"
        ),
        pytest.param(
            PreemptionPlan("a", (victim("x", 2),)),
            PreemptionPlan("b", (victim("y", 2), victim("z", 1))),
            id="fewer-victims",
        ),
        pytest.param(
            PreemptionPlan("a", (victim("x", 2, "2024-01-02T00:00:00Z"),)),
            PreemptionPlan("b", (victim("y", 2),)),
            id="later-started",
        ),
        pytest.param(
            PreemptionPlan("a", (victim("x", -5),)),
            PreemptionPlan("b", (victim("y", -5), victim("z", -5))),
            id="negative",
        ),
    ],
)
def test_least_harm_wins(better, worse):
    assert best_plan([worse, better]) is better
    assert best_plan([better, worse]) is better
    assert best_plan([]) is None


async def test_nomination_stays_while_victims_are_leaving_and_goes_when_hope_is_lost():
    world = World(a_node(cpu="2"), a_pod("low", cpu="2", priority=0))
    await world.settle()

    async def slow_eviction(victim, preemptor):
        known = world.pod(victim.metadata.name)
        world.apply(replace(known, metadata=replace(known.metadata, deletion_timestamp="2024-01-01T00:00:00Z")))

    world.cluster.evict = slow_eviction
    world.apply(a_pod("high", cpu="2", priority=10))
    await world.settle()
    world.scheduler.queue.activate("uid-high", world.clock.monotonic())
    await world.settle()
    assert "not eligible due to a terminating pod on the nominated node" in world.message("high")
    assert world.pod("high").status.nominated_node_name == "node-1"
    world.apply(a_node(cpu="1"))
    world.cluster.delete(world.pod("low"))
    await world.settle(seconds=3)
    assert world.pod("high").status.nominated_node_name == ""
    assert world.scheduler.handle.nominations.node_of("uid-high") is None


async def test_room_that_devices_need_is_preempted_for():
    """The devices are free, but they bring along more cpu than is left beside a pod of lower priority."""
    mapping = {"cpu": NodeAllocatableResourceMapping(allocation_multiplier=Quantity.parse("2"))}
    cores = (Device(name="core-0", node_allocatable_resource_mappings=mapping),)
    world = World(a_node(cpu="4"), a_slice(devices=cores), a_class(), a_claim())
    world.apply(a_pod("low", cpu="3", node_name="node-1", priority=0), a_pod("high", "claim", priority=10))
    await world.settle(seconds=3)
    assert world.node_of("high") == "node-1"
    assert world.pod("low") is None
