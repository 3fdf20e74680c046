"""The standard input or the terminal of a container that people attach to (`stdin`, `tty`). The agent holds the other end, so that it ends with the agent."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import struct
import termios

from dray.http.tunnel import MAX_HELD, HeldBytes
from dray.kubelet.runtime.log_writer import RotatingLog
from dray.kubelet.streams.command_streams import CommandStreams

# Of the output that an attached client has not taken; one that falls further behind is sent away.
MOST_BEHIND = 1024 * 1024


class HeldTerminal:
    """With `tty` a terminal for all three streams, else a pipe to the standard input; output without a terminal goes to the log by itself."""

    def __init__(self, output: RotatingLog, name: str, *, tty: bool, stdin_once: bool) -> None:
        self._output = output
        self._name = name
        self._stdin_once = stdin_once
        self._watchers: set[HeldBytes] = set()
        self._reading: asyncio.Task[None] | None = None
        self.has_terminal = tty
        self._ours, self.theirs = pty.openpty() if tty else reversed(os.pipe())
        os.set_blocking(self._ours, False)

    def started(self) -> None:
        """The container has its end now."""
        os.close(self.theirs)
        if self.has_terminal:
            self._reading = asyncio.create_task(self._read(), name=f"terminal of {self._name}")

    async def until_read(self) -> None:
        """Until the last process with the terminal has ended and its output is in the log: the kernel passes it on a moment after it was written."""
        if self._reading is not None:
            await asyncio.wait((self._reading,))

    def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        for watcher in self._watchers:
            watcher.end()
        if self._ours != -1:
            os.close(self._ours)
            self._ours = -1

    async def _read(self) -> None:
        with contextlib.closing(self._output):
            while data := await self._piece():
                with contextlib.suppress(OSError):  # the disk may be full
                    self._output.write(data)
                for watcher in list(self._watchers):
                    if not watcher.offer(data):
                        watcher.end()
                        self._watchers.discard(watcher)
        for watcher in self._watchers:
            watcher.end()

    async def _piece(self) -> bytes:
        while True:
            try:
                return os.read(self._ours, MAX_HELD)
            except BlockingIOError:
                await _ready(self._ours, writing=False)
            except OSError:  # the last process with this terminal has ended
                return b""

    async def attach(self, streams: CommandStreams) -> None:
        """Input and sizes of the client to the container, and what its terminal shows from now on to the client."""
        tasks = [asyncio.create_task(self._send_input(streams))]
        if self.has_terminal:
            tasks.append(asyncio.create_task(self._set_sizes(streams)))
        shown = HeldBytes(MOST_BEHIND)
        self._watchers.add(shown)
        try:
            while self.has_terminal and (data := await shown.read()):
                await streams.write_stdout(data)
        finally:
            self._watchers.discard(shown)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def feed(self, streams: CommandStreams) -> None:
        """The input alone, for a container whose output is read from its log."""
        await self._send_input(streams)

    async def _send_input(self, streams: CommandStreams) -> None:
        if not streams.options.stdin:
            return
        with contextlib.suppress(OSError):  # the container reads no more
            while data := await streams.read_stdin():
                await self._write(data)
            if self._stdin_once and not self.has_terminal and self._ours != -1:
                os.close(self._ours)
                self._ours = -1

    async def _write(self, data: bytes) -> None:
        while data:
            try:
                data = data[os.write(self._ours, data) :]
            except BlockingIOError:
                await _ready(self._ours, writing=True)

    async def _set_sizes(self, streams: CommandStreams) -> None:
        while (size := await streams.next_size()) is not None:
            with contextlib.suppress(OSError):
                fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))


async def _ready(descriptor: int, *, writing: bool) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    # A descriptor of its own, since reading and writing may wait for the same terminal.
    own = os.dup(descriptor)
    add, remove = (loop.add_writer, loop.remove_writer) if writing else (loop.add_reader, loop.remove_reader)
    add(own, ready.set)
    try:
        await ready.wait()
    finally:
        remove(own)
        os.close(own)
