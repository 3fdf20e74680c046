"""Calls an API server in the same process: no sockets, no TLS, the same bytes."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol
from urllib.parse import quote, urlencode

from dray.client.errors import ApiError, ServerUnreachable
from dray.client.transport import URGENT, Answer, Call

# Most names are DNS labels, which need no escapes.
_IS_PLAIN = re.compile(r"[A-Za-z0-9/._-]*").fullmatch


class ServerResponse(Protocol):
    """The answer of the server's core."""

    @property
    def status(self) -> int: ...
    @property
    def body(self) -> bytes: ...
    @property
    def headers(self) -> tuple[tuple[str, str], ...]: ...
    @property
    def stream(self) -> AsyncIterator[bytes] | None: ...


class InProcessTransport:
    """`InProcessTransport(server.handle, partial(Request, user=LOOPBACK))`.

    `make_request` builds the server's request type from `method`, `path`, `query`, `headers` and `body`, and carries the
    component's user. This room does not import the server.
    """

    def __init__(self, handle: Callable[[Any], Awaitable[ServerResponse]], make_request: Callable[..., Any]) -> None:
        self._handle = handle
        self._make_request = make_request
        self._closed = False

    async def request(self, call: Call) -> Answer:
        response = await self._response(call)
        headers = {name.lower(): value for name, value in response.headers}
        body = response.body
        if response.stream is not None:
            body = b"".join([chunk async for chunk in response.stream])
        return Answer(response.status, headers, body)

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[AsyncIterator[bytes]]:
        response = await self._response(call)
        if response.stream is None:
            raise ApiError.from_answer(response.status, response.body)
        try:
            yield lines_of(response.stream)
        finally:
            await close_stream(response.stream)

    async def close(self) -> None:
        self._closed = True

    async def _response(self, call: Call) -> ServerResponse:
        if self._closed:
            raise ServerUnreachable("the connection is closed")
        query = urlencode(call.query) if call.query else ""
        request = self._make_request(
            method=call.method, path=escaped(call.path), query=query, headers=headers_of(call), body=call.body
        )
        return await self._handle(request)


def headers_of(call: Call) -> dict[str, str]:
    headers = {"accept": call.accept, "user-agent": call.user_agent}
    if call.body:
        headers["content-type"] = call.content_type
    if call.urgent:
        headers["priority"] = URGENT
    return headers


def escaped(path: str) -> str:
    return path if _IS_PLAIN(path) else quote(path)


async def close_stream(stream: AsyncIterator[bytes]) -> None:
    """Closes a stream that is a generator; others have nothing to close."""
    aclose = getattr(stream, "aclose", None)
    if aclose is not None:
        await aclose()


async def lines_of(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """A chunk holds whole JSON lines, one or more."""
    async for chunk in chunks:
        for line in chunk.split(b"\n"):
            if line:
                yield line
