"""WebSocket (RFC 6455), the server's side: the answer to the handshake, and messages on a tunnel."""

from __future__ import annotations

import base64
import hashlib
import struct
from collections.abc import Mapping, Sequence

from dray.http.tunnel import ByteStream

VERSION = "13"
# RFC 6455, section 1.3.
MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
MAX_MESSAGE = 1024 * 1024
MAX_CONTROL = 125

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
NORMAL, PROTOCOL_ERROR, TOO_BIG, INTERNAL_ERROR = 1000, 1002, 1009, 1011


class BrokenFrame(Exception):
    """What the other side sends is not WebSocket, or more of it than fits; `code` is the one to close with."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def is_wanted(headers: Mapping[str, str]) -> bool:
    """Whether a request wants to become a WebSocket."""
    return headers.get("upgrade", "").lower() == "websocket" and "upgrade" in headers.get("connection", "").lower()


def wanted_protocols(headers: Mapping[str, str]) -> list[str]:
    named = headers.get("sec-websocket-protocol", "").split(",")
    return [each.strip() for each in named if each.strip()]


def handshake(headers: Mapping[str, str], protocols: Sequence[str]) -> tuple[str, tuple[tuple[str, str], ...]]:
    """The chosen protocol and the headers of the answer. ValueError says what is wrong with the request.

    The first protocol of the client that is among `protocols` is chosen; a client that names none gets none.
    """
    key = headers.get("sec-websocket-key", "")
    if headers.get("sec-websocket-version") != VERSION or not key:
        raise ValueError(f"a WebSocket of version {VERSION} with a key is needed")
    wanted = wanted_protocols(headers)
    chosen = next((each for each in wanted if each in protocols), "")
    if wanted and not chosen:
        raise ValueError(f"unable to negotiate protocol: client supports {wanted}, server accepts {list(protocols)}")
    accept = base64.b64encode(hashlib.sha1(key.encode() + MAGIC, usedforsecurity=False).digest()).decode()
    answer = [("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Accept", accept)]
    if chosen:
        answer.append(("Sec-WebSocket-Protocol", chosen))
    return chosen, tuple(answer)


class BufferedReader:
    """A given number of bytes at a time from a stream that gives them as they come."""

    def __init__(self, source: ByteStream) -> None:
        self._source = source
        self._held = bytearray()

    async def exactly(self, size: int) -> bytes:
        """EOFError if the stream ends before."""
        while len(self._held) < size:
            await self._more()
        data = bytes(self._held[:size])
        del self._held[:size]
        return data

    async def up_to(self, size: int) -> bytes:
        """At least one byte of them, as they come."""
        if not self._held:
            await self._more()
        data = bytes(self._held[:size])
        del self._held[:size]
        return data

    async def _more(self) -> None:
        data = await self._source.read()
        if not data:
            raise EOFError
        self._held += data


class WebSocket:
    """Messages both ways. Pings are answered here; `receive` gives None when the other side has closed."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._reader = BufferedReader(stream)
        self._is_closed = False

    async def receive(self) -> bytes | None:
        try:
            return await self._message()
        except EOFError:
            return None
        except BrokenFrame as problem:
            await self.close(problem.code, str(problem))
            return None

    async def _message(self) -> bytes | None:
        message, opcode = bytearray(), CONTINUATION
        while True:
            final, code, payload = await self._frame(MAX_MESSAGE - len(message))
            if code == CLOSE:
                await self.close(NORMAL, "")
                return None
            if code == PING:
                await self._send(PONG, payload)
            elif code in (TEXT, BINARY, CONTINUATION):
                if (code == CONTINUATION) == (opcode == CONTINUATION):
                    raise BrokenFrame(PROTOCOL_ERROR, "a message begins inside another one, or continues none")
                opcode = opcode or code
                message += payload
                if final:
                    return bytes(message)
            elif code != PONG:
                raise BrokenFrame(PROTOCOL_ERROR, f"unknown opcode {code}")

    async def _frame(self, room: int) -> tuple[bool, int, bytes]:
        first, second = await self._reader.exactly(2)
        code, size = first & 0x0F, second & 0x7F
        if first & 0x70 or not second & 0x80:
            raise BrokenFrame(PROTOCOL_ERROR, "a frame of a client is masked, and has no reserved bits")
        if code & 0x08 and (size > MAX_CONTROL or not first & 0x80):
            raise BrokenFrame(PROTOCOL_ERROR, "a control frame is short and in one piece")
        if size == 126:
            (size,) = struct.unpack("!H", await self._reader.exactly(2))
        elif size == 127:
            (size,) = struct.unpack("!Q", await self._reader.exactly(8))
        if not code & 0x08 and size > room:
            raise BrokenFrame(TOO_BIG, f"a message has at most {MAX_MESSAGE} bytes")
        mask = await self._reader.exactly(4)
        return bool(first & 0x80), code, masked(await self._reader.exactly(size), mask)

    async def send(self, data: bytes, *, is_text: bool = False) -> None:
        await self._send(TEXT if is_text else BINARY, data)

    async def close(self, code: int, text: str) -> None:
        """Says so, once; the caller ends the connection."""
        if not self._is_closed:
            await self._send(CLOSE, struct.pack("!H", code) + text.encode()[: MAX_CONTROL - 2])
            self._is_closed = True

    async def _send(self, code: int, payload: bytes) -> None:
        if self._is_closed:
            raise ConnectionResetError("the WebSocket is closed")
        size = len(payload)
        if size < 126:
            head = struct.pack("!BB", 0x80 | code, size)
        elif size < 65536:
            head = struct.pack("!BBH", 0x80 | code, 126, size)
        else:
            head = struct.pack("!BBQ", 0x80 | code, 127, size)
        await self._stream.write(head + payload)


def masked(data: bytes, mask: bytes) -> bytes:
    """Each byte xor one of the mask's four, which is its own inverse."""
    size = len(data)
    if not size:
        return b""
    pattern = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(data, "big") ^ int.from_bytes(pattern, "big")).to_bytes(size, "big")


class MessageBytes:
    """The bytes of all messages as one stream, whatever their borders are: another protocol inside a WebSocket."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket

    async def read(self) -> bytes:
        while (message := await self._socket.receive()) is not None:
            if message:
                return message
        return b""

    async def write(self, data: bytes) -> None:
        await self._socket.send(data)
