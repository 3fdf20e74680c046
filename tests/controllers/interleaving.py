"""A transport between a component and the server that forces interleavings: failures, detours, watches that lag."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from dray.client import Answer, ApiError, Call, Kind, ServerUnreachable, Transport

Action = Callable[[], Awaitable[object]]


@dataclass
class Rule:
    method: str
    path: re.Pattern[str]
    times: int
    before: Action | None = None
    after: Action | None = None
    error: Exception | Answer | None = None

    def takes(self, call: Call) -> bool:
        return self.times > 0 and call.method == self.method and self.path.search(call.path) is not None


class Interleaving:
    """Rules apply to matching calls, the first one that matches, as often as they say."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self.calls: list[Call] = []
        self._rules: list[Rule] = []
        self._held: dict[str, asyncio.Event] = {}
        self._cuts: set[asyncio.Task[object]] = set()
        self._times_cut = 0
        self.is_down = False
        self.calls_in_vain = 0
        self._forgotten: set[str] | None = None

    # --- what tests say

    def before(self, method: str, path: str, action: Action, times: int = 1) -> None:
        """Run `action` when the call was decided on and before it reaches the server."""
        self._rules.append(Rule(method, re.compile(path), times, before=action))

    def after(self, method: str, path: str, action: Action, times: int = 1) -> None:
        """Run `action` when the server has done it and before the caller knows."""
        self._rules.append(Rule(method, re.compile(path), times, after=action))

    def fail(self, method: str, path: str, error: Exception | Answer, times: int = 1) -> None:
        """The call does not reach the server."""
        self._rules.append(Rule(method, re.compile(path), times, error=error))

    def lose_answer(self, method: str, path: str, times: int = 1) -> None:
        """The server does it, the caller never hears of it."""

        async def lose() -> None:
            raise ServerUnreachable("connection cut before the answer")

        self.after(method, path, lose, times)

    def forget_rules(self) -> None:
        """From now on every call goes through as it is."""
        self._rules.clear()

    def hold(self, kind: Kind) -> None:
        """The component's watch of this kind shows nothing more until `release`."""
        self._held[kind.path()] = asyncio.Event()

    def release(self, kind: Kind) -> None:
        self._held.pop(kind.path()).set()

    def count(self, method: str, path: str = "") -> int:
        return sum(call.method == method and re.search(path, call.path) is not None for call in self.calls)

    @property
    def writes(self) -> list[Call]:
        return [call for call in self.calls if call.method != "GET"]

    def cut_streams(self) -> None:
        """Every watch breaks, as when a server dies: those that wait, are being opened or hand over an event just now."""
        self._times_cut += 1
        for task in list(self._cuts):
            task.cancel()

    def forget_revisions(self) -> None:
        """Every watch that wants to resume is told once that its revision is gone."""
        self._forgotten = set()

    # --- the transport

    async def request(self, call: Call) -> Answer:
        if self.is_down:
            self.calls_in_vain += 1
            raise ServerUnreachable("connection refused")
        self.calls.append(call)
        rule = next((rule for rule in self._rules if rule.takes(call)), None)
        if rule is None:
            return await self.inner.request(call)
        rule.times -= 1
        if isinstance(rule.error, Exception):
            raise rule.error
        if rule.error is not None:
            return rule.error
        if rule.before:
            await rule.before()
        answer = await self.inner.request(call)
        if rule.after:
            await rule.after()
        return answer

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[AsyncIterator[bytes]]:
        if self.is_down:
            self.calls_in_vain += 1
            raise ServerUnreachable("connection refused")
        where = call.path + str(call.query.get("fieldSelector"))
        if self._forgotten is not None and "resourceVersion" in call.query and where not in self._forgotten:
            self._forgotten.add(where)
            raise ApiError(410, "Expired", "too old resource version")
        times_cut = self._times_cut
        async with self.inner.stream(call) as frames:
            yield self._frames(call.path, frames, times_cut)

    async def _frames(self, path: str, frames: AsyncIterator[bytes], times_cut: int) -> AsyncIterator[bytes]:
        while True:
            if self._times_cut > times_cut:
                raise ServerUnreachable("connection cut")
            following = asyncio.ensure_future(anext(frames, None))
            self._cuts.add(following)
            try:
                frame = await following
            except asyncio.CancelledError:
                if asyncio.current_task().cancelling():
                    following.cancel()
                    raise
                raise ServerUnreachable("connection cut") from None
            finally:
                self._cuts.discard(following)
            if frame is None:
                return
            held = self._held.get(path)
            if held is not None:
                await held.wait()
            yield frame

    async def close(self) -> None:
        await self.inner.close()
