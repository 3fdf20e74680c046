"""Ports of a pod for `kubectl port-forward`: the client opens a pair of streams for each connection, one for data and one for errors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from dray.http.spdy import SpdySession, SpdyStream
from dray.http.tunnel import ByteStream, StreamPair, copy, port_number

log = logging.getLogger(__name__)

MOST_CONNECTIONS = 128
PAIR_WITHIN_S = 30.0

Connect = Callable[[int], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


class PortForward:
    """One client's connections to the ports of one pod; `connect` opens one, OSError if it cannot."""

    def __init__(self, client: ByteStream, connect: Connect) -> None:
        self._session = SpdySession(client, self._take)
        self._connect = connect
        # By request: whichever of its two streams came first.
        self._waiting: dict[str, SpdyStream] = {}
        self._connections: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        try:
            await self._session.run()
        finally:
            for task in self._connections:
                task.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)

    def _take(self, stream: SpdyStream) -> str:
        kind, port = stream.headers.get("streamtype", ""), port_number(stream.headers.get("port", ""))
        if kind not in ("data", "error") or port is None:
            return "a stream names its type, data or error, and a port"
        if len(self._connections) >= MOST_CONNECTIONS or len(self._waiting) >= MOST_CONNECTIONS:
            return f"more than {MOST_CONNECTIONS} connections at once"
        request = stream.headers.get("requestid", "") or str(stream.number - (2 if kind == "data" else 0))
        other = self._waiting.pop(request, None)
        if other is None:
            self._waiting[request] = stream
            asyncio.get_running_loop().call_later(PAIR_WITHIN_S, self._waiting.pop, request, None)
            return ""
        if other.headers["streamtype"] == kind:
            return f"request {request} has two streams for its {kind}"
        data, error = (stream, other) if kind == "data" else (other, stream)
        task = asyncio.create_task(self._serve(port, data, error))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        return ""

    async def _serve(self, port: int, data: SpdyStream, error: SpdyStream) -> None:
        try:
            pair = StreamPair(*await self._connect(port))
        except OSError as problem:
            text = (
                f"error forwarding port {port} to pod: failed to connect to localhost:{port} inside the pod: {problem}"
            )
            await error.write(text.encode())
            await error.close()
            await data.reset()
            return
        try:
            await self._both_ways(data, pair)
            await data.close()
            await error.close()
        except ConnectionError as problem:
            log.debug("a connection to port %d ends: %s", port, problem)
        finally:
            pair.abort()

    async def _both_ways(self, data: SpdyStream, pair: StreamPair) -> None:
        """Until the pod has said all: a client may end its side first and still wait for the answer."""
        sending = asyncio.create_task(_send(data, pair))
        try:
            await copy(pair, data)
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)


async def _send(data: SpdyStream, pair: StreamPair) -> None:
    await copy(data, pair)
    pair.say_no_more()
