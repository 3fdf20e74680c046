"""Bad weather for a cluster in one process: transports, stores and clocks that misbehave on purpose."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

from dray.client import Answer, Call, ServerUnreachable, Transport
from dray.clock import RealClock
from dray.store.interface import Batch, Entry, Operation, Page, Precondition, Store


class FaultyTransport:
    """Loses requests and answers; delays, repeats and cuts off watch events."""

    def __init__(self, inner: Transport, chance: random.Random, counts: Counter[str], rate: float = 0.03) -> None:
        self._inner = inner
        self._chance = chance
        self._counts = counts
        self._rate = rate

    async def request(self, call: Call) -> Answer:
        if self._strikes("request lost"):
            raise ServerUnreachable("the request was lost")
        answer = await self._inner.request(call)
        if self._strikes("answer lost"):
            raise ServerUnreachable("the answer was lost")
        return answer

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[AsyncIterator[bytes]]:
        async with self._inner.stream(call) as frames:
            yield self._frames(frames)

    async def _frames(self, frames: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for frame in frames:
            if self._strikes("event delayed"):
                await asyncio.sleep(self._chance.uniform(0.01, 0.3))
            yield frame
            if self._strikes("event repeated"):
                yield frame
            if self._strikes("watch cut"):
                raise ServerUnreachable("the watch was cut")

    async def close(self) -> None:
        await self._inner.close()

    def _strikes(self, fault: str) -> bool:
        if self._chance.random() >= self._rate:
            return False
        self._counts[fault] += 1
        return True


class SlowStore:
    """Every commit waits for a slow disk; reads do not."""

    def __init__(self, inner: Store, chance: random.Random, counts: Counter[str], longest_s: float = 0.15) -> None:
        self._inner = inner
        self._chance = chance
        self._counts = counts
        self._longest_s = longest_s

    async def _sync(self) -> None:
        self._counts["slow commit"] += 1
        await asyncio.sleep(self._chance.uniform(0.0, self._longest_s))

    async def create(self, key: str, value: bytes, *, ttl_s: int = 0) -> int:
        revision = await self._inner.create(key, value, ttl_s=ttl_s)
        await self._sync()
        return revision

    async def update(self, key: str, value: bytes, expected_revision: int) -> int:
        revision = await self._inner.update(key, value, expected_revision)
        await self._sync()
        return revision

    async def delete(self, key: str, expected_revision: int) -> int:
        revision = await self._inner.delete(key, expected_revision)
        await self._sync()
        return revision

    async def commit(self, operations: Sequence[Operation], preconditions: Sequence[Precondition] = ()) -> int:
        revision = await self._inner.commit(operations, preconditions)
        await self._sync()
        return revision

    async def get(self, key: str) -> Entry | None:
        return await self._inner.get(key)

    async def get_many(self, keys: Sequence[str]) -> dict[str, Entry]:
        return await self._inner.get_many(keys)

    async def list(self, prefix: str, *, limit: int = 0, start_after: str = "", revision: int = 0) -> Page:
        return await self._inner.list(prefix, limit=limit, start_after=start_after, revision=revision)

    def watch(self, prefix: str, after_revision: int) -> AsyncGenerator[Batch, None]:
        return self._inner.watch(prefix, after_revision)

    async def current_revision(self) -> int:
        return await self._inner.current_revision()

    async def compacted_revision(self) -> int:
        return await self._inner.compacted_revision()

    async def compact(self, revision: int) -> None:
        await self._inner.compact(revision)

    async def close(self) -> None:
        await self._inner.close()

    def __getattr__(self, name: str) -> Any:
        """What one store has beyond the promise."""
        return getattr(self._inner, name)


class JumpingClock(RealClock):
    """A wall clock that somebody sets: it jumps, and only seconds since the start can be trusted."""

    def __init__(self) -> None:
        self.offset = timedelta(0)

    def now(self) -> datetime:
        return super().now() + self.offset
