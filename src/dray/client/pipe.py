"""Calls to an API server in the process that started this one, over the socket that the two were born with.

The server's end decides who the caller is; there is nothing to prove, and nobody else can come in.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dray.client.errors import ApiError, ServerUnreachable
from dray.client.frames import Answered, Asked, Chunk, Dropped, Ended, Frame, FramePipe
from dray.client.rest import encoded_query, escaped, headers_of
from dray.client.transport import Answer, Call


class _Stream:
    """Lines of a stream that have arrived and were not read yet."""

    __slots__ = ("has_ended", "lines", "waiter")

    def __init__(self) -> None:
        self.lines: deque[bytes] = deque()
        self.has_ended = False
        self.waiter: asyncio.Future[None] | None = None

    def put(self, chunk: bytes) -> None:
        """A chunk holds whole JSON lines, one or more."""
        self.lines.extend(chunk.split(b"\n"))
        self._wake()

    def end(self) -> None:
        self.has_ended = True
        self._wake()

    def _wake(self) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)


# The answer to come, the time of the loop at which it is late, and how long that was after the call.
_WaitingCall = tuple[asyncio.Future[Answered], float, float]


class PipeTransport:
    """`await PipeTransport.over(socket)`; shared by all clients of a process. `lost` is set when the server is gone."""

    def __init__(self) -> None:
        self.pipe = FramePipe(self._take, self._lose)
        self.lost = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, _WaitingCall] = {}
        self._streams: dict[int, _Stream] = {}
        # One timer for all calls, set for the first that would be late.
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    async def over(cls, connected: socket.socket) -> PipeTransport:
        transport = cls()
        await asyncio.get_running_loop().create_unix_connection(lambda: transport.pipe, sock=connected)
        return transport

    async def request(self, call: Call) -> Answer:
        number = next(self._numbers)
        answer = self._ask(number, call)
        try:
            answered = await answer
        finally:
            if answer.cancelled():
                self._drop(number)
        return Answer(answered.status, answered.headers, answered.body)

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[AsyncIterator[bytes]]:
        number = next(self._numbers)
        stream = self._streams[number] = _Stream()
        try:
            answered = await self._ask(number, call)
            if not answered.streams:
                raise ApiError.from_answer(answered.status, answered.body)
            yield self._lines(stream)
        finally:
            del self._streams[number]
            self._drop(number)

    async def close(self) -> None:
        """The socket belongs to all clients of this process, and ends with it."""

    def _ask(self, number: int, call: Call) -> asyncio.Future[Answered]:
        if not self.pipe.is_open:
            raise ServerUnreachable("the connection is closed")
        answer: asyncio.Future[Answered] = self._loop.create_future()
        late_at = self._loop.time() + call.timeout_s
        self._waiting[number] = (answer, late_at, call.timeout_s)
        if self._timer is None or late_at < self._timer.when():
            self._set_timer(late_at)
        self.pipe.send(
            Asked(number, call.method, escaped(call.path), encoded_query(call.query), headers_of(call), call.body)
        )
        return answer

    def _drop(self, number: int) -> None:
        """Tells the server that nobody waits for this call any more."""
        self._waiting.pop(number, None)
        self.pipe.send(Dropped(number))

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(at, self._give_up_late)

    def _give_up_late(self) -> None:
        self._timer = None
        now = self._loop.time()
        for number, (answer, late_at, timeout_s) in list(self._waiting.items()):
            if late_at <= now:
                self._drop(number)
                if not answer.done():
                    answer.set_exception(ServerUnreachable(f"no answer within {timeout_s:g} s"))
        if self._waiting:
            self._set_timer(min(late_at for _, late_at, _ in self._waiting.values()))

    async def _lines(self, stream: _Stream) -> AsyncIterator[bytes]:
        while not stream.has_ended or stream.lines:
            if not stream.lines:
                stream.waiter = self._loop.create_future()
                await stream.waiter
            while stream.lines:
                line = stream.lines.popleft()
                if line:
                    yield line
        if self.lost.is_set():
            raise ServerUnreachable("the connection broke")

    def _take(self, frame: Frame) -> None:
        if isinstance(frame, Answered):
            waiting = self._waiting.pop(frame.number, None)
            if waiting is not None and not waiting[0].done():
                waiting[0].set_result(frame)
        elif isinstance(frame, Chunk):
            if frame.number in self._streams:
                self._streams[frame.number].put(frame.data)
        elif isinstance(frame, Ended) and frame.number in self._streams:
            self._streams[frame.number].end()

    def _lose(self) -> None:
        self.lost.set()
        if self._timer is not None:
            self._timer.cancel()
        for answer, _, _ in self._waiting.values():
            if not answer.done():
                answer.set_exception(ServerUnreachable("the connection broke"))
        self._waiting.clear()
        for stream in self._streams.values():
            stream.end()
