"""Cancels tasks and waits until they have finished."""

import asyncio
from contextlib import suppress
from typing import Any


async def cancelled(*tasks: asyncio.Task[Any] | None) -> None:
    """Cancels every task that is not None and returns when all have finished. An error other than the cancellation is raised."""
    there = [task for task in tasks if task is not None]
    for task in there:
        task.cancel()
    for task in there:
        with suppress(asyncio.CancelledError):
            await task
