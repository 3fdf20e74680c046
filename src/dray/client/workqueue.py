"""A work queue of keys: each key once however often it was added, by one worker at a time, with retries and rate limits."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, Protocol, TypeVar

from dray.clock import Clock, RealClock
from dray.telemetry import Registry, WorkQueueMetrics


class RetryDelay(Protocol):
    def next_s(self, key: Hashable) -> float:
        """The delay before `key` is tried again; counts one more failure of it."""
        ...

    def forget(self, key: Hashable) -> None: ...

    def failures(self, key: Hashable) -> int: ...


class TokenBucket:
    """`rate` per second on average, `burst` at once. Taking a token never blocks: it says how long to wait."""

    def __init__(self, clock: Clock, rate: float, burst: int) -> None:
        self._clock = clock
        self._rate = rate
        self._burst = burst
        self._tokens = float(burst)
        self._at = clock.monotonic()

    def take_s(self) -> float:
        """Reserves one token and returns the seconds until it is available, 0 for now."""
        self._refill()
        self._tokens -= 1.0
        return max(0.0, -self._tokens / self._rate)

    def try_take(self) -> bool:
        """Takes a token if one is available now."""
        self._refill()
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    def _refill(self) -> None:
        now = self._clock.monotonic()
        self._tokens = min(float(self._burst), self._tokens + (now - self._at) * self._rate)
        self._at = now


class Backoff:
    """Exponential per key, and never faster than the shared bucket lets all keys together be."""

    def __init__(
        self, clock: Clock, *, base_s: float = 0.005, cap_s: float = 1000.0, rate: float = 10.0, burst: int = 100
    ) -> None:
        self._base_s = base_s
        self._cap_s = cap_s
        self._bucket = TokenBucket(clock, rate, burst)
        self._failures: dict[Hashable, int] = {}

    def next_s(self, key: Hashable) -> float:
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        alone_s = min(self._cap_s, self._base_s * 2.0 ** min(failures, 60))
        return max(alone_s, self._bucket.take_s())

    def forget(self, key: Hashable) -> None:
        self._failures.pop(key, None)

    def failures(self, key: Hashable) -> int:
        return self._failures.get(key, 0)


log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)


# So few cancelled delays may stay until their time comes.
FEW_CANCELLED = 64


class Hopeless(Exception):
    """Raised by a reconcile function: trying this key again would not help."""


class QueueClosed(Exception):
    """The queue was shut down and is empty."""


class WorkQueue(Generic[K]):
    """`add`, `add_after`, `retry`; workers take keys with `get` and say `done`, or let `run` do all of that."""

    def __init__(
        self,
        name: str,
        *,
        clock: Clock | None = None,
        delay: RetryDelay | None = None,
        registry: Registry | None = None,
    ) -> None:
        self.name = name
        self._clock = clock or RealClock()
        self._delay = delay or Backoff(self._clock)
        self._metrics = WorkQueueMetrics(registry, name) if registry else None
        self._ready: deque[K] = deque()
        # A dirty key waits to be worked on; one that is dirty and active goes back to `_ready` when done.
        self._dirty: dict[K, float] = {}
        self._active: dict[K, float] = {}
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._later: list[tuple[float, int, K]] = []
        self._due: dict[K, float] = {}
        self._order = itertools.count()
        self._timer: asyncio.Task[None] | None = None
        self._timer_due = 0.0
        self._closed = False

    def __len__(self) -> int:
        return len(self._ready)

    @property
    def is_idle(self) -> bool:
        """Whether no key is ready or being worked on; delayed keys do not count."""
        return not self._ready and not self._active

    @property
    def delayed(self) -> int:
        return len(self._due)

    # --- adding

    def add(self, key: K) -> None:
        if self._closed or key in self._dirty:
            return
        self._dirty[key] = self._clock.monotonic()
        if self._metrics:
            self._metrics.added()
        if key not in self._active:
            self._make_ready(key)

    def add_after(self, key: K, seconds: float) -> None:
        """Adds the key after `seconds`; the earliest of several calls for one key counts."""
        if self._closed:
            return
        if seconds <= 0:
            self.add(key)
            return
        due = self._clock.monotonic() + seconds
        if self._due.get(key, float("inf")) <= due:
            return
        self._due[key] = due
        heapq.heappush(self._later, (due, next(self._order), key))
        self._drop_cancelled()
        self._set_timer()

    def retry(self, key: K) -> None:
        """Add after this key's backoff."""
        if self._metrics:
            self._metrics.retried()
        self.add_after(key, self._delay.next_s(key))

    def forget(self, key: K) -> None:
        """The key succeeded: its next failure starts with a short wait again."""
        self._delay.forget(key)

    def cancel_later(self, key: K) -> None:
        """Cancels the key's pending `add_after`, if any."""
        self._due.pop(key, None)
        self._drop_cancelled()

    def failures(self, key: K) -> int:
        return self._delay.failures(key)

    # --- working

    async def get(self) -> K:
        while not self._ready:
            if self._closed:
                raise QueueClosed
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake()
                raise
        key = self._ready.popleft()
        now = self._clock.monotonic()
        if self._metrics:
            self._metrics.taken(len(self._ready), now - self._dirty[key])
        del self._dirty[key]
        self._active[key] = now
        return key

    def done(self, key: K) -> None:
        started = self._active.pop(key)
        if self._metrics:
            self._metrics.finished(self._clock.monotonic() - started)
        if key in self._dirty:
            self._make_ready(key)

    async def run(self, reconcile: Callable[[K], Awaitable[None]], workers: int = 1) -> None:
        """Work until the queue is shut down: success forgets the key, failure retries it, `Hopeless` drops it."""
        async with asyncio.TaskGroup() as group:
            for number in range(workers):
                group.create_task(self._work(reconcile), name=f"{self.name} worker {number}")

    async def _work(self, reconcile: Callable[[K], Awaitable[None]]) -> None:
        while True:
            try:
                key = await self.get()
            except QueueClosed:
                return
            try:
                await reconcile(key)
                self.forget(key)
            except Hopeless as error:
                log.error("%s: %s: %s (not tried again)", self.name, key, error)
                self.forget(key)
            except Exception as error:
                self._log_failure(key, error)
                self.retry(key)
            finally:
                self.done(key)

    def _log_failure(self, key: K, error: Exception) -> None:
        # The first failure of a key is often a conflict that the retry settles.
        level = logging.WARNING if self.failures(key) >= 3 else logging.INFO
        is_expected = type(error).__module__.startswith("dray.")
        log.log(level, "%s: %s: %s", self.name, key, error, exc_info=None if is_expected else error)

    def shut_down(self) -> None:
        """Accepts no more keys; workers finish the ready ones and stop."""
        self._closed = True
        if self._timer:
            self._timer.cancel()
        while self._waiters:
            self._wake()

    # --- below

    def _make_ready(self, key: K) -> None:
        self._ready.append(key)
        if self._metrics:
            self._metrics.depth(len(self._ready))
        self._wake()

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _drop_cancelled(self) -> None:
        """A delay may be a year long and be cancelled at once. All delays are looked at only when more than half of them are cancelled, so a delay costs the same on average."""
        if len(self._later) > 2 * len(self._due) + FEW_CANCELLED:
            self._later = [each for each in self._later if self._due.get(each[2]) == each[0]]
            heapq.heapify(self._later)

    def _set_timer(self) -> None:
        due = self._later[0][0]
        if self._timer and not self._timer.done():
            if self._timer_due <= due:
                return
            self._timer.cancel()
        self._timer_due = due
        self._timer = asyncio.create_task(self._add_due(), name=f"{self.name} timer")

    async def _add_due(self) -> None:
        while self._later:
            due, _, key = self._later[0]
            wait_s = due - self._clock.monotonic()
            if wait_s > 0:
                self._timer_due = due
                await self._clock.sleep(wait_s)
                continue
            heapq.heappop(self._later)
            if self._due.get(key) == due:
                del self._due[key]
                self.add(key)
