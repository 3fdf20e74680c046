"""The API server's end of a pipe: calls of the process at the other end, which may do everything."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

from dray.apiserver.request.request_info import LOOPBACK, Request
from dray.client.frames import Answered, Asked, Chunk, Ended, Frame, FramePipe
from dray.client.rest import close_stream
from dray.http.responses import Response


class PipeServer:
    """`await PipeServer.over(socket, server.handle)`. When the other end is gone, so are its calls."""

    def __init__(self, handle: Callable[[Request], Awaitable[Response]]) -> None:
        self._handle = handle
        self.pipe = FramePipe(self._take, self._lose)
        # By the number of the call that they answer.
        self._tasks: dict[int, asyncio.Task[None]] = {}

    @classmethod
    async def over(cls, connected: socket.socket, handle: Callable[[Request], Awaitable[Response]]) -> PipeServer:
        server = cls(handle)
        await asyncio.get_running_loop().create_unix_connection(lambda: server.pipe, sock=connected)
        return server

    async def stop(self) -> None:
        self.pipe.close()
        self._lose()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _take(self, frame: Frame) -> None:
        if isinstance(frame, Asked):
            self._tasks[frame.number] = asyncio.create_task(self._answer(frame))
        elif isinstance(frame, Ended) and (given_up := self._tasks.pop(frame.number, None)) is not None:
            given_up.cancel()

    def _lose(self) -> None:
        for task in self._tasks.values():
            task.cancel()

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
