"""The server on a socket: HTTPS, bodies, compression, slow clients. What an answer is, is none of its business."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from email.utils import formatdate
from types import MappingProxyType
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from dray.apiserver import errors
from dray.apiserver.connection import Connection, HeldBack
from dray.apiserver.exchange import Request, Response
from dray.apiserver.server import MAX_BODY, Server, failure

log = logging.getLogger(__name__)

GZIP_ABOVE = 128 * 1024
COMPRESS_APART = 512 * 1024
BODY_TIMEOUT_S = 60.0
# Answers up to this size leave in one piece with their head.
HELD_BACK = 64 * 1024
KEEP_ALIVE_S = 120
BACKLOG = 2048
STOP_AFTER_S = 5.0
HANDSHAKE_TIMEOUT_S = 15.0


Mounted = Callable[[Any, Any, Any], Awaitable[None]]
"""An ASGI application that answers for itself below its path, sign-in included."""


class Application:
    """ASGI in front of `Server.handle`, and of what is mounted beside the API."""

    def __init__(self, server: Server, mounts: Mapping[str, Mounted]) -> None:
        self._server = server
        self._mounts = mounts

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        for prefix, mounted in self._mounts.items():
            if scope["path"] == prefix or scope["path"].startswith(f"{prefix}/"):
                await mounted(scope, receive, send)
                return
        headers = _headers(scope["headers"])
        connection: Connection | None = scope.get("extensions", {}).get("dray")
        here = connection.whole_body(scope) if connection else None
        body = here if here is not None and len(here) <= MAX_BODY else await _body(receive, headers)
        if not isinstance(body, bytes):
            held = connection.hold_back(scope) if connection else None
            await _send_whole(send, body, headers, held, close=True)
            return
        request = Request(
            method=scope["method"],
            path=scope["raw_path"].decode("ascii", "replace"),
            query=scope["query_string"].decode("ascii", "replace"),
            headers=headers,
            body=body,
            client_certificate=connection.certificate if connection else None,
            remote=scope["client"][0] if scope.get("client") else "",
        )
        response = await self._server.handle(request)
        if response.stream is None:
            small = connection is not None and len(response.body) < HELD_BACK
            held = connection.hold_back(scope) if connection and small else None
            await _send_whole(send, response, headers, held)
        else:
            await _send_stream(send, response, connection)


def _headers(raw: list[tuple[bytes, bytes]]) -> dict[str, str]:
    """Header names are lower-case; a name that comes twice is one list, as in HTTP."""
    headers: dict[str, str] = {}
    for key, value in raw:
        name, text = key.decode("latin-1"), value.decode("latin-1")
        headers[name] = f"{headers[name]},{text}" if name in headers else text
    return headers


async def _body(receive: Any, headers: dict[str, str]) -> bytes | Response:
    """The request's body, or the answer to one that is too long or too slow."""
    length = headers.get("content-length", "")
    if not length and "transfer-encoding" not in headers:
        return b""
    if length.isdigit() and int(length) > MAX_BODY:
        return failure(errors.too_large(MAX_BODY))
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            return await _collect(receive)
    except TimeoutError:
        return failure(errors.ApiError(408, "Timeout", "the request's body did not arrive in time"))


async def _collect(receive: Any) -> bytes | Response:
    chunks, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return b""
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > MAX_BODY:
            return failure(errors.too_large(MAX_BODY))
        chunks.append(chunk)
        if not message.get("more_body"):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _head(response: Response, length: int | None) -> list[tuple[bytes, bytes]]:
    head = [
        (b"content-type", response.content_type.encode("latin-1")),
        (b"cache-control", b"no-cache, private"),
        (b"date", _date()),
    ]
    if length is not None:
        head.append((b"content-length", str(length).encode()))
    for name, value in response.headers:
        head.append((name.lower().encode("latin-1"), value.encode("latin-1", "replace")))
    for text in response.warnings:
        head.append((b"warning", _warning(text)))
    return head


def _warning(text: str) -> bytes:
    plain = "".join(char if char.isprintable() else " " for char in text)[:4096]
    escaped = plain.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{escaped}"'.encode()


_dates: tuple[int, bytes] = (0, b"")


def _date() -> bytes:
    global _dates
    now = int(asyncio.get_running_loop().time())
    if _dates[0] != now:
        _dates = (now, formatdate(usegmt=True).encode())
    return _dates[1]


async def _send_whole(
    send: Any, response: Response, headers: dict[str, str], held: HeldBack | None, *, close: bool = False
) -> None:
    body = response.body
    compressed = len(body) > GZIP_ABOVE and "gzip" in headers.get("accept-encoding", "")
    if compressed:
        body = await asyncio.to_thread(_gzip, body) if len(body) > COMPRESS_APART else _gzip(body)
    head = _head(response, len(body))
    if compressed:
        head += [(b"content-encoding", b"gzip"), (b"vary", b"accept-encoding")]
    if close:
        head.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": response.status, "headers": head})
    await send({"type": "http.response.body", "body": body})
    if held:
        held.release()


def _gzip(body: bytes) -> bytes:
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    return packer.compress(body) + packer.flush()


async def _send_stream(send: Any, response: Response, connection: Connection | None) -> None:
    stream = response.stream
    assert stream is not None
    if connection:
        connection.on_lost = lambda: asyncio.ensure_future(_close(stream))
    try:
        await send({"type": "http.response.start", "status": response.status, "headers": _head(response, None)})
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        async for chunk in stream:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    finally:
        if connection:
            connection.on_lost = None
        await _close(stream)


async def _close(stream: AsyncIterator[bytes]) -> None:
    close = getattr(stream, "aclose", None)
    if close is not None:
        with contextlib.suppress(RuntimeError):
            await close()


class Listener:
    """A listening HTTPS socket with the server behind it."""

    def __init__(
        self, server: Server, context: ssl.SSLContext | None, mounts: Mapping[str, Mounted] = MappingProxyType({})
    ) -> None:
        self._context = context
        self._state = ServerState()
        self._config = uvicorn.Config(
            Application(server, mounts),
            http=Connection,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
        )
        self._config.load()
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

    def _connection(self) -> HttpToolsProtocol:
        return Connection(config=self._config, server_state=self._state, app_state={})

    async def stop(self) -> None:
        """No new connections; requests that are running may end, streams are ended by the server."""
        if self._socket:
            self._socket.close()
        for connection in list(self._state.connections):
            connection.shutdown()
        running = set(self._state.tasks)
        if running:
            await asyncio.wait(running, timeout=STOP_AFTER_S)
        for connection in list(self._state.connections):
            connection.transport.abort()


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
