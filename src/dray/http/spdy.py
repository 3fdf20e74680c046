"""SPDY/3.1, as far as clients of Kubernetes speak it: streams in both directions over one connection, opened by either side.

Nobody in that world announces or honours windows, so there is no flow control but that of the connection: a stream that is not read holds a
few bytes, then the connection is not read either.
"""

from __future__ import annotations

import asyncio
import struct
import zlib
from collections.abc import Callable, Mapping

from dray.http.tunnel import ByteStream, HeldBytes
from dray.http.websocket import BufferedReader

PROTOCOL = "SPDY/3.1"
VERSION = 3
SYN_STREAM, SYN_REPLY, RST_STREAM, SETTINGS, PING, GOAWAY, HEADERS, WINDOW_UPDATE = 1, 2, 3, 4, 6, 7, 8, 9
FIN = 1
PROTOCOL_ERROR, INVALID_STREAM, REFUSED_STREAM, CANCEL = 1, 2, 3, 5

# Of one stream, that nobody has read yet.
MAX_HELD = 256 * 1024
MAX_CONTROL_FRAME = 64 * 1024
MAX_HEADER_BYTES = 64 * 1024
MAX_STREAMS = 512
PIECE = 32 * 1024

# Both sides start to compress headers with this text: names that HTTP often has, then words of values (SPDY/3, section 2.6.10.1).
_NAMES = (
    "options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges age allow authorization "
    "cache-control connection content-base content-encoding content-language content-length content-location content-md5 content-range "
    "content-type date etag expect expires from host if-match if-modified-since if-none-match if-range if-unmodified-since last-modified "
    "location max-forwards pragma proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding "
    "upgrade user-agent vary via warning www-authenticate method get status"
)
_PAIRS = ("200 OK", "version", "HTTP/1.1", "url", "public", "set-cookie", "keep-alive", "origin")
_WORDS = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 Non-Authoritative Information204 No "
    "Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 "
    "Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,"
    "image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,"
    "sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)
DICTIONARY = b"".join(
    struct.pack("!I", len(each)) + each.encode() for each in (*_NAMES.split(), *_PAIRS)
) + _WORDS.encode("ascii")


class BrokenSession(Exception):
    """What the other side sends is not SPDY, or more of it than is allowed."""


class SpdyStream:
    """One stream of a session; `headers` are those it was opened with."""

    def __init__(self, session: SpdySession, number: int, headers: Mapping[str, str]) -> None:
        self.number = number
        self.headers = headers
        self.replied = asyncio.Event()
        self._session = session
        self._arrived = HeldBytes(MAX_HELD)
        self._is_closed = False

    async def feed(self, data: bytes) -> None:
        """Takes data of the other side; waits while too much of it was not read."""
        await self._arrived.feed(data)

    def end(self) -> None:
        """No more data will come."""
        self._arrived.end()

    async def read(self) -> bytes:
        return await self._arrived.read()

    async def write(self, data: bytes) -> None:
        if self._is_closed or self._session.is_closed:
            raise ConnectionResetError("the stream is closed")
        for start in range(0, len(data), PIECE):
            await self._session.send_data(self.number, data[start : start + PIECE])

    async def close(self) -> None:
        """This side says no more."""
        if not self._is_closed and not self._session.is_closed:
            self._is_closed = True
            await self._session.send_data(self.number, b"", FIN)
            self._session.forget_if_done(self)

    async def reset(self, status: int = CANCEL) -> None:
        self.cut()
        if not self._session.is_closed:
            await self._session.reset(self.number, status)

    def cut(self) -> None:
        self._is_closed = True
        self.end()

    @property
    def is_done(self) -> bool:
        return self._is_closed and self._arrived.has_ended


class SpdySession:
    """`run` reads until the connection ends. `on_stream` gets streams that the other side opens, and says why one is refused (empty: it is not)."""

    def __init__(self, stream: ByteStream, on_stream: Callable[[SpdyStream], str], *, is_client: bool = False) -> None:
        self._stream = stream
        self._reader = BufferedReader(stream)
        self._on_stream = on_stream
        self._streams: dict[int, SpdyStream] = {}
        self._packer = zlib.compressobj(zdict=DICTIONARY)
        self._unpacker = zlib.decompressobj(zdict=DICTIONARY)
        self._next = 1 if is_client else 2
        self._last_seen = 0
        self.is_closed = False

    # --- reading

    async def run(self) -> None:
        """BrokenSession if the other side does not keep to the protocol."""
        try:
            while True:
                await self._frame()
        except EOFError:
            pass
        finally:
            self.is_closed = True
            for stream in self._streams.values():
                stream.replied.set()
                stream.cut()

    async def _frame(self) -> None:
        first, rest = struct.unpack("!II", await self._reader.exactly(8))
        flags, size = rest >> 24, rest & 0xFFFFFF
        if not first & 0x80000000:
            await self._data(first, flags, size)
            return
        version, kind = (first >> 16) & 0x7FFF, first & 0xFFFF
        if version != VERSION or size > MAX_CONTROL_FRAME:
            raise BrokenSession(f"a control frame of version {version} with {size} bytes")
        payload = await self._reader.exactly(size)
        try:
            await self._control(kind, flags, payload)
        except (struct.error, zlib.error, UnicodeDecodeError) as error:
            raise BrokenSession(f"a control frame cannot be read: {error}") from error

    async def _data(self, number: int, flags: int, size: int) -> None:
        stream = self._streams.get(number)
        while size:
            piece = await self._reader.up_to(min(size, PIECE))
            size -= len(piece)
            if stream is not None:
                await stream.feed(piece)
        if stream is None:
            await self.reset(number, INVALID_STREAM)
        elif flags & FIN:
            self._ended(stream)

    async def _control(self, kind: int, flags: int, payload: bytes) -> None:
        if kind == SYN_STREAM:
            await self._opened(flags, payload)
        elif kind in (SYN_REPLY, HEADERS):
            self._headers_of(payload[4:])
            stream = self._streams.get(_number(payload))
            if stream is not None:
                stream.replied.set()
                if flags & FIN:
                    self._ended(stream)
        elif kind == RST_STREAM:
            stream = self._streams.pop(_number(payload), None)
            if stream is not None:
                stream.replied.set()
                stream.cut()
        elif kind == PING:
            (number,) = struct.unpack("!I", payload)
            # Those that this side would have sent have numbers of its own kind.
            if number % 2 != self._next % 2:
                await self._send_control(PING, 0, payload)
        elif kind == GOAWAY:
            raise EOFError

    async def _opened(self, flags: int, payload: bytes) -> None:
        number, headers = _number(payload), self._headers_of(payload[10:])
        if number <= self._last_seen or number % 2 == self._next % 2:
            raise BrokenSession(f"stream {number} cannot be opened")
        self._last_seen = number
        stream = SpdyStream(self, number, headers)
        if flags & FIN:
            stream.end()
        if len(self._streams) >= MAX_STREAMS or self._on_stream(stream):
            await self.reset(number, REFUSED_STREAM)
            return
        self._streams[number] = stream
        await self._send_control(SYN_REPLY, 0, struct.pack("!I", number) + self._packed({}))

    def _headers_of(self, packed: bytes) -> dict[str, str]:
        block = self._unpacker.decompress(packed, MAX_HEADER_BYTES)
        if self._unpacker.unconsumed_tail:
            raise BrokenSession(f"more than {MAX_HEADER_BYTES} bytes of headers")
        (count,) = struct.unpack_from("!I", block)
        place, texts = 4, []
        if count * 8 > len(block):
            raise BrokenSession("headers are cut off")
        for _ in range(count * 2):
            (size,) = struct.unpack_from("!I", block, place)
            place += 4 + size
            texts.append(block[place - size : place].decode("latin-1"))
        return dict(zip(texts[::2], texts[1::2], strict=True))

    def _ended(self, stream: SpdyStream) -> None:
        stream.end()
        self.forget_if_done(stream)

    def forget_if_done(self, stream: SpdyStream) -> None:
        if stream.is_done:
            self._streams.pop(stream.number, None)

    # --- writing

    async def open_stream(self, headers: Mapping[str, str]) -> SpdyStream:
        number = self._next
        self._next += 2
        stream = SpdyStream(self, number, headers)
        self._streams[number] = stream
        await self._send_control(SYN_STREAM, 0, struct.pack("!IIBB", number, 0, 0, 0) + self._packed(headers))
        return stream

    async def send_data(self, number: int, data: bytes, flags: int = 0) -> None:
        await self._stream.write(struct.pack("!II", number, flags << 24 | len(data)) + data)

    async def reset(self, number: int, status: int) -> None:
        self._streams.pop(number, None)
        await self._send_control(RST_STREAM, 0, struct.pack("!II", number, status))

    async def _send_control(self, kind: int, flags: int, payload: bytes) -> None:
        head = struct.pack("!HHI", 0x8000 | VERSION, kind, flags << 24 | len(payload))
        await self._stream.write(head + payload)

    def _packed(self, headers: Mapping[str, str]) -> bytes:
        parts = [struct.pack("!I", len(headers))]
        for name, value in headers.items():
            for text in (name.lower().encode("latin-1"), value.encode("latin-1")):
                parts += [struct.pack("!I", len(text)), text]
        return self._packer.compress(b"".join(parts)) + self._packer.flush(zlib.Z_SYNC_FLUSH)


def _number(payload: bytes) -> int:
    number: int = struct.unpack_from("!I", payload)[0] & 0x7FFFFFFF
    return number
