"""Waits for a store that cannot be reached yet: tries again, and reports on standard error."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from dray.clock import Clock, rfc3339
from dray.store.errors import StoreRefuses, StoreUnavailable

Started = TypeVar("Started")

# How often the store is tried, and how often the wait is reported.
RETRY_S = 0.5
REPORT_S = 10.0


async def start_when_reachable(start: Callable[[], Awaitable[Started]], clock: Clock) -> Started:
    """Calls `start` until its store answers, and returns the result.

    There is no time limit: an etcd without quorum may need a person to repair it. `StoreRefuses` is raised at once,
    since waiting would not help.
    """
    wait = _Wait(clock)
    reporting = asyncio.create_task(wait.report())
    try:
        while True:
            before = asyncio.all_tasks()
            try:
                return await start()
            except StoreRefuses:
                raise
            except StoreUnavailable as error:
                wait.note(error)
            await _end(asyncio.all_tasks() - before)
            await clock.sleep(RETRY_S)
    finally:
        await _end({reporting})


class _Wait:
    """The start of the wait and the error of the last attempt."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since, self._began = rfc3339(clock.now()), clock.monotonic()
        self._why = ""

    def note(self, error: StoreUnavailable) -> None:
        is_first = not self._why
        self._why = str(error)
        if is_first:
            self._say()

    async def report(self) -> None:
        while True:
            await self._clock.sleep(REPORT_S)
            self._say()

    def _say(self) -> None:
        waited_s = self._clock.monotonic() - self._began
        print(
            f"waiting for the store since {self._since} ({waited_s:.0f} s): {self._why or 'no answer yet'}; trying again",
            file=sys.stderr,
            flush=True,
        )


async def _end(tasks: set[asyncio.Task[object]]) -> None:
    """Cancels what a failed attempt left behind."""
    for task in tasks:
        task.cancel()
    for task in tasks:
        with suppress(asyncio.CancelledError, Exception):
            await task
