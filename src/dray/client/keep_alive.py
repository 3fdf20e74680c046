"""Plain HTTP/1.1 calls over connections that stay open: what a component does thousands of times, with little overhead.

One call at a time per connection. Streams and proxies are not this file's business.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import cast
from urllib.parse import quote, urlencode, urlsplit

import httptools

from dray.client.transport import Answer, Call

_SAFE = "/:@!$&'()*+,;=-._~"
CLOSED = "the server closed the connection"


class _Connection(asyncio.Protocol):
    """Sends one request and collects its answer."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[Answer] | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self.is_open = True

    def ask(self, request: bytes) -> asyncio.Future[Answer]:
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._headers, self._body = {}, []
        self._transport.write(request)
        return self._answer

    def abort(self) -> None:
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    # --- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(ConnectionError(f"the answer is not HTTP: {error}"))
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        self._fail(ConnectionError(str(exc) if exc else CLOSED))

    def _fail(self, error: Exception) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)

    # --- httptools

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:
            self._headers, self._body = {}, []
            return
        if not self._parser.should_keep_alive():
            self.is_open = False
        if self._answer is not None and not self._answer.done():
            body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
            self._answer.set_result(Answer(status, self._headers, body))


class KeepAlivePool:
    """Connections to one server. Raises OSError (also its timeouts) when no answer comes."""

    def __init__(self, server: str, context: ssl.SSLContext | None, server_hostname: str = "") -> None:
        parts = urlsplit(server)
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._prefix = parts.path.rstrip("/")
        self._host_header = parts.netloc
        self._context = context if parts.scheme == "https" else None
        self._server_hostname = server_hostname
        self._idle: list[_Connection] = []

    async def request(self, call: Call, headers: Mapping[str, str]) -> Answer:
        request = self._encode(call, headers)
        async with asyncio.timeout(call.timeout_s):
            connection = self._take() or await self._connect()
            try:
                answer = await connection.ask(request)
            except BaseException:
                # An answer that is still on its way must never be taken for the next one's.
                connection.abort()
                raise
        if connection.is_open:
            self._idle.append(connection)
        return answer

    def _take(self) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open:
                return connection
        return None

    async def _connect(self) -> _Connection:
        hostname = (self._server_hostname or self._host) if self._context is not None else None
        _, connection = await asyncio.get_running_loop().create_connection(
            _Connection, self._host, self._port, ssl=self._context, server_hostname=hostname
        )
        return connection

    def _encode(self, call: Call, headers: Mapping[str, str]) -> bytes:
        target = quote(self._prefix + call.path, safe=_SAFE)
        if call.query:
            target = f"{target}?{urlencode(call.query)}"
        lines = [f"{call.method} {target} HTTP/1.1", f"Host: {self._host_header}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if call.body or call.method in ("POST", "PUT", "PATCH"):
            lines.append(f"Content-Length: {len(call.body)}")
        head = "\r\n".join(lines)
        if "\n" in head.replace("\r\n", "") or "\r" in head.replace("\r\n", ""):
            raise ValueError("line breaks in a request's head")
        return f"{head}\r\n\r\n".encode("latin-1") + call.body

    def close(self) -> None:
        for connection in self._idle:
            connection.abort()
        self._idle.clear()
