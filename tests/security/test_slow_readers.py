"""Clients that ask for much and read nothing: what waits for them has a bound, and nobody else pays for it."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

import pytest

from dray.http.connection import OpenConnections
from dray.http.responses import Response
from dray.http.server import HttpServer
from dray.http.untaken_answers import LEAST_BYTES, UntakenAnswers, most_bytes
from tests.waiting import eventually

MIB = 2**20
ASK = b"GET /%d HTTP/1.1\r\nHost: x\r\nAccept-Encoding: %b\r\n\r\n"
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def serving(connections: OpenConnections) -> AsyncIterator[tuple[str, int]]:
    """Answers with as many MiB as the path says; if it has a minus, with a stream of so many pieces, each longer than what a kernel takes."""

    async def pieces(count: int) -> AsyncIterator[bytes]:
        for _ in range(count):
            yield b"x" * 4 * MIB

    async def handle(request: object) -> Response:
        count = int(request.path_and_query()[0][1:])  # type: ignore[attr-defined]
        return (
            Response(body=random.Random(1).randbytes(count * MIB // 2).hex().encode())
            if count >= 0
            else Response(stream=pieces(-count))
        )

    server = HttpServer(handle, connections=connections)
    try:
        async with asyncio.timeout(60):
            yield await server.start("127.0.0.1", 0)
    finally:
        await server.stop()


async def connect(address: tuple[str, int]) -> Stream:
    """With little room for what comes, as a client that means harm would have it."""
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.setblocking(False)
    await asyncio.get_running_loop().sock_connect(raw, address)
    return await asyncio.open_connection(sock=raw, limit=1024)


@pytest.fixture
def connections() -> OpenConnections:
    made = OpenConnections()
    made.untaken = UntakenAnswers(20 * MIB)
    return made


@pytest.mark.parametrize("size", [8, -8])
async def test_answers_that_nobody_reads_have_a_bound(connections: OpenConnections, size: int) -> None:
    """A list of 40 MB asked for on thirty connections held 1.2 GB, and every further connection 40 MB more."""
    async with serving(connections) as address:
        slow: list[Stream] = []
        for number in range(80):
            slow.append(await connect(address))
            slow[-1][1].write(ASK % (size, b"identity"))
            await eventually(lambda: len(connections.untaken) > min(number, 1), "an answer to wait")  # noqa: B023
            assert connections.untaken.bytes <= 20 * MIB
        # Some were cut, the oldest first, and somebody who reads gets everything.
        assert len(connections) < 80
        reader, writer = await asyncio.open_connection(*address)
        writer.write(ASK % (4, b"identity"))
        await reader.readuntil(b"\r\n\r\n")
        assert len(await reader.readexactly(4 * MIB)) == 4 * MIB
        for _, each in (*slow, (reader, writer)):
            each.transport.abort()
        await eventually(lambda: not connections.untaken.bytes, "nothing to wait")


async def test_whoever_has_most_is_cut_first() -> None:
    class Connection:
        def __init__(self, name: str) -> None:
            self.peer = type("Peer", (), {"common_name": name, "remote": "127.0.0.1"})
            self.is_cut = False

        def abort(self) -> None:
            self.is_cut = True

    untaken = UntakenAnswers(100)
    few, *many, last = (Connection(name) for name in ("few", "many", "many", "many", "new"))
    with untaken.waiting(few, 30):  # type: ignore[arg-type]
        with ExitStack() as waiting:
            for each, size in zip((*many, last), (20, 25, 25, 15), strict=True):
                waiting.enter_context(untaken.waiting(each, size))  # type: ignore[arg-type]
            assert [each.is_cut for each in (few, *many, last)] == [False, True, False, False, False]
            assert untaken.bytes == 95
        assert untaken.bytes == 30
        with untaken.waiting(last, 500):  # type: ignore[arg-type]
            assert (few.is_cut, last.is_cut) == (False, False), "one answer may be long by itself"
            with untaken.waiting(many[1], 1):  # type: ignore[arg-type]
                assert (few.is_cut, last.is_cut, untaken.bytes) == (False, True, 31)
    assert untaken.bytes == 0


async def test_an_answer_that_is_long_by_itself_is_sent(connections: OpenConnections) -> None:
    async with serving(connections) as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(ASK % (30, b"identity"))
        await reader.readuntil(b"\r\n\r\n")
        assert len(await reader.readexactly(30 * MIB)) == 30 * MIB
        writer.transport.abort()


async def test_what_was_compressed_counts_as_well(connections: OpenConnections) -> None:
    """Its plain form stays in memory until the client has read the short one."""
    connections.untaken = UntakenAnswers()
    async with serving(connections) as address:
        _, writer = await connect(address)
        writer.write(b"".join(ASK % (12, b"gzip") for _ in range(30)))
        await eventually(lambda: connections.untaken.bytes > 12 * MIB, "an answer to wait")
        writer.transport.abort()


def test_the_bound_is_a_part_of_the_memory() -> None:
    assert LEAST_BYTES <= most_bytes() < 2**50
