"""Writing what was decided, and undoing it when that fails."""

import pytest
from msgspec.structs import replace
from tests.builders.objects import a_claim, a_class, a_node, a_pod, a_slice, template_pod
from tests.scheduler.world import World, a_world

from dray.api.resource import ResourceClaim
from dray.client.errors import ApiError, ServerUnreachable
from dray.scheduler.scheduler import Scheduler
from dray.sim.memory_cluster import conflict, devices_held


def refuse(verb, times=1, problem=None):
    """A fault that refuses `verb` so many times."""
    left = [times]

    def fault(asked, name):
        if asked == verb and left[0] > 0:
            left[0] -= 1
            return problem or ApiError(500, "InternalError", "no luck")
        return None

    return fault


MODIFIED = conflict("the object has been modified; please apply your changes to the latest version and try again")


async def test_status_write_failure_undoes_everything_and_is_tried_again():
    world = a_world(a_claim(), a_pod("pod", "claim"))
    world.cluster.fault = refuse("update claim status")
    await world.attempt()
    assert world.message() == (
        'running PreBind plugin "DynamicResources": add allocation and reservation to claim default/claim: no luck'
    )
    assert world.reason() == "SchedulerError"
    assert not world.node_of()
    assert not world.scheduler.handle.devices.in_flight
    assert world.requested() == {"cpu": 0, "memory": 0}
    assert world.where() == "backoff"
    await world.settle(seconds=2)
    assert world.node_of() == "node-1"


async def test_in_flight_allocation_counts_until_it_is_undone():
    world = World(a_node(), a_slice(devices=1), a_class(), *template_pod("p1"), *template_pod("p2"))
    assert await world.scheduler.schedule_next()
    assert len(world.scheduler.handle.devices.in_flight) == 1
    await world.scheduler.schedule_next()
    assert "cannot allocate all claims" in world.events("FailedScheduling")[0].message
    await world.settle()


@pytest.mark.parametrize("times", [1, 4])
async def test_conflict_is_retried_from_fresh_state(times):
    world = a_world(a_claim(), a_pod("pod", "claim"))
    world.cluster.fault = refuse("update claim status", times, MODIFIED)
    await world.settle()
    assert world.node_of() == "node-1"
    assert world.cluster.writes.count("get claim claim") == times


async def test_fifth_conflict_in_a_row_fails_the_attempt():
    world = a_world(a_claim(), a_pod("pod", "claim"))
    world.cluster.fault = refuse("update claim status", 5, MODIFIED)
    await world.attempt()
    assert world.reason() == "SchedulerError"
    await world.settle(seconds=2)
    assert world.node_of() == "node-1"


async def test_device_that_another_claim_holds_is_not_written_again_but_chosen_again():
    world = a_world(a_claim(), a_pod("pod", "claim"))
    world.cluster.fault = refuse("update claim status", 1, devices_held("device gpu-0 is held by claim other"))
    await world.attempt()
    assert world.cluster.writes.count("get claim claim") == 0
    await world.settle(seconds=2)
    assert world.node_of() == "node-1"


async def test_claim_deleted_while_the_finalizer_is_added():
    world = a_world(a_claim(), a_pod("pod", "claim"))

    def vanish(verb, name):
        if verb == "update claim" and world.claim() is not None:
            world.cluster.delete(world.claim())
        return

    world.cluster.fault = vanish
    await world.attempt()
    assert not world.node_of()
    assert world.claim() is None
    assert not world.scheduler.handle.devices.in_flight


async def test_claim_replaced_under_the_same_name_starts_over():
    world = a_world(a_claim(), a_pod("pod", "claim"))
    replaced = []

    def swap(verb, name):
        if verb == "update claim" and not replaced:
            replaced.append(world.claim().metadata.uid)
            world.cluster.delete(world.claim())
            world.apply(a_claim())
        return

    world.cluster.fault = swap
    await world.settle(seconds=2)
    assert world.node_of() == "node-1"
    assert world.claim().metadata.uid != replaced[0]


async def test_allocation_by_somebody_else_wins():
    world = a_world(a_claim(), a_pod("p1", "claim"))
    other = World(a_node(), a_slice(), a_class(), a_claim(), a_pod("p2", "claim"))
    await other.settle()
    taken = other.claim().status

    def steal(verb, name):
        known = world.claim()
        if verb == "update claim" and known.status.allocation is None:
            world.apply(replace(known, status=replace(taken, reserved_for=())))
        return

    world.cluster.fault = steal
    await world.attempt()
    assert "claim default/claim got allocated elsewhere in the meantime" in world.message("p1")
    await world.settle(seconds=2)
    assert world.node_of("p1") == "node-1"
    assert world.devices_of() == ["node-1/gpu-0"]


async def test_deallocation_by_somebody_else_fails_the_reservation():
    world = a_world(a_claim(), a_pod("p1", "claim"))
    await world.settle()
    world.apply(a_pod("p2", "claim"))
    released = []

    def release(verb, name):
        known = world.claim()
        if verb == "update claim status" and not released:
            released.append(True)
            world.apply(replace(known, status=replace(known.status, allocation=None, reserved_for=())))
        return

    world.cluster.fault = release
    await world.attempt()
    assert "claim default/claim got deallocated elsewhere in the meantime" in world.message("p2")


async def test_bind_failure_gives_the_reservation_back_and_keeps_the_allocation():
    world = a_world(a_claim(), a_pod("pod", "claim"))
    world.cluster.fault = refuse("bind")
    await world.attempt()
    claim = world.claim()
    assert claim.status.allocation is not None
    assert claim.status.reserved_for == ()
    assert 'running Bind plugin "DefaultBinder": no luck' in world.message()
    await world.settle(seconds=2)
    assert world.node_of() == "node-1"
    assert len(world.claim().status.reserved_for) == 1


async def test_server_that_does_not_answer_is_an_error_and_not_the_end():
    world = a_world(a_claim(), a_pod("pod", "claim"))
    world.cluster.fault = refuse("update claim status", 1, ServerUnreachable("connection refused"))
    await world.settle(seconds=2)
    assert world.node_of() == "node-1"


async def test_pod_deleted_during_binding_leaves_nothing_behind():
    world = a_world(a_claim(), a_pod("pod", "claim"))

    def vanish(verb, name):
        if verb == "bind" and world.pod() is not None:
            world.cluster.delete(world.pod())
        return

    world.cluster.fault = vanish
    await world.attempt()
    assert world.requested() == {"cpu": 0, "memory": 0}
    assert world.claim().status.reserved_for == ()
    assert len(world.scheduler.queue) == 0


async def test_two_pods_that_hold_one_claim_each_do_not_block_each_other_for_ever():
    """Each got one of two claims both need; giving up reservations lets one of them, and then the other, run."""
    world = World(a_node(), a_slice(devices=2), a_class(), a_claim("a"), a_claim("b"))
    failing = {"b": 1, "a": 1}

    def fault(verb, name):
        if verb == "update claim status" and failing.get(name, 0):
            failing[name] -= 1
            return ApiError(500, "InternalError", "no luck")
        return None

    world.cluster.fault = fault
    world.apply(a_pod("p1", "a", "b"), a_pod("p2", "b", "a"))
    await world.settle(seconds=20)
    assert world.node_of("p1") == world.node_of("p2") == "node-1"
    for claim in world.cluster.all(ResourceClaim):
        assert {user.name for user in claim.status.reserved_for} == {"p1", "p2"}


async def test_failed_binding_wakes_pods_that_waited_for_the_room():
    world = World(a_node(cpu="1"), a_pod("p1", cpu="1"), a_pod("p2", cpu="1"))
    world.cluster.fault = refuse("bind", times=1)
    await world.scheduler.schedule_next()
    await world.scheduler.schedule_next()
    await world.settle(seconds=15)
    assert sorted(filter(None, (world.node_of("p1"), world.node_of("p2")))) == ["node-1"]


async def test_room_that_another_scheduler_took_is_chosen_again_from_fresh_state():
    world = World(a_node("node-1", cpu="2"), a_node("node-2", cpu="1"), a_pod(cpu="1"))
    taken: list[str] = []

    def beaten(verb, name):
        if verb != "bind" or taken:
            return None
        taken.append(world.node_of())
        world.apply(a_pod("foreign", cpu="2", node_name="node-1"))
        return conflict("node node-1: Insufficient cpu: 1 asked, 2 of 2 in use")

    world.cluster.fault = beaten
    await world.attempt()
    assert world.reason() == "SchedulerError"
    assert "Insufficient cpu: 1 asked, 2 of 2 in use" in world.message()
    assert world.requested("node-1")["cpu"] == 2000, "our own pod is forgotten there"
    await world.settle(seconds=2)
    assert world.node_of() == "node-2"


async def test_two_schedulers_with_a_pod_each_for_the_last_room():
    world = World(a_node(cpu="1"), at_once=False)
    other = Scheduler(world.cluster, world.clock)
    world.cluster.watch(other.cluster)
    world.apply(a_pod("ours", cpu="1"), a_pod("theirs", cpu="1"))
    world.cluster.deliver()
    other.queue.delete("uid-ours")
    world.scheduler.queue.delete("uid-theirs")
    assert await world.scheduler.schedule_next()
    assert await other.schedule_next()
    await world.scheduler.settled()
    await other.settled()
    assert sorted([world.node_of("ours"), world.node_of("theirs")]) == ["", "node-1"]
    world.cluster.deliver()
    for scheduler in (world.scheduler, other):
        scheduler.handle.snapshot.check()
        assert scheduler.handle.snapshot.nodes.get("node-1").ledger.requested("cpu") == 1000


async def test_devices_are_freed_when_their_node_turns_out_to_be_full():
    """The claim was allocated there already; it must not tie the pod to a node that another scheduler has filled."""
    world = World(
        a_node("node-1", cpu="2"),
        a_node("node-2", cpu="1"),
        a_slice("node-1", 1),
        a_slice("node-2", 1),
        a_class(),
        a_claim(),
        a_pod("pod", "claim", cpu="1"),
    )
    taken: list[str] = []

    def beaten(verb, name):
        if verb != "bind" or taken:
            return None
        (where,) = {row.partition("/")[0] for row in world.devices_of()}
        taken.append(where)
        world.apply(a_pod("foreign", cpu="2" if where == "node-1" else "1", node_name=where))
        return conflict(f"node {where}: Insufficient cpu")

    world.cluster.fault = beaten
    await world.settle(seconds=5)
    (full,) = taken
    assert world.node_of() not in ("", full)
    assert world.devices_of() == [f"{world.node_of()}/gpu-0"]
    assert [user.name for user in world.claim().status.reserved_for] == ["pod"]
