"""The API server's end of a pipe: calls of the process at the other end, which may do everything."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

from dray.apiserver.request.request_info import LOOPBACK, Request
from dray.client.frames import Answered, Asked, Chunk, Dropped, Ended, Frame, FramePipe
from dray.client.rest import close_stream
from dray.http.responses import Response

# Tasks that wait for the next call; more calls at once make more tasks, which end with their calls.
MOST_IDLE = 64


class PipeServer:
    """`await PipeServer.over(socket, server.handle)`. When the other end is gone, so are its calls.

    A task answers one call after the other: to make one for each call costs more than to wake one.
    """

    def __init__(self, handle: Callable[[Request], Awaitable[Response]]) -> None:
        self._handle = handle
        self.pipe = FramePipe(self._take, self._lose)
        # By the number of the call that they answer; those without a call wait for one.
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._idle: list[tuple[asyncio.Task[None], asyncio.Future[Asked]]] = []

    @classmethod
    async def over(cls, connected: socket.socket, handle: Callable[[Request], Awaitable[Response]]) -> PipeServer:
        server = cls(handle)
        await asyncio.get_running_loop().create_unix_connection(lambda: server.pipe, sock=connected)
        return server

    async def stop(self) -> None:
        self.pipe.close()
        ending = [*self._tasks.values(), *(task for task, _ in self._idle)]
        self._lose()
        await asyncio.gather(*ending, return_exceptions=True)

    def _take(self, frame: Frame) -> None:
        if isinstance(frame, Asked):
            if self._idle:
                task, waiting = self._idle.pop()
                waiting.set_result(frame)
            else:
                task = asyncio.create_task(self._work(frame))
            self._tasks[frame.number] = task
        elif isinstance(frame, Dropped):
            dropped = self._tasks.pop(frame.number, None)
            if dropped is not None:
                dropped.cancel()

    def _lose(self) -> None:
        for task in (*self._tasks.values(), *(task for task, _ in self._idle)):
            task.cancel()
        self._idle.clear()

    async def _work(self, asked: Asked) -> None:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        while True:
            await self._answer(asked)
            if len(self._idle) >= MOST_IDLE or not self.pipe.is_open:
                return
            waiting: asyncio.Future[Asked] = loop.create_future()
            self._idle.append((task, waiting))
            asked = await waiting

    async def _answer(self, asked: Asked) -> None:
        request = Request(asked.method, asked.path, asked.query, asked.headers, asked.body, user=LOOPBACK)
        try:
            response = await self._handle(request)
            headers = {name.lower(): value for name, value in response.headers}
            stream = response.stream
            self.pipe.send(Answered(asked.number, response.status, headers, response.body, stream is not None))
            if stream is not None:
                await self._pass_on(asked.number, stream)
        finally:
            self._tasks.pop(asked.number, None)

    async def _pass_on(self, number: int, stream: AsyncIterator[bytes]) -> None:
        try:
            async for chunk in stream:
                self.pipe.send(Chunk(number, chunk))
                await self.pipe.room()
            self.pipe.send(Ended(number))
        finally:
            await close_stream(stream)
