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
from dray.client.frames import Answered, Asked, Chunk, Ended, Frame, FramePipe
from dray.client.rest import encoded_query, escaped, headers_of, lines_of
from dray.client.transport import Answer, Call


class PipeTransport:
    """`await PipeTransport.over(socket)`; shared by all clients of a process. `lost` is set when the server is gone."""

    def __init__(self) -> None:
        self.pipe = FramePipe(self._take, self._lose)
        self.lost = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Answered]] = {}
        self._streams: dict[int, asyncio.Queue[bytes | None]] = {}

    @classmethod
    async def over(cls, connected: socket.socket) -> PipeTransport:
        transport = cls()
        await asyncio.get_running_loop().create_unix_connection(lambda: transport.pipe, sock=connected)
        return transport

    async def request(self, call: Call) -> Answer:
        answered = await self._ask(next(self._numbers), call)
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
            self.pipe.send(Ended(number))

    async def close(self) -> None:
        """The socket belongs to all clients of this process, and ends with it."""

    async def _ask(self, number: int, call: Call) -> Answered:
        if not self.pipe.is_open:
            raise ServerUnreachable("the connection is closed")
        answer: asyncio.Future[Answered] = self._loop.create_future()
        self._waiting[number] = answer
        late = self._loop.call_later(call.timeout_s, _give_up, answer, f"no answer within {call.timeout_s:g} s")
        self.pipe.send(
            Asked(number, call.method, escaped(call.path), encoded_query(call.query), headers_of(call), call.body)
        )
        try:
            return await answer
        except (ServerUnreachable, asyncio.CancelledError):
            self.pipe.send(Ended(number))
            raise
        finally:
            late.cancel()
            del self._waiting[number]

    async def _chunks(self, chunks: asyncio.Queue[bytes | None]) -> AsyncIterator[bytes]:
        while (chunk := await chunks.get()) is not None:
            yield chunk
        if self.lost.is_set():
            raise ServerUnreachable("the connection broke")

    def _take(self, frame: Frame) -> None:
        if isinstance(frame, Answered):
            answer = self._waiting.get(frame.number)
            if answer is not None and not answer.done():
                answer.set_result(frame)
        elif isinstance(frame, Chunk | Ended) and (chunks := self._streams.get(frame.number)) is not None:
            chunks.put_nowait(frame.data if isinstance(frame, Chunk) else None)

    def _lose(self) -> None:
        self.lost.set()
        for answer in self._waiting.values():
            _give_up(answer, "the connection broke")
        for chunks in self._streams.values():
            chunks.put_nowait(None)


def _give_up(answer: asyncio.Future[Answered], why: str) -> None:
    if not answer.done():
        answer.set_exception(ServerUnreachable(why))
