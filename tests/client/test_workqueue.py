"""The work queue: each key once, never twice at a time, failures later."""

import asyncio

import pytest

from dray.client import Backoff, Hopeless, TokenBucket, WorkQueue
from dray.clock import SimulatedClock
from dray.telemetry import Registry


@pytest.fixture
def clock():
    return SimulatedClock()


@pytest.fixture
def queue(clock):
    return WorkQueue("test", clock=clock, delay=Backoff(clock))


async def take_all(queue):
    keys = []
    while len(queue):
        key = await queue.get()
        keys.append(key)
        queue.done(key)
    return keys


async def test_a_key_added_often_is_worked_on_once(queue):
    for key in ("a", "b", "a", "a"):
        queue.add(key)
    assert await take_all(queue) == ["a", "b"]


async def test_a_key_added_while_worked_on_comes_again_but_not_at_the_same_time(queue):
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a")
    assert len(queue) == 0
    queue.done("a")
    assert await take_all(queue) == ["a"]


async def test_the_earliest_of_several_delays_counts(queue, clock):
    queue.add_after("a", 10)
    queue.add_after("a", 5)
    queue.add_after("a", 7)
    await clock.advance(0)
    await clock.advance(4.9)
    assert len(queue) == 0
    await clock.advance(0.2)
    assert await take_all(queue) == ["a"]
    await clock.advance(20)
    assert len(queue) == 0


async def test_an_earlier_key_does_not_wait_for_a_later_one(queue, clock):
    queue.add_after("late", 100)
    await clock.advance(0)
    queue.add_after("soon", 1)
    await clock.advance(0)
    await clock.advance(1.1)
    assert await take_all(queue) == ["soon"]


async def test_a_cancelled_delay_does_not_fire(queue, clock):
    queue.add_after("a", 1)
    queue.cancel_later("a")
    await clock.advance(0)
    await clock.advance(2)
    assert len(queue) == 0


async def test_cancelled_delays_are_forgotten_long_before_their_time(queue, clock):
    """Pods that tolerate a taint for years come and go."""
    year_s = 365 * 86400.0
    queue.add_after("stays", year_s)
    for number in range(5000):
        queue.add_after(number, 10 * year_s)
        queue.add_after(number, 5 * year_s)
        queue.cancel_later(number)
    assert queue.delayed == 1
    assert len(queue._later) < 200
    queue.add_after("soon", 5.0)
    await clock.advance(5.0)
    assert await queue.get() == "soon"
    await clock.advance(year_s)
    assert await queue.get() == "stays"
    await clock.advance(10 * year_s)
    assert len(queue) == 0


async def test_delays_that_are_all_cancelled_do_not_keep_later_ones_from_firing(queue, clock):
    for number in range(500):
        queue.add_after(number, 100.0)
    for number in range(500):
        queue.cancel_later(number)
    queue.add_after("later", 200.0)
    await clock.advance(201.0)
    assert await queue.get() == "later"
    queue.add_after("again", 1.0)
    await clock.advance(1.0)
    assert await queue.get() == "again"


def test_backoff_doubles_per_key_up_to_the_cap_and_forgets(clock):
    delay = Backoff(clock, rate=1e9, burst=10**9)
    assert [delay.next_s("a") for _ in range(4)] == [0.005, 0.01, 0.02, 0.04]
    assert delay.next_s("b") == 0.005
    for _ in range(30):
        last = delay.next_s("a")
    assert last == 1000.0
    delay.forget("a")
    assert delay.next_s("a") == 0.005


def test_the_shared_bucket_slows_a_storm_of_failures(clock):
    delay = Backoff(clock)
    waits = [delay.next_s(number) for number in range(150)]
    assert waits[99] == 0.005
    assert waits[149] == pytest.approx(5.0)


async def test_token_bucket_refills(clock):
    bucket = TokenBucket(clock, rate=1.0, burst=2)
    assert [bucket.try_take() for _ in range(3)] == [True, True, False]
    await clock.advance(1)
    assert bucket.try_take()
    assert not bucket.try_take()


async def run_for(queue, clock, reconcile, seconds, workers=2):
    task = asyncio.create_task(queue.run(reconcile, workers))
    for _ in range(int(seconds * 10)):
        await clock.advance(0.1)
    queue.shut_down()
    await task


async def test_failures_are_retried_until_success_and_then_forgotten(queue, clock):
    tries = []

    async def reconcile(key):
        tries.append(key)
        if len(tries) < 4:
            raise RuntimeError("not yet")

    queue.add("a")
    await run_for(queue, clock, reconcile, 3)
    assert tries == ["a"] * 4
    assert queue.failures("a") == 0


@pytest.mark.parametrize("wrap", [False, True])
async def test_hopeless_keys_are_dropped(queue, clock, wrap):
    tries = []

    class Wrapped(Hopeless):
        pass

    async def reconcile(key):
        tries.append(key)
        raise (Wrapped if wrap else Hopeless)("never")

    queue.add("a")
    await run_for(queue, clock, reconcile, 2)
    assert tries == ["a"]


async def test_one_key_is_never_in_two_hands(queue, clock):
    busy = set()

    async def reconcile(key):
        assert key not in busy
        busy.add(key)
        queue.add("a")
        await asyncio.sleep(0)
        busy.discard(key)
        if len(seen) > 50:
            return
        seen.append(key)

    seen = []
    queue.add("a")
    queue.add("b")
    task = asyncio.create_task(queue.run(reconcile, 8))
    for _ in range(300):
        await asyncio.sleep(0)
    queue.shut_down()
    await task
    assert seen


async def test_shutting_down_finishes_what_is_ready(queue):
    done = []

    async def reconcile(key):
        done.append(key)

    queue.add("a")
    queue.add("b")
    queue.shut_down()
    queue.add("c")
    await asyncio.wait_for(queue.run(reconcile, 3), 30)
    assert done == ["a", "b"]


async def test_a_cancelled_waiter_passes_its_turn_on(queue):
    waiting = [asyncio.create_task(queue.get()) for _ in range(2)]
    await asyncio.sleep(0)
    queue.add("a")
    waiting[0].cancel()
    assert await asyncio.wait_for(waiting[1], 5) == "a"


async def test_metrics_carry_the_queue_name(clock):
    registry = Registry()
    queue = WorkQueue("resource_claim", clock=clock, registry=registry)
    queue.add("a")
    queue.retry("b")
    await queue.get()
    queue.done("a")
    text = registry.text()
    assert 'workqueue_adds_total{name="resource_claim"} 1' in text
    assert 'workqueue_retries_total{name="resource_claim"} 1' in text
    assert 'workqueue_depth{name="resource_claim"} 0' in text
    assert 'workqueue_work_duration_seconds_count{name="resource_claim"} 1' in text
    queue.shut_down()


async def test_an_idle_queue_has_no_timer(queue):
    task = asyncio.create_task(queue.run(lambda key: asyncio.sleep(0), 3))
    await asyncio.sleep(0)
    assert queue._timer is None
    queue.shut_down()
    await task
