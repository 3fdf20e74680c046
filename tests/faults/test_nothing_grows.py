"""Pods come and go for ever: what scheduler and controllers remember of them does not add up."""

import time

import pytest

from dray.allocator import change_log as device_changes
from dray.client import CLAIMS, PODS, events
from dray.controllers import garbage_collector
from dray.controllers.claims.controller import DeletedUids
from dray.scheduler.framework import filtering
from tests.faults.held import growth, held_by
from tests.faults.small_cluster import small_cluster, until_nothing_is_left
from tests.torture import shapes
from tests.torture.workload import Workload
from tests.waiting import eventually

# A few objects more or less: timers, connections, whatever was under way.
SLACK = 30
FEW = 8


@pytest.fixture
def short_memory(monkeypatch):
    """What is remembered up to a number is full after a few pods already, and nothing is remembered for long."""
    monkeypatch.setattr(events, "REMEMBERED", FEW)
    monkeypatch.setattr(garbage_collector, "HELD_S", garbage_collector.SETTLE_S)
    monkeypatch.setattr(garbage_collector, "REMEMBERED_ABSENT_OWNERS", FEW)
    monkeypatch.setattr(DeletedUids.__init__, "__defaults__", (FEW,))
    monkeypatch.setattr(filtering, "_KEPT", FEW)
    monkeypatch.setattr(device_changes, "LONGEST_LOG", FEW)


async def come_and_go(client, workload, rounds):
    """Three pods that fit and one that does not (there are no cpu devices), again and again."""
    for _ in range(rounds):
        for shape in ("one-gpu", "some-bandwidth", "best", "one-cpu"):
            name = f"{shape}-{time.monotonic_ns()}"
            await client.create(PODS, shapes.lasting_pod(name, shape), shapes.NAMESPACE)

        async def three_are_bound():
            return sum(bool(each.spec.node_name) for each in (await client.list(PODS)).items) >= 3

        await eventually(three_are_bound, "three pods to be bound", 60)
        await until_nothing_is_left(client, workload)


@pytest.mark.usefixtures("short_memory")
async def test_what_scheduler_and_controllers_hold_does_not_grow_with_pods_that_are_gone():
    async with small_cluster() as plane:
        client = plane.plain_client()
        workload = Workload(client, 1, "grows")
        await workload.prepare()
        roots = [*plane._loops._tasks, plane._loops.informers]
        await come_and_go(client, workload, 6)
        before = held_by(*roots)
        assert before["dray.scheduler.queue.SchedulingQueue"] >= 1
        await come_and_go(client, workload, 12)
        assert not (await client.list(CLAIMS)).items
        more = {name: count for name, count in growth(before, held_by(*roots)).items() if count > SLACK}
    assert more == {}
