"""One client's connection: reads whole requests, one at a time, and limits their size and the time they take.

The handler of a server decides about the response; `responses` writes it.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

import httptools
import msgspec

log = logging.getLogger(__name__)

# Time limits: from the first byte to the end of the headers; for the whole body; between two requests; for reading a response.
HEAD_TIMEOUT_S = 30.0
BODY_TIMEOUT_S = 60.0
KEEP_ALIVE_S = 120.0
TAKE_TIMEOUT_S = 60.0
MAX_HEAD = 64 * 1024
MAX_BODY = 3 * 2**20
# Pipelined requests; reading stops until they are answered.
MAX_AHEAD = 32
# The methods the parser knows. Any other word is passed on as a method, so that it gets 405 instead of a broken connection.
KNOWN_METHODS = frozenset(b"GET HEAD POST PUT PATCH DELETE OPTIONS TRACE CONNECT".split())
REQUEST_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}) /")
STAND_IN = b"TRACE"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

TOO_LARGE, TOO_SLOW, NOT_HTTP, LONG_HEAD = "too large", "too slow", "not HTTP", "long head"


class Peer(msgspec.Struct, frozen=True):
    """The other end of a connection. TLS has verified the certificate (DER) if there is one."""

    remote: str = ""
    is_secure: bool = False
    certificate: bytes | None = None
    # The common name in the certificate's subject.
    common_name: str = ""


class HttpRequest(msgspec.Struct):
    """A request as it came; header names are lower-case.

    `problem` says why it could not be read to its end. Such a request is the last one of its connection.
    """

    method: str
    target: bytes
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    body: bytes = b""
    keep_alive: bool = True
    is_http_1_0: bool = False
    problem: str = ""
    peer: Peer = Peer()

    def path_and_query(self) -> tuple[str, str]:
        """Both as they came, percent-encoded."""
        path, _, query = self.target.decode("ascii", "replace").partition("?")
        return path, query


class HttpConnection(asyncio.Protocol):
    """`serve(request, connection)` answers one request; the next one is served when it returns.

    `open_connections` holds this connection while it is open.
    """

    def __init__(
        self, serve: Callable[[HttpRequest, HttpConnection], Awaitable[None]], open_connections: set[HttpConnection]
    ) -> None:
        self.peer = Peer()
        self.on_lost: Callable[[], object] | None = None
        self.serving: asyncio.Task[None] | None = None
        self._serve = serve
        self._open_connections = open_connections
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._ahead: deque[HttpRequest] = deque()
        self._reading_paused = False
        self._room: asyncio.Future[None] | None = None
        self._is_closing = False
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = 0.0
        self._start_message()

    def _start_message(self) -> None:
        self._in_head = True
        self._head_size = 0
        self._odd_method = ""
        self._target = b""
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._body_size = 0
        self._body_expected = False
        self._request: HttpRequest | None = None

    # --- life ---------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.peer = _peer(transport)
        self._open_connections.add(self)
        self._wait_until(self._loop.time() + HEAD_TIMEOUT_S)

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closing = True
        self._open_connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        self._make_room()
        if self.on_lost is not None:
            self.on_lost()

    def shutdown(self) -> None:
        """Accepts no more requests; the one that is being answered is the last."""
        self._is_closing = True
        self._ahead.clear()
        if self.serving is None:
            self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    @property
    def is_lost(self) -> bool:
        """Whether the client is gone: a write would not arrive."""
        return self._transport.is_closing()

    # --- patience -----------------------------------------------------------------------------------------------------

    def _wait_until(self, deadline: float) -> None:
        """Cuts off a client that is silent until then. There is one timer; when it fires it checks whether the time is over."""
        self._deadline = deadline
        if self._timer is None or self._timer.when() > deadline:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(deadline, self._look)

    def _look(self) -> None:
        self._timer = None
        now = self._loop.time()
        if self.serving is not None:
            self._timer = self._loop.call_at(now + KEEP_ALIVE_S, self._look)
        elif now < self._deadline:
            self._timer = self._loop.call_at(self._deadline, self._look)
        elif self._request is not None:
            self._refuse(TOO_SLOW)
        elif not self._transport.is_closing():
            self._transport.abort()

    # --- reading ------------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._is_closing:
            return
        is_first = self._head_size == 0
        if self._in_head:
            if is_first:
                data = self._with_known_method(data)
            self._head_size += len(data)
            if self._head_size > MAX_HEAD and self._still_in_head(data):
                self._refuse(LONG_HEAD)
                return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # No upgrade is served: the request is answered without it, and the bytes after it are not HTTP.
            self._is_closing = True
        except httptools.HttpParserError:
            self._refuse(NOT_HTTP)
            return
        if self._head_size and self.serving is None:
            self._expect_the_rest(is_first)

    def _expect_the_rest(self, is_first: bool) -> None:
        """Starts the time limit of the head at its first byte and that of the body at the end of the head; more bytes do not extend it."""
        if self._in_head and is_first:
            self._wait_until(self._loop.time() + HEAD_TIMEOUT_S)
        elif not self._in_head and not self._body_expected:
            self._body_expected = True
            self._wait_until(self._loop.time() + BODY_TIMEOUT_S)

    def _still_in_head(self, data: bytes) -> bool:
        """Whether the head has not ended yet: one read may bring a whole head and megabytes of body."""
        return self._head_size - len(data) > MAX_HEAD or b"\r\n\r\n" not in data[:MAX_HEAD]

    def _with_known_method(self, data: bytes) -> bytes:
        found = REQUEST_LINE.match(data)
        if found and found[1] not in KNOWN_METHODS:
            self._odd_method = found[1].decode()
            return STAND_IN + data[found.end(1) :]
        return data

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Joins the values of a header that comes twice with a comma, as HTTP says."""
        key, text, headers = name.decode("latin-1").lower(), value.decode("latin-1"), self._headers
        headers[key] = f"{headers[key]},{text}" if key in headers else text

    def on_headers_complete(self) -> None:
        self._in_head = False
        parser, headers = self._parser, self._headers
        method = self._odd_method or parser.get_method().decode("ascii")
        old = parser.get_http_version() == "1.0"
        self._request = HttpRequest(method, self._target, headers, b"", parser.should_keep_alive(), old, peer=self.peer)
        length = headers.get("content-length", "")
        if length.isdigit() and int(length) > MAX_BODY:
            self._refuse(TOO_LARGE)
        elif headers.get("expect", "").lower() == "100-continue" and not old:
            self._transport.write(CONTINUE)

    def on_body(self, body: bytes) -> None:
        self._body_size += len(body)
        if self._body_size > MAX_BODY:
            self._refuse(TOO_LARGE)
        else:
            self._body.append(body)

    def on_message_complete(self) -> None:
        request = self._request
        if self._is_closing or request is None:
            return
        request.body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._start_message()
        self._accept(request)

    # --- one at a time ------------------------------------------------------------------------------------------------

    def _refuse(self, problem: str) -> None:
        """Answers with a refusal and reads nothing more."""
        if self._is_closing:
            return
        request = self._request or HttpRequest("", self._target, peer=self.peer)
        request.problem = problem
        request.keep_alive = False
        self._accept(request)
        self._is_closing = True

    def _accept(self, request: HttpRequest) -> None:
        if self.serving is None:
            self.serving = self._loop.create_task(self._answer(request))
            return
        self._ahead.append(request)
        if len(self._ahead) >= MAX_AHEAD and not self._reading_paused:
            self._reading_paused = True
            self._transport.pause_reading()

    async def _answer(self, request: HttpRequest) -> None:
        try:
            while True:
                await self._serve(request, self)
                if not request.keep_alive or (self._is_closing and not self._ahead):
                    self._transport.close()
                    return
                if not self._ahead:
                    break
                request = self._ahead.popleft()
        except Exception:
            log.exception("%s %s", request.method, request.target.decode("ascii", "replace"))
            self._transport.abort()
        except BaseException:
            self._transport.abort()
            raise
        finally:
            self.serving = None
        self._deadline = self._loop.time() + KEEP_ALIVE_S
        if self._reading_paused:
            self._reading_paused = False
            self._transport.resume_reading()

    # --- writing ------------------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)

    def pause_writing(self) -> None:
        if self._room is None:
            self._room = self._loop.create_future()

    def resume_writing(self) -> None:
        self._make_room()

    def _make_room(self) -> None:
        if self._room is not None:
            self._room.set_result(None)
            self._room = None

    async def room(self) -> None:
        """Waits until the client has read most of what was written; cuts it off if that takes too long."""
        if self._room is None:
            return
        try:
            async with asyncio.timeout(TAKE_TIMEOUT_S):
                await asyncio.shield(self._room)
        except TimeoutError:
            self._transport.abort()


def _peer(transport: asyncio.BaseTransport) -> Peer:
    address = transport.get_extra_info("peername")
    remote = address[0] if isinstance(address, tuple) else ""
    tls = transport.get_extra_info("ssl_object")
    if tls is None:
        return Peer(remote)
    return Peer(remote, True, tls.getpeercert(True), _common_name(tls.getpeercert() or {}))


def _common_name(certificate: Mapping[str, Any]) -> str:
    for pairs in certificate.get("subject", ()):
        for key, value in pairs:
            if key == "commonName":
                return str(value)
    return ""
