"""Lets those who change the same object at the same time do it one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

# A webhook that is asked about a change may change the same object, and must not wait for its own answer.
MOST_WAIT_S = 3.0


class ContendedWrites:
    """For writes that a conflict has stopped: of all that read an object at the same time only one can store it."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def alone(self, key: str) -> AsyncIterator[None]:
        """No other such write of the object meanwhile, unless one takes very long."""
        lock = self._locks.get(key) or self._locks.setdefault(key, asyncio.Lock())
        try:
            async with asyncio.timeout(MOST_WAIT_S):
                await lock.acquire()
        except TimeoutError:
            yield
            return
        try:
            yield
        finally:
            lock.release()
