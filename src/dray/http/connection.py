"""One client's connection: reads whole requests, one at a time, and limits their size and the time they take.

The handler of a server decides about the response; `responses` writes it.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import httptools
import msgspec

if TYPE_CHECKING:
    from dray.http.tunnel import Tunnel
    from dray.http.untaken_answers import UntakenAnswers

log = logging.getLogger(__name__)

# Time limits: from the first byte to the end of the headers; for the whole body; between two requests; for reading a response.
HEAD_TIMEOUT_S = 30.0
BODY_TIMEOUT_S = 60.0
KEEP_ALIVE_S = 120.0
TAKE_TIMEOUT_S = 60.0
MAX_HEAD = 64 * 1024
MAX_HEADERS = 500
MAX_BODY = 3 * 2**20
# A body up to this size is read at once. Before a larger one is read, the server checks who sends it.
UNCHECKED_BODY = 16 * 1024
# Bytes after a chunk that are no data: trailers and chunk extensions.
MAX_TRAILERS = 16 * 1024
# Pipelined requests and the bytes of their bodies; reading stops until they are answered.
MAX_AHEAD = 32
MAX_AHEAD_BYTES = MAX_BODY
# The methods the parser knows. Any other word is passed on as a method, so that it gets 405 instead of a broken connection.
KNOWN_METHODS = frozenset(b"GET HEAD POST PUT PATCH DELETE OPTIONS TRACE CONNECT".split())
REQUEST_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}) /")
PART_OF_METHOD = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,32} ?")
HOST = re.compile(r"[0-9A-Za-z._~%:\[\]-]{1,261}")
STAND_IN = b"TRACE"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

# Encrypting so many bytes takes about two milliseconds.
WRITE_BYTES = 1024 * 1024
TOO_LARGE, TOO_SLOW, NOT_HTTP, LONG_HEAD = "too large", "too slow", "not HTTP", "long head"
BAD_HOST, UNKNOWN_SENDER = "bad host", "unknown sender"
TOO_MANY_CONNECTIONS, TOO_MANY_OF_ADDRESS = "too many connections", "too many connections of one address"


class Peer(msgspec.Struct, frozen=True):
    """The other end of a connection. TLS has verified the certificate (DER) if there is one."""

    remote: str = ""
    is_secure: bool = False
    certificate: bytes | None = None
    # The common name in the certificate's subject.
    common_name: str = ""
    # The server's address and port that the client reached; empty for a socket without one.
    local: str = ""


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


class OpenConnections:
    """The open connections of a server, and how many there may be: in all, and of one address (0: any number).

    Clients on this machine share one address, so only the limit for all applies to them.
    """

    # Connections above the limit that wait for their refusal; more are cut off.
    MOST_REFUSED = 64

    def __init__(self, most: int = 0, most_of_one_address: int = 0) -> None:
        self._most = most
        self._most_of_one_address = most_of_one_address
        self._open: set[HttpConnection] = set()
        self._refused: set[HttpConnection] = set()
        self._count_by_address: Counter[str] = Counter()

    @cached_property
    def untaken(self) -> UntakenAnswers:
        """Of all connections together."""
        # Most clients read at once.
        from dray.http.untaken_answers import UntakenAnswers

        return UntakenAnswers()

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[HttpConnection]:
        return iter([*self._open, *self._refused])

    def enter(self, connection: HttpConnection) -> str:
        """Answers why the connection is refused; empty if it is open now."""
        address = connection.peer.remote
        problem = ""
        if self._most and len(self._open) >= self._most:
            problem = TOO_MANY_CONNECTIONS
        elif self._has_its_share(address):
            problem = TOO_MANY_OF_ADDRESS
        if not problem:
            self._open.add(connection)
            self._count_by_address[address] += 1
        elif len(self._refused) < self.MOST_REFUSED:
            self._refused.add(connection)
        else:
            connection.abort()
        return problem

    def _has_its_share(self, address: str) -> bool:
        most = self._most_of_one_address
        return bool(most) and not _is_this_machine(address) and self._count_by_address[address] >= most

    def leave(self, connection: HttpConnection) -> None:
        self._refused.discard(connection)
        if connection not in self._open:
            return
        self._open.discard(connection)
        address = connection.peer.remote
        self._count_by_address[address] -= 1
        if not self._count_by_address[address]:
            del self._count_by_address[address]


def _is_this_machine(address: str) -> bool:
    return not address or address.startswith("127.") or address == "::1"


class HttpConnection(asyncio.Protocol):
    """`serve(request, connection)` answers one request; the next one is served when it returns.

    `open_connections` holds this connection while it is open. `check_sender(request)` is asked before a large body is read; it
    answers the problem with the sender, or nothing.
    """

    # A watch holds a connection, so there are thousands: a dictionary of these would take a kilobyte each.
    __slots__ = (
        "_ahead",
        "_ahead_bytes",
        "_body",
        "_body_expected",
        "_body_size",
        "_check_sender",
        "_checking",
        "_deadline",
        "_has_begun",
        "_head_size",
        "_headers",
        "_held",
        "_in_head",
        "_is_closing",
        "_loop",
        "_odd_method",
        "_open_connections",
        "_over_limit",
        "_parser",
        "_reading_paused",
        "_repeated",
        "_request",
        "_room",
        "_serve",
        "_since_body",
        "_target",
        "_timer",
        "_transport",
        "on_lost",
        "peer",
        "serving",
        "tunnel",
    )

    def __init__(
        self,
        serve: Callable[[HttpRequest, HttpConnection], Awaitable[None]],
        open_connections: OpenConnections,
        check_sender: Callable[[HttpRequest], Awaitable[str]] | None = None,
    ) -> None:
        self.peer = Peer()
        self.on_lost: Callable[[], object] | None = None
        self.serving: asyncio.Task[None] | None = None
        # What follows a request to change the protocol; the response says whether it is changed.
        self.tunnel: Tunnel | None = None
        self._serve = serve
        self._open_connections = open_connections
        self._check_sender = check_sender
        self._over_limit = ""
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._ahead: deque[HttpRequest] = deque()
        self._ahead_bytes = 0
        self._checking: asyncio.Task[None] | None = None
        self._reading_paused = False
        self._room: asyncio.Future[None] | None = None
        self._is_closing = False
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = 0.0
        self._start_message()

    def _start_message(self) -> None:
        # Whether the parser has seen the message's first byte; before that, bytes of its method may be held back here.
        self._has_begun = False
        self._held = b""
        self._in_head = True
        self._head_size = 0
        self._odd_method = ""
        self._target = b""
        self._headers: dict[str, str] = {}
        # Headers whose name came before.
        self._repeated = 0
        self._since_body = 0
        self._body: list[bytes] = []
        self._body_size = 0
        self._body_expected = False
        self._request: HttpRequest | None = None

    # --- life ---------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.peer = _peer(transport)
        self._over_limit = self._open_connections.enter(self)
        self._wait_until(self._loop.time() + HEAD_TIMEOUT_S)

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closing = True
        self._open_connections.leave(self)
        if self._checking is not None:
            self._checking.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self._make_room()
        if self.tunnel is not None:
            self.tunnel.end()
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
            if self.tunnel is not None:
                self.tunnel.feed(data)
            return
        if self._over_limit:
            self._refuse(self._over_limit)
            return
        is_first = self._head_size == 0
        if self._in_head:
            self._head_size += len(data)
            if not self._has_begun:
                data = self._with_known_method(self._held + data)
            if self._head_size > MAX_HEAD and self._still_in_head(data):
                self._refuse(LONG_HEAD)
                return
        else:
            self._since_body += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._expect_a_tunnel(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self._refuse(NOT_HTTP)
            return
        if self._since_body > MAX_TRAILERS or (self._in_head and len(self._headers) + self._repeated > MAX_HEADERS):
            self._refuse(LONG_HEAD)
        elif self._has_begun and not self._head_size:
            self._head_size = 1  # this read brought the first bytes of the next request
        if self._head_size and self.serving is None:
            self._expect_the_rest(is_first)

    def _expect_a_tunnel(self, rest: bytes) -> None:
        """The bytes after the request are not HTTP, and the request is the last one of its connection, whatever the answer is."""
        from dray.http.tunnel import Tunnel

        self._is_closing = True
        self.tunnel = Tunnel(self, self._transport, rest)

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
        """Holds the data back (answers nothing) while the method is incomplete."""
        self._held = b""
        found = REQUEST_LINE.match(data)
        if found and found[1] not in KNOWN_METHODS:
            self._odd_method = found[1].decode()
            return STAND_IN + data[found.end(1) :]
        if not found and PART_OF_METHOD.fullmatch(data):
            self._held = data
            return b""
        return data

    def on_message_begin(self) -> None:
        self._has_begun = True

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        key, headers = name.decode("latin-1").lower(), self._headers
        if key in headers:
            self._repeat(key, value.decode("latin-1"))
        else:
            headers[key] = value.decode("latin-1")

    def _repeat(self, key: str, text: str) -> None:
        """Joins the values of a header that comes twice with a comma, as HTTP says."""
        self._repeated += 1
        if self._repeated <= MAX_HEADERS:  # more are refused, and joining them would take long
            self._headers[key] += f",{text}"

    def on_headers_complete(self) -> None:
        self._in_head = False
        if self._is_closing:
            return
        if len(self._headers) + self._repeated > MAX_HEADERS:
            self._refuse(LONG_HEAD)
            return
        # Nobody reads the headers after these: trailers come after the decision who asks.
        parser, headers, self._headers = self._parser, self._headers, {}
        method = self._odd_method or parser.get_method().decode("ascii")
        old = parser.get_http_version() == "1.0"
        self._request = HttpRequest(method, self._target, headers, b"", parser.should_keep_alive(), old, peer=self.peer)
        if not old and not HOST.fullmatch(headers.get("host", "?")):
            self._refuse(BAD_HOST)
        elif "content-length" in headers or "transfer-encoding" in headers:
            self._expect_body(self._request)
        elif "expect" in headers:
            self._continue()

    def _expect_body(self, request: HttpRequest) -> None:
        length = request.headers.get("content-length", "")
        if length.isdigit() and int(length) > MAX_BODY:
            self._refuse(TOO_LARGE)
        elif self._check_sender is not None and (
            "transfer-encoding" in request.headers or int(length or 0) > UNCHECKED_BODY
        ):
            self._pause_reading()
            self._checking = self._loop.create_task(self._read_on_if_known(request, self._check_sender))
        else:
            self._continue()

    def _continue(self) -> None:
        """Tells a client that waits for it to send the body."""
        request = self._request
        if (
            request is not None
            and request.headers.get("expect", "").lower() == "100-continue"
            and not request.is_http_1_0
        ):
            self._transport.write(CONTINUE)

    async def _read_on_if_known(
        self, request: HttpRequest, check_sender: Callable[[HttpRequest], Awaitable[str]]
    ) -> None:
        problem = await check_sender(request)
        self._checking = None
        if problem:
            self._refuse(problem)
        else:
            self._continue()
            self._resume_reading()

    def on_body(self, body: bytes) -> None:
        self._since_body = 0
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
        if self._checking is not None:  # the whole body came with the head
            self._checking.cancel()
            self._checking = None
            self._resume_reading()
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
        self._ahead_bytes += len(request.body)
        if self._is_far_ahead():
            self._pause_reading()

    def _is_far_ahead(self) -> bool:
        return len(self._ahead) >= MAX_AHEAD or self._ahead_bytes >= MAX_AHEAD_BYTES

    def _pause_reading(self) -> None:
        if not self._reading_paused:
            self._reading_paused = True
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        """Reads on, unless the sender is still being checked or too many requests wait."""
        if self._reading_paused and self._checking is None and not self._is_far_ahead() and not self._is_closing:
            self._reading_paused = False
            self._transport.resume_reading()

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
                self._ahead_bytes -= len(request.body)
        except Exception:
            log.exception("%s %s", request.method, request.target.decode("ascii", "replace"))
            self._transport.abort()
        except BaseException:
            self._transport.abort()
            raise
        finally:
            self.serving = None
        self._deadline = self._loop.time() + KEEP_ALIVE_S
        self._resume_reading()

    # --- writing ------------------------------------------------------------------------------------------------------

    def write(self, data: bytes | memoryview) -> None:
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

    async def room(self, held: int = 0) -> None:
        """Waits until the client has read most of what was written; cuts it off if that takes too long, or others need the memory.

        `held` are bytes that stay in memory meanwhile, beside those that are not read.
        """
        if self._room is None:
            return
        try:
            with self._open_connections.untaken.waiting(self, held + self._transport.get_write_buffer_size()):
                async with asyncio.timeout(TAKE_TIMEOUT_S):
                    await self.drained()
        except TimeoutError:
            self._transport.abort()

    async def write_in_pieces(self, data: bytes, held: int = 0) -> None:
        """Other connections take their turn after each piece. As `room`, cuts the client off if it takes too long to read them all."""
        rest = memoryview(data)
        try:
            with self._open_connections.untaken.waiting(self, held + len(data)):
                async with asyncio.timeout(TAKE_TIMEOUT_S):
                    for start in range(0, len(data), WRITE_BYTES):
                        self.write(rest[start : start + WRITE_BYTES])
                        await asyncio.sleep(0)
                        await self.drained()
        except TimeoutError:
            self._transport.abort()

    async def drained(self) -> None:
        """Waits until the client has read most of what was written, however long it takes."""
        if self._room is not None:
            await asyncio.shield(self._room)


def _peer(transport: asyncio.BaseTransport) -> Peer:
    address = transport.get_extra_info("peername")
    remote = address[0] if isinstance(address, tuple) else ""
    own = transport.get_extra_info("sockname")
    local = _host_and_port(own) if isinstance(own, tuple) else ""
    tls = transport.get_extra_info("ssl_object")
    if tls is None:
        return Peer(remote, local=local)
    return Peer(remote, True, tls.getpeercert(True), _common_name(tls.getpeercert() or {}), local)


def _host_and_port(address: tuple[Any, ...]) -> str:
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _common_name(certificate: Mapping[str, Any]) -> str:
    for pairs in certificate.get("subject", ()):
        for key, value in pairs:
            if key == "commonName":
                return str(value)
    return ""
