"""Streams to containers of a CRI runtime: it names an address for each, where it serves them over SPDY.

Imported when the first one comes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from dray.http.spdy import PROTOCOL, BrokenSession, SpdySession, SpdyStream
from dray.http.tunnel import ByteStream, StreamPair, splice
from dray.http.upgrade_client import UpgradeRequest, request_upgrade
from dray.kubelet.errors import ContainerError
from dray.kubelet.streams.command_streams import V4, CommandStreams

MAX_STATUS = 64 * 1024
PORT_FORWARD = "portforward.k8s.io"


async def run_command(url: str, streams: CommandStreams) -> int:
    """Copies between the client and the runtime until the command ends; its exit code."""
    runtime = await _connected(url, V4)
    try:
        return await RuntimeStreams(runtime, streams).run()
    except (ConnectionError, BrokenSession) as problem:
        raise ContainerError("ExecError", f"the container runtime: {problem}") from problem
    finally:
        runtime.abort()


async def forward_ports(url: str, client: ByteStream) -> None:
    runtime = await _connected(url, PORT_FORWARD)
    try:
        await splice(client, runtime)
    finally:
        runtime.abort()


async def _connected(url: str, protocol: str) -> StreamPair:
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname or not parts.port:
        raise ContainerError(
            "ExecError", f"the container runtime serves streams at {url}, and only http is spoken here"
        )
    target = f"{parts.path}?{parts.query}" if parts.query else parts.path
    headers = (("Connection", "Upgrade"), ("Upgrade", PROTOCOL), ("X-Stream-Protocol-Version", protocol))
    try:
        answer = await request_upgrade(UpgradeRequest(parts.hostname, parts.port, target, headers, "POST"))
    except (OSError, TimeoutError, ValueError) as problem:
        raise ContainerError("ExecError", f"the container runtime does not serve the stream: {problem}") from problem
    if answer.connection is None:
        text = answer.text.decode("utf-8", "replace").strip()
        raise ContainerError("ExecError", text or f"the container runtime answered with status {answer.status}")
    return answer.connection


class RuntimeStreams:
    """The client's side of the protocol that `command_streams` has the server's side of, in its fourth version."""

    def __init__(self, runtime: ByteStream, streams: CommandStreams) -> None:
        self._session = SpdySession(runtime, lambda stream: "the runtime opens no streams", is_client=True)
        self._streams = streams

    async def run(self) -> int:
        options = self._streams.options
        reading = asyncio.create_task(self._session.run())
        try:
            error = await self._open("error")
            inputs: list[Awaitable[object]] = []
            outputs: list[Awaitable[object]] = []
            if options.stdin:
                inputs.append(self._send_input(await self._open("stdin")))
            if options.stdout:
                outputs.append(_copy(await self._open("stdout"), self._streams.write_stdout))
            if options.stderr:
                outputs.append(_copy(await self._open("stderr"), self._streams.write_stderr))
            if options.tty:
                inputs.append(self._send_sizes(await self._open("resize")))
            status = asyncio.ensure_future(_all_of(error))
            feeding = [asyncio.ensure_future(each) for each in inputs]
            try:
                await asyncio.gather(status, *outputs)
            finally:
                for task in (status, *feeding):
                    task.cancel()
                await asyncio.gather(status, *feeding, return_exceptions=True)
            return _exit_code(status.result())
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _open(self, kind: str) -> SpdyStream:
        return await self._session.open_stream({"streamType": kind})

    async def _send_input(self, stream: SpdyStream) -> None:
        while data := await self._streams.read_stdin():
            await stream.write(data)
        await stream.close()

    async def _send_sizes(self, stream: SpdyStream) -> None:
        while (size := await self._streams.next_size()) is not None:
            await stream.write(json.dumps({"Width": size[1], "Height": size[0]}).encode())


async def _copy(stream: SpdyStream, sink: Callable[[bytes], Awaitable[None]]) -> None:
    while data := await stream.read():
        await sink(data)


async def _all_of(stream: SpdyStream) -> bytes:
    text = b""
    while len(text) < MAX_STATUS and (data := await stream.read()):
        text += data
    return text


def _exit_code(text: bytes) -> int:
    """From the runtime's Status; ContainerError with its words if the command did not run."""
    try:
        status: dict[str, Any] = json.loads(text) if text else {"status": "Success"}
        if status["status"] == "Success":
            return 0
        if status.get("reason") == "NonZeroExitCode":
            return int(status["details"]["causes"][0]["message"])
        message = str(status.get("message", ""))
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        message = text.decode("utf-8", "replace")
    raise ContainerError(
        "ExecError", message.removeprefix("Internal error occurred: error executing command in container: ")
    )
