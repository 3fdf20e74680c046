"""Requests on the wire: what HTTP/1.1 clients may do, and how long they may take. Real sockets, without TLS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from unittest.mock import ANY

import pytest

from dray.apiserver.http.listener import Listener
from dray.apiserver.request.request_info import Request
from dray.http import connection as wire
from dray.http.responses import Response
from tests.waiting import eventually, let_others_run


class Echo:
    """Stands where the server stands: says what it was asked, so that reading and writing are seen alone."""

    def __init__(self) -> None:
        self.streams = 0
        self.slow_begun = False

    async def handle(self, request: Request) -> Response:
        if request.path == "/stream":
            return Response(200, stream=self._count(int(request.query or 3)))
        if request.path == "/large":
            return Response(200, b"x" * 8_000_000)
        if request.path == "/headers":
            return Response(200, repr(dict(request.headers)).encode())
        if request.path == "/slow":
            self.slow_begun = True
            await asyncio.sleep(0.05)
        return Response(200, f"{request.method} {request.path} {request.query} {request.body!r}".encode())

    async def _count(self, most: int) -> AsyncIterator[bytes]:
        self.streams += 1
        try:
            for number in range(most):
                yield b"%d\n" % number
                await let_others_run()
        finally:
            self.streams -= 1


@asynccontextmanager
async def listening(echo: Echo | None = None) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    listener = Listener(echo or Echo(), None)  # type: ignore[arg-type]
    reader, writer = await asyncio.open_connection(*await listener.start("127.0.0.1", 0))
    try:
        async with asyncio.timeout(20):
            yield reader, writer
    finally:
        writer.close()
        await listener.stop()


async def until(holds: Callable[[], bool]) -> None:
    await eventually(holds)


async def answer(reader: asyncio.StreamReader, *, is_head: bool = False) -> tuple[int, dict[str, str], bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in head[1:] if line)
    body = b"" if is_head else await reader.readexactly(int(headers.get("content-length", 0)))
    return int(head[0].split()[1]), headers, body


async def test_one_connection_carries_many_requests() -> None:
    async with listening() as (reader, writer):
        for number in range(3):
            writer.write(b"GET /a?%d HTTP/1.1\r\nHost: x\r\n\r\n" % number)
            assert (await answer(reader))[2] == b"GET /a %d b''" % number


async def test_requests_sent_ahead_are_answered_in_order_even_more_than_are_kept() -> None:
    count = wire.MAX_AHEAD * 3
    async with listening() as (reader, writer):
        for number in range(count):
            writer.write(b"GET %b?%d HTTP/1.1\r\nHost: x\r\n\r\n" % (b"/slow" if number == 0 else b"/a", number))
        for number in range(count):
            assert (await answer(reader))[2].split()[2] == b"%d" % number


async def test_bodies_come_in_pieces_and_in_chunks() -> None:
    async with listening() as (reader, writer):
        for piece in (b"POST /a HTTP/1.1\r\nHo", b"st: x\r\nContent-Length: 6\r\n\r\nab", b"cd", b"ef"):
            writer.write(piece)
            await let_others_run(20)
        assert (await answer(reader))[2] == b"POST /a  b'abcdef'"
        writer.write(
            b"PUT /b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
        )
        assert (await answer(reader))[2] == b"PUT /b  b'abcde'"


async def test_a_header_that_comes_twice_is_joined_and_trailers_are_ignored() -> None:
    async with listening() as (reader, writer):
        writer.write(
            b"POST /headers HTTP/1.1\r\nHost: x\r\nX-A: 1\r\nTransfer-Encoding: chunked\r\nx-a: 2\r\n\r\n"
            b"1\r\na\r\n0\r\nX-B: late\r\nX-A: 3\r\n\r\n"
        )
        assert (await answer(reader))[2] == b"{'host': 'x', 'x-a': '1,2', 'transfer-encoding': 'chunked'}"


@pytest.mark.parametrize("reads", [1, 3])
async def test_a_head_with_too_many_headers_is_refused(reads: int) -> None:
    lines = [b"x-%d: a\r\n" % number for number in range(wire.MAX_HEADERS + 1)]
    async with listening() as (reader, writer):
        writer.write(b"GET /a HTTP/1.1\r\nHost: x\r\n")
        for part in range(reads):
            writer.write(b"".join(lines[part::reads]))
            await let_others_run(20)
        if reads == 1:
            writer.write(b"\r\n")
        assert (await reader.readuntil(b"\r\n")).split()[1] == b"400"
        assert b"too large" in await reader.read()


async def test_who_asks_before_sending_the_body_is_told_to_go_on() -> None:
    async with listening() as (reader, writer):
        writer.write(b"POST /a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"ok")
        assert (await answer(reader))[2] == b"POST /a  b'ok'"


async def test_head_has_the_length_and_no_body() -> None:
    async with listening() as (reader, writer):
        writer.write(b"HEAD /a HTTP/1.1\r\nHost: x\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n")
        status, headers, _ = await answer(reader, is_head=True)
        assert (status, headers["content-length"]) == (200, str(len(b"HEAD /a  b''")))
        assert (await answer(reader))[2] == b"GET /b  b''"


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
async def test_connections_end_when_the_client_wants_that(version: bytes) -> None:
    async with listening() as (reader, writer):
        writer.write(b"GET /a HTTP/%b\r\nConnection: close\r\n\r\n" % version)
        assert (await answer(reader))[1]["connection"] == "close"
        assert await reader.read() == b""


async def test_streams_are_chunked_and_the_connection_lives_on() -> None:
    async with listening() as (reader, writer):
        writer.write(b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await answer(reader))[1]["transfer-encoding"] == "chunked"
        assert await reader.readuntil(b"0\r\n\r\n") == b"2\r\n0\n\r\n2\r\n1\n\r\n2\r\n2\n\r\n0\r\n\r\n"
        writer.write(b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await answer(reader))[0] == 200


async def test_streams_to_old_clients_end_with_the_connection() -> None:
    async with listening() as (reader, writer):
        writer.write(b"GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        assert "transfer-encoding" not in (await answer(reader))[1]
        assert await reader.read() == b"0\n1\n2\n"


async def test_a_stream_ends_when_its_reader_goes_away() -> None:
    echo = Echo()
    async with listening(echo) as (reader, writer):
        writer.write(b"GET /stream?1000000 HTTP/1.1\r\nHost: x\r\n\r\n")
        await answer(reader)
        assert echo.streams == 1
        writer.transport.abort()
        await until(lambda: not echo.streams)


async def test_requests_to_upgrade_are_answered_without() -> None:
    async with listening() as (reader, writer):
        writer.write(b"GET /a HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n\x80\x03\x00")
        assert (await answer(reader))[2] == b"GET /a  b''"
        assert await reader.read() == b""


@pytest.mark.parametrize("data", [b"\x16\x03\x01 hello", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET\r\n\r\n"])
async def test_what_is_not_http_is_refused(data: bytes) -> None:
    async with listening() as (reader, writer):
        writer.write(data)
        assert (await answer(reader))[0] == 400
        assert await reader.read() == b""


@pytest.mark.parametrize(
    ("sent", "status"), [(b"GET /a", 0), (b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nab", 408)]
)
async def test_slow_requests_are_cut_off_however_busy_they_look(
    monkeypatch: pytest.MonkeyPatch, sent: bytes, status: int
) -> None:
    monkeypatch.setattr(wire, "HEAD_TIMEOUT_S", 0.3)
    monkeypatch.setattr(wire, "BODY_TIMEOUT_S", 0.3)
    async with listening() as (reader, writer):
        writer.write(sent)
        received = asyncio.create_task(reader.read())
        for _ in range(6):  # a byte now and then buys no time
            await asyncio.sleep(0.1)
            writer.write(b"T" if not status else b"")
        said = await received
        assert said.startswith(b"HTTP/1.1 408") if status else said == b""


async def test_an_idle_connection_is_closed_later_than_a_slow_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "HEAD_TIMEOUT_S", 0.1)
    monkeypatch.setattr(wire, "KEEP_ALIVE_S", 0.5)
    async with listening() as (reader, writer):
        writer.write(b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
        await answer(reader)
        await asyncio.sleep(0.25)
        writer.write(b"GET /b HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await answer(reader))[0] == 200
        assert await reader.read() == b""


async def test_a_client_that_does_not_take_its_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "TAKE_TIMEOUT_S", 0.2)
    listener = Listener(Echo(), None)  # type: ignore[arg-type]
    host, port = await listener.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(host, port, limit=1024)
    try:
        async with asyncio.timeout(20):
            writer.write(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            await until(lambda: not listener.open_connections)
    finally:
        writer.transport.abort()
        await listener.stop()


async def test_a_large_answer_waits_for_its_reader_in_one_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Written whole, it would be copied and encrypted in one turn of the loop, and be twice in memory."""
    written: list[int] = []
    write = wire.HttpConnection.write

    def seen(connection: wire.HttpConnection, data: bytes) -> None:
        written.append(len(data))
        write(connection, data)

    monkeypatch.setattr(wire.HttpConnection, "write", seen)
    async with listening() as (reader, writer):
        writer.write(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        assert await answer(reader) == (200, ANY, b"x" * 8_000_000)
        assert max(written) <= 2**20
        assert len(written) == 1 + 8


async def test_stopping_lets_a_running_request_end() -> None:
    echo = Echo()
    listener = Listener(echo, None)  # type: ignore[arg-type]
    reader, writer = await asyncio.open_connection(*await listener.start("127.0.0.1", 0))
    writer.write(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
    await until(lambda: echo.slow_begun)
    await listener.stop()
    assert (await answer(reader))[0] == 200
    assert await reader.read() == b""
    writer.close()
