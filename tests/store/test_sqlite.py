"""What only the SQLite store has: one process per file, recovery after being killed, keys that expire."""

import asyncio
import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from tests.waiting import eventually

from dray.clock import SimulatedClock
from dray.store import sqlite_tables as tables
from dray.store.errors import Conflict, StoreError, StoreInUse, StoreUnavailable
from dray.store.group_commit import LONG_VALUE
from dray.store.interface import Precondition, Put
from dray.store.sqlite import SqliteStore

# Writes as fast as it can and prints the number of each acknowledged write.
WRITER = """
import asyncio, sys
from pathlib import Path
from dray.store.sqlite import SqliteStore

async def main():
    store = SqliteStore(Path(sys.argv[1]))
    async def write(writer):
        number = 0
        while True:
            key = f"/w/{sys.argv[2]}/{writer}/{number}"
            await store.create(key, key.encode() * 50)
            sys.stdout.write(key + "\\n")
            sys.stdout.flush()
            number += 1
    await asyncio.gather(*(write(writer) for writer in range(8)))

asyncio.run(main())
"""


def start_writer(path: Path, run: int) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(run)], stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("rounds", [3, pytest.param(20, marks=pytest.mark.torture)])
async def test_kill_loses_nothing_acknowledged(tmp_path: Path, rounds: int) -> None:
    path = tmp_path / "dray.db"
    acknowledged: list[str] = []
    for run in range(rounds):
        writer = start_writer(path, run)
        assert writer.stdout is not None
        acknowledged += [writer.stdout.readline().strip() for _ in range(20 + run % 5 * 15)]
        writer.send_signal(signal.SIGKILL)
        lines = writer.stdout.read().split("\n")
        writer.wait()
        acknowledged += lines[:-1]  # the last line may be cut short
        store = SqliteStore(path)
        page = await store.list("/w/")
        stored = {entry.key for entry in page.entries}
        assert stored.issuperset(acknowledged)
        assert all(entry.value == entry.key.encode() * 50 for entry in page.entries)
        assert sorted(entry.revision for entry in page.entries) == list(range(1, len(page.entries) + 1))
        await store.close()
    assert len(acknowledged) > rounds * 5


async def test_a_second_opening_is_refused_by_name(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "dray.db")
    with pytest.raises(StoreInUse, match=rf"dray.db is in use by another process \(pid {os.getpid()}\)"):
        SqliteStore(tmp_path / "dray.db")
    (tmp_path / "link.db").symlink_to(tmp_path / "dray.db")
    with pytest.raises(StoreInUse):
        SqliteStore(tmp_path / "link.db")
    await store.close()
    await SqliteStore(tmp_path / "dray.db").close()


async def test_the_holder_is_named_whoever_held_the_file_before(tmp_path: Path) -> None:
    (tmp_path / "dray.db.lock").write_text("12345678901234567890\n")
    store = SqliteStore(tmp_path / "dray.db")
    with pytest.raises(StoreInUse, match=rf"\(pid {os.getpid()}\)"):
        SqliteStore(tmp_path / "dray.db")
    await store.close()


async def test_a_second_process_is_refused(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "dray.db")
    writer = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", WRITER, str(tmp_path / "dray.db"), "0"), stderr=asyncio.subprocess.PIPE
    )
    _, errors = await writer.communicate()
    assert b"is in use by another process" in errors
    await store.close()


async def test_the_file_is_for_its_owner_only(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "dray.db")
    assert (tmp_path / "dray.db").stat().st_mode & 0o077 == 0
    await store.close()


async def test_a_foreign_file_is_left_alone(tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("CREATE TABLE things (a)")
    other.close()
    with pytest.raises(StoreError, match="something else"):
        SqliteStore(tmp_path / "other.db")
    (tmp_path / "text.db").write_text("this is not a database, and long enough to be noticed as such" * 20)
    with pytest.raises(StoreUnavailable, match="cannot open"):
        SqliteStore(tmp_path / "text.db")


async def test_keys_expire_also_across_a_restart_unless_written_again(tmp_path: Path) -> None:
    clock = SimulatedClock()
    store = SqliteStore(tmp_path / "dray.db", clock)
    await store.create("/e/short", b"", ttl_s=60)
    await store.create("/e/renewed", b"", ttl_s=60)
    await store.create("/e/kept", b"", ttl_s=60)
    await store.create("/e/long", b"", ttl_s=3600)
    await store.commit([Put("/e/renewed", b"", ttl_s=3600)])
    await store.commit([Put("/e/kept", b"")])
    await store.close()
    store = SqliteStore(tmp_path / "dray.db", clock)
    await clock.advance(50)
    assert len((await store.list("/e/")).entries) == 4
    await clock.advance(30)

    async def some_expired() -> bool:
        return len((await store.list("/e/")).entries) < 4

    await eventually(some_expired, "keys to expire")
    assert [entry.key for entry in (await store.list("/e/")).entries] == ["/e/kept", "/e/long", "/e/renewed"]
    await store.close()


async def test_compaction_gives_space_back(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "dray.db")
    revision = await store.create("/a/x", b"0")
    for _ in range(300):
        revision = await store.update("/a/x", b"x" * 1000, revision)
    for number in range(50):
        await store.delete("/b", await store.create("/b", str(number).encode()))
    await store.compact(await store.current_revision())
    await store.close()
    database = sqlite3.connect(tmp_path / "dray.db")
    assert database.execute("SELECT key FROM versions").fetchall() == [("/a/x",)]
    database.close()


async def test_revisions_never_go_back_even_if_the_last_commit_is_forgotten(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "dray.db")
    last = await store.delete("/a", await store.create("/a", b""))
    await store.compact(last)
    await store.close()
    store = SqliteStore(tmp_path / "dray.db")
    assert await store.current_revision() == last
    assert await store.create("/a", b"") == last + 1
    await store.close()


async def test_a_full_disk_is_an_answer_and_not_the_end(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "dray.db")
    first = await store.create("/a", b"1")
    store._writing.execute("PRAGMA max_page_count = 20")
    with pytest.raises(StoreUnavailable, match="full"):
        await store.create("/big", b"x" * 1_000_000)
    store._writing.execute("PRAGMA max_page_count = 1000000")
    assert await store.update("/a", b"2", first) == first + 1
    assert await store.get("/big") is None
    await store.close()


async def test_a_caller_that_gives_up_does_not_stop_others(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "dray.db")
    impatient = asyncio.ensure_future(store.create("/a", b"1"))
    patient = asyncio.ensure_future(store.create("/b", b"1"))
    await asyncio.sleep(0)
    impatient.cancel()
    assert await patient > 0
    assert await store.get("/a") is not None
    await store.close()


def pages_of(path: Path) -> int:
    """How many pages of a file this process has mapped and touched: they count as its memory."""
    counts, is_ours = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, *rest = line.split()
        if not first.endswith(":"):
            is_ours = bool(rest) and rest[-1] == str(path)
        elif is_ours and first == "Rss:":
            counts += int(rest[0]) * 1024 // os.sysconf("SC_PAGE_SIZE")
    return counts


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="only Linux tells which pages of a file are mapped")
async def test_forgetting_the_past_takes_no_memory_for_it(tmp_path: Path) -> None:
    path = tmp_path.resolve() / "dray.db"
    store = SqliteStore(path)
    for round_number in range(2):
        value = bytes([round_number]) * 2000
        await asyncio.gather(*(store.commit([Put(f"/a/{number}", value)]) for number in range(3000)))
    before = pages_of(path)
    await store.compact(await store.current_revision())
    assert path.stat().st_size > 2000 * os.sysconf("SC_PAGE_SIZE")
    assert pages_of(path) - before < 100
    await store.close()


class Unwell(sqlite3.Connection):
    """A file that at times cannot be read."""

    is_ill = False

    def execute(self, sql, *arguments):
        if Unwell.is_ill and sql.startswith("SELECT"):
            raise sqlite3.OperationalError("disk I/O error")
        return super().execute(sql, *arguments)


async def _follow(store):
    async with contextlib.aclosing(store.watch("/", 0)) as batches:
        return (await anext(batches)).revision


READS = {
    "get": lambda store: store.get("/a"),
    "get many": lambda store: store.get_many(["/a", "/b"]),
    "list": lambda store: store.list("/"),
    "watch the past": _follow,
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
async def test_a_read_that_fails_says_so_and_the_next_one_is_not_the_worse_for_it(tmp_path, monkeypatch, read):
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *given, **named: connect(*given, **named, factory=Unwell))
    store = SqliteStore(tmp_path / "state.db")
    for key in ("/a", "/b"):
        await store.create(key, b"{}")
    before = await read(store)
    await store.close()
    # Opened anew it remembers no row that it wrote or read.
    store = SqliteStore(tmp_path / "state.db")
    monkeypatch.setattr(Unwell, "is_ill", True)
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="cannot read the store: disk I/O error"):
            await read(store)
    monkeypatch.setattr(Unwell, "is_ill", False)
    assert await read(store) == before
    await store.close()


async def test_keys_that_are_written_again_and_again_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as the leases of 15,000 nodes, whose renewals come round every ten seconds."""
    store = SqliteStore(tmp_path / "dray.db")
    keys = [f"/leases/node-{number}" for number in range(15_000)]
    batches = [[Put(key, b"held") for key in keys[first : first + 100]] for first in range(0, len(keys), 100)]
    await asyncio.gather(*map(store.commit, batches))
    read: list[str] = []
    original = tables.read_row

    def counted(connection: sqlite3.Connection, key: str) -> tables.Row | None:
        read.append(key)
        return original(connection, key)

    monkeypatch.setattr(tables, "read_row", counted)
    await asyncio.gather(*map(store.commit, batches))
    assert read == []
    await store.close()


async def test_long_values_are_not_remembered_and_never_hide_behind_an_older_short_one(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "dray.db")
    long = b"x" * (LONG_VALUE + 1)
    revision = 0
    for value in (b"short", long, b"short again", long + b"!", b"last"):
        revision = await store.commit([Put("/a", value)], [Precondition("/a", revision)])
        entry = await store.get("/a")
        assert entry is not None
        assert (entry.value, entry.revision) == (value, revision)
        assert all(len(row[1]) <= LONG_VALUE for row in store._commits.recent.values() if row)
    with pytest.raises(Conflict):
        await store.commit([Put("/a", b"late")], [Precondition("/a", 1)])
    await store.close()
