"""HTTP on the wire, written by hand: what comes after the head never changes who asks, and costs little before it is known who asks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from dray.apiserver.http.listener import Listener
from dray.apiserver.request.request_info import Request
from dray.http.connection import MAX_BODY, UNCHECKED_BODY, OpenConnections
from dray.http.responses import Response
from tests.apiserver.conftest import Client, server
from tests.waiting import eventually, let_others_run

__all__ = ["server"]

# Enough for the server to read what a client has sent by then.
TURNS_TO_READ = 20

CHUNKED = b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
LARGE = b"POST /a HTTP/1.1\r\nHost: x\r\n%bContent-Length: %d\r\n\r\n"
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Recorder:
    """Stands where the server stands, and keeps the requests that reached it."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    async def handle(self, request: Request) -> Response:
        self.requests.append(request)
        return Response(200, f"{request.method} {request.path}".encode())

    async def has_credentials(self, request: Request) -> bool:
        await asyncio.sleep(0)
        return "authorization" in request.headers


@asynccontextmanager
async def listening(recorder: Recorder, connections: OpenConnections | None = None) -> AsyncIterator[tuple[str, int]]:
    listener = Listener(recorder, None, connections=connections)  # type: ignore[arg-type]
    address = await listener.start("127.0.0.1", 0)
    try:
        async with asyncio.timeout(30):
            yield address
    finally:
        await listener.stop()


@pytest.fixture
async def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
async def stream(recorder: Recorder) -> AsyncIterator[Stream]:
    async with listening(recorder) as address:
        reader, writer = await asyncio.open_connection(*address)
        yield reader, writer
        writer.close()


async def status(reader: asyncio.StreamReader) -> int:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(int(line[16:]) for line in head.split(b"\r\n") if line.startswith(b"content-length: "))
    await reader.readexactly(length)
    return int(head.split()[1])


async def test_trailers_do_not_become_headers(recorder: Recorder, stream: Stream) -> None:
    reader, writer = stream
    writer.write(
        CHUNKED + b"\r\n2\r\n{}\r\n0\r\nAuthorization: Bearer stolen\r\nImpersonate-User: admin\r\nHost: y\r\n\r\n"
    )
    assert await status(reader) == 200
    (request,) = recorder.requests
    assert dict(request.headers) == {"host": "x", "transfer-encoding": "chunked"}
    writer.write(b"GET /after HTTP/1.1\r\nHost: x\r\n\r\n")
    assert await status(reader) == 200


@pytest.mark.parametrize("trailer", [b"X-A: b\r\n", b"A: " + b"b" * 1000 + b"\r\n", b"one-endless-line"])
async def test_trailers_are_bounded(recorder: Recorder, stream: Stream, trailer: bytes) -> None:
    reader, writer = stream
    writer.write(CHUNKED + b"Authorization: x\r\n\r\n2\r\n{}\r\n0\r\n")
    await writer.drain()
    started = time.thread_time()
    try:
        for _ in range(1_500_000 // 64_000):
            writer.write(trailer * (64_000 // len(trailer)))
            await writer.drain()
            await asyncio.sleep(0)
        found = await status(reader)
    except ConnectionError:
        found = 0  # cut off while we were still writing
    assert found in (0, 400)
    assert time.thread_time() - started < 1
    assert not recorder.requests


async def test_chunk_extensions_are_bounded(recorder: Recorder, stream: Stream) -> None:
    reader, writer = stream
    writer.write(CHUNKED + b"Authorization: x\r\n\r\n2;")
    try:
        for _ in range(50):
            writer.write(b"a" * 10_000)
            await writer.drain()
        assert await status(reader) == 400
    except ConnectionError:
        pass
    assert not recorder.requests


SAME_HEADER = b"a:b\r\n" * 10_000
OTHER_HEADERS = b"".join(b"a%d:b\r\n" % number for number in range(600))


@pytest.mark.parametrize("headers", [SAME_HEADER, OTHER_HEADERS])
async def test_many_small_headers_are_refused(recorder: Recorder, stream: Stream, headers: bytes) -> None:
    reader, writer = stream
    writer.write(b"GET /a HTTP/1.1\r\nHost: x\r\n" + headers + b"\r\n")
    assert await status(reader) == 400
    assert not recorder.requests


@pytest.mark.parametrize("headers", [SAME_HEADER, OTHER_HEADERS])
async def test_many_small_headers_are_refused_before_the_head_ends(
    recorder: Recorder, stream: Stream, headers: bytes
) -> None:
    reader, writer = stream
    writer.write(b"GET /a HTTP/1.1\r\nHost: x\r\n" + headers)
    async with asyncio.timeout(5):
        assert await status(reader) == 400
    assert not recorder.requests


async def test_a_header_that_comes_twice_has_both_values(recorder: Recorder, stream: Stream) -> None:
    reader, writer = stream
    writer.write(b"GET /a HTTP/1.1\r\nHost: x\r\nImpersonate-Group: a\r\nX-B: c\r\nimpersonate-group: d\r\n\r\n")
    assert await status(reader) == 200
    assert recorder.requests[0].headers == {"host": "x", "impersonate-group": "a,d", "x-b": "c"}
    writer.write(b"GET /a HTTP/1.1\r\nHost: x\r\nX-B: e\r\n\r\n")
    assert await status(reader) == 200
    assert recorder.requests[1].headers == {"host": "x", "x-b": "e"}


@pytest.mark.parametrize("cut", range(1, 80))
async def test_a_pipelined_request_may_be_split_anywhere(recorder: Recorder, stream: Stream, cut: int) -> None:
    reader, writer = stream
    both = b"GET /first HTTP/1.1\r\nHost: x\r\n\r\n" + b"BREW /second?a HTTP/1.1\r\nHost: x\r\nX-Pot: a b /c\r\n\r\n"
    first = len(b"GET /first HTTP/1.1\r\nHost: x\r\n\r\n")
    if cut > first:  # a method that the parser does not know must not come in one read with the request before it
        both = both.replace(b"BREW", b"POST")
    for part in (both[:cut], both[cut:]) if cut != first + 2 else (both[:first], both[first:cut], both[cut:]):
        writer.write(part)
        await writer.drain()
        await let_others_run(TURNS_TO_READ)
    found = {await status(reader), await status(reader)}
    if cut < first:
        assert found <= {200, 400}
    else:
        assert [request.path for request in recorder.requests] == ["/first", "/second"]
        assert recorder.requests[1].headers == {"host": "x", "x-pot": "a b /c"}


@pytest.mark.parametrize("cut", range(1, 8))
async def test_a_method_may_be_split(recorder: Recorder, stream: Stream, cut: int) -> None:
    reader, writer = stream
    for part in (b"BREW /pot HTTP/1.1\r\nHost: x\r\n\r\n"[:cut], b"BREW /pot HTTP/1.1\r\nHost: x\r\n\r\n"[cut:]):
        writer.write(part)
        await writer.drain()
        await let_others_run(TURNS_TO_READ)
    assert await status(reader) == 200
    assert recorder.requests[0].method == "BREW"


@pytest.mark.parametrize(
    "host", [b"", b"Host: a b\r\n", b"Host: x/y\r\n", b"Host: <script>\r\n", b"Host: a\r\nHost: b\r\n"]
)
async def test_a_missing_or_malformed_host_is_refused(recorder: Recorder, stream: Stream, host: bytes) -> None:
    reader, writer = stream
    writer.write(b"GET /api HTTP/1.1\r\n" + host + b"\r\n")
    assert await status(reader) == 400
    assert not recorder.requests


async def test_the_host_header_is_not_repeated(server: Client) -> None:
    """Whoever reads the answer from a cache would go to the address that somebody else has named."""
    for path in ("/api", "/apis", "/api/v1", "/version", "/openapi/v3", "/nowhere"):
        answer = await server.get(path, host="evil.example.com")
        assert "evil.example.com" not in f"{answer.body}{answer.headers}"


class TestBodiesBeforeCredentials:
    async def test_a_large_body_of_nobody_is_refused_before_it_is_read(
        self, recorder: Recorder, stream: Stream
    ) -> None:
        reader, writer = stream
        writer.write(LARGE % (b"", MAX_BODY))
        assert await status(reader) == 401
        assert not recorder.requests

    async def test_a_client_that_waits_is_not_told_to_go_on(self, recorder: Recorder, stream: Stream) -> None:
        reader, writer = stream
        writer.write(LARGE % (b"Expect: 100-continue\r\n", MAX_BODY))
        assert await status(reader) == 401

    async def test_an_endless_body_in_chunks_is_refused(self, recorder: Recorder, stream: Stream) -> None:
        reader, writer = stream
        writer.write(CHUNKED + b"\r\n10000\r\n" + b"a" * 0x100)
        assert await status(reader) == 401
        assert not recorder.requests

    @pytest.mark.parametrize("size", [0, 1, UNCHECKED_BODY, UNCHECKED_BODY + 1, 500_000, MAX_BODY])
    @pytest.mark.parametrize("expect", [b"", b"Expect: 100-continue\r\n"])
    async def test_a_user_with_credentials_sends_any_size(
        self, recorder: Recorder, stream: Stream, size: int, expect: bytes
    ) -> None:
        reader, writer = stream
        for _ in range(2):
            writer.write(LARGE % (b"Authorization: x\r\n" + expect, size))
            if expect:
                assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(b"a" * size)
            assert await status(reader) == 200
        assert [len(request.body) for request in recorder.requests] == [size, size]

    async def test_small_bodies_are_left_to_the_server(self, recorder: Recorder, stream: Stream) -> None:
        reader, writer = stream
        writer.write(LARGE % (b"", 100) + b"a" * 100)
        assert await status(reader) == 200

    async def test_bodies_sent_ahead_are_bounded_and_answered(self, recorder: Recorder, stream: Stream) -> None:
        reader, writer = stream
        one = LARGE % (b"Authorization: x\r\n", 1_000_000) + b"a" * 1_000_000

        async def write() -> None:
            for _ in range(12):
                writer.write(one)
                await writer.drain()

        writing = asyncio.create_task(write())
        for _ in range(12):
            assert await status(reader) == 200
        await writing


class TestConnectionLimits:
    async def test_one_connection_too_many_gets_a_clear_answer(self, recorder: Recorder) -> None:
        async with listening(recorder, OpenConnections(2)) as address:
            streams = [await asyncio.open_connection(*address) for _ in range(3)]
            for reader, writer in streams[:2]:
                writer.write(b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
                assert await status(reader) == 200
            reader, writer = streams[2]
            writer.write(b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
            answer = await reader.read()
            assert answer.startswith(b"HTTP/1.1 503 ")
            assert b"retry-after: " in answer
            assert b"too many connections" in answer
            streams[0][1].close()

            async def is_served() -> bool:
                reader, writer = await asyncio.open_connection(*address)
                writer.write(b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
                answered = await status(reader)
                writer.close()
                return answered == 200

            await eventually(is_served, "the place of the closed connection")
            for _, writer in streams:
                writer.close()

    async def test_one_address_cannot_take_them_all(self, recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("dray.http.connection._is_this_machine", lambda address: False)
        async with listening(recorder, OpenConnections(100, 1)) as address:
            _, kept = await asyncio.open_connection(*address)
            reader, writer = await asyncio.open_connection(*address)
            writer.write(b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 503 ")
            kept.close()
            writer.close()
