"""Random work with one kind of trouble at a time: the promises hold, and afterwards nothing is left."""

import asyncio
import random
from collections import Counter
from datetime import timedelta

import pytest

from dray.client import CLAIMS, DEVICE_CLASSES, PODS
from dray.proof import History, WatchRecorder, check
from dray.sim import control_plane
from dray.store.store_url import open_store
from tests.faults.small_cluster import ENOUGH_ALLOCATIONS, live, small_cluster, until_all_run, until_nothing_is_left
from tests.faults.weather import FaultyTransport, JumpingClock, SlowStore
from tests.torture import shapes
from tests.torture.workload import Workload

SEEDS = [1, pytest.param(2, marks=pytest.mark.torture), pytest.param(3, marks=pytest.mark.torture)]


def assert_all_well(report, workload):
    print(report, dict(workload.outcomes))
    assert report.is_clean, "\n".join(map(str, report.violations))
    assert not workload.surprises
    assert report.allocations >= ENOUGH_ALLOCATIONS


@pytest.mark.parametrize("seed", SEEDS)
async def test_lost_calls_and_watches_that_repeat_lag_and_break(seed):
    counts: Counter[str] = Counter()
    chance = random.Random(seed)
    async with small_cluster(lambda inner: FaultyTransport(inner, chance, counts)) as plane:
        assert_all_well(*await live(plane, seed, 120))
    assert {"request lost", "answer lost", "event delayed", "event repeated", "watch cut"} <= counts.keys()


@pytest.mark.parametrize("seed", SEEDS)
async def test_in_bad_weather_every_pod_that_fits_runs_and_every_one_deleted_goes(seed):
    """Safe but stuck would be no use: nobody may wait for an event that was lost with a call or a watch."""
    chance = random.Random(seed)
    async with small_cluster(lambda inner: FaultyTransport(inner, chance, Counter(), rate=0.05)) as plane:
        client = plane.plain_client()
        workload = Workload(client, seed, "faults")
        await workload.prepare()
        for number in range(4):
            for shape in ("one-gpu", "one-part", "some-bandwidth", "best"):
                await client.create(PODS, shapes.lasting_pod(f"{shape}-{number}", shape), shapes.NAMESPACE)
            await until_all_run(client)
            await until_nothing_is_left(client, workload)


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_slow_disk(seed, monkeypatch):
    counts: Counter[str] = Counter()

    async def open_slowly(*arguments):
        return SlowStore(await open_store(*arguments), random.Random(seed), counts)

    monkeypatch.setattr(control_plane, "open_store", open_slowly)
    async with small_cluster() as plane:
        assert_all_well(*await live(plane, seed, 60))
    assert counts["slow commit"] > 100


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_clock_that_jumps(seed):
    clock = JumpingClock()
    chance = random.Random(seed)

    async def jump() -> None:
        while True:
            await asyncio.sleep(0.4)
            clock.offset = timedelta(hours=chance.uniform(-30, 30))

    async with small_cluster(clock=clock) as plane:
        jumping = asyncio.create_task(jump())
        report, workload = await live(plane, seed, 100)
        jumping.cancel()
    assert_all_well(report, workload)


async def test_clocks_that_disagree():
    """Controllers hours ahead, one scheduler hours behind: nobody trusts another machine's clock."""
    ahead, behind = JumpingClock(), JumpingClock()
    ahead.offset, behind.offset = timedelta(hours=5), timedelta(hours=-5)
    clocks = {"dray-controller-manager": ahead, "dray-scheduler-2": behind}
    async with small_cluster(clocks=clocks) as plane:
        assert_all_well(*await live(plane, 4, 80))


async def test_the_checker_has_teeth():
    """Without the server's guard a device can be written into two claims by hand: the checker must say so."""
    history = History()
    async with small_cluster() as plane:
        core = plane.running.server.core

        async def unguarded(operations, preconditions, old, new):
            return await core.store.commit(operations, preconditions)

        core.commit = unguarded
        client = plane.plain_client()
        follower = WatchRecorder(plane.plain_client(), history, "a")
        await follower.start()
        await client.create(DEVICE_CLASSES, shapes.classes()[0])
        result = {"request": "gpu", "driver": "gpu.example.com", "pool": "node-1", "device": "gpu-0"}
        for name in ("one", "two"):
            claim = await client.create(CLAIMS, shapes.claim(name, "one-gpu"), "default")
            document = await client.get_document(CLAIMS, claim.metadata.name, "default")
            document["status"] = {"allocation": {"devices": {"results": [result]}}}
            await client.update_status(CLAIMS, document)
        await follower.finish()
    assert {each.rule for each in check(history).violations} == {"device-given-twice"}
