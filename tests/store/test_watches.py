"""Watches: from any remembered revision, in order, without gaps, through restarts and slow readers."""

import asyncio
import contextlib
import random

import pytest
from tests.waiting import eventually, let_others_run

from dray.store import (
    sqlite,
    store_base,
)
from dray.store.errors import Compacted
from dray.store.interface import Batch, Change, Delete, Put, Store


async def collect(store: Store, prefix: str, after: int, up_to: int) -> list[Change]:
    found: list[Change] = []
    async with contextlib.aclosing(store.watch(prefix, after)) as batches:
        async for batch in batches:
            found.extend(batch.changes)
            if batch.revision >= up_to:
                return found
    raise AssertionError("the watch ended")


async def test_a_watch_replays_the_past_and_goes_on_live(store: Store) -> None:
    before = await store.create("/a/0", b"0")
    first = await store.create("/a/x", b"1")
    watching = asyncio.create_task(collect(store, "/a/", before, up_to=first + 3))
    await let_others_run(20)
    second = await store.update("/a/x", b"2", first)
    await store.create("/b/other", b"")
    third = await store.delete("/a/x", second)
    changes = await asyncio.wait_for(watching, 30)
    assert [(change.key, change.revision, change.value, change.previous) for change in changes] == [
        ("/a/x", first, b"1", None),
        ("/a/x", second, b"2", b"1"),
        ("/a/x", third, None, b"2"),
    ]
    assert [change.previous_revision for change in changes] == [0, first, second]
    assert {change.created for change in changes} == {first}


async def test_changes_of_one_commit_arrive_in_one_batch(store: Store) -> None:
    start = await store.create("/a/0", b"")
    revision = await store.commit([Put("/a/1", b"1"), Delete("/a/0"), Put("/a/2", b"2")])
    async with contextlib.aclosing(store.watch("/a/", start)) as batches:
        async for batch in batches:
            if batch.changes:
                break
    assert [change.key for change in batch.changes] == ["/a/1", "/a/0", "/a/2"]
    assert {change.revision for change in batch.changes} == {revision}


async def test_commits_elsewhere_move_a_watch_forward(store: Store) -> None:
    start = await store.create("/a/0", b"")
    other = await store.create("/b/0", b"")
    assert await asyncio.wait_for(collect(store, "/a/", start, up_to=other), 10) == []


async def test_a_watch_from_the_future_waits_for_it(store: Store) -> None:
    start = await store.create("/a/0", b"")
    watching = asyncio.create_task(collect(store, "/a/", start + 1, up_to=start + 2))
    await store.create("/a/1", b"")
    last = await store.create("/a/2", b"")
    assert [change.revision for change in await asyncio.wait_for(watching, 10)] == [last]


async def test_watches_during_a_storm_see_every_change_once_in_order(store: Store) -> None:
    start = await store.create("/a/start", b"")

    written = 0

    async def write(writer: int) -> None:
        nonlocal written
        for number in range(40):
            await store.create(f"/a/{writer}/{number}", b"x" * 100)
            written += 1

    async def watch_late(after: int) -> list[int]:
        await eventually(lambda: written >= after, f"{after} writes")
        return [change.revision for change in await collect(store, "/a/", start, up_to=start + 320)]

    watching = [asyncio.create_task(watch_late(40 * late)) for late in range(8)]
    await asyncio.gather(*(write(writer) for writer in range(8)))
    for revisions in await asyncio.wait_for(asyncio.gather(*watching), 60):
        assert revisions == list(range(start + 1, start + 321))


async def test_a_reader_that_falls_behind_catches_up_from_history(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_base, "QUEUE_LIMIT", 3)
    start = await store.create("/a/start", b"")
    seen: list[int] = []
    async with contextlib.aclosing(store.watch("/a/", start)) as batches:
        first = await store.create("/a/first", b"")
        seen += [change.revision for change in (await anext(batches)).changes]
        for number in range(20):
            await store.create(f"/a/{number}", b"")
            await let_others_run(5)
        while not seen or seen[-1] < first + 20:
            seen += [change.revision for change in (await asyncio.wait_for(anext(batches), 10)).changes]
    assert seen == list(range(start + 1, first + 21))


async def test_a_watch_that_has_ended_is_offered_no_more_changes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    offered: list[int] = []
    plain = store_base.WatchQueue.offer

    def counted(queue: store_base.WatchQueue, batch: Batch) -> None:
        offered.append(batch.revision)
        plain(queue, batch)

    monkeypatch.setattr(store_base.WatchQueue, "offer", counted)
    start = await store.create("/a/0", b"")
    first = await store.create("/a/1", b"")
    for _ in range(5):
        assert len(await asyncio.wait_for(collect(store, "/a/", start, up_to=first), 30)) == 1
    async with contextlib.aclosing(store.watch("/a/", start)) as batches:
        await asyncio.wait_for(anext(batches), 30)
        last = await store.create("/a/2", b"")
        await eventually(lambda: last in offered, "the open watch")
    assert offered.count(last) == 1


async def test_a_watch_from_a_forgotten_revision_is_refused(store: Store) -> None:
    first = await store.create("/a/x", b"1")
    second = await store.update("/a/x", b"2", first)
    third = await store.update("/a/x", b"3", second)
    await store.compact(third)
    with pytest.raises(Compacted):
        await anext(store.watch("/a/", first))
    fourth = await store.update("/a/x", b"4", third)
    changes = await asyncio.wait_for(collect(store, "/a/", third, up_to=fourth), 30)
    assert [(change.value, change.previous) for change in changes] == [(b"4", b"3")]


async def test_watches_go_on_where_they_were_after_a_restart(open_store, kind: str) -> None:  # type: ignore[no-untyped-def]
    store = await open_store()
    start = await store.create("/a/0", b"0")
    first = await store.create("/a/1", b"1")
    assert [change.key for change in await collect(store, "/a/", start, up_to=first)] == ["/a/1"]
    await store.delete("/a/1", first)
    if kind != "etcd":
        await store.close()
    store = await open_store()
    last = await store.create("/a/2", b"2")
    changes = await asyncio.wait_for(collect(store, "/a/", first, up_to=last), 30)
    assert [(change.key, change.value, change.previous) for change in changes] == [
        ("/a/1", None, b"1"),
        ("/a/2", b"2", None),
    ]
    page = await store.list("/a/", revision=first)
    assert [entry.key for entry in page.entries] == ["/a/0", "/a/1"]


async def test_compaction_during_writes_never_hides_the_present(store: Store) -> None:
    revision = await store.create("/a/x", b"0")

    async def write() -> None:
        nonlocal revision
        for number in range(1, 60):
            revision = await store.update("/a/x", str(number).encode(), revision)
            await store.commit([Put(f"/a/{number % 7}", b"")])

    writing = asyncio.create_task(write())
    while not writing.done():
        with contextlib.suppress(Compacted):
            await store.compact(await store.current_revision())
        await let_others_run(5)
    await writing
    entry = await store.get("/a/x")
    assert entry is not None
    assert (entry.value, entry.revision) == (b"59", revision)
    assert len((await store.list("/a/")).entries) == 8


@pytest.mark.parametrize("chunk", [1, 2, 3, 7])
async def test_a_replay_from_any_revision_is_the_rest_of_the_log(
    store: Store, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commits of up to five changes against reading in small pieces: no change is split off, lost or repeated."""
    monkeypatch.setattr(sqlite, "READ_CHUNK", chunk)
    chance = random.Random(chunk)
    start = await store.create("/a/start", b"")
    log: list[tuple[int, str, bytes | None, bytes | None]] = []
    living: dict[str, bytes] = {}
    for step in range(25):
        operations: list[Put | Delete] = []
        for key in chance.sample([f"/a/{number}" for number in range(8)], chance.randint(1, 5)):
            if key in living and chance.random() < 0.3:
                operations.append(Delete(key))
            else:
                operations.append(Put(key, f"{step}".encode()))
        revision = await store.commit(operations)
        for operation in operations:
            value = operation.value if isinstance(operation, Put) else None
            log.append((revision, operation.key, value, living.get(operation.key)))
            if value is None:
                del living[operation.key]
            else:
                living[operation.key] = value
    last = log[-1][0]
    for after in [start, *sorted({revision for revision, *_ in log})[:-1]]:
        changes = await asyncio.wait_for(collect(store, "/a/", after, up_to=last), 30)
        seen = [(change.revision, change.key, change.value, change.previous) for change in changes]
        assert seen == [entry for entry in log if entry[0] > after]
