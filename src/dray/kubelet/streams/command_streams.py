"""Input, output, errors and terminal sizes of a command, as clients send them: channels of a WebSocket, or streams of SPDY."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dray.http.spdy import SpdySession, SpdyStream
from dray.http.tunnel import ByteStream, HeldBytes
from dray.http.websocket import NORMAL, PROTOCOL_ERROR, WebSocket

STDIN, STDOUT, STDERR, ERROR, RESIZE = range(5)
# With the fifth version a client can say that a channel ends: this channel, with the number of the other one.
CLOSE_CHANNEL = 255
# Names of the same channels as streams of SPDY.
STREAM_TYPES = {"stdin": STDIN, "stdout": STDOUT, "stderr": STDERR, "error": ERROR, "resize": RESIZE}
V5, V4, V2 = "v5.channel.k8s.io", "v4.channel.k8s.io", "v2.channel.k8s.io"
WITH_STATUS = (V5, V4, "v4.base64.channel.k8s.io")
WEBSOCKET_PROTOCOLS = (*WITH_STATUS, "channel.k8s.io", "base64.channel.k8s.io")
SPDY_PROTOCOLS = (V4, "v3.channel.k8s.io", V2)

MAX_HELD = 256 * 1024
MAX_SIZE_TEXT = 4096
OPEN_STREAMS_WITHIN_S = 30.0

Status = dict[str, Any]
SUCCESS: Status = {"status": "Success"}


def exit_status(code: int) -> Status:
    if code == 0:
        return SUCCESS
    return {
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit code {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


def failure_status(text: str) -> Status:
    return {
        "status": "Failure",
        "message": f"Internal error occurred: {text}",
        "reason": "InternalError",
        "code": 500,
    }


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Which streams a client wants. A terminal has one output for everything."""

    stdin: bool
    stdout: bool
    stderr: bool
    tty: bool

    @classmethod
    def of(cls, query: Mapping[str, str]) -> StreamOptions:
        """ValueError if none is wanted."""
        tty = query.get("tty") == "1"
        stdin, stdout = query.get("input") == "1", query.get("output") == "1"
        stderr = query.get("error") == "1" and not tty
        if not (stdin or stdout or stderr):
            raise ValueError("you must specify at least 1 of stdin, stdout, stderr")
        return cls(stdin, stdout, stderr, tty)

    def wants(self, channel: int) -> bool:
        return (self.stdin, self.stdout, self.stderr, True, self.tty)[channel]


class CommandStreams(ABC):
    """The common part of both kinds."""

    def __init__(self, options: StreamOptions) -> None:
        self.options = options
        self._stdin = HeldBytes(MAX_HELD)
        self._sizes = HeldBytes(MAX_SIZE_TEXT)
        self._size_text = ""
        # When data last went through, and how many writes wait for the client.
        self.active_at = asyncio.get_running_loop().time()
        self.writing = 0
        if not options.stdin:
            self._stdin.end()

    @abstractmethod
    async def run(self) -> None:
        """Reads what the client sends until it is gone."""

    @abstractmethod
    async def opened(self) -> None:
        """Waits until the client has opened all streams that it announced, while `run` runs; TimeoutError if they do not come."""

    @abstractmethod
    async def _send(self, channel: int, data: bytes) -> None: ...

    @abstractmethod
    async def finish(self, status: Status) -> None:
        """Tells the client how it ended; the last thing that is sent."""

    def _touch(self) -> None:
        self.active_at = asyncio.get_running_loop().time()

    async def read_stdin(self) -> bytes:
        """Nothing at the end, and for a client without standard input."""
        data = await self._stdin.read()
        self._touch()
        return data

    async def write_stdout(self, data: bytes) -> None:
        await self._write(STDOUT, data)

    async def write_stderr(self, data: bytes) -> None:
        await self._write(STDERR, data)

    async def _write(self, channel: int, data: bytes) -> None:
        """Waits until the client has taken most of it; a client that does not want this channel does not get it."""
        if not self.options.wants(channel) or not data:
            return
        self.writing += 1
        try:
            await self._send(channel, data)
        finally:
            self.writing -= 1
        self._touch()

    async def next_size(self) -> tuple[int, int] | None:
        """Rows and columns of the client's terminal, when they change; None when the client is gone."""
        while True:
            self._size_text = self._size_text.lstrip()
            try:
                found, end = json.JSONDecoder().raw_decode(self._size_text)
            except ValueError:
                more = await self._sizes.read()
                if not more or len(self._size_text) > MAX_SIZE_TEXT:
                    return None
                self._size_text += more.decode("utf-8", "replace")
                continue
            self._size_text = self._size_text[end:]
            size = found if isinstance(found, dict) else {}
            rows, columns = size.get("Height"), size.get("Width")
            if isinstance(rows, int) and isinstance(columns, int) and 0 < rows < 65536 and 0 < columns < 65536:
                return rows, columns

    def _end_input(self) -> None:
        self._stdin.end()
        self._sizes.end()


class WebSocketStreams(CommandStreams):
    """The first byte of each message is its channel; in protocols with base64 it is a digit."""

    def __init__(self, socket: WebSocket, options: StreamOptions, protocol: str) -> None:
        super().__init__(options)
        self._socket = socket
        self._protocol = protocol
        self._is_text = "base64" in protocol

    async def run(self) -> None:
        if self._protocol != V5:
            # Tells older clients that the connection stands.
            first = next(each for each in (STDOUT, STDERR, ERROR) if self.options.wants(each))
            await self._send(first, b"")
        try:
            while (message := await self._socket.receive()) is not None:
                if message and not await self._take(message):
                    return
        finally:
            self._end_input()

    async def opened(self) -> None:
        """A WebSocket has all its channels from the beginning."""

    async def _take(self, message: bytes) -> bool:
        channel, data = message[0], message[1:]
        if self._is_text:
            try:
                channel, data = channel - ord("0"), base64.b64decode(data, validate=True)
            except binascii.Error:
                await self._socket.close(PROTOCOL_ERROR, "a message is a digit and base64")
                return False
        if channel == STDIN and data:
            await self._stdin.feed(data)
        elif channel == RESIZE:
            await self._sizes.feed(data)
        elif channel == CLOSE_CHANNEL and self._protocol == V5 and data == bytes([STDIN]):
            self._stdin.end()
        return True

    async def _send(self, channel: int, data: bytes) -> None:
        if self._is_text:
            await self._socket.send(b"%d" % channel + base64.b64encode(data), is_text=True)
        else:
            await self._socket.send(bytes([channel]) + data)

    async def finish(self, status: Status) -> None:
        if self._protocol in WITH_STATUS:
            await self._send(ERROR, json.dumps(status).encode())
        elif status["status"] != "Success":
            await self._send(ERROR, status["message"].encode())
        await self._socket.close(NORMAL, "")


class SpdyStreams(CommandStreams):
    """The client opens one stream for each channel, named by its header `streamType`."""

    def __init__(self, stream: ByteStream, options: StreamOptions, protocol: str) -> None:
        super().__init__(options)
        self._session = SpdySession(stream, self._take)
        self._protocol = protocol
        self._streams: dict[int, SpdyStream] = {}
        self._pumps: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()

    def _take(self, stream: SpdyStream) -> str:
        channel = STREAM_TYPES.get(stream.headers.get("streamtype", ""))
        if channel is None or channel in self._streams:
            return "unexpected stream type"
        self._streams[channel] = stream
        sink = {STDIN: self._stdin, RESIZE: self._sizes}.get(channel)
        if sink is not None:
            self._pumps.append(asyncio.create_task(_pump(stream, sink)))
        self._changed.set()
        return ""

    async def opened(self) -> None:
        """The client opens a terminal's stream for sizes from the third version of the protocol on."""
        expected = {each for each in range(5) if self.options.wants(each)}
        if self._protocol == V2:
            expected.discard(RESIZE)
        async with asyncio.timeout(OPEN_STREAMS_WITHIN_S):
            while not expected <= self._streams.keys():
                self._changed.clear()
                await self._changed.wait()

    async def run(self) -> None:
        try:
            await self._session.run()
        finally:
            for pump in self._pumps:
                pump.cancel()
            await asyncio.gather(*self._pumps, return_exceptions=True)
            self._end_input()

    async def _send(self, channel: int, data: bytes) -> None:
        await self._streams[channel].write(data)

    async def finish(self, status: Status) -> None:
        if self._protocol == V4:
            await self._send(ERROR, json.dumps(status).encode())
        elif status["status"] != "Success":
            await self._send(ERROR, status["message"].encode())
        for channel in (STDOUT, STDERR, ERROR):
            if channel in self._streams:
                await self._streams[channel].close()


async def _pump(stream: SpdyStream, sink: HeldBytes) -> None:
    while data := await stream.read():
        await sink.feed(data)
    sink.end()
