"""Subscribers get everything, then every change, and everything again when changes were lost."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from dray.apiserver.errors import ApiError
from dray.apiserver.watch.kind_cache import StoreFollower
from dray.apiserver.watch.stored_object import resource_prefix
from dray.clock import SimulatedClock
from dray.store.errors import Compacted, StoreUnavailable
from dray.store.interface import Batch, Change, Entry, Page

PODS, NODES = resource_prefix("", "pods"), resource_prefix("", "nodes")


class ScriptedStore:
    """Lists what it is told to hold; a watch ends with the error that is put into it."""

    def __init__(self, *entries: Entry) -> None:
        self.entries, self.revision = entries, 1
        self.list_error: Exception | None = None
        self.failed = asyncio.Event()
        self.lists = 0
        self.happens: asyncio.Queue[Batch | Exception] = asyncio.Queue()

    async def list(self, prefix: str) -> Page:
        self.lists += 1
        error, self.list_error = self.list_error, None
        if error is not None:
            self.failed.set()
            raise error
        return Page(self.entries, self.revision)

    async def watch(self, prefix: str, revision: int) -> AsyncGenerator[Batch]:
        while True:
            happened = await self.happens.get()
            if isinstance(happened, Exception):
                raise happened
            yield happened

    async def current_revision(self) -> int:
        return self.revision

    def change(self, *changes: Change) -> None:
        self.revision = changes[-1].revision
        self.happens.put_nowait(Batch(self.revision, changes))


class Recorder:
    def __init__(self, log: list[tuple[str, object]], name: str) -> None:
        self._log, self._name = log, name

    def load(self, entries: list[Entry], revision: int) -> None:
        self._log.append((self._name, [entry.key for entry in entries]))

    def apply(self, change: Change) -> None:
        self._log.append((self._name, change.key))


def entry(key: str, revision: int = 1) -> Entry:
    return Entry(key, b"{}", revision, revision)


def change(key: str, revision: int, value: bytes | None = b"{}") -> Change:
    return Change(key, revision, value, None, 0, revision)


async def test_subscribers_of_a_prefix_are_called_in_order_and_others_are_not() -> None:
    store, log = ScriptedStore(entry(PODS + "ns/a"), entry(NODES + "n")), []
    follower = StoreFollower(store, SimulatedClock())  # type: ignore[arg-type]
    for name, prefix in (("cache", PODS), ("index", PODS), ("nodes", NODES)):
        follower.subscribe(prefix, Recorder(log, name))  # type: ignore[arg-type]
    await follower.start()
    assert log == [("cache", [PODS + "ns/a"]), ("index", [PODS + "ns/a"]), ("nodes", [NODES + "n"])]
    log.clear()
    store.change(change(PODS + "ns/b", 2))
    await follower.fresh()
    assert log == [("cache", PODS + "ns/b"), ("index", PODS + "ns/b")]
    assert follower.progress.revision == 2
    await follower.stop()


async def test_after_a_compaction_everything_is_loaded_again_and_an_index_hears_what_is_gone() -> None:
    store = ScriptedStore(entry(PODS + "ns/a"), entry(PODS + "ns/b"))
    follower = StoreFollower(store, SimulatedClock())  # type: ignore[arg-type]
    seen: dict[str, bytes | None] = {}
    follower.subscribe_index([PODS], seen.__setitem__)
    await follower.start()
    assert seen == {PODS + "ns/a": b"{}", PODS + "ns/b": b"{}"}
    store.entries, store.revision = (entry(PODS + "ns/b"), entry(PODS + "ns/c", 9)), 9
    store.happens.put_nowait(Compacted(1, 8))
    await follower.fresh()
    assert seen == {PODS + "ns/a": None, PODS + "ns/b": b"{}", PODS + "ns/c": b"{}"}
    assert store.lists == 2
    await follower.stop()


async def test_a_store_that_is_away_is_asked_again() -> None:
    clock = SimulatedClock()
    store, log = ScriptedStore(entry(PODS + "ns/a")), []
    follower = StoreFollower(store, clock)  # type: ignore[arg-type]
    follower.subscribe(PODS, Recorder(log, "cache"))  # type: ignore[arg-type]
    await follower.start()
    store.list_error = StoreUnavailable("away")
    store.happens.put_nowait(Compacted(1, 8))
    await store.failed.wait()
    await asyncio.sleep(0)
    store.revision = 9
    await clock.advance(1)
    await follower.fresh()
    assert log == [("cache", [PODS + "ns/a"])] * 2
    await follower.stop()


async def test_an_object_that_an_index_cannot_read_does_not_stop_it() -> None:
    store, seen = ScriptedStore(entry(PODS + "ns/bad"), entry(PODS + "ns/good")), []

    def apply(key: str, value: bytes | None) -> None:
        if key.endswith("bad"):
            raise ValueError("unreadable")
        seen.append(key)

    follower = StoreFollower(store, SimulatedClock())  # type: ignore[arg-type]
    follower.subscribe_index([PODS], apply)
    await follower.start()
    store.change(change(PODS + "ns/bad", 2), change(PODS + "ns/better", 2))
    await follower.fresh()
    assert seen == [PODS + "ns/good", PODS + "ns/better"]
    await follower.stop()


async def test_a_revision_that_does_not_come_is_refused() -> None:
    clock = SimulatedClock()
    follower = StoreFollower(ScriptedStore(), clock)  # type: ignore[arg-type]
    await follower.start()
    waiting = asyncio.create_task(follower.reach(1000))
    for _ in range(5):
        await asyncio.sleep(0)
    await clock.advance(10)
    with pytest.raises(ApiError) as refused:
        await waiting
    assert refused.value.code == 504
    await follower.stop()
