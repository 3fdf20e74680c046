"""A connection after its protocol was changed (status 101): bytes in both directions, of which only a few are held at a time.

A side that stops reading stops the other one: nothing grows while it waits.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from dray.http.connection import HttpConnection

# Bytes that have arrived and were not read yet; more are left to the sender.
MAX_HELD = 64 * 1024


def port_number(text: str) -> int | None:
    """The TCP port that a text names; None if it is none."""
    if not text.isascii() or not text.isdigit() or len(text) > 5:
        return None
    return number if 0 < (number := int(text)) < 65536 else None


class ByteStream(Protocol):
    """Bytes both ways."""

    async def read(self) -> bytes:
        """What has arrived; nothing at the end."""
        ...

    async def write(self, data: bytes) -> None:
        """Waits until the other side has taken most of what was written; ConnectionError if it is gone."""
        ...


class HeldBytes:
    """Bytes between one who brings them and one who reads them; the first waits while too many were not read."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = bytearray()
        self._changed = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self.has_ended = False

    async def feed(self, data: bytes) -> None:
        await self._has_room.wait()
        self.offer(data)

    def offer(self, data: bytes) -> bool:
        """Brings bytes if there is room for them, and says whether there was."""
        if self.has_ended or not self._has_room.is_set():
            return False
        self._held += data
        self._changed.set()
        if len(self._held) >= self._most:
            self._has_room.clear()
        return True

    def end(self) -> None:
        """No more will come; what is there can still be read."""
        self.has_ended = True
        self._changed.set()
        self._has_room.set()

    async def read(self) -> bytes:
        while not self._held:
            if self.has_ended:
                return b""
            self._changed.clear()
            await self._changed.wait()
        data = bytes(self._held)
        self._held.clear()
        self._has_room.set()
        return data


class Tunnel:
    """The server's side of a connection that was upgraded. `feed` and `end` are called by the connection."""

    def __init__(self, connection: HttpConnection, transport: asyncio.Transport, first: bytes = b"") -> None:
        self._connection = connection
        self._transport = transport
        self._held = bytearray(first)
        self._has_ended = False
        self._is_paused = False
        self._arrived = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        # When bytes last came or were taken by the other side.
        self.active_at = self._loop.time()

    def feed(self, data: bytes) -> None:
        self.active_at = self._loop.time()
        self._held += data
        self._arrived.set()
        if len(self._held) >= MAX_HELD and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def end(self) -> None:
        self._has_ended = True
        self._arrived.set()

    async def read(self) -> bytes:
        while not self._held:
            if self._has_ended:
                return b""
            self._arrived.clear()
            await self._arrived.wait()
        data = bytes(self._held)
        self._held.clear()
        if self._is_paused and not self._transport.is_closing():
            self._is_paused = False
            self._transport.resume_reading()
        return data

    async def write(self, data: bytes) -> None:
        if self._transport.is_closing():
            raise ConnectionResetError("the client is gone")
        self._transport.write(data)
        await self._connection.drained()
        if self._transport.is_closing():
            raise ConnectionResetError("the client is gone")
        self.active_at = self._loop.time()


class StreamPair:
    """The client's side of a connection to another server, as asyncio opens it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self) -> bytes:
        try:
            return await self._reader.read(MAX_HELD)
        except ConnectionError:
            return b""

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    def say_no_more(self) -> None:
        """Tells the other side that this one has ended; it may still answer."""
        with contextlib.suppress(OSError):
            if self._writer.can_write_eof():
                self._writer.write_eof()

    def abort(self) -> None:
        self._writer.transport.abort()


async def copy(source: ByteStream, sink: ByteStream) -> None:
    """Until one side ends."""
    with contextlib.suppress(ConnectionError):
        while data := await source.read():
            await sink.write(data)


async def splice(one: ByteStream, other: ByteStream) -> None:
    """Passes bytes on in both directions, until one side ends."""
    await first_of(copy(one, other), copy(other, one))


async def first_of(*works: Awaitable[object]) -> None:
    """Until one of them ends; the others are cancelled."""
    tasks = [asyncio.ensure_future(each) for each in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
    for end in ends:
        if isinstance(end, Exception):
            raise end


async def idle_for(limit_s: float, active_at: Callable[[], float]) -> None:
    """Returns when nothing was active for so long; `active_at` says when something last was, in the loop's time."""
    loop = asyncio.get_running_loop()
    left_s = limit_s
    while left_s > 0:
        await asyncio.sleep(left_s)
        left_s = active_at() + limit_s - loop.time()
