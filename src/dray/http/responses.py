"""Responses and how they are written: heads, whole bodies, streams."""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import cached_property, lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING

from dray.http.connection import (
    WRITE_BYTES,
    HttpConnection,
    HttpRequest,
)

if TYPE_CHECKING:
    from dray.http.tunnel import Tunnel

GZIP_ABOVE = 128 * 1024
COMPRESS_APART = 512 * 1024
HTTP_PHRASES = {int(status): status.phrase for status in HTTPStatus}
END_OF_CHUNKS = b"0\r\n\r\n"
TEXT = "text/plain; charset=utf-8"


Headers = tuple[tuple[str, str], ...]


class SharedHeaders(tuple[tuple[str, str], ...]):
    """Headers that many responses have. They are encoded once."""

    @cached_property
    def lines(self) -> bytes:
        return _header_lines(self)


@dataclass(slots=True)
class Response:
    """`body` is whole, unless `stream` is set: then it comes in chunks until the iterator ends (a watch, a log).

    The stream's `aclose()` is called when the reader goes away. `tunnel` changes the protocol (status 101): it is called with the
    bytes both ways, and the connection ends when it returns.
    """

    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    headers: Headers = ()
    stream: AsyncIterator[bytes] | None = None
    warnings: list[str] = field(default_factory=list)
    cache_control: str = "no-cache, private"
    tunnel: Callable[[Tunnel], Awaitable[None]] | None = None


def send(response: Response, request: HttpRequest, connection: HttpConnection) -> Awaitable[None]:
    if response.tunnel is not None:
        return open_tunnel(response, request, connection)
    return (send_whole if response.stream is None else send_stream)(response, request, connection)


async def open_tunnel(response: Response, request: HttpRequest, connection: HttpConnection) -> None:
    tunnel, serve = connection.tunnel, response.tunnel
    assert tunnel is not None, "only a request for another protocol is answered with one"
    assert serve is not None
    lines = ["HTTP/1.1 101 Switching Protocols", *(f"{name}: {_one_line(value)}" for name, value in response.headers)]
    connection.write("\r\n".join([*lines, "", ""]).encode("latin-1", "replace"))
    request.keep_alive = False
    with contextlib.suppress(ConnectionError):
        await serve(tunnel)


async def send_whole(response: Response, request: HttpRequest, connection: HttpConnection) -> None:
    body, extra, held = response.body, b"", 0
    if len(body) > GZIP_ABOVE and "gzip" in request.headers.get("accept-encoding", ""):
        body = await asyncio.to_thread(_gzip, body) if len(body) > COMPRESS_APART else _gzip(body)
        held = len(response.body)
        extra = b"content-encoding: gzip\r\nvary: accept-encoding\r\n"
    head = b"%bcontent-length: %d\r\n%b\r\n" % (_head(response, request), len(body), extra)
    if request.method == "HEAD" or len(body) <= WRITE_BYTES:
        connection.write(head if request.method == "HEAD" else head + body)
        await connection.room(held)
    else:
        connection.write(head)
        await connection.write_in_pieces(body, held)


async def send_stream(response: Response, request: HttpRequest, connection: HttpConnection) -> None:
    """Writes each piece as a chunk; a client of HTTP/1.0 gets the bytes alone, until the connection ends."""
    stream = response.stream
    assert stream is not None
    connection.on_lost = lambda: asyncio.ensure_future(_close(stream))
    has_body = request.method != "HEAD" and response.status not in (204, 304)
    in_chunks = has_body and not request.is_http_1_0
    try:
        head = _head(response, request) + (b"transfer-encoding: chunked\r\n\r\n" if in_chunks else b"\r\n")
        connection.write(head)
        if not has_body:
            return
        async for data in stream:
            if connection.is_lost:
                return
            if data:
                connection.write(b"%x\r\n%b\r\n" % (len(data), data) if in_chunks else data)
                await connection.room()
        if in_chunks:
            connection.write(END_OF_CHUNKS)
        else:
            request.keep_alive = False
    finally:
        connection.on_lost = None
        await _close(stream)


async def _close(stream: AsyncIterator[bytes]) -> None:
    close = getattr(stream, "aclose", None)
    if close is not None:
        with contextlib.suppress(RuntimeError):
            await close()


def _head(response: Response, request: HttpRequest) -> bytes:
    """Status line and headers, except those that say where the body ends."""
    head = b"%bdate: %b\r\n" % (_beginning(response.status, response.content_type, response.cache_control), _date())
    if not request.keep_alive:
        head += b"connection: close\r\n"
    elif request.is_http_1_0 and response.stream is None:
        head += b"connection: keep-alive\r\n"
    headers = response.headers
    if headers:
        head += headers.lines if isinstance(headers, SharedHeaders) else _header_lines(headers)
    if response.warnings:
        head += b"".join(map(_warning, response.warnings))
    return head


def _header_lines(headers: Headers) -> bytes:
    lines = (f"{name.lower()}: {_one_line(value)}\r\n" for name, value in headers)
    return "".join(lines).encode("latin-1", "replace")


@lru_cache(maxsize=256)
def _beginning(status: int, content_type: str, cache_control: str) -> bytes:
    phrase = HTTP_PHRASES.get(status, "")
    lines = (f"HTTP/1.1 {status} {phrase}", f"content-type: {content_type}", f"cache-control: {cache_control}", "")
    return "\r\n".join(lines).encode()


def _one_line(value: str) -> str:
    return value.replace("\r", " ").replace("\n", " ")


def _warning(text: str) -> bytes:
    plain = "".join(char if char.isprintable() else " " for char in text)[:4096]
    escaped = plain.replace("\\", "\\\\").replace('"', '\\"')
    return f'warning: 299 - "{escaped}"\r\n'.encode()


_dates: tuple[int, bytes] = (0, b"")


def _date() -> bytes:
    global _dates
    now = int(asyncio.get_running_loop().time())
    if _dates[0] != now:
        _dates = (now, formatdate(usegmt=True).encode())
    return _dates[1]


def _gzip(body: bytes) -> bytes:
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    return packer.compress(body) + packer.flush()
