"""Extended resources that devices serve where no device plugin does."""

import pytest
from tests.builders.objects import a_claim, a_class, a_node, a_pod, a_slice, quantities
from tests.scheduler.world import World, a_world

from dray.api.core import Container, ResourceRequirements
from dray.api.quantity import Quantity
from dray.api.resource import EXTENDED_RESOURCE_CLAIM_ANNOTATION, Device, NodeAllocatableResourceMapping, ResourceClaim
from dray.client.errors import ApiError
from dray.features import FeatureGates
from dray.scheduler.config import SchedulerConfig
from dray.scheduler.devices import ExtendedClasses
from dray.scheduler.framework.profile import ProfileConfig
from dray.scheduler.plugins.dynamic_resources.pod_claims import demand_for
from dray.scheduler.scheduler import Scheduler

NAME = "example.com/gpu"
SERVING = a_class("gpu", extended_resource_name=NAME)


def serving_world(*objects, **kwargs):
    return a_world(*objects, device_class=SERVING, **kwargs)


def made_claims(world):
    return [c for c in world.cluster.all(ResourceClaim) if EXTENDED_RESOURCE_CLAIM_ANNOTATION in c.metadata.annotations]


def container(name, count, **kwargs):
    return Container(name=name, resources=ResourceRequirements(requests=quantities({NAME: str(count)})), **kwargs)


async def test_devices_serve_the_resource_through_a_claim_of_the_scheduler():
    world = serving_world(a_pod(requests={NAME: "2"}))
    await world.settle()
    assert world.node_of() == "node-1"
    (claim,) = made_claims(world)
    assert claim.metadata.generate_name == "pod-extended-resources-"
    assert claim.metadata.owner_references[0].uid == "uid-pod"
    assert [row.device for row in claim.status.allocation.devices.results] == ["gpu-0", "gpu-1"]
    assert [user.uid for user in claim.status.reserved_for] == ["uid-pod"]
    status = world.pod().status.extended_resource_claim_status
    assert status.resource_claim_name == claim.metadata.name
    (mapping,) = status.request_mappings
    assert (mapping.container_name, mapping.resource_name, mapping.request_name) == (
        "main",
        NAME,
        "container-0-request-0",
    )
    assert world.scheduler.handle.metrics.claim_creates.value("success", "false", "", "Pod") == 1


async def test_device_plugin_comes_first():
    world = World(a_node(extra={NAME: "2"}), a_slice(), SERVING, a_pod(requests={NAME: "1"}))
    await world.settle()
    assert world.node_of() == "node-1"
    assert not made_claims(world)


async def test_nodes_with_and_without_a_device_plugin():
    world = World(
        a_node("node-1", extra={NAME: "1"}),
        a_node("node-2"),
        a_slice("node-2", 1),
        SERVING,
        a_pod("p1", requests={NAME: "1"}),
        a_pod("p2", requests={NAME: "1"}),
        a_pod("p3", requests={NAME: "1"}),
    )
    await world.settle()
    bound = {world.node_of(name) for name in ("p1", "p2", "p3")}
    assert bound == {"node-1", "node-2", ""}
    assert len(made_claims(world)) == 1


async def test_zero_from_a_device_plugin_means_devices():
    world = World(a_node(extra={NAME: "0"}), a_slice(), SERVING, a_pod(requests={NAME: "1"}))
    await world.settle()
    assert len(made_claims(world)) == 1


async def test_name_that_nobody_serves():
    world = serving_world(a_pod(requests={"example.com/other": "1"}))
    await world.settle()
    assert "1 Insufficient example.com/other" in world.message()


async def test_class_serves_its_implicit_name():
    world = serving_world(a_pod(requests={"deviceclass.resource.kubernetes.io/gpu": "1"}))
    await world.settle()
    assert len(made_claims(world)) == 1


async def test_two_containers_get_a_request_each():
    world = serving_world(a_pod(containers=(container("a", 1), container("b", 1))))
    await world.settle()
    (claim,) = made_claims(world)
    assert [row.request for row in claim.status.allocation.devices.results] == [
        "container-0-request-0",
        "container-1-request-0",
    ]


def test_init_container_uses_devices_of_later_containers():
    pod = a_pod(containers=(container("main", 1),), init_containers=(container("init", 3),))
    demand = demand_for(pod, frozenset({NAME}))
    assert [(row.name, row.count) for row in demand.requests] == [
        ("container-0-request-0", 2),
        ("container-1-request-0", 1),
    ]
    assert {(row.container_name, row.request_name) for row in demand.mappings} == {
        ("main", "container-1-request-0"),
        ("init", "container-1-request-0"),
        ("init", "container-0-request-0"),
    }


async def test_too_few_devices():
    world = serving_world(a_pod(requests={NAME: "3"}))
    await world.settle()
    assert "1 cannot allocate all claims" in world.message()
    assert not made_claims(world)


@pytest.mark.parametrize("verb", ["patch pod status", "bind", "update claim status"])
async def test_failure_deletes_the_claim_again(verb):
    world = serving_world(a_pod(requests={NAME: "1"}))
    failures = [1]

    def fault(asked, name):
        if asked == verb and failures[0]:
            failures[0] -= 1
            return ApiError(500, "InternalError", "no luck")
        return None

    world.cluster.fault = fault
    await world.attempt()
    assert not world.node_of()
    assert not made_claims(world)
    await world.settle(seconds=3)
    assert world.node_of() == "node-1"
    assert len(made_claims(world)) == 1


async def test_creation_failure_is_counted_and_tried_again():
    world = serving_world(a_pod(requests={NAME: "1"}))
    failures = [1]

    def fault(asked, name):
        if asked == "create claim" and failures[0]:
            failures[0] -= 1
            return ApiError(403, "Forbidden", "quota")
        return None

    world.cluster.fault = fault
    await world.settle(seconds=3)
    assert world.scheduler.handle.metrics.claim_creates.value("failure", "false", "", "Pod") == 1
    assert world.node_of() == "node-1"


async def test_claim_left_by_an_earlier_attempt_is_deleted_first():
    pod = a_pod(requests={NAME: "1"})
    leftover = a_claim("old", owner=pod, annotations={EXTENDED_RESOURCE_CLAIM_ANNOTATION: "true"})
    world = serving_world(leftover, pod)
    await world.attempt()
    assert "1 cannot schedule extended resource claim" in world.message()
    assert "deletion of ResourceClaim completed" in world.message()
    await world.settle(seconds=305)
    world.scheduler.queue.flush_unschedulable(world.clock.monotonic())
    await world.settle(seconds=2)
    assert world.node_of() == "node-1"


async def test_feature_off_leaves_it_to_device_plugins():
    gates = FeatureGates.default().with_overrides({"DRAExtendedResource": False})
    world = serving_world(a_pod(requests={NAME: "1"}), gates=gates)
    await world.settle()
    assert f"1 Insufficient {NAME}" in world.message()


def test_newest_class_serves_a_name_then_the_first_by_name():
    classes = ExtendedClasses()

    def serving(name, created):
        from msgspec.structs import replace

        made = a_class(name, extended_resource_name=NAME)
        classes.set(replace(made, metadata=replace(made.metadata, creation_timestamp=created)))

    serving("b", "2024-01-01T00:00:00Z")
    serving("c", "2024-01-02T00:00:00Z")
    serving("a", "2024-01-02T00:00:00Z")
    assert classes.serving(NAME).metadata.name == "a"
    classes.remove("a")
    assert classes.serving(NAME).metadata.name == "c"
    assert classes.serving("example.com/none") is None


async def test_a_class_that_is_gone_serves_no_name():
    world = World(a_node(), a_slice(), SERVING)
    world.scheduler.handle.devices.remove_class(SERVING.metadata.name)
    world.apply(a_pod(requests={NAME: "1"}))
    await world.settle()
    assert f"1 Insufficient {NAME}" in world.message()


async def test_a_class_that_comes_later_wakes_the_pod():
    world = World(a_node(), a_slice(), a_pod(requests={NAME: "1"}))
    await world.settle()
    assert not world.node_of()
    world.apply(a_class("other"))
    await world.settle()
    assert not world.node_of()
    world.apply(SERVING)
    await world.settle(15)
    assert world.node_of() == "node-1"


@pytest.mark.parametrize(("strategy", "expected"), [("LeastAllocated", "node-2"), ("MostAllocated", "node-1")])
async def test_devices_behind_the_resource_count_in_the_score(strategy, expected):
    """Two of four devices of node-1 are taken, none of two on node-2; cpu and memory do not matter."""
    scoring = {"type": strategy, "resources": [{"name": "example.com/gpu", "weight": 10}]}
    config = SchedulerConfig(profiles=(ProfileConfig(args={"NodeResourcesFit": {"scoringStrategy": scoring}}),))
    world = World(
        a_node("node-1"),
        a_node("node-2"),
        a_slice("node-1", 4),
        a_slice("node-2", 2),
        a_class(extended_resource_name="example.com/gpu"),
        config=config,
    )
    world.apply(a_node("node-2", unschedulable=True))
    world.apply(a_pod("first", requests={"example.com/gpu": "2"}))
    await world.settle()
    assert world.node_of("first") == "node-1"
    world.apply(a_node("node-2"), a_pod("second", requests={"example.com/gpu": "1"}))
    await world.settle()
    assert world.node_of("second") == expected


def a_device_with_cpus(name, cpus):
    mapping = NodeAllocatableResourceMapping(allocation_multiplier=Quantity.parse(cpus))
    return Device(name=name, node_allocatable_resource_mappings={"cpu": mapping})


async def test_devices_behind_an_extended_resource_are_charged_to_the_node():
    devices = tuple(a_device_with_cpus(f"gpu-{index}", "5") for index in range(2))
    world = World(a_node(cpu="8"), a_slice(devices=devices), SERVING, a_pod("p1", requests={NAME: "1"}))
    await world.settle()
    assert world.node_of("p1") == "node-1"
    assert world.requested()["cpu"] == 5000
    (claim,) = made_claims(world)
    (status,) = world.pod("p1").status.node_allocatable_resource_claim_statuses
    assert status.resource_claim_name == claim.metadata.name
    assert status.containers == ("main",)
    assert {name: str(amount) for name, amount in status.resources.items()} == {"cpu": "5"}
    world.apply(a_pod("p2", requests={NAME: "1"}))
    await world.settle()
    assert not world.node_of("p2")
    assert "1 Insufficient cpu" in world.message("p2")
    world.check()
    again = Scheduler(world.cluster, world.clock)
    world.cluster.watch(again.cluster)
    assert again.handle.snapshot.nodes.get("node-1").ledger.requested("cpu") == 5000
