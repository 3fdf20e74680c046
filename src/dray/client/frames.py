"""Many calls over one local socket, between two processes of one program: no TLS, no HTTP.

A frame is four bytes of length and a MessagePack array: the kind of frame, the number of the call, and what belongs to it. The event loop (uvloop)
sends the frames of one turn together.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Mapping
from typing import cast

import msgspec

LENGTH = struct.Struct(">I")


class Asked(msgspec.Struct, array_like=True, tag=0, frozen=True):
    """One call; `path` and `query` are escaped as in a URL."""

    number: int
    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes


class Answered(msgspec.Struct, array_like=True, tag=1, frozen=True):
    """The whole answer, or the head of one that `streams`."""

    number: int
    status: int
    headers: dict[str, str]
    body: bytes
    streams: bool = False


class Chunk(msgspec.Struct, array_like=True, tag=2, frozen=True):
    """Whole JSON lines of a stream."""

    number: int
    data: bytes


class Ended(msgspec.Struct, array_like=True, tag=3, frozen=True):
    """The stream is over; from the end that made the call: nobody waits for the answer any more."""

    number: int


Frame = Asked | Answered | Chunk | Ended
_decode = msgspec.msgpack.Decoder(Frame).decode
_encode = msgspec.msgpack.Encoder().encode


class FramePipe(asyncio.Protocol):
    """One end of the socket: frames out by `send`, frames in to `on_frame`, in order."""

    def __init__(self, on_frame: Callable[[Frame], None], on_lost: Callable[[], None]) -> None:
        self._on_frame, self._on_lost = on_frame, on_lost
        self._transport: asyncio.Transport | None = None
        # The beginning of a frame that has not arrived whole.
        self._received = bytearray()
        self._writable = asyncio.Event()
        self._writable.set()

    # --- what the loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._writable.set()
        self._on_lost()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        while len(received) >= LENGTH.size:
            end = LENGTH.size + LENGTH.unpack_from(received)[0]
            if len(received) < end:
                return
            with memoryview(received) as view:
                frame = _decode(view[LENGTH.size : end])
            del received[:end]
            self._on_frame(frame)

    # --- what both ends call

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def send(self, frame: Frame) -> None:
        """Into nothing, once the other end is gone."""
        if self._transport is not None:
            data = _encode(frame)
            self._transport.write(LENGTH.pack(len(data)) + data)

    async def room(self) -> None:
        """Waits while the other end takes less than it is sent."""
        await self._writable.wait()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
