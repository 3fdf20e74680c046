"""Runs the work of large requests in threads, so that the event loop answers others meanwhile.

Only pure functions run there: decoding, ownership, patches and validation look at the request and the stored object, and at nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from dray.apiserver.errors import ApiError

Result = TypeVar("Result")

# Bytes. The slowest work on a request of this size takes the loop for some 25 ms; the way to a thread and back takes 0.1 ms.
LARGE = 16 * 1024
# Few: threads share one interpreter with the loop. Other large requests wait in a queue, and not for ever.
THREADS = 2
DEADLINE_S = 60.0

_threads = ThreadPoolExecutor(THREADS, thread_name_prefix="large-request")


async def in_thread_if_large(size: int, work: Callable[[], Result]) -> Result:
    """Runs `work` at once if `size` bytes are few, else in a thread; raises 504 if that takes too long."""
    if size < LARGE:
        return work()
    try:
        async with asyncio.timeout(DEADLINE_S):
            return await asyncio.get_running_loop().run_in_executor(_threads, work)
    except TimeoutError:
        raise ApiError(504, "Timeout", "the server could not finish this large request in time") from None
