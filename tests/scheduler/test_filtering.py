"""Which nodes are turned away, why, and in which words: devices."""

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
    alternatives,
    an_alternative,
    template_pod,
)
from tests.scheduler.world import World

from dray.api.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from dray.api.meta import ObjectMeta
from dray.api.resource import (
    Device,
    DeviceAttribute,
    DeviceClass,
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintRuleSpec,
    DeviceTaintSelector,
    DeviceToleration,
)
from dray.features import FeatureGates
from dray.scheduler.config import SchedulerConfig
from dray.scheduler.framework.filtering import EVERY_NODE, ChangeReader
from dray.scheduler.framework.interface import NodeFacet
from dray.scheduler.framework.profile import ProfileConfig

NOT_HELPFUL = "preemption: 0/{0} nodes are available: {0} Preemption is not helpful for scheduling."


def two_nodes(*objects, **kwargs):
    return World(
        a_node("node-1"), a_node("node-2"), a_slice("node-1"), a_slice("node-2"), a_class(), *objects, **kwargs
    )


# --- capacity


async def test_exhausted_devices_are_counted_per_node():
    world = two_nodes(a_claim("claim", a_request(count=3)), a_pod("pod", "claim"))
    await world.settle()
    assert world.message() == f"0/2 nodes are available: 2 cannot allocate all claims. {NOT_HELPFUL.format(2)}"
    assert world.reason() == "Unschedulable"
    event = world.events("FailedScheduling")[0]
    assert (event.type, event.action, event.message) == ("Warning", "Scheduling", world.message())
    assert world.where() == "unschedulable"


async def test_other_devices_in_flight_do_not_matter():
    world = two_nodes(*template_pod("p1"), *template_pod("p2"))
    await world.scheduler.schedule_next()
    await world.scheduler.schedule_next()
    await world.settle()
    assert world.node_of("p1")
    assert world.node_of("p2")


@pytest.mark.parametrize("tolerated", [False, True])
async def test_tainted_devices(tolerated):
    taint = DeviceTaint(key="sick", value="yes", effect="NoSchedule")
    tolerations = (DeviceToleration(key="sick", operator="Exists"),) if tolerated else ()
    world = World(
        a_node(),
        a_slice(devices=(Device(name="gpu-0", taints=(taint,)),)),
        a_class(),
        a_claim("claim", a_request(tolerations=tolerations)),
        a_pod("pod", "claim"),
    )
    await world.settle()
    assert bool(world.node_of()) is tolerated


async def test_taint_rule_keeps_a_pod_pending_until_it_is_gone():
    rule = DeviceTaintRule(
        metadata=ObjectMeta(name="rule"),
        spec=DeviceTaintRuleSpec(
            device_selector=DeviceTaintSelector(driver=DRIVER), taint=DeviceTaint(key="sick", effect="NoSchedule")
        ),
    )
    world = two_nodes(rule, a_claim(), a_pod("pod", "claim"))
    await world.settle()
    assert "2 cannot allocate all claims" in world.message()
    world.cluster.delete(rule)
    await world.settle(seconds=2)
    assert world.node_of()


def test_a_taint_rule_counts_again_when_its_spec_changes_and_not_when_its_status_does():
    selector = DeviceTaintSelector(driver=DRIVER)
    rule = DeviceTaintRule(
        metadata=ObjectMeta(name="rule"),
        spec=DeviceTaintRuleSpec(device_selector=selector, taint=DeviceTaint(key="sick", effect="None")),
    )
    world = two_nodes(rule)
    reader = ChangeReader(world.scheduler.handle.snapshot.log, {NodeFacet.DEVICES})
    told = replace(rule, metadata=replace(rule.metadata, resource_version="7"))
    world.scheduler.cluster.set_taint_rule(told, rule)
    assert reader.changed() == 0
    spec = replace(rule.spec, taint=DeviceTaint(key="sick", effect="NoSchedule"))
    world.scheduler.cluster.set_taint_rule(replace(rule, spec=spec), told)
    assert reader.changed() == EVERY_NODE


def test_a_class_that_goes_changes_what_all_nodes_can_give():
    world = World(a_node(), a_slice(), a_class())
    reader = ChangeReader(world.scheduler.handle.snapshot.log, {NodeFacet.DEVICES})
    assert reader.changed() == 0
    world.cluster.delete(world.cluster.get(DeviceClass, a_class().metadata.name))
    assert reader.changed() == EVERY_NODE


async def test_taints_do_not_count_with_the_feature_off():
    gates = FeatureGates.default().with_overrides({"DRADeviceTaints": False, "DRADeviceTaintRules": False})
    devices = (Device(name="gpu-0", taints=(DeviceTaint(key="sick", effect="NoSchedule"),)),)
    world = World(a_node(), a_slice(devices=devices), a_class(), a_claim(), a_pod("pod", "claim"), gates=gates)
    await world.settle()
    assert world.node_of()


async def test_admin_access_may_use_devices_in_use_and_is_ignored_afterwards():
    world = World(a_node(), a_slice(devices=1), a_class(), a_claim("normal"), a_pod("p1", "normal"))
    await world.settle()
    world.apply(a_claim("admin", a_request(admin_access=True)), a_pod("p2", "admin"))
    await world.settle()
    assert world.node_of("p2") == "node-1"
    world.cluster.delete(world.pod("p1"))
    world.cluster.delete(world.claim("normal"))
    world.apply(a_claim("next"), a_pod("p3", "next"))
    await world.settle()
    assert world.devices_of("next") == world.devices_of("admin") == ["node-1/gpu-0"]


# --- errors


BROKEN = 'device.attributes["gpu.example.com"].missing == "x"'


@pytest.mark.parametrize("where", ["claim", "class"])
async def test_selector_that_fails_is_an_error_for_the_whole_attempt(where):
    device_class = a_class("gpu", BROKEN if where == "class" else "")
    request = a_request(expression=BROKEN if where == "claim" else "")
    world = World(a_node(), a_slice(), device_class, a_claim("claim", request), a_pod("pod", "claim"))
    await world.settle()
    assert world.reason() == "SchedulerError"
    assert world.message().startswith('running "DynamicResources" filter plugin: ')
    assert ("default/claim" if where == "claim" else "class gpu") in world.message()
    assert world.where() == "backoff"


async def test_selector_that_fails_on_one_of_two_nodes_fails_the_attempt_too():
    known = Device(name="gpu-0", attributes={"missing": DeviceAttribute(string="x")})
    world = World(
        a_node("node-1"),
        a_node("node-2"),
        a_slice("node-1", (known,)),
        a_slice("node-2"),
        a_class(),
        a_claim("claim", a_request(expression=BROKEN)),
        a_pod("pod", "claim"),
    )
    await world.settle()
    assert world.reason() == "SchedulerError"


async def test_error_recovers_after_the_slice_is_repaired():
    world = World(a_node(), a_slice(), a_class(), a_claim("claim", a_request(expression=BROKEN)), a_pod("pod", "claim"))
    await world.settle()
    assert world.reason() == "SchedulerError"
    world.apply(a_slice(devices=(Device(name="gpu-0", attributes={"missing": DeviceAttribute(string="x")}),)))
    await world.settle(seconds=2)
    assert world.node_of() == "node-1"


async def test_unknown_class_of_an_alternative_rejects_the_pod():
    request = alternatives("req", an_alternative("a", "gpu"), an_alternative("b", "none"))
    world = two_nodes(a_claim("claim", request), a_pod("pod", "claim"))
    await world.settle()
    assert "request req/b: device class none does not exist" in world.message()


async def test_prioritized_list_with_the_feature_off_is_an_error():
    gates = FeatureGates.for_release("1.34").with_overrides({"DRAPrioritizedList": False})
    request = alternatives("req", an_alternative("a", "gpu"))
    world = two_nodes(a_claim("claim", request), a_pod("pod", "claim"), gates=gates)
    await world.settle()
    assert "has subrequests, but the DRAPrioritizedList feature is disabled" in world.message()


async def test_invalid_pool_is_named():
    twice = (Device(name="gpu-0"), Device(name="gpu-0"))
    world = World(a_node(), a_slice(devices=twice), a_class(), a_claim(), a_pod("pod", "claim"))
    await world.settle()
    assert "1 invalid resource pools were encountered" in world.message()


# --- topology


async def test_claim_allocated_elsewhere_is_deallocated_when_nobody_uses_it():
    world = two_nodes(a_claim(), a_pod("p1", "claim"))
    await world.settle()
    first = world.node_of("p1")
    # The pod is gone, the allocation is not; and its node cannot be used any more.
    claim = world.claim()
    world.cluster.delete(world.pod("p1"))
    world.apply(replace(claim, status=replace(claim.status, reserved_for=())))
    world.apply(a_node(first, unschedulable=True), a_pod("p2", "claim"))
    await world.attempt()
    assert world.message("p2") == (
        "0/2 nodes are available: 1 node(s) were unschedulable, 1 resourceclaim not available on the node. "
        f"deallocation of ResourceClaim completed, {NOT_HELPFUL.format(2)}"
    )
    await world.settle(seconds=3)
    assert world.node_of("p2") not in ("", first)


async def test_one_of_several_blocking_claims_is_deallocated_by_chance():
    """Two unused claims are allocated on nodes that the pod cannot use both: one of them is freed, not always the same."""
    freed = set()
    for seed in range(8):
        world = two_nodes(a_claim("a"), a_claim("b"), a_pod("pa", "a"), a_pod("pb", "b"))
        world.scheduler.handle.chance.seed(seed)
        await world.settle()
        for name in ("a", "b"):
            world.cluster.delete(world.pod(f"p{name}"))
            claim = world.claim(name)
            world.apply(replace(claim, status=replace(claim.status, reserved_for=())))
        for node in {world.claim(name).status.allocation.devices.results[0].pool for name in ("a", "b")}:
            world.apply(a_node(node, unschedulable=True))
        world.apply(a_node("node-3"), a_slice("node-3"), a_pod("waits", "a", "b"))
        await world.attempt()
        left = [name for name in ("a", "b") if world.claim(name).status.allocation is not None]
        assert len(left) == 1
        freed.update({"a", "b"} - set(left))
    assert freed == {"a", "b"}


async def test_claim_in_use_elsewhere_is_not_touched():
    world = two_nodes(a_claim(), a_pod("p1", "claim"))
    await world.settle()
    first = world.node_of("p1")
    world.apply(a_node(first, unschedulable=True), a_pod("p2", "claim"))
    await world.settle()
    assert world.claim().status.allocation is not None
    assert "1 resourceclaim not available on the node" in world.message("p2")


async def test_network_device_restricts_nodes_by_their_labels():
    selector = NodeSelector(
        node_selector_terms=(
            NodeSelectorTerm(match_expressions=(NodeSelectorRequirement(key="rack", operator="In", values=("a",)),)),
        )
    )
    world = World(
        a_node("node-1", labels={"rack": "b"}),
        a_node("node-2", labels={"rack": "a"}),
        a_slice(None, 1, all_nodes=None, node_selector=selector),
        a_class(),
        a_claim(),
        a_pod("p1", "claim"),
    )
    await world.settle()
    assert world.node_of("p1") == "node-2"
    world.apply(a_pod("p2", "claim"))
    await world.settle()
    assert world.node_of("p2") == "node-2"


async def test_already_allocated_claim_and_a_new_one_meet_on_one_node():
    world = two_nodes(a_claim("old"), a_pod("p1", "old"))
    await world.settle()
    world.apply(a_claim("new"), a_pod("p2", "old", "new"))
    await world.settle()
    assert world.node_of("p2") == world.node_of("p1")
    assert world.devices_of("new") == [f"{world.node_of('p1')}/gpu-1"]


async def test_no_nodes_at_all():
    world = World(a_pod())
    await world.settle()
    assert world.message() == "no nodes available to schedule pods"


async def test_plugin_disabled_ignores_claims():
    from dray.scheduler.framework.profile import PluginSet

    config = SchedulerConfig(
        profiles=(ProfileConfig(plugins={"multiPoint": PluginSet(disabled=("DynamicResources",))}),)
    )
    world = two_nodes(a_claim(), a_pod("pod", "claim"), config=config)
    await world.settle()
    assert world.node_of()
    assert world.claim().status.allocation is None


async def test_claim_of_a_pod_that_another_scheduler_has_bound_is_not_deallocated():
    """The other one reserved and bound it a moment ago; we have seen the reservation and not yet the node."""
    world = two_nodes(a_claim(), a_pod("pod", "claim"))
    await world.settle()
    bound, claim = world.pod(), world.claim()
    late = two_nodes(claim, a_pod("pod", "claim"), a_node(bound.spec.node_name, unschedulable=True), at_once=False)
    late.apply(bound)  # Stored, not shown.
    await late.attempt()
    assert late.claim().status == claim.status


async def test_admin_access_with_the_feature_off_is_an_error():
    gates = FeatureGates.for_release("1.34").with_overrides({"DRAAdminAccess": False})
    world = two_nodes(a_claim("claim", a_request(admin_access=True)), a_pod("pod", "claim"), gates=gates)
    await world.settle()
    assert world.reason() == "SchedulerError"
    assert "admin access is requested, but the feature is disabled" in world.message()


async def test_claim_that_another_scheduler_has_just_reserved_is_left_to_it_for_a_while():
    """It may bind the pod at any moment; after half a minute nobody will."""
    world = two_nodes(a_claim(), a_pod("pod", "claim"))
    await world.settle()
    place, claim = world.node_of(), world.claim()
    late = two_nodes(claim, a_pod("pod", "claim"), a_node(place, unschedulable=True))
    await late.attempt()
    assert late.claim().status == claim.status
    await late.clock.advance(31)
    late.scheduler.queue.flush_backoff(late.clock.monotonic())
    late.apply(a_node("node-3"))
    await late.settle(seconds=3)
    assert late.node_of() not in ("", place)
