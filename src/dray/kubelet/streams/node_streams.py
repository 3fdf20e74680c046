"""Answers the API server's requests for streams: finds the container, agrees on a protocol, and limits number and idle time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qs

from dray.http import spdy, websocket
from dray.http.connection import HttpRequest
from dray.http.responses import TEXT, Response
from dray.http.tunnel import ByteStream, Tunnel, first_of, idle_for
from dray.http.websocket import MessageBytes, WebSocket
from dray.kubelet.errors import ContainerError
from dray.kubelet.runtime.interface import RunningContainer
from dray.kubelet.streams.command_streams import (
    SPDY_PROTOCOLS,
    WEBSOCKET_PROTOCOLS,
    CommandStreams,
    SpdyStreams,
    Status,
    StreamOptions,
    WebSocketStreams,
    exit_status,
    failure_status,
)

log = logging.getLogger(__name__)

MOST_STREAMS = 200
# As a kubelet's streamingConnectionIdleTimeout.
IDLE_S = 4 * 3600.0
# After the last word; a client that has it closes the connection.
GOODBYE_S = 5.0
MAX_COMMAND = 256 * 1024
PORT_FORWARD = "portforward.k8s.io"
PORT_FORWARD_TUNNEL = f"{spdy.PROTOCOL}+{PORT_FORWARD}"
SPDY_HEADERS = (("Connection", "Upgrade"), ("Upgrade", spdy.PROTOCOL))


@dataclass(frozen=True, slots=True)
class StreamTarget:
    """What the agent knows of the pod that a stream is for."""

    containers: Mapping[str, RunningContainer]
    # Serves the ports of the pod to a client that speaks SPDY.
    forward_ports: Callable[[ByteStream], Awaitable[None]]


FindPod = Callable[[str, str], StreamTarget | None]
Work = Callable[[RunningContainer, CommandStreams], Awaitable[Status]]


class StreamRefusal(Exception):
    """A request for a stream that gets a plain answer."""

    def __init__(self, status: int, text: str, headers: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(text)
        self.status = status
        self.headers = headers


class NodeStreams:
    """`most` streams at once; one that moves no data for `idle_s` seconds is closed."""

    def __init__(self, find_pod: FindPod, *, most: int = MOST_STREAMS, idle_s: float = IDLE_S) -> None:
        self._find_pod = find_pod
        self._most = most
        self._idle_s = idle_s
        self._open = 0

    def answer(self, request: HttpRequest, parts: list[str]) -> Response:
        """`parts` are those of the path: what is wanted, then namespace, pod and perhaps UID and container."""
        try:
            return self._answer(request, parts)
        except StreamRefusal as refusal:
            return Response(refusal.status, f"{refusal}\n".encode(), TEXT, refusal.headers)

    def _answer(self, request: HttpRequest, parts: list[str]) -> Response:
        if request.method not in ("GET", "POST"):
            raise StreamRefusal(405, "streams are opened with GET or POST")
        if "upgrade" not in request.headers.get("connection", "").lower():
            raise StreamRefusal(400, "Upgrade request required")
        if self._open >= self._most:
            raise StreamRefusal(429, f"{self._open} streams are open on this node, and no more are allowed; close some")
        target = self._find_pod(parts[1], parts[2])
        if target is None:
            raise StreamRefusal(404, "pod does not exist")
        if parts[0] == "portForward":
            return self._port_forward(request, target)
        container = target.containers.get(parts[-1])
        if container is None:
            raise StreamRefusal(500, f'container not found ("{parts[-1]}")')
        _, query = request.path_and_query()
        values = parse_qs(query, keep_blank_values=True, max_num_fields=10_000)
        try:
            options = StreamOptions.of({name: each[0] for name, each in values.items()})
        except ValueError as problem:
            raise StreamRefusal(400, str(problem)) from problem
        if parts[0] == "attach":
            return self._command(request, options, container, _attach)
        command = values.get("command", [])
        if not command or sum(map(len, command)) > MAX_COMMAND:
            raise StreamRefusal(400, f"a command is needed, of at most {MAX_COMMAND} bytes")
        return self._command(request, options, container, _execute(command))

    # --- commands

    def _command(
        self, request: HttpRequest, options: StreamOptions, container: RunningContainer, work: Work
    ) -> Response:
        if websocket.is_wanted(request.headers):
            protocol, headers = _websocket_handshake(request, WEBSOCKET_PROTOCOLS)

            def streams_of(tunnel: Tunnel) -> CommandStreams:
                return WebSocketStreams(WebSocket(tunnel), options, protocol)

        else:
            protocol, headers = _spdy_handshake(request, SPDY_PROTOCOLS)

            def streams_of(tunnel: Tunnel) -> CommandStreams:
                return SpdyStreams(tunnel, options, protocol)

        async def serve(tunnel: Tunnel) -> None:
            self._open += 1
            try:
                await self._serve(streams_of(tunnel), container, work)
            finally:
                self._open -= 1

        return Response(101, headers=headers, tunnel=serve)

    async def _serve(self, streams: CommandStreams, container: RunningContainer, work: Work) -> None:
        reading = asyncio.create_task(streams.run())
        ends: list[Status] = []

        async def done() -> None:
            await streams.opened()
            ends.append(await work(container, streams))

        try:
            await first_of(done(), asyncio.shield(reading), self._idle(streams))
            if ends:
                await streams.finish(ends[0])
                async with asyncio.timeout(GOODBYE_S):
                    await reading
        except (spdy.BrokenSession, ConnectionError, TimeoutError) as problem:
            log.info("a stream to container %s ends: %s", container.id, problem or "the client did not go on")
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _idle(self, streams: CommandStreams) -> None:
        await idle_for(self._idle_s, lambda: streams.active_at)
        why = "the client reads nothing" if streams.writing else "no data came or went"
        text = f"the stream is closed: {why} for {self._idle_s:g} seconds"
        log.warning("%s", text)
        if not streams.writing:
            await streams.finish(failure_status(text))

    # --- ports

    def _port_forward(self, request: HttpRequest, target: StreamTarget) -> Response:
        if websocket.is_wanted(request.headers):
            _, headers = _websocket_handshake(request, (PORT_FORWARD_TUNNEL,))

            def client_of(tunnel: Tunnel) -> ByteStream:
                return MessageBytes(WebSocket(tunnel))

        else:
            _, headers = _spdy_handshake(request, (PORT_FORWARD,))

            def client_of(tunnel: Tunnel) -> ByteStream:
                return tunnel

        async def serve(tunnel: Tunnel) -> None:
            self._open += 1
            try:
                idle = idle_for(self._idle_s, lambda: tunnel.active_at)
                await first_of(target.forward_ports(client_of(tunnel)), idle)
            except (ContainerError, spdy.BrokenSession, ConnectionError) as problem:
                log.info("a port forward ends: %s", problem)
            finally:
                self._open -= 1

        return Response(101, headers=headers, tunnel=serve)


def _execute(command: list[str]) -> Work:
    async def work(container: RunningContainer, streams: CommandStreams) -> Status:
        try:
            return exit_status(await container.execute(command, streams))
        except ContainerError as problem:
            return failure_status(f"error executing command in container: {problem}")

    return work


async def _attach(container: RunningContainer, streams: CommandStreams) -> Status:
    try:
        await container.attach(streams)
    except ContainerError as problem:
        return failure_status(f"error attaching to container: {problem}")
    return exit_status(0)


def _websocket_handshake(request: HttpRequest, protocols: tuple[str, ...]) -> tuple[str, tuple[tuple[str, str], ...]]:
    try:
        return websocket.handshake(request.headers, protocols)
    except ValueError as problem:
        raise StreamRefusal(400, f"unable to upgrade: {problem}") from problem


def _spdy_handshake(request: HttpRequest, protocols: tuple[str, ...]) -> tuple[str, tuple[tuple[str, str], ...]]:
    if request.headers.get("upgrade", "").lower() != spdy.PROTOCOL.lower():
        raise StreamRefusal(400, f"unable to upgrade: {spdy.PROTOCOL} and WebSocket are spoken here")
    wanted = [each.strip() for each in request.headers.get("x-stream-protocol-version", "").split(",")]
    chosen = next((each for each in wanted if each in protocols), None)
    if chosen is None:
        text = f"unable to upgrade: unable to negotiate protocol: client supports {wanted}, server accepts {list(protocols)}"
        raise StreamRefusal(403, text, (("X-Accepted-Stream-Protocol-Versions", ",".join(protocols)),))
    return chosen, (*SPDY_HEADERS, ("X-Stream-Protocol-Version", chosen))
