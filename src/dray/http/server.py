"""A server on a listening socket, with or without TLS: `handle` answers each request."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

from dray.http.connection import (
    BAD_HOST,
    LONG_HEAD,
    MAX_BODY,
    TOO_LARGE,
    TOO_MANY_CONNECTIONS,
    TOO_MANY_OF_ADDRESS,
    TOO_SLOW,
    UNKNOWN_SENDER,
    HttpConnection,
    HttpRequest,
    OpenConnections,
)
from dray.http.responses import TEXT, Response, send

log = logging.getLogger(__name__)

BACKLOG = 2048
STOP_AFTER_S = 5.0
HANDSHAKE_TIMEOUT_S = 15.0
# TLS 1.2 with ciphers that encrypt and authenticate in one step, none with CBC; those of TLS 1.3 all do.
CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
RETRY_LATER = (("Retry-After", "10"),)

HttpHandler = Callable[[HttpRequest], Awaitable[Response]]


def server_tls() -> ssl.SSLContext:
    """The settings of every server of the program; the caller adds certificates."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)
    return context


class HttpServer:
    """`handle` answers whole requests; `refuse` makes the response to one that could not be read, from its `problem`."""

    def __init__(
        self,
        handle: HttpHandler,
        context: ssl.SSLContext | None = None,
        *,
        refuse: Callable[[str], Response] | None = None,
        stop_after_s: float = STOP_AFTER_S,
        check_sender: Callable[[HttpRequest], Awaitable[str]] | None = None,
        connections: OpenConnections | None = None,
    ) -> None:
        self._handle = handle
        self._context = context
        self._refuse = refuse or plain_refusal
        self._stop_after_s = stop_after_s
        self._check_sender = check_sender
        self._connections = OpenConnections() if connections is None else connections
        self._socket: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Starts to listen; returns the address. Port 0 takes a free one."""
        loop = asyncio.get_running_loop()
        listening = _listening_socket(host, port)
        address = listening.getsockname()
        options: dict[str, Any] = {"backlog": BACKLOG}
        if self._context:
            options |= {"ssl": self._context, "ssl_handshake_timeout": HANDSHAKE_TIMEOUT_S}
        self._socket = await loop.create_server(self._connection, sock=listening, **options)
        return address[0], address[1]

    @property
    def open_connections(self) -> int:
        return len(self._connections)

    def _connection(self) -> HttpConnection:
        return HttpConnection(self._serve, self._connections, self._check_sender)

    async def _serve(self, request: HttpRequest, connection: HttpConnection) -> None:
        try:
            response = self._refuse(request.problem) if request.problem else await self._handle(request)
        except Exception:
            log.exception("%s %s", request.method, request.target.decode("ascii", "replace"))
            response = Response(500, b"the server failed; its log says why\n", TEXT)
        await send(response, request, connection)

    async def stop(self) -> None:
        """No new connections. Requests that are being answered have `stop_after_s` to end, then they are cut off."""
        if self._socket:
            self._socket.close()
        open_now = list(self._connections)
        for connection in open_now:
            connection.shutdown()
        running = {connection.serving for connection in open_now if connection.serving is not None}
        if running:
            _, late = await asyncio.wait(running, timeout=self._stop_after_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        for connection in list(self._connections):
            connection.abort()


def plain_refusal(problem: str) -> Response:
    if problem == TOO_LARGE:
        return Response(413, f"the request is larger than {MAX_BODY} bytes\n".encode(), TEXT)
    if problem == TOO_SLOW:
        return Response(408, b"the request's body did not arrive in time\n", TEXT)
    if problem in (TOO_MANY_CONNECTIONS, TOO_MANY_OF_ADDRESS):
        return Response(503, f"{problem}; close some or try again later\n".encode(), TEXT, RETRY_LATER)
    if problem == BAD_HOST:
        return Response(400, b"the Host header is missing or malformed\n", TEXT)
    if problem == UNKNOWN_SENDER:
        return Response(401, b"a request with a body this large needs credentials\n", TEXT)
    text = b"Request header is too large.\n" if problem == LONG_HEAD else b"Invalid HTTP request received.\n"
    return Response(400, text, TEXT)


def url_of(scheme: str, host: str, port: int) -> str:
    """A URL that works on this machine, also for a server that listens on all addresses."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _listening_socket(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError:
        listening.close()
        raise
    listening.setblocking(False)
    return listening
