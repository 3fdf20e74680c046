"""Calls to an API server in the process that started this one, over the socket that the two were born with.

The server's end decides who the caller is; there is nothing to prove, and nobody else can come in.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dray.client.errors import ApiError, ServerUnreachable
from dray.client.frames import Answered, Asked, Chunk, Dropped, Ended, Frame, FramePipe
from dray.client.rest import encoded_query, escaped, headers_of, lines_of
from dray.client.transport import Answer, Call

# The answer to come, the time of the loop at which it is late, and how long that was after the call.
_WaitingCall = tuple[asyncio.Future[Answered], float, float]


class PipeTransport:
    """`await PipeTransport.over(socket)`; shared by all clients of a process. `lost` is set when the server is gone."""

    def __init__(self) -> None:
        self.pipe = FramePipe(self._take, self._lose)
        self.lost = asyncio.Event()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, _WaitingCall] = {}
        self._streams: dict[int, asyncio.Queue[bytes | None]] = {}
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
        chunks = self._streams[number] = asyncio.Queue()
        try:
            answered = await self._ask(number, call)
            if not answered.streams:
                raise ApiError.from_answer(answered.status, answered.body)
            yield lines_of(self._chunks(chunks))
        finally:
            del self._streams[number]
            self._drop(number)

    async def close(self) -> None:
        """The socket belongs to all clients of this process, and ends with it."""

    def _ask(self, number: int, call: Call) -> asyncio.Future[Answered]:
        if not self.pipe.is_open:
            raise ServerUnreachable("the connection is closed")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answered] = loop.create_future()
        late_at = loop.time() + call.timeout_s
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
        self._timer = asyncio.get_running_loop().call_at(at, self._give_up_late)

    def _give_up_late(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        for number, (answer, late_at, timeout_s) in list(self._waiting.items()):
            if late_at <= now:
                self._drop(number)
                if not answer.done():
                    answer.set_exception(ServerUnreachable(f"no answer within {timeout_s:g} s"))
        if self._waiting:
            self._set_timer(min(late_at for _, late_at, _ in self._waiting.values()))

    async def _chunks(self, chunks: asyncio.Queue[bytes | None]) -> AsyncIterator[bytes]:
        while (chunk := await chunks.get()) is not None:
            yield chunk
        if self.lost.is_set():
            raise ServerUnreachable("the connection broke")

    def _take(self, frame: Frame) -> None:
        if isinstance(frame, Answered):
            waiting = self._waiting.pop(frame.number, None)
            if waiting is not None and not waiting[0].done():
                waiting[0].set_result(frame)
        elif isinstance(frame, Chunk | Ended):
            chunks = self._streams.get(frame.number)
            if chunks is not None:
                chunks.put_nowait(frame.data if isinstance(frame, Chunk) else None)

    def _lose(self) -> None:
        self.lost.set()
        if self._timer is not None:
            self._timer.cancel()
        for answer, _, _ in self._waiting.values():
            if not answer.done():
                answer.set_exception(ServerUnreachable("the connection broke"))
        self._waiting.clear()
        for chunks in self._streams.values():
            chunks.put_nowait(None)
