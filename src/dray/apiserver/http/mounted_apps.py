"""ASGI applications beside the API: they answer for themselves below their path, sign-in included."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import unquote

from dray.http.connection import (
    Connection,
    Incoming,
)
from dray.http.responses import (
    Response,
    send_stream,
    send_whole,
)

log = logging.getLogger(__name__)

Mounted = Callable[[Any, Any, Any], Awaitable[None]]
Message = dict[str, Any]
# The head's own lines, whatever the application says.
SET_BY_US = frozenset({"content-type", "content-length", "transfer-encoding", "connection", "date"})


async def answer_mounted(mounted: Mounted, incoming: Incoming, connection: Connection) -> None:
    exchange = _Exchange(incoming, connection)
    running = asyncio.ensure_future(exchange.run(mounted))
    try:
        response = await exchange.response()
        send = send_whole if response.stream is None else send_stream
        await send(response, incoming, connection)
    finally:
        await exchange.aclose()
        await running


class _Exchange:
    """What the application says becomes a response: whole if it is said in one piece, else a stream (of itself)."""

    def __init__(self, incoming: Incoming, connection: Connection) -> None:
        self._incoming = incoming
        self._connection = connection
        self._said: asyncio.Queue[Message | None] = asyncio.Queue(maxsize=4)
        self._first: Message | None = None
        self._body_taken = False
        self._gone = asyncio.Event()

    async def run(self, mounted: Mounted) -> None:
        path, _, query = self._incoming.target.partition(b"?")
        scope = {
            "type": "http",
            "scheme": "https" if self._connection.is_secure else "http",
            "method": self._incoming.method,
            "path": unquote(path.decode("ascii", "replace")),
            "raw_path": path,
            "query_string": query,
            "headers": [(k.encode("latin-1"), v.encode("latin-1")) for k, v in self._incoming.headers.items()],
            "client": (self._connection.remote, 0),
        }
        try:
            await mounted(scope, self._receive, self._say)
        except Exception:
            log.exception("%s failed", scope["path"])
        await self._say(None)

    async def _receive(self) -> Message:
        if not self._body_taken:
            self._body_taken = True
            return {"type": "http.request", "body": self._incoming.body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _say(self, message: Message | None) -> None:
        if not self._gone.is_set():
            await self._said.put(message)

    async def response(self) -> Response:
        head = await self._said.get()
        if head is None:
            return Response(500, b"failed; the log says why\n", "text/plain; charset=utf-8")
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in head["headers"]}
        others = tuple(pair for pair in headers.items() if pair[0] not in SET_BY_US)
        response = Response(head["status"], b"", headers.get("content-type", "text/plain"), others)
        self._first = await self._said.get()
        if self._first is not None and self._first.get("more_body"):
            response.stream = self
        elif self._first is not None:
            response.body = self._first["body"]
        return response

    # --- the stream

    def __aiter__(self) -> _Exchange:
        return self

    async def __anext__(self) -> bytes:
        message, self._first = self._first or await self._said.get(), None
        if message is None:
            raise StopAsyncIteration
        if not message.get("more_body"):
            self._gone.set()
            self._said.put_nowait(None)
        return bytes(message.get("body", b""))

    async def aclose(self) -> None:
        """The reader is gone; an application that is about to say something need not wait for it."""
        self._gone.set()
        while not self._said.empty():
            self._said.get_nowait()
        self._said.put_nowait(None)
