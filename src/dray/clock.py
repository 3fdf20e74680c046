"""Time and sleep, real or simulated. Code that waits or writes a timestamp takes a Clock as an argument."""

import asyncio
import heapq
import itertools
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """The wall-clock time, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back; for timeouts and backoff."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class RealClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    monotonic = staticmethod(time.monotonic)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class SimulatedClock:
    """Time that moves only when `advance` is called; sleepers wake in order of their deadlines."""

    def __init__(self, start: datetime = datetime(2024, 1, 1, tzinfo=UTC)) -> None:
        self._start = start.timestamp()
        self._elapsed = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def now(self) -> datetime:
        return datetime.fromtimestamp(self._start + self._elapsed, UTC)

    def monotonic(self) -> float:
        return self._elapsed

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._elapsed + seconds, next(self._order), woken))
        await woken

    async def advance(self, seconds: float) -> None:
        """Moves time forward, and lets every sleeper whose time has come, and every task it wakes, run."""
        target = self._elapsed + seconds
        while self._sleepers and self._sleepers[0][0] <= target:
            deadline, _, woken = heapq.heappop(self._sleepers)
            self._elapsed = max(self._elapsed, deadline)
            if not woken.done():
                woken.set_result(None)
            await self._let_others_run()
        self._elapsed = target
        await self._let_others_run()

    @staticmethod
    async def _let_others_run() -> None:
        for _ in range(10):
            await asyncio.sleep(0)


def rfc3339(moment: datetime) -> str:
    """A Kubernetes Time: UTC, whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_micro(moment: datetime) -> str:
    """A Kubernetes MicroTime: UTC, six decimals."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
