"""Answers on the wire: heads, whole bodies, streams."""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus

from dray.http.connection import (
    Connection,
    Incoming,
)

GZIP_ABOVE = 128 * 1024
COMPRESS_APART = 512 * 1024
HTTP_PHRASES = {int(status): status.phrase for status in HTTPStatus}
END_OF_CHUNKS = b"0\r\n\r\n"


@dataclass(slots=True)
class Response:
    """`body` is whole, unless `stream` is set: then it comes in chunks until the iterator ends (a watch, a log).

    A watch chunk holds one or more whole JSON lines, shared between all watchers that see the same events. Close the
    stream with `aclose()` when the reader goes away.
    """

    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    stream: AsyncIterator[bytes] | None = None
    warnings: list[str] = field(default_factory=list)


async def send_whole(response: Response, incoming: Incoming, connection: Connection) -> None:
    body, extra = response.body, b""
    if len(body) > GZIP_ABOVE and "gzip" in incoming.headers.get("accept-encoding", ""):
        body = await asyncio.to_thread(_gzip, body) if len(body) > COMPRESS_APART else _gzip(body)
        extra = b"content-encoding: gzip\r\nvary: accept-encoding\r\n"
    head = b"%bcontent-length: %d\r\n%b\r\n" % (_head(response, incoming), len(body), extra)
    connection.write(head if incoming.method == "HEAD" else head + body)
    await connection.room()


async def send_stream(response: Response, incoming: Incoming, connection: Connection) -> None:
    """In chunks, as they come; to a client of HTTP/1.0 just the bytes, until the connection ends."""
    stream = response.stream
    assert stream is not None
    connection.on_lost = lambda: asyncio.ensure_future(_close(stream))
    in_chunks = not incoming.is_http_1_0
    try:
        head = _head(response, incoming) + (b"transfer-encoding: chunked\r\n\r\n" if in_chunks else b"\r\n")
        connection.write(head)
        if incoming.method == "HEAD":
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
            incoming.keep_alive = False
    finally:
        connection.on_lost = None
        await _close(stream)


async def _close(stream: AsyncIterator[bytes]) -> None:
    close = getattr(stream, "aclose", None)
    if close is not None:
        with contextlib.suppress(RuntimeError):
            await close()


def _head(response: Response, incoming: Incoming) -> bytes:
    """Everything but what says where the body ends."""
    head = b"%bdate: %b\r\n" % (_beginning(response.status, response.content_type), _date())
    if not incoming.keep_alive:
        head += b"connection: close\r\n"
    elif incoming.is_http_1_0 and response.stream is None:
        head += b"connection: keep-alive\r\n"
    for name, value in response.headers:
        head += f"{name.lower()}: {_one_line(value)}\r\n".encode("latin-1", "replace")
    for text in response.warnings:
        head += _warning(text)
    return head


@lru_cache(maxsize=256)
def _beginning(status: int, content_type: str) -> bytes:
    phrase = HTTP_PHRASES.get(status, "")
    return (
        f"HTTP/1.1 {status} {phrase}\r\ncontent-type: {content_type}\r\ncache-control: no-cache, private\r\n".encode()
    )


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
