"""Delays for retries: exponential per key, and a token bucket for all keys together."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol

from dray.clock import Clock


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
