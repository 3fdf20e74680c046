"""Subscribers get everything, then every change, and everything again when changes were lost."""

import asyncio
import tracemalloc
from collections.abc import AsyncGenerator, Iterable, Sequence
from itertools import chain

import pytest

from dray.api.scheme import by_kind
from dray.apiserver.errors import ApiError
from dray.apiserver.watch.kind_cache import CollectedLoad, KindCaches, StoreFollower
from dray.apiserver.watch.stored_object import resource_prefix
from dray.clock import SimulatedClock
from dray.store.errors import Compacted, StoreUnavailable
from dray.store.interface import Batch, Change, Entry, Page

PODS, NODES = resource_prefix("", "pods"), resource_prefix("", "nodes")
SLICES = resource_prefix("resource.k8s.io", "resourceslices")


class ScriptedStore:
    """Lists what it is told to hold; a watch ends with the error that is put into it."""

    def __init__(self, *entries: Entry, then: Iterable[Entry] = ()) -> None:
        self.entries, self.then, self.revision = entries, then, 1
        self.list_error: Exception | None = None
        self.failed = asyncio.Event()
        self.lists = 0
        self.happens: asyncio.Queue[Batch | Exception] = asyncio.Queue()

    async def pages(self, prefix: str) -> AsyncGenerator[Page]:
        """One entry a page. An error comes after the first of them."""
        self.lists += 1
        error, self.list_error = self.list_error, None
        for each in chain(self.entries, self.then):
            yield Page((each,), self.revision)
            if error is not None:
                self.failed.set()
                raise error
        yield Page((), self.revision)

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

    def loading(self) -> CollectedLoad:
        return CollectedLoad(self._load)

    def _load(self, entries: Sequence[Entry], revision: int) -> None:
        self._log.append((self._name, [entry.key for entry in entries]))

    def apply(self, change: Change) -> None:
        self._log.append((self._name, change.key))


def entry(key: str, revision: int = 1) -> Entry:
    return Entry(key, b"{}", revision, revision)


def pod(name: str) -> Entry:
    value = b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"%b","namespace":"ns"}}' % name.encode()
    return Entry(f"{PODS}ns/{name}", value, 1, 1)


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


async def test_a_load_that_breaks_off_changes_no_cache_and_is_begun_again() -> None:
    clock = SimulatedClock()
    store = ScriptedStore(pod("a"), pod("b"))
    follower = StoreFollower(store, clock)  # type: ignore[arg-type]
    caches = KindCaches(follower)
    await follower.start()
    pods = caches.of(by_kind("Pod"))
    store.entries = (pod("c"), pod("d"))
    store.list_error = StoreUnavailable("away")
    store.happens.put_nowait(Compacted(1, 8))
    await store.failed.wait()
    await asyncio.sleep(0)
    assert [each.name for each in pods.list()] == ["a", "b"]
    store.entries, store.revision = (pod("d"), pod("e")), 9
    await clock.advance(1)
    await follower.fresh()
    assert [each.name for each in pods.list()] == ["d", "e"]
    await follower.stop()


async def test_a_load_holds_one_page_of_values_and_one_text_of_equal_devices() -> None:
    devices = ",".join(f'{{"name":"gpu-{number}"}}' for number in range(2000)).encode()
    head = b'{"kind":"ResourceSlice","apiVersion":"resource.k8s.io/v1","metadata":{"name":"s-%03d"},"spec":{"devices":[%b]}}'
    entries = (Entry(f"{SLICES}s-{number:03}", head % (number, devices), 1, 1) for number in range(200))
    follower = StoreFollower(ScriptedStore(then=entries), SimulatedClock())  # type: ignore[arg-type]
    caches = KindCaches(follower)
    tracemalloc.start()
    await follower.start()
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [each.value for each in caches.of(by_kind("ResourceSlice")).list()] == [
        head % (n, devices) for n in range(200)
    ]
    assert most_bytes < 10 * len(devices)
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
