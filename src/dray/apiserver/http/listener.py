"""The server on a socket: HTTPS in front of `Server.handle`. What an answer is, is none of its business."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from dray.apiserver import errors
from dray.apiserver.http.mounted_apps import (
    Mounted,
    answer_mounted,
)
from dray.apiserver.request.request_info import Request
from dray.apiserver.server import TEXT, Server, failure
from dray.http.connection import (
    LONG_HEAD,
    MAX_BODY,
    NOT_HTTP,
    TOO_LARGE,
    TOO_SLOW,
    Connection,
    Incoming,
)
from dray.http.responses import (
    Response,
    send_stream,
    send_whole,
)

log = logging.getLogger(__name__)

BACKLOG = 2048
STOP_AFTER_S = 5.0
HANDSHAKE_TIMEOUT_S = 15.0


class Application:
    """Answers one request of a connection."""

    def __init__(self, server: Server, mounts: Mapping[str, Mounted]) -> None:
        self._server = server
        self._mounts = mounts

    async def __call__(self, incoming: Incoming, connection: Connection) -> None:
        if incoming.problem:
            await send_whole(_unreadable(incoming.problem), incoming, connection)
            return
        path, _, query = incoming.target.decode("ascii", "replace").partition("?")
        for prefix, mounted in self._mounts.items():
            if path == prefix or path.startswith(f"{prefix}/"):
                await answer_mounted(mounted, incoming, connection)
                return
        request = Request(
            incoming.method,
            path,
            query,
            incoming.headers,
            incoming.body,
            None,
            connection.certificate,
            connection.remote,
        )
        response = await self._server.handle(request)
        send = send_whole if response.stream is None else send_stream
        await send(response, incoming, connection)


def _unreadable(problem: str) -> Response:
    if problem == TOO_LARGE:
        return failure(errors.too_large(MAX_BODY))
    if problem == TOO_SLOW:
        return failure(errors.ApiError(408, "Timeout", "the request's body did not arrive in time"))
    assert problem in (NOT_HTTP, LONG_HEAD)
    text = b"Request header is too large.\n" if problem == LONG_HEAD else b"Invalid HTTP request received.\n"
    return Response(400, text, TEXT)


class Listener:
    """A listening HTTPS socket with the server behind it."""

    def __init__(
        self, server: Server, context: ssl.SSLContext | None, mounts: Mapping[str, Mounted] = MappingProxyType({})
    ) -> None:
        self._context = context
        self._application = Application(server, mounts)
        self._connections: set[Connection] = set()
        self._socket: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Starts to listen; answers where."""
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

    def _connection(self) -> Connection:
        return Connection(self._application, self._connections)

    async def stop(self) -> None:
        """No new connections; requests that are running may end, streams are ended by the server."""
        if self._socket:
            self._socket.close()
        open_now = list(self._connections)
        for connection in open_now:
            connection.shutdown()
        running = {connection.serving for connection in open_now if connection.serving is not None}
        if running:
            await asyncio.wait(running, timeout=STOP_AFTER_S)
        for connection in list(self._connections):
            connection.abort()


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
