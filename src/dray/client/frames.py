"""Many calls over one local socket, between two processes of one program: no TLS, no HTTP.

What one turn of the event loop sends goes in batches of a few frames: four bytes of length and a MessagePack array of frames. A frame is an
array as well: its kind, the number of the call, and what belongs to it.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Mapping
from typing import cast

import msgspec

LENGTH = struct.Struct(">I")
# A batch saves system calls. But while one end fills it, the other end has nothing to do: with whole turns as batches, both processes took
# turns on one core's worth of time. Four frames save most of the calls, and the other end begins while this one goes on.
MOST_IN_A_BATCH = 4


class Asked(msgspec.Struct, array_like=True, tag=0, frozen=True):
    """One call; `path` and `query` are escaped as in a URL."""

    number: int
    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes


class Dropped(msgspec.Struct, array_like=True, tag=1, frozen=True):
    """Nobody waits for this call any more."""

    number: int


class Answered(msgspec.Struct, array_like=True, tag=2, frozen=True):
    """The whole answer, or the head of one that `streams`."""

    number: int
    status: int
    headers: dict[str, str]
    body: bytes
    streams: bool = False


class Chunk(msgspec.Struct, array_like=True, tag=3, frozen=True):
    """Whole JSON lines of a stream."""

    number: int
    data: bytes


class Ended(msgspec.Struct, array_like=True, tag=4, frozen=True):
    """The stream is over."""

    number: int


Frame = Asked | Dropped | Answered | Chunk | Ended
_decode = msgspec.msgpack.Decoder(list[Frame]).decode
_encode = msgspec.msgpack.Encoder().encode


class FramePipe(asyncio.Protocol):
    """One end of the socket: frames out by `send`, frames in to `on_frame`, in order."""

    def __init__(self, on_frame: Callable[[Frame], None], on_lost: Callable[[], None]) -> None:
        self._on_frame, self._on_lost = on_frame, on_lost
        self._transport: asyncio.Transport | None = None
        self._batch: list[Frame] = []
        # Of a batch that has not arrived whole: its parts so far, how long they are together, and how long they must be.
        self._parts: list[bytes] = []
        self._held = self._needed = 0
        self._writable = asyncio.Event()
        self._writable.set()

    # --- what the loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._loop = asyncio.get_running_loop()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._writable.set()
        self._on_lost()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        if self._parts:
            self._parts.append(data)
            self._held += len(data)
            if self._held < self._needed:
                return
            data = b"".join(self._parts)
            self._parts.clear()
        at, end, needed = 0, len(data), LENGTH.size
        while end - at >= LENGTH.size:
            begin = at + LENGTH.size
            (length,) = LENGTH.unpack_from(data, at)
            if end - begin < length:
                needed = LENGTH.size + length
                break
            at = begin + length
            for frame in _decode(data[begin:at]):
                self._on_frame(frame)
        if at < end:
            self._parts.append(data[at:])
            self._held, self._needed = end - at, needed

    # --- what both ends call

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def send(self, frame: Frame) -> None:
        """With everything else of this turn; into nothing, once the other end is gone."""
        batch = self._batch
        if not batch:
            self._loop.call_soon(self._send_batch)
        batch.append(frame)
        if len(batch) >= MOST_IN_A_BATCH:
            self._send_batch()

    def _send_batch(self) -> None:
        if self._batch and self._transport is not None:
            data = _encode(self._batch)
            self._transport.write(LENGTH.pack(len(data)) + data)
        self._batch.clear()

    async def room(self) -> None:
        """Waits while the other end takes less than it is sent."""
        await self._writable.wait()

    def close(self) -> None:
        self._send_batch()
        if self._transport is not None:
            self._transport.close()
