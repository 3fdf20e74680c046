"""Where commits wait for the disk, and which of them wait together."""

import asyncio
import contextlib
import sqlite3
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.waiting import eventually, let_others_run

from dray.store import sqlite
from dray.store import sqlite_tables as tables
from dray.store.errors import StoreUnavailable
from dray.store.group_commit import LONG_VALUE, QUICK_S, REMEMBERED, DiskCommit
from dray.store.interface import Put
from dray.store.sqlite import SqliteStore


class Stopwatch:
    """Goes on only while a COMMIT takes its time, so that the real disk has no say."""

    elapsed_s = 0.0

    def monotonic(self) -> float:
        return self.elapsed_s


class Watched(sqlite3.Connection):
    """Notes in which thread each COMMIT ran; takes as long as it is told, or fails."""

    stopwatch = Stopwatch()
    takes_s = 0.0
    fails = False

    def execute(self, sql: str, *arguments: object) -> sqlite3.Cursor:
        if sql == "COMMIT":
            self.threads.append(threading.current_thread().name)
            self.stopwatch.elapsed_s += self.takes_s
            if self.apart[-1]:
                time.sleep(0.05)
            if self.fails:
                raise sqlite3.OperationalError("disk I/O error")
        return super().execute(sql, *arguments)

    @property
    def threads(self) -> list[str]:
        noted: list[str] = self.__dict__.setdefault("noted", [])
        return noted

    @property
    def apart(self) -> list[bool]:
        return [name.startswith("store-commit") for name in self.threads]


@pytest.fixture
async def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SqliteStore]:
    connect = sqlite3.connect
    monkeypatch.setattr(tables.sqlite3, "connect", lambda *a, **k: connect(*a, factory=Watched, **k))
    monkeypatch.setattr(DiskCommit.__init__, "__defaults__", (Watched.stopwatch.monotonic,))
    opened = SqliteStore(tmp_path / "dray.db")
    opened._writing.threads.clear()
    yield opened
    opened._writing.takes_s = 0.0
    opened._writing.fails = False
    await opened.close()


async def test_a_quick_disk_is_waited_for_on_the_loop(store: SqliteStore) -> None:
    for number in range(5):
        await store.create(f"/a/{number}", b"")
    assert store._writing.apart == [False] * 5


async def test_what_is_not_on_the_disk_yet_is_not_read(store: SqliteStore) -> None:
    """A long value is not remembered, so it is read from the file, beside the connection that is just writing it."""
    before, after = b"1" * 2 * LONG_VALUE, b"2" * 2 * LONG_VALUE
    await store.create("/a/long", before)
    store._writing.takes_s = 2 * REMEMBERED * QUICK_S
    await store.create("/a/slow", b"")
    writing = asyncio.create_task(store.commit([Put("/a/long", after)]))
    await eventually(lambda: store._writing.apart[-1], "the commit to be under way", pause_s=0)
    seen = await store.get("/a/long")
    assert seen is not None
    assert seen.value == before
    await writing
    seen = await store.get("/a/long")
    assert seen is not None
    assert seen.value == after


class Turns:
    """Counts the turns of the loop."""

    count = 0

    async def go_on(self) -> None:
        while True:
            self.count += 1
            await let_others_run()


async def test_others_have_their_turn_while_a_history_is_read(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "READ_CHUNK", 2)
    start = await store.create("/a/start", b"")
    for number in range(6):
        await store.create(f"/a/{number}", b"")
    turns = Turns()
    turning = asyncio.create_task(turns.go_on())
    async with contextlib.aclosing(store.watch("/a/", start)) as batches:
        found = [await anext(batches) for _ in range(3)]
    turning.cancel()
    assert sum(len(batch.changes) for batch in found) >= 3
    assert turns.count >= 2


async def test_a_slow_disk_gets_a_thread_until_it_is_quick_again(store: SqliteStore) -> None:
    connection = store._writing
    connection.takes_s = 2 * REMEMBERED * QUICK_S
    await store.create("/a/slow", b"")
    turns = Turns()
    turning = asyncio.create_task(turns.go_on())
    await store.create("/a/slow-too", b"")
    turning.cancel()
    assert connection.apart == [False, True]
    assert turns.count > 10, "the loop went on while the disk was slow"

    connection.takes_s = 0.0
    for number in range(4 * REMEMBERED):
        await store.create(f"/a/{number}", b"")
    assert not connection.apart[-1]


async def test_one_long_wait_among_short_ones_is_no_reason_for_a_thread(store: SqliteStore) -> None:
    """SQLite tidies up every few hundred writes."""
    store._writing.takes_s = REMEMBERED * QUICK_S / 2
    await store.create("/a/tidying", b"")
    store._writing.takes_s = 0.0
    await store.create("/a/next", b"")
    assert store._writing.apart == [False, False]


@pytest.mark.parametrize("takes_s", [0.0, 2 * REMEMBERED * QUICK_S], ids=["on the loop", "in the thread"])
async def test_a_commit_that_fails_is_answered_and_the_next_one_works(store: SqliteStore, takes_s: float) -> None:
    store._writing.takes_s = takes_s
    first = await store.create("/a", b"1")
    store._writing.takes_s = 0.0
    store._writing.fails = True
    with pytest.raises(StoreUnavailable, match="disk I/O error"):
        await store.update("/a", b"2", first)
    assert store._writing.apart[-1] is (takes_s > 0)
    store._writing.fails = False
    assert await store.update("/a", b"3", first) == first + 1


async def test_what_comes_in_the_next_turns_shares_a_group(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dray.store.group_commit.GATHER_S", 60.0)

    async def later(turns: int) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        await store.commit([Put(f"/a/{turns}", b"")])

    await asyncio.gather(*(later(turns) for turns in range(10)))
    assert len(store._writing.threads) == 1


async def test_a_group_does_not_wait_for_ever_for_more(store: SqliteStore) -> None:
    """Somebody writes in every single turn, until the first of them has an answer."""
    first = asyncio.create_task(store.commit([Put("/a/first", b"")]))
    writers = []
    async with asyncio.timeout(30):
        while not first.done():
            writers.append(asyncio.create_task(store.commit([Put(f"/a/{len(writers)}", b"")])))
            await asyncio.sleep(0)
    await asyncio.gather(*writers)
    assert len(store._writing.threads) > 1


async def test_a_lone_writer_is_not_kept_waiting(store: SqliteStore) -> None:
    loop = asyncio.get_running_loop()
    turns = 0

    def turn() -> None:
        nonlocal turns
        turns += 1
        if turns < 100:
            loop.call_soon(turn)

    turn()
    await store.create("/a", b"")
    assert turns < 10


async def test_closing_waits_for_the_thread(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "x.db", isolation_level=None, check_same_thread=False)
    disk = DiskCommit(connection)
    connection.execute("CREATE TABLE t (a)")
    connection.execute("BEGIN")
    connection.execute("INSERT INTO t VALUES (1)")
    await disk.commit_apart()
    disk.close()
    assert connection.execute("SELECT a FROM t").fetchall() == [(1,)]
    connection.close()
