"""Waiting for a store that cannot be reached yet: trying again, and saying now and then what is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

import click

from dray.clock import Clock, rfc3339
from dray.store.errors import StoreRefuses, StoreUnavailable

Started = TypeVar("Started")

# How often the store is tried, and how often those who read the log are told.
RETRY_S = 0.5
REPORT_S = 10.0


async def once_reachable(start: Callable[[], Awaitable[Started]], clock: Clock) -> Started:
    """What `start` answers, once its store does. There is no limit: an etcd without quorum may need a person, who may sleep.

    `StoreRefuses` ends it at once: there waiting would not help.
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
    """Since when the store is waited for, and what came of the last attempt."""

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
        click.echo(
            f"waiting for the store since {self._since} ({waited_s:.0f} s): {self._why or 'no answer yet'}; trying again",
            err=True,
        )


async def _end(tasks: set[asyncio.Task[object]]) -> None:
    """Nothing of an attempt that failed half way goes on."""
    for task in tasks:
        task.cancel()
    for task in tasks:
        with suppress(asyncio.CancelledError, Exception):
            await task
