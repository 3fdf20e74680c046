"""The cluster followed while somebody looks: a page that nobody has open costs the cluster nothing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator

import msgspec

from dray.client import Client
from dray.dashboard.board import Board
from dray.dashboard.cluster import Cluster
from dray.dashboard.probe import problem_with
from dray.features import FeatureGates

# Events that come together are sent together.
GATHER_S = 0.15
# So long the cluster is followed after the last page was closed; a reload finds everything in place.
LINGER_S = 30.0
PROBE_S = 10.0
# A reader that is so many messages behind is cut off; it comes back and starts with everything.
MOST_BEHIND = 256


class Follower:
    """One open page: messages for it, oldest first. None ends it."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[bytes | None] = asyncio.Queue()

    def send(self, message: bytes) -> None:
        if self.messages.qsize() >= MOST_BEHIND:
            self.end()
        else:
            self.messages.put_nowait(message)

    def end(self) -> None:
        while not self.messages.empty():
            self.messages.get_nowait()
        self.messages.put_nowait(None)


class Live:
    """Rows of a running cluster, brought up to date by its watches, for any number of followers."""

    def __init__(self, client: Client, gates: FeatureGates) -> None:
        self._client = client
        self._stirred = asyncio.Event()
        self.cluster = Cluster(client, gates, self._stirred.set)
        self._board = Board(self.cluster)
        self._followers: set[Follower] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._ready = asyncio.Event()
        self._status = message("status", b'{"reachable":true}')

    def start(self) -> None:
        self.cluster.start()
        self._tasks = [asyncio.create_task(self._run()), asyncio.create_task(self._probe())]

    async def ready(self) -> None:
        await self._ready.wait()

    async def stop(self) -> None:
        for follower in list(self._followers):
            follower.end()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.cluster.stop()

    @property
    def is_followed(self) -> bool:
        return bool(self._followers)

    async def follow(self) -> AsyncGenerator[bytes]:
        """Everything as soon as it is known, then what changes."""
        follower = Follower()
        self._followers.add(follower)
        try:
            yield self._status
            if self._ready.is_set():
                self._catch_up()
                # What was sent so far is in the snapshot.
                while not follower.messages.empty():
                    follower.messages.get_nowait()
                yield message("snapshot", self._board.snapshot())
            while (text := await follower.messages.get()) is not None:
                yield text
        finally:
            self._followers.discard(follower)

    def snapshot(self) -> bytes:
        self._catch_up()
        return self._board.snapshot()

    async def _run(self) -> None:
        await self.cluster.synced()
        while self.cluster.has_changes:
            self._board.refresh()
            await asyncio.sleep(0)
        self._ready.set()
        self._send(message("snapshot", self._board.snapshot()))
        while True:
            await self._stirred.wait()
            await asyncio.sleep(GATHER_S)
            self._stirred.clear()
            while self.cluster.has_changes:
                self._refresh()
                await asyncio.sleep(0)

    def _catch_up(self) -> None:
        while self.cluster.has_changes:
            self._refresh()

    def _refresh(self) -> None:
        delta = self._board.refresh()
        if delta is not None:
            self._send(message("delta", delta))

    async def _probe(self) -> None:
        while True:
            problem = await problem_with(self._client)
            status = {"reachable": not problem, "problem": problem}
            text = message("status", msgspec.json.encode(status))
            if text != self._status:
                self._status = text
            self._send(text)
            await asyncio.sleep(PROBE_S)

    def _send(self, text: bytes) -> None:
        for follower in self._followers:
            follower.send(text)


def message(event: str, data: bytes) -> bytes:
    """A server-sent event; JSON has no line breaks of its own."""
    return b"event: " + event.encode() + b"\ndata: " + data + b"\n\n"


class Viewing:
    """A `Live` as long as there are readers, and a little longer."""

    def __init__(self, client: Client, gates: FeatureGates) -> None:
        self._client = client
        self._gates = gates
        self._live: Live | None = None
        self._readers = 0
        self._closing: asyncio.TimerHandle | None = None
        self._stopping: set[asyncio.Task[None]] = set()
        self._is_over = False

    @contextlib.asynccontextmanager
    async def live(self) -> AsyncIterator[Live]:
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None
        if self._live is None:
            self._live = Live(self._client, self._gates)
            self._live.start()
        self._readers += 1
        try:
            yield self._live
        finally:
            self._readers -= 1
            if not self._readers and not self._is_over:
                self._closing = asyncio.get_running_loop().call_later(LINGER_S, self._let_go)

    def _let_go(self) -> None:
        if self._live is not None and not self._readers:
            task = asyncio.ensure_future(self._live.stop())
            self._stopping.add(task)
            task.add_done_callback(self._stopping.discard)
            self._live = None

    async def stop(self) -> None:
        self._is_over = True
        if self._closing is not None:
            self._closing.cancel()
        live, self._live = self._live, None
        if live is not None:
            await live.stop()
        await asyncio.gather(*self._stopping, return_exceptions=True)
