"""Which change wakes a pod that was turned away for its devices, and which does not."""

import pytest
from msgspec.structs import replace
from tests.builders.objects import a_claim, a_class, a_node, a_pod, a_slice, allocated, template_pod, with_claim_status
from tests.scheduler.world import World

from dray.api.core import TopologySpreadConstraint
from dray.api.meta import LabelSelector
from dray.api.resource import CLAIM_FINALIZER, AllocationResult
from dray.scheduler.assembly import OURS
from dray.scheduler.config import SchedulerConfig
from dray.scheduler.framework.interface import (
    Action,
    ClusterChange,
    ClusterEvent,
    EventRegistration,
    EventResource,
    Hint,
    unresolvable,
    unschedulable,
)
from dray.scheduler.framework.profile import EnabledPlugin, PluginRegistry, PluginSet, ProfileConfig
from dray.scheduler.plugins.dynamic_resources.pod_claims import _Hints
from dray.scheduler.plugins.topology_spread import PodTopologySpread
from dray.scheduler.queue import SchedulingQueue
from dray.scheduler.snapshot import PodGroups

DELETED = ClusterEvent(EventResource.RESOURCE_CLAIM, Action.DELETE)
ADDED = ClusterEvent(EventResource.RESOURCE_CLAIM, Action.ADD)
UPDATED = ClusterEvent(EventResource.RESOURCE_CLAIM, Action.UPDATE_OTHER)

MINE = a_claim("claim", uid="claim-uid")
OTHER = a_claim("other", uid="other-uid")
SOME = AllocationResult()
CLOSED = unresolvable("closed").by("Plugin")
PROTECTED = replace(MINE, metadata=replace(MINE.metadata, finalizers=(CLAIM_FINALIZER,)))


@pytest.mark.parametrize(
    ("change", "hint"),
    [
        pytest.param(ClusterChange(DELETED, old=OTHER), Hint.SKIP, id="deleted-without-allocation"),
        pytest.param(ClusterChange(DELETED, old=allocated(OTHER, SOME)), Hint.QUEUE, id="deleted-with-allocation"),
        pytest.param(
            ClusterChange(DELETED, old=OTHER, final_state_unknown=True), Hint.QUEUE, id="deleted-unknown-state"
        ),
        pytest.param(ClusterChange(UPDATED, allocated(OTHER, SOME), OTHER), Hint.QUEUE, id="deallocated-anybody's"),
        pytest.param(ClusterChange(ADDED, new=OTHER), Hint.SKIP, id="unrelated-added"),
        pytest.param(ClusterChange(UPDATED, OTHER, allocated(OTHER, SOME)), Hint.SKIP, id="unrelated-allocated"),
        pytest.param(ClusterChange(ADDED, new=MINE), Hint.QUEUE, id="added"),
        pytest.param(ClusterChange(UPDATED, MINE, PROTECTED), Hint.SKIP, id="finalizer-only"),
        pytest.param(ClusterChange(UPDATED, MINE, allocated(MINE, SOME)), Hint.QUEUE, id="status-changed"),
    ],
)
def test_claim_hint(change, hint):
    pod = a_pod("pod", "claim")
    world = World(MINE, pod)
    hints = _Hints(world.scheduler.handle.devices.claims, PodGroups(), world.scheduler.handle.claim_users)
    answers = (hints.own_claim_changed(pod, change), hints.devices_freed(pod, change))
    assert (Hint.QUEUE in answers) is (hint is Hint.QUEUE)


def test_freed_devices_concern_no_pod_that_waits_for_its_claims():
    tried, gated = a_pod("tried", "claim"), a_pod("gated", "missing")
    world = World(a_claim("claim"), OTHER, gated, tried)
    asked = []
    hints = _Hints(world.scheduler.handle.devices.claims, PodGroups(), world.scheduler.handle.claim_users)
    row = EventRegistration(UPDATED, lambda pod, change: asked.append(pod) or Hint.SKIP, hints.anybody_if_freed)
    queue = SchedulingQueue(lambda pod: CLOSED if pod is gated else None, {"Plugin": [row]}, lambda pod, at: (at,))
    for pod in (tried, gated):
        queue.add(pod, 0.0)
    queue.put_back_rejected(queue.pop(0.0), ["Plugin"], 0.0)
    queue.move(ClusterChange(UPDATED, allocated(OTHER, SOME), OTHER), 1.0)
    assert asked == [tried]
    queue.move(ClusterChange(UPDATED, OTHER, allocated(OTHER, SOME)), 1.0)
    assert asked == [tried]


def test_claim_hint_is_no_while_another_claim_is_missing():
    pod = a_pod("pod", "claim", "missing")
    world = World(MINE, pod)
    hints = _Hints(world.scheduler.handle.devices.claims, PodGroups(), world.scheduler.handle.claim_users)
    assert hints.own_claim_changed(pod, ClusterChange(ADDED, new=MINE)) is Hint.SKIP


@pytest.mark.parametrize("complete", [True, False])
def test_pod_hint_waits_until_all_claims_are_there(complete):
    pod = a_pod("pod", "template:a", "template:b")
    named = with_claim_status(pod, a="pod-a", b="pod-b")
    claims = [a_claim("pod-a", owner=pod), *([a_claim("pod-b", owner=pod)] if complete else [])]
    world = World(*claims)
    hints = _Hints(world.scheduler.handle.devices.claims, PodGroups(), world.scheduler.handle.claim_users)
    change = ClusterChange(ClusterEvent(EventResource.UNSCHEDULED_POD, Action.UPDATE_POD_CLAIMS), pod, named)
    assert hints.pod_changed(pod, change) is (Hint.QUEUE if complete else Hint.SKIP)
    assert hints.pod_changed(a_pod("another"), change) is Hint.SKIP


def test_index_looks_only_at_pods_of_the_claim():
    pod = a_pod("pod", "claim")
    world = World(MINE, OTHER, pod, *template_pod("made"))
    hints = _Hints(world.scheduler.handle.devices.claims, PodGroups(), world.scheduler.handle.claim_users)
    assert set(hints.users_of_claim(ClusterChange(ADDED, new=MINE))) == {"uid-pod"}
    assert set(hints.users_of_claim(ClusterChange(ADDED, new=OTHER))) == set()
    assert set(hints.users_of_claim(ClusterChange(ADDED, new=world.claim("made-dev")))) == {"uid-made"}
    assert hints.anybody_if_freed(ClusterChange(DELETED, old=allocated(OTHER, SOME))) is None


async def test_events_during_the_attempt_are_not_lost():
    """The device is freed after the pod was turned away in thought, but before it is parked."""
    world = World(a_node(), a_slice(devices=1), a_class(), *template_pod("p1"))
    await world.settle()
    world.apply(*template_pod("p2"))
    entry = world.scheduler.queue.pop(world.clock.monotonic())
    gone = world.pod("p1")
    world.cluster.delete(gone)
    world.cluster.release_claims_of(gone)
    world.scheduler.queue.put_back_rejected(entry, {"DynamicResources"}, world.clock.monotonic())
    assert world.where("p2") in ("active", "backoff")
    await world.settle(seconds=2)
    assert world.node_of("p2") == "node-1"


async def test_unrelated_claims_leave_waiting_pods_alone():
    world = World(a_node(), a_slice(devices=1), a_class(), *template_pod("p1"))
    await world.settle()
    waiting = [x for index in range(20) for x in template_pod(f"w{index}")]
    world.apply(*waiting)
    await world.settle()
    before = world.scheduler.handle.metrics.attempts.value("unschedulable", "default-scheduler")
    world.apply(OTHER, replace(OTHER, metadata=replace(OTHER.metadata, labels={"a": "b"})))
    await world.settle(seconds=2)
    assert world.scheduler.handle.metrics.attempts.value("unschedulable", "default-scheduler") == before


@pytest.mark.parametrize("event", ["slice", "class", "node"])
async def test_slices_classes_and_nodes_wake_everybody(event):
    world = World(a_node(), a_slice(devices=1), a_class(), *template_pod("p1"), *template_pod("p2"))
    await world.settle()
    assert world.where("p2") == "unschedulable"
    match event:
        case "slice":
            world.apply(a_slice(devices=2, generation=2))
        case "class":
            world.apply(a_class("gpu", "true"))
        case "node":
            world.apply(a_node("node-2"))
    assert world.where("p2") in ("active", "backoff")


class Confused:
    """Refuses every pod, and its hint breaks."""

    name = "Confused"

    def filter(self, cycle, pod, node):
        return unschedulable("not now")

    def events_to_register(self):
        def hint(pod, change):
            raise RuntimeError("what was that?")

        return [EventRegistration(ClusterEvent(EventResource.NODE, Action.ADD), hint)]


async def test_hint_that_breaks_counts_as_yes():
    registry = PluginRegistry({**OURS, "Confused": lambda args, handle: Confused()})
    plugins = {"filter": PluginSet((EnabledPlugin("Confused"),))}
    config = SchedulerConfig(profiles=(ProfileConfig(plugins=plugins),))
    world = World(a_node(), a_pod(), config=config, plugins=registry)
    await world.settle()
    assert world.where() == "unschedulable"
    world.apply(a_node("node-2"))
    assert world.where() in ("active", "backoff")


@pytest.mark.parametrize(
    ("change", "woken"),
    [
        pytest.param({"labels": {"new": "label"}}, True, id="labels"),
        pytest.param({"cpu": "16"}, True, id="allocatable"),
        pytest.param({}, False, id="nothing"),
    ],
)
async def test_changed_node_wakes_pods_that_wait_for_devices(change, woken):
    world = World(a_node(), a_slice(devices=0), a_class(), a_claim(), a_pod("pod", "claim"))
    await world.settle()
    assert world.where() == "unschedulable"
    world.apply(a_node(**change))
    assert (world.where() != "unschedulable") == woken


async def test_class_that_changes_wakes_the_pod():
    world = World(a_node(), a_slice(), a_class(expression="false"), a_claim(), a_pod("pod", "claim"))
    await world.settle()
    assert world.where() == "unschedulable"
    world.apply(a_class(expression="true"))
    await world.settle(seconds=2)
    assert world.node_of() == "node-1"


@pytest.mark.parametrize(
    ("labels", "namespace", "hint"),
    [
        ({"app": "web"}, "default", Hint.QUEUE),
        ({"app": "db"}, "default", Hint.SKIP),
        ({"app": "web"}, "other", Hint.SKIP),
    ],
    ids=["counted", "not-counted", "in-another-namespace"],
)
def test_spread_hint_is_about_pods_that_the_constraint_counts(labels, namespace, hint):
    constraint = TopologySpreadConstraint(
        max_skew=1,
        topology_key="zone",
        when_unsatisfiable="DoNotSchedule",
        label_selector=LabelSelector(match_labels={"app": "web"}),
    )
    waiting = a_pod("waiting", labels={"app": "web"}, topology_spread_constraints=(constraint,))
    gone = a_pod("gone", labels=labels)
    gone = replace(gone, metadata=replace(gone.metadata, namespace=namespace))
    change = ClusterChange(ClusterEvent(EventResource.ASSIGNED_POD, Action.DELETE), old=gone)
    assert PodTopologySpread._pod_hint(waiting, change) is hint
