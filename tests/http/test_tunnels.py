"""Connections that change their protocol: WebSocket and SPDY as clients speak them, and clients that do not keep to them."""

from __future__ import annotations

import asyncio
import os
import struct
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest

from dray.http.connection import HttpRequest
from dray.http.responses import Response
from dray.http.server import HttpServer
from dray.http.spdy import (
    DICTIONARY,
    MAX_HELD,
    MAX_STREAMS,
    SYN_REPLY,
    SYN_STREAM,
    BrokenSession,
    SpdySession,
    SpdyStream,
)
from dray.http.tunnel import HeldBytes, Tunnel, idle_for
from dray.http.websocket import MAX_MESSAGE, WebSocket, handshake, masked
from tests.waiting import eventually

Serve = Callable[[Tunnel], Awaitable[None]]


@asynccontextmanager
async def websocket_server(serve: Serve) -> AsyncIterator[int]:
    async def handle(request: HttpRequest) -> Response:
        _, headers = handshake(request.headers, ("one", "two"))
        return Response(101, headers=headers, tunnel=serve)

    server = HttpServer(handle, stop_after_s=0.1)
    _, port = await server.start("127.0.0.1", 0)
    try:
        yield port
    finally:
        await server.stop()


async def echo(tunnel: Tunnel) -> None:
    socket = WebSocket(tunnel)
    while (message := await socket.receive()) is not None:
        await socket.send(message)


async def test_messages_of_every_size_come_back() -> None:
    async with (
        websocket_server(echo) as port,
        aiohttp.ClientSession() as session,
        session.ws_connect(f"ws://127.0.0.1:{port}/", protocols=("three", "two", "one"), max_msg_size=0) as socket,
    ):
        assert socket.protocol == "two", "the client's first protocol that the server knows"
        for size in (0, 1, 125, 126, 65535, 65536, MAX_MESSAGE):
            data = os.urandom(size)
            await socket.send_bytes(data)
            assert await socket.receive_bytes(timeout=20) == data
        await socket.ping(b"are you there")
        await socket.send_str("text")
        assert await socket.receive_bytes(timeout=20) == b"text"
        await socket.send_bytes(b"x" * (MAX_MESSAGE + 1))
        closed = await socket.receive(timeout=20)
        assert (closed.type, closed.data) == (aiohttp.WSMsgType.CLOSE, 1009)
        assert "at most" in closed.extra


def test_masking_is_its_own_inverse() -> None:
    for size in range(9):
        data, mask = os.urandom(size), os.urandom(4)
        plain = bytes(byte ^ mask[place % 4] for place, byte in enumerate(data))
        assert masked(data, mask) == plain
        assert masked(plain, mask) == data


HEAD = (
    b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        (b"\x82\x01x", 1002),  # not masked
        (b"\xf2\x80\0\0\0\0", 1002),  # reserved bits
        (b"\x80\x80\0\0\0\0", 1002),  # continues nothing
        (b"\x02\x80\0\0\0\0\x82\x80\0\0\0\0", 1002),  # begins inside another one
        (b"\x83\x80\0\0\0\0", 1002),  # an unknown opcode
        (b"\x89\xfe\x01\x00\0\0\0\0", 1002),  # a long ping
        (b"\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff\0\0\0\0", 1009),
    ],
)
async def test_frames_that_break_the_rules_close_the_socket(frames: bytes, code: int) -> None:
    """They come in one piece with the request, as a hasty client sends them."""
    async with websocket_server(echo) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HEAD + frames)
        async with asyncio.timeout(20):
            answer = await reader.read()
        writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"HTTP/1.1 101" in head
    assert b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in head, "the accepted key of RFC 6455's example"
    assert body[:1] == b"\x88"
    assert struct.unpack("!H", body[2:4]) == (code,)


async def test_a_client_that_never_reads_holds_a_few_bytes_and_no_more() -> None:
    written, stuck = 0, asyncio.Event()

    async def talk(tunnel: Tunnel) -> None:
        nonlocal written
        while True:
            writing = asyncio.ensure_future(tunnel.write(b"x" * 32768))
            done, _ = await asyncio.wait({writing}, timeout=0.5)
            if not done:
                stuck.set()
                await idle_for(0.05, lambda: tunnel.active_at)
                writing.cancel()
                return
            written += 32768

    async with websocket_server(talk) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(HEAD)
        async with asyncio.timeout(30):
            await stuck.wait()
        assert written < 16 * 2**20, "what the sockets of both sides hold"
        writer.close()


async def test_bytes_that_nobody_reads_are_left_to_the_sender() -> None:
    held: list[Tunnel] = []
    end = asyncio.Event()

    async def ignore(tunnel: Tunnel) -> None:
        held.append(tunnel)
        await end.wait()

    async with websocket_server(ignore) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HEAD)
        writer.write(b"x" * 2**24)
        await eventually(lambda: held and held[0]._is_paused)
        assert len(held[0]._held) < 2**20
        end.set()
        writer.close()


# --- SPDY


class End:
    """One end of a pipe with two directions."""

    def __init__(self, arriving: HeldBytes, leaving: HeldBytes) -> None:
        self.arriving = arriving
        self.leaving = leaving

    async def read(self) -> bytes:
        return await self.arriving.read()

    async def write(self, data: bytes) -> None:
        await self.leaving.feed(data)


def a_pipe() -> tuple[End, End]:
    one, other = HeldBytes(2**20), HeldBytes(2**20)
    return End(one, other), End(other, one)


class Sessions:
    """A client and a server that speak SPDY with each other."""

    def __init__(self, refusal: str = "") -> None:
        self.opened: list[SpdyStream] = []
        self._refusal = refusal
        self.client_end, server_end = a_pipe()
        self.server = SpdySession(server_end, self._take)
        self.client = SpdySession(self.client_end, lambda stream: "no", is_client=True)
        self.tasks = [asyncio.create_task(each.run()) for each in (self.server, self.client)]

    def _take(self, stream: SpdyStream) -> str:
        if not self._refusal:
            self.opened.append(stream)
        return self._refusal

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


async def test_streams_carry_headers_data_and_their_end() -> None:
    both = Sessions()
    streams = [await both.client.open_stream({"streamType": name, "port": "80"}) for name in ("error", "data")]
    await eventually(lambda: len(both.opened) == 2)
    assert [each.headers for each in both.opened] == [{"streamtype": n, "port": "80"} for n in ("error", "data")]
    for each in streams:
        await each.replied.wait()
    data = os.urandom(100_000)
    await streams[1].write(data)
    await streams[1].close()
    received = b""
    while piece := await both.opened[1].read():
        received += piece
    assert received == data
    await both.opened[1].write(b"answer")
    assert await streams[1].read() == b"answer"
    await both.opened[0].reset()
    assert await streams[0].read() == b"", "a stream that was reset has ended"
    with pytest.raises(ConnectionResetError):
        await streams[0].write(b"x")
    await both.stop()


async def test_a_refused_stream_has_ended() -> None:
    both = Sessions(refusal="not here")
    stream = await both.client.open_stream({"a": "b"})
    assert await stream.read() == b""
    await both.stop()


async def test_more_streams_than_allowed_are_refused() -> None:
    both = Sessions()
    streams = [await both.client.open_stream({}) for _ in range(MAX_STREAMS + 1)]
    assert await streams[-1].read() == b""
    assert len(both.opened) == MAX_STREAMS
    await both.stop()


async def test_a_stream_that_is_not_read_stops_its_connection() -> None:
    both = Sessions()
    stream = await both.client.open_stream({})
    sending = asyncio.create_task(stream.write(b"x" * 16 * 2**20))
    await eventually(lambda: both.opened and len(both.opened[0]._arrived._held) >= MAX_HELD)
    assert len(both.opened[0]._arrived._held) < MAX_HELD + 65536
    assert not sending.done()
    sending.cancel()
    await both.stop()


async def test_a_ping_is_answered() -> None:
    client, server = a_pipe()
    session = asyncio.create_task(SpdySession(server, lambda stream: "").run())
    ping = struct.pack("!HHII", 0x8003, 6, 4, 1)
    await client.write(ping)
    assert await client.read() == ping
    client.leaving.end()
    await session


def opening(number: int, headers: bytes) -> bytes:
    packer = zlib.compressobj(zdict=DICTIONARY)
    packed = packer.compress(headers) + packer.flush(zlib.Z_SYNC_FLUSH)
    payload = struct.pack("!IIBB", number, 0, 0, 0) + packed
    return struct.pack("!HHI", 0x8003, SYN_STREAM, len(payload)) + payload


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack("!HHI", 0x8002, SYN_STREAM, 0),  # another version
        struct.pack("!HHI", 0x8003, SYN_STREAM, 10) + b"\0" * 10,  # no headers
        struct.pack("!HHI", 0x8003, SYN_REPLY, 0xFFFFFF),  # a long control frame
        opening(2, struct.pack("!I", 0)),  # a number of the server's own
        opening(1, struct.pack("!I", 2**31)),  # headers that are not there
        opening(1, struct.pack("!I", 1) + struct.pack("!I", 2**31)),
        opening(1, b"\0" * 2**26),  # a bomb: 64 MiB of zeros in 64 KiB
        opening(1, struct.pack("!I", 0)) + opening(1, struct.pack("!I", 0)),
        b"not SPDY at all, but long enough for a frame",
    ],
)
async def test_frames_that_break_the_rules_end_the_session(frame: bytes) -> None:
    client, server = a_pipe()
    await client.write(frame)
    client.leaving.end()
    session = SpdySession(server, lambda stream: "")
    try:
        await session.run()
    except BrokenSession:
        pass
    else:
        assert frame.startswith(b"not"), "this is a data frame for an unknown stream, and then nothing"
    assert session.is_closed
