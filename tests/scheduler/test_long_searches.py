"""Devices that are hard to find: everything else goes on meanwhile, and the answer is the same."""

import asyncio
import random

import pytest
from tests.builders.objects import a_claim, a_class, a_node, a_pod, a_request, a_slice
from tests.scheduler.world import World

from dray.allocator.search import STEPS_PER_LOOK
from dray.api.core import Pod
from dray.api.resource import Device, DeviceAttribute, DeviceConstraint
from dray.features import FeatureGates
from dray.scheduler.config import SchedulerConfig
from dray.scheduler.framework.profile import ProfileConfig
from dray.scheduler.plugins.dynamic_resources.filter import TURN_S

AXES = "abc"
# A world without a solution that takes so many steps to see it; found by trying.
VALUES, DEVICES, SEED, STEPS = 14, 60, 2, 2602


def points(values, count, seed):
    chance = random.Random(seed)
    return tuple(
        Device(name=f"d{index}", attributes={axis: DeviceAttribute(int_=chance.randrange(values)) for axis in AXES})
        for index in range(count)
    )


def distinct_points(count=VALUES, name="claim"):
    constraints = tuple(DeviceConstraint(distinct_attribute=f"gpu.example.com/{axis}") for axis in AXES)
    return a_claim(name, a_request(count=count), constraints=constraints)


def hard_world(*objects, nodes=1, values=VALUES, devices=DEVICES, seed=SEED, cpu="8", **kwargs):
    names = [f"node-{index}" for index in range(1, nodes + 1)]
    hard = points(values, devices, seed)
    return World(
        *(a_node(name, cpu=cpu) for name in names),
        *(a_slice(name, hard) for name in names),
        a_class(),
        *objects,
        **kwargs,
    )


class SlowClock:
    """Time passes when somebody looks at it, and only then."""

    def __init__(self, clock, seconds_per_look):
        self._clock = clock
        self.now, self.sleep = clock.now, clock.sleep
        self._seconds = seconds_per_look
        self.looks = 0

    def monotonic(self):
        self.looks += 1
        return self._clock.monotonic() + self.looks * self._seconds


def slowed(world, seconds_per_look=TURN_S * 1.1):
    world.scheduler.handle.clock = SlowClock(world.clock, seconds_per_look)
    return world


async def turns_of_others(work):
    """How often another task had its turn while `work` was done."""
    turns = 0
    task = asyncio.ensure_future(work)
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    await task
    return turns


def filter_timeout(timeout):
    return SchedulerConfig(profiles=(ProfileConfig(args={"DynamicResources": {"filterTimeout": timeout}}),))


async def test_others_have_their_turn_while_devices_are_searched_for():
    world = slowed(hard_world(distinct_points(), a_pod("pod", "claim"), config=filter_timeout("0s")))
    turns = await turns_of_others(world.scheduler.schedule_next())
    assert turns >= STEPS // (2 * STEPS_PER_LOOK)
    await world.finish()
    assert "1 cannot allocate all claims" in world.message()
    assert world.scheduler.handle.steps == STEPS


async def test_usual_searches_take_one_turn():
    world = World(a_node(), a_slice(), a_class(), a_claim(), a_pod("pod", "claim"))
    slowed(world)
    assert await turns_of_others(world.scheduler.schedule_next()) <= 2
    await world.finish()
    assert world.node_of() == "node-1"


async def test_answer_in_turns_is_the_answer_in_one_piece():
    outcomes = []
    for slow in (True, False):
        world = hard_world(distinct_points(12), a_pod("pod", "claim"), nodes=3)
        if slow:
            slowed(world, TURN_S / 3)
        await world.attempt()
        outcomes.append((world.node_of(), world.devices_of(), world.message()))
    assert outcomes[0] == outcomes[1]


async def test_nodes_of_a_kind_share_one_timeout():
    """Fifty alike nodes on which the search would not end: all are left out after the time for one of them."""
    timeout_s = 1.0
    world = hard_world(
        distinct_points(20),
        a_pod("pod", "claim"),
        nodes=50,
        values=20,
        devices=120,
        seed=0,
        config=filter_timeout(f"{timeout_s:g}s"),
    )
    slowed(world)
    await world.attempt()
    assert "50 timed out trying to allocate devices" in world.message()
    assert world.reason() == "Unschedulable"
    most_looks = 2 * timeout_s / TURN_S + 50
    assert world.scheduler.handle.steps <= most_looks * STEPS_PER_LOOK


@pytest.mark.parametrize(
    ("is_on", "search_takes_s", "answer"),
    [
        pytest.param(True, 5, "1 cannot allocate all claims", id="within-ten-seconds"),
        pytest.param(True, 60, "1 timed out trying to allocate devices", id="more-than-ten-seconds"),
        pytest.param(False, 60, "1 cannot allocate all claims", id="gate-off"),
    ],
)
async def test_a_node_has_ten_seconds_and_without_the_gate_as_long_as_it_takes(is_on, search_takes_s, answer):
    gates = FeatureGates.default() if is_on else FeatureGates.default().without("DRASchedulerFilterTimeout")
    unhurried = slowed(hard_world(distinct_points(), a_pod("pod", "claim"), gates=gates), 0)
    await unhurried.attempt()
    looks = unhurried.scheduler.handle.clock.looks
    world = slowed(hard_world(distinct_points(), a_pod("pod", "claim"), gates=gates), search_takes_s / looks)
    await world.attempt()
    assert answer in world.message()


async def test_other_node_serves_although_one_timed_out():
    world = hard_world(
        distinct_points(20), a_pod("pod", "claim"), values=20, devices=120, seed=0, config=filter_timeout("1s")
    )
    easy = tuple(
        Device(name=f"e{index}", attributes={axis: DeviceAttribute(int_=index) for axis in AXES}) for index in range(20)
    )
    world.apply(a_node("node-2"), a_slice("node-2", easy))
    slowed(world)
    await world.attempt()
    assert world.node_of() == "node-2"


async def test_pod_that_goes_while_devices_are_searched_for_it():
    world = slowed(hard_world(distinct_points(), a_pod("pod", "claim")))
    task = asyncio.ensure_future(world.scheduler.schedule_next())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not task.done()
    world.cluster.delete(world.pod())
    assert await task
    await world.finish()
    assert len(world.scheduler.queue) == 0
    assert world.cluster.get(Pod, "pod", "default") is None
    assert world.requested() == {"cpu": 0, "memory": 0}


async def test_what_changes_meanwhile_is_seen():
    """A node that comes while the search goes on takes the pod; nothing was decided on a world that is gone."""
    world = slowed(hard_world(distinct_points(), a_pod("pod", "claim")))
    task = asyncio.ensure_future(world.scheduler.schedule_next())
    for _ in range(5):
        await asyncio.sleep(0)
    easy = tuple(
        Device(name=f"e{index}", attributes={axis: DeviceAttribute(int_=index) for axis in AXES}) for index in range(14)
    )
    world.apply(a_node("node-2"), a_slice("node-2", easy))
    assert await task
    await world.finish()
    assert world.node_of() == "node-2"
    world.check()


async def test_preemption_does_not_search_for_ever():
    """Trying out who would have to go is a question, too, and all such questions together get half a second."""
    world = hard_world(
        distinct_points(20),
        a_pod("pod", "claim", priority=10, cpu="4"),
        *(a_pod(f"low-{index}", cpu="4", node_name=f"node-{index}", priority=0) for index in range(1, 21)),
        nodes=20,
        values=20,
        devices=120,
        seed=0,
        cpu="4",
    )
    slowed(world)
    await world.attempt()
    assert "No preemption victims found" in world.message()
    assert world.scheduler.handle.steps < 100 * STEPS_PER_LOOK
    assert world.scheduler.handle.clock.looks < 500


async def test_later_attempt_goes_on_with_the_search_and_comes_to_an_answer():
    """Nothing has changed in the cluster. The time was too short, several times, and yet the steps add up."""
    world = hard_world(distinct_points(), a_pod("pod", "claim"), config=filter_timeout("100ms"))
    slowed(world, TURN_S / 6)
    messages = []
    for _ in range(40):
        world.scheduler.queue.activate("uid-pod", world.clock.monotonic())
        await world.attempt()
        messages.append(world.message())
        if "cannot allocate all claims" in world.message():
            break
    assert "1 timed out trying to allocate devices" in messages[0]
    assert "1 cannot allocate all claims" in messages[-1]
    assert len(messages) <= STEPS // STEPS_PER_LOOK
