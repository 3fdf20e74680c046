"""Waiting for a store: for as long as it takes, with a word now and then, and not for what waiting cannot mend."""

import asyncio

import pytest

from dray.clock import SimulatedClock
from dray.store.errors import StoreError, StoreRefuses, StoreUnavailable
from dray.store.waiting import start_when_reachable


class Attempts:
    """Starts that fail with the given errors, then one that succeeds; each leaves a task behind."""

    def __init__(self, *errors: StoreError) -> None:
        self._errors = list(errors)
        self.tried = 0
        self.left: list[asyncio.Task[None]] = []

    async def __call__(self) -> str:
        self.tried += 1
        self.left.append(asyncio.create_task(asyncio.Event().wait()))
        if self._errors:
            raise self._errors.pop(0)
        return "started"


async def test_minutes_without_a_store_are_waited_out_and_told(capsys):
    clock, attempts = SimulatedClock(), Attempts(*[StoreUnavailable("etcd at h:1: no leader")] * 2_000)
    starting = asyncio.create_task(start_when_reachable(attempts, clock))
    await clock.advance(0)
    await clock.advance(600)
    assert not starting.done()
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "waiting for the store since 2024-01-01T00:00:00Z (0 s): etcd at h:1: no leader; trying again"
    assert "(600 s)" in told[-1]
    assert len(told) == 1 + 600 // 10
    assert [task.done() for task in attempts.left].count(False) <= 1, "an attempt that failed goes on"
    starting.cancel()


async def test_what_was_started_goes_on(capsys):
    clock, attempts = SimulatedClock(), Attempts(StoreUnavailable("away"))
    starting = asyncio.create_task(start_when_reachable(attempts, clock))
    await clock.advance(0)
    await clock.advance(1)
    assert await starting == "started"
    assert [task.done() for task in attempts.left] == [True, False]
    await clock.advance(100)
    assert len(capsys.readouterr().err.splitlines()) == 1
    attempts.left[1].cancel()


async def test_an_attempt_that_hangs_is_told(capsys):
    clock = SimulatedClock()
    starting = asyncio.create_task(start_when_reachable(asyncio.Event().wait, clock))
    await clock.advance(0)
    await clock.advance(10)
    assert "(10 s): no answer yet; trying again" in capsys.readouterr().err
    starting.cancel()


@pytest.mark.parametrize("error", [StoreRefuses("wrong certificate"), StoreError("bad URL")])
async def test_what_waiting_cannot_mend_ends_it_at_once(error):
    attempts = Attempts(error)
    with pytest.raises(StoreError, match=str(error)):
        await start_when_reachable(attempts, SimulatedClock())
    assert attempts.tried == 1
