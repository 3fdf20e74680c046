"""Claims that the pods of a group share: made for the group, reserved for the group."""

import pytest
from msgspec.structs import replace
from tests.builders.objects import NAMESPACE, a_claim, a_class, a_node, a_pod, a_slice, with_claim_status
from tests.scheduler.world import World, a_world

from dray.api.core import PodResourceClaim, PodSchedulingGroup
from dray.api.meta import ObjectMeta, OwnerReference
from dray.api.quantity import Quantity
from dray.api.resource import Device, NodeAllocatableResourceMapping
from dray.api.workloads import PodGroup, PodGroupSpec
from dray.client.errors import ApiError

SHARED = PodResourceClaim(name="dev", resource_claim_template_name="template")
GROUP_USER = [("scheduling.k8s.io", "podgroups", "team", "uid-team")]


def team(*entries, name="team"):
    return PodGroup(
        metadata=ObjectMeta(name=name, namespace=NAMESPACE, uid=f"uid-{name}"),
        spec=PodGroupSpec(resource_claims=entries or (SHARED,)),
    )


def a_member(name, entry=SHARED, group="team", **fields):
    pod = a_pod(name, scheduling_group=PodSchedulingGroup(pod_group_name=group), **fields)
    pod = replace(pod, spec=replace(pod.spec, resource_claims=(entry,)))
    return with_claim_status(pod, **{entry.name: "shared"}) if entry.resource_claim_template_name else pod


def group_claim(owner="uid-team", **fields):
    claim = a_claim("shared", **fields)
    reference = OwnerReference(
        api_version="scheduling.k8s.io/v1beta1", kind="PodGroup", name="team", uid=owner, controller=True
    )
    return replace(claim, metadata=replace(claim.metadata, owner_references=(reference,)))


def two_nodes(*objects, **kwargs):
    return a_world(*objects, nodes=("node-1", "node-2"), **kwargs)


def users(world, claim="shared"):
    return [(row.api_group, row.resource, row.name, row.uid) for row in world.claim(claim).status.reserved_for]


async def test_claim_is_allocated_once_and_reserved_for_the_group():
    world = two_nodes(team(), group_claim(), a_member("p1"), a_member("p2"))
    await world.settle(seconds=2)
    assert world.node_of("p1") == world.node_of("p2") != ""
    assert users(world) == GROUP_USER
    assert len([write for write in world.cluster.writes if write == "update claim status shared"]) == 1


async def test_claim_that_the_group_names_is_the_groups_as_well():
    entry = PodResourceClaim(name="dev", resource_claim_name="by-name")
    world = two_nodes(team(entry), a_claim("by-name"), a_member("p1", entry))
    await world.settle()
    assert users(world, "by-name") == GROUP_USER


async def test_entry_that_differs_from_the_groups_is_the_pods_own():
    entry = PodResourceClaim(name="own", resource_claim_name="by-name")
    world = two_nodes(team(), a_claim("by-name"), a_member("p1", entry))
    await world.settle()
    assert users(world, "by-name") == [("", "pods", "p1", "uid-p1")]


@pytest.mark.parametrize(
    ("objects", "why"),
    [
        pytest.param((), "(Pod is not owner)", id="group-missing-or-feature-off"),
        pytest.param((team(),), "(neither Pod nor PodGroup team is the owner)", id="claim-of-another-group"),
    ],
)
async def test_claim_of_somebody_else_keeps_the_pod_out(objects, why):
    owner = "uid-team" if not objects else "uid-of-another"
    world = two_nodes(*objects, group_claim(owner), a_member("p1"))
    await world.settle()
    assert world.where("p1") == "gated"
    status = world.scheduler.held_back(world.pod("p1"))
    assert status.message == f"ResourceClaim default/shared was not created for Pod default/p1 {why}"


async def test_group_that_comes_later_lets_its_pods_in():
    world = two_nodes(group_claim(), a_member("p1"))
    await world.settle()
    assert world.node_of("p1") == ""
    world.apply(team())
    await world.settle()
    assert world.node_of("p1")
    assert users(world) == GROUP_USER


def failing_bind(*names):
    return lambda verb, name: ApiError(500, "InternalError", "no luck") if verb == "bind" and name in names else None


async def test_reservation_is_given_back_when_no_pod_of_the_group_has_a_node():
    world = two_nodes(team(), group_claim(), a_member("p1"))
    world.cluster.fault = failing_bind("p1")
    await world.attempt()
    assert users(world) == []
    assert world.claim("shared").status.allocation is not None


async def test_reservation_stays_while_another_pod_of_the_group_has_a_node():
    world = two_nodes(team(), group_claim(), a_member("p1"))
    await world.settle()
    world.cluster.fault = failing_bind("p2")
    world.apply(a_member("p2"))
    await world.attempt()
    assert world.node_of("p2") == ""
    assert users(world) == GROUP_USER


async def test_unused_claim_of_the_group_is_deallocated_when_it_blocks():
    """Its devices are on a node that no pod of the group can use any more."""
    world = two_nodes(team(), group_claim(), a_member("p1"))
    world.cluster.fault = failing_bind("p1")
    await world.attempt()
    world.cluster.fault = lambda verb, name: None
    node = world.claim("shared").status.allocation.devices.results[0].pool
    world.apply(a_node(node, unschedulable=True))
    await world.settle(seconds=5)
    assert world.node_of("p1") not in ("", node)


async def test_claim_of_the_group_stays_while_a_pod_uses_it():
    world = two_nodes(team(), group_claim(), a_member("p1"))
    await world.settle()
    node = world.node_of("p1")
    world.apply(a_node(node, unschedulable=True), a_member("p2"))
    await world.settle(seconds=40)
    assert world.node_of("p2") == ""
    assert world.claim("shared").status.allocation is not None
    assert users(world) == GROUP_USER


def a_core_slice(node="node-1"):
    mapping = {"cpu": NodeAllocatableResourceMapping(allocation_multiplier=Quantity.parse("1"))}
    return a_slice(node, (Device(name="core-0", node_allocatable_resource_mappings=mapping),))


async def test_pods_of_a_group_share_a_claim_that_takes_cpu():
    """Each of them is charged what the claim maps; others may not use it."""
    world = World(a_node(cpu="8"), a_core_slice(), a_class(), team(), group_claim())
    world.apply(a_member("p1", cpu="1"))
    await world.settle()
    world.apply(a_member("p2", cpu="1"), a_pod("stranger", "shared", cpu="1"))
    await world.settle()
    assert world.node_of("p1") == world.node_of("p2") == "node-1"
    assert world.requested()["cpu"] == 4000
    assert world.node_of("stranger") == ""
    assert "claim shared has a mapped device and cannot be shared across pods" in world.message("stranger")


async def test_pod_of_another_group_may_not_use_it_either():
    entry = PodResourceClaim(name="dev", resource_claim_name="shared")
    world = World(a_node(cpu="8"), a_core_slice(), a_class(), team(entry), team(entry, name="rivals"))
    world.apply(a_claim("shared"), a_member("p1", entry))
    await world.settle()
    world.apply(a_member("p2", entry, group="rivals"))
    await world.settle()
    assert world.node_of("p1") == "node-1"
    assert "cannot be shared across pods" in world.message("p2")
