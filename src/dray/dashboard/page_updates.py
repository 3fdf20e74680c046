"""Sends changes to open pages. The cluster is watched only while a page is open, and a little longer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator

import msgspec

from dray.client import Client
from dray.client.server_check import server_problem
from dray.dashboard.pending_explanations import PendingExplanations, PodExplainer
from dray.dashboard.tables import Tables
from dray.dashboard.use_history import UseHistory
from dray.dashboard.watched_cluster import WatchedCluster
from dray.features import FeatureGates

# Events that come together are sent together.
GATHER_S = 0.15
# How long the cluster is watched after the last page was closed, so that a reload is quick.
KEEP_WATCHING_S = 30.0
SERVER_CHECK_S = 10.0
SAMPLE_CHECK_S = 2.0
# A page that is so many messages behind is disconnected; it reconnects and gets everything again.
MOST_BEHIND = 256


class PageStream:
    """The messages of one open page, oldest first; None ends the stream."""

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


class ClusterUpdates:
    """Keeps the tables of a running cluster current by watching it, and sends the changes to every open page."""

    def __init__(self, client: Client, gates: FeatureGates, explain: PodExplainer, history: UseHistory) -> None:
        self._client = client
        self._changed = asyncio.Event()
        self.cluster = WatchedCluster(client, gates, self._changed.set)
        self._explanations = PendingExplanations(self.cluster, explain, gates)
        self._tables = Tables(self.cluster, lambda pod: self._explanations.by_pod.get(pod), history)
        self._pages: set[PageStream] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._ready = asyncio.Event()
        self._status = message("status", b'{"reachable":true}')

    def start(self) -> None:
        self.cluster.start()
        work = (self._run(), self._check_server(), self._explanations.run(), self._take_samples())
        self._tasks = [asyncio.create_task(each) for each in work]

    async def ready(self) -> None:
        await self._ready.wait()

    async def stop(self) -> None:
        for page in list(self._pages):
            page.end()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.cluster.stop()

    async def follow(self) -> AsyncGenerator[bytes]:
        """Everything as soon as it is known, then what changes."""
        page = PageStream()
        self._pages.add(page)
        try:
            yield self._status
            if self._ready.is_set():
                self._catch_up()
                # What was sent so far is in the snapshot.
                while not page.messages.empty():
                    page.messages.get_nowait()
                yield message("snapshot", self._tables.snapshot())
            while (text := await page.messages.get()) is not None:
                yield text
        finally:
            self._pages.discard(page)

    def snapshot(self) -> bytes:
        self._catch_up()
        return self._tables.snapshot()

    async def _run(self) -> None:
        await self.cluster.synced()
        while self.cluster.has_changes:
            self._tables.refresh()
            await asyncio.sleep(0)
        self._ready.set()
        self._explanations.note_change()
        self._send(message("snapshot", self._tables.snapshot()))
        while True:
            await self._changed.wait()
            await asyncio.sleep(GATHER_S)
            self._changed.clear()
            while self.cluster.has_changes:
                self._refresh()
                await asyncio.sleep(0)

    def _catch_up(self) -> None:
        while self.cluster.has_changes:
            self._refresh()

    def _refresh(self) -> None:
        delta = self._tables.refresh()
        if delta is not None:
            self._send(message("delta", delta))
            self._explanations.note_change()

    async def _take_samples(self) -> None:
        """The first a little after the start, when what is being placed just then has its node."""
        await self._ready.wait()
        while True:
            await asyncio.sleep(SAMPLE_CHECK_S)
            delta = self._tables.take_sample(self._client.clock.now())
            if delta is not None:
                self._send(message("sample", delta))

    async def _check_server(self) -> None:
        while True:
            problem = await server_problem(self._client)
            status = {"reachable": not problem, "problem": problem}
            text = message("status", msgspec.json.encode(status))
            if text != self._status:
                self._status = text
            self._send(text)
            await asyncio.sleep(SERVER_CHECK_S)

    def _send(self, text: bytes) -> None:
        for page in self._pages:
            page.send(text)


def message(event: str, data: bytes) -> bytes:
    """A server-sent event; JSON has no line breaks of its own."""
    return b"event: " + event.encode() + b"\ndata: " + data + b"\n\n"


class SharedUpdates:
    """Shares one `ClusterUpdates` between all pages; starts it with the first page and stops it after the last."""

    def __init__(self, client: Client, gates: FeatureGates, explain: PodExplainer, history: UseHistory) -> None:
        self._client = client
        self._gates = gates
        self._explain = explain
        self._history = history
        self._live: ClusterUpdates | None = None
        self._readers = 0
        self._closing: asyncio.TimerHandle | None = None
        self._stopping: set[asyncio.Task[None]] = set()
        self._is_stopped = False

    @contextlib.asynccontextmanager
    async def live(self) -> AsyncIterator[ClusterUpdates]:
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None
        if self._live is None:
            self._live = ClusterUpdates(self._client, self._gates, self._explain, self._history)
            self._live.start()
        self._readers += 1
        try:
            yield self._live
        finally:
            self._readers -= 1
            if not self._readers and not self._is_stopped:
                self._closing = asyncio.get_running_loop().call_later(KEEP_WATCHING_S, self._let_go)

    def keep_watching(self) -> None:
        """Watches the cluster also while no page is open, so that the history has no gaps."""
        self._readers += 1
        if self._live is None:
            self._live = ClusterUpdates(self._client, self._gates, self._explain, self._history)
            self._live.start()

    def _let_go(self) -> None:
        if self._live is not None and not self._readers:
            task = asyncio.ensure_future(self._live.stop())
            self._stopping.add(task)
            task.add_done_callback(self._stopping.discard)
            self._live = None

    async def stop(self) -> None:
        self._is_stopped = True
        if self._closing is not None:
            self._closing.cancel()
        live, self._live = self._live, None
        if live is not None:
            await live.stop()
        await asyncio.gather(*self._stopping, return_exceptions=True)
