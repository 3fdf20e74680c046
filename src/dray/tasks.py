"""The end of tasks."""

import asyncio
from contextlib import suppress
from typing import Any


async def cancelled(*tasks: asyncio.Task[Any] | None) -> None:
    """Cancel all that are there, and return when they have ended; what they fail with otherwise is raised."""
    there = [task for task in tasks if task is not None]
    for task in there:
        task.cancel()
    for task in there:
        with suppress(asyncio.CancelledError):
            await task
