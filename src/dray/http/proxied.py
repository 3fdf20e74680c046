"""Passes one request on to another server over a connection that stands already, and its answer back, piece by piece."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass

import httptools

from dray.http.tunnel import ByteStream, Tunnel, first_of, idle_for, splice
from dray.http.upgrade_client import parsed_head

MAX_HEAD = 64 * 1024
# Answers with status 1xx before the one that counts.
MAX_INTERIM = 5
HEAD_TIMEOUT_S = 300.0
# An answer or a WebSocket that brings nothing for so long is closed.
IDLE_S = 4 * 3600.0
# Headers that count for one connection only.
HOP_BY_HOP = frozenset(
    ("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
     "transfer-encoding", "upgrade")
)  # fmt: skip


class BrokenAnswer(Exception):
    """The other server does not answer, or not in HTTP."""


@dataclass(frozen=True, slots=True)
class ProxiedRequest:
    """`target` is path and query, encoded; `headers` are complete except for the body's length."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes = b""

    def encoded(self) -> bytes:
        lines = [f"{self.method} {self.target} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in self.headers if "\r" not in value and "\n" not in value]
        if self.body or self.method not in ("GET", "HEAD", "DELETE", "OPTIONS"):
            lines.append(f"content-length: {len(self.body)}")
        return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + self.body


@dataclass(frozen=True, slots=True)
class ProxiedAnswer:
    """Header names are lower-case; with status 101 the connection goes on as a tunnel, `rest` being its first bytes."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: AsyncIterator[bytes]
    rest: bytes = b""


async def exchange(server: ByteStream, request: ProxiedRequest) -> ProxiedAnswer:
    try:
        async with asyncio.timeout(HEAD_TIMEOUT_S):
            await server.write(request.encoded())
            rest = b""
            for _ in range(MAX_INTERIM + 1):
                head, rest = await _head(server, rest)
                status, headers = parsed_head(head)
                if status == 101 or status >= 200:
                    break
            else:
                raise ValueError("too many answers that only announce another one")
    except (ConnectionError, TimeoutError, ValueError) as problem:
        raise BrokenAnswer(str(problem) or "no answer in time") from problem
    parser = _BodyParser()
    if status != 101:
        parser.feed(head)
    has_body = request.method != "HEAD" and status not in (101, 204, 304)
    return ProxiedAnswer(status, headers, _body(server, parser, rest, headers) if has_body else _nothing(), rest)


async def _head(server: ByteStream, data: bytes) -> tuple[bytes, bytes]:
    while b"\r\n\r\n" not in data:
        more = await server.read()
        if not more or len(data) > MAX_HEAD:
            raise ValueError("the answer ends early or its head is too long")
        data += more
    head, _, rest = data.partition(b"\r\n\r\n")
    return head + b"\r\n\r\n", rest


class _Prefixed:
    def __init__(self, first: bytes, stream: ByteStream) -> None:
        self._first = first
        self._stream = stream

    async def read(self) -> bytes:
        data, self._first = self._first, b""
        return data or await self._stream.read()

    async def write(self, data: bytes) -> None:
        await self._stream.write(data)


class _BodyParser:
    """What httptools finds in the bytes: pieces of the body, and whether it is complete."""

    def __init__(self) -> None:
        self.pieces: deque[bytes] = deque()
        self.is_complete = False
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as problem:
            raise BrokenAnswer(f"the answer is not HTTP: {problem}") from problem

    def on_body(self, data: bytes) -> None:
        self.pieces.append(data)

    def on_message_complete(self) -> None:
        self.is_complete = True


async def _body(
    server: ByteStream, parser: _BodyParser, rest: bytes, headers: tuple[tuple[str, str], ...]
) -> AsyncIterator[bytes]:
    """BrokenAnswer cuts the answer off, so that nobody takes a part of it for the whole."""
    says_its_end = any(name in ("content-length", "transfer-encoding") for name, _ in headers)
    parser.feed(rest)
    while True:
        while parser.pieces:
            yield parser.pieces.popleft()
        if parser.is_complete:
            return
        try:
            async with asyncio.timeout(IDLE_S):
                data = await server.read()
        except TimeoutError as problem:
            raise BrokenAnswer(f"nothing came for {IDLE_S:g} seconds") from problem
        if not data and says_its_end:
            raise BrokenAnswer("the answer ends early")
        if not data:
            return
        parser.feed(data)


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield b""


async def join(client: Tunnel, server: ByteStream, rest: bytes) -> None:
    """The tunnel after an answer with status 101."""
    await first_of(splice(client, _Prefixed(rest, server)), idle_for(IDLE_S, lambda: client.active_at))
