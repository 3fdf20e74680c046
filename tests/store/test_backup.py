"""Copies of a store in use, and stores made from them."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.store.conftest import free_port, start_etcd
from tests.waiting import eventually

from dray.store.backup import REVISIONS_SKIPPED, Backup, BackupSource, EtcdSource, NotRestorable, SqliteSource
from dray.store.errors import Compacted, StoreError
from dray.store.etcd import EtcdStore
from dray.store.interface import Delete, Put, Store
from dray.store.sqlite import SqliteStore
from dray.store.store_url import StoreAddress

State = dict[str, bytes]


@pytest.fixture(params=["sqlite", "etcd"])
async def source(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[Store, BackupSource]]:
    if request.param == "sqlite":
        store: Store = SqliteStore(tmp_path / "store.db")
        yield store, SqliteSource(tmp_path / "store.db")
        await store.close()
        return
    port = free_port()
    process = start_etcd(tmp_path / "etcd", port)
    etcd = await EtcdStore.open(StoreAddress.parse(f"etcd://127.0.0.1:{port}/a"))
    yield etcd, EtcdSource(etcd)
    await etcd.close()
    process.kill()
    process.wait()


async def state_of(store: Store) -> State:
    return {entry.key: entry.value for entry in (await store.list("/registry/")).entries}


async def restored(backup: Backup, revision: int, target: Path) -> State:
    backup.restore_file(revision, target)
    store = SqliteStore(target)
    try:
        return await state_of(store)
    finally:
        await store.close()


async def change_something(store: Store, chance: random.Random) -> None:
    key = f"/registry/things/{chance.randrange(12)}"
    other = f"/registry/others/{chance.randrange(4)}"
    operation = Delete(key) if chance.random() < 0.3 else Put(key, b"%d" % chance.randrange(1000))
    await store.commit([operation, Put(other, b"%d" % chance.randrange(1000))])


@pytest.mark.parametrize("seed", [1, 2])
async def test_every_revision_between_two_copies_can_be_restored(source, tmp_path, seed):
    store, place = source
    chance = random.Random(seed)
    states: dict[int, State] = {}
    with closing(Backup(tmp_path / "b")) as backup:
        for copies in range(4):
            for _ in range(15):
                await change_something(store, chance)
                if copies:
                    states[await store.current_revision()] = await state_of(store)
            await backup.copy(place, now=float(copies))
            states[backup.revision] = await state_of(store)
        assert backup.gaps() == []
        for number, revision in enumerate(chance.sample(sorted(states), 12)):
            assert await restored(backup, revision, tmp_path / f"restored-{number}.db") == states[revision]
        assert backup.moment_at(2.5) == (2.0, backup.moments()[2][1])
        with pytest.raises(NotRestorable, match="was made later"):
            backup.moment_at(-1.0)


async def test_what_the_source_forgot_is_a_gap_and_the_copies_are_whole(source, tmp_path):
    store, place = source
    chance = random.Random(3)
    with closing(Backup(tmp_path / "b")) as backup:
        await change_something(store, chance)
        await store.commit([Put("/registry/stays", b"x"), Put("/registry/goes", b"x")])
        await backup.copy(place, now=1.0)
        first, before = backup.revision, await state_of(store)
        await store.commit([Delete("/registry/goes")])
        for _ in range(20):
            await change_something(store, chance)
        await store.compact(await store.current_revision())
        await backup.copy(place, now=2.0)
        assert backup.gaps() == [(first, backup.revision)]
        with pytest.raises(NotRestorable, match=f"nothing was copied between {first} and {backup.revision}"):
            backup.restore_file(first + 3, tmp_path / "no.db")
        assert await restored(backup, first, tmp_path / "first.db") == before
        assert await restored(backup, backup.revision, tmp_path / "last.db") == await state_of(store)
        assert not (tmp_path / "no.db").exists()


async def test_watches_of_the_lost_store_begin_anew(tmp_path):
    """A client that saw revision 900 of the lost store must not wait for 901 of the restored one."""
    store = SqliteStore(tmp_path / "store.db")
    await store.create("/registry/a", b"1")
    with closing(Backup(tmp_path / "b")) as backup:
        await backup.copy(SqliteSource(tmp_path / "store.db"), now=1.0)
        seen = await store.create("/registry/lost", b"2")
        await store.close()
        backup.restore_file(backup.revision, tmp_path / "new.db")
        copied = backup.revision
    new = SqliteStore(tmp_path / "new.db")
    assert await new.current_revision() == copied + REVISIONS_SKIPPED
    with pytest.raises(Compacted):
        await anext(new.watch("/registry/", seen))
    entry = await new.get("/registry/a")
    assert entry is not None
    await new.update("/registry/a", b"3", entry.revision)
    await new.close()


async def test_copies_go_on_after_a_restore(tmp_path):
    store = SqliteStore(tmp_path / "store.db")
    await store.create("/registry/a", b"1")
    with closing(Backup(tmp_path / "b")) as backup:
        await backup.copy(SqliteSource(tmp_path / "store.db"), now=1.0)
        await store.close()
        backup.restore_file(backup.revision, tmp_path / "new.db")
        new = SqliteStore(tmp_path / "new.db")
        await new.create("/registry/b", b"2")
        await backup.copy(SqliteSource(tmp_path / "new.db"), now=2.0)
        assert await restored(backup, backup.revision, tmp_path / "again.db") == await state_of(new)
        await new.close()


async def test_backup_of_another_cluster_is_refused(tmp_path):
    with closing(Backup(tmp_path / "b")) as backup:
        for name in ("one", "two"):
            store = SqliteStore(tmp_path / f"{name}.db")
            await store.create("/registry/a", name.encode())
            await store.close()
        await backup.copy(SqliteSource(tmp_path / "one.db"), now=1.0)
        with pytest.raises(StoreError, match="the backup of another cluster"):
            await backup.copy(SqliteSource(tmp_path / "two.db"), now=2.0)
        assert len(backup.moments()) == 1


async def test_restore_into_etcd_and_only_into_an_empty_one(tmp_path):
    store = SqliteStore(tmp_path / "store.db")
    for start in (0, 125):
        await store.commit(
            [Put(f"/registry/{number:03}", b"%d" % number * 3000) for number in range(start, start + 125)]
        )
    await store.create("/registry/event", b"e", ttl_s=600)
    port = free_port()
    process = start_etcd(tmp_path / "etcd", port)
    try:
        etcd = await EtcdStore.open(StoreAddress.parse(f"etcd://127.0.0.1:{port}/a"))
        with closing(Backup(tmp_path / "b")) as backup:
            await backup.copy(SqliteSource(tmp_path / "store.db"), now=1.0)
            assert await backup.restore_into(backup.revision, etcd) == 251
            assert await state_of(etcd) == await state_of(store)
            assert await etcd.expiring_keys() == {"/registry/event"}
            with pytest.raises(NotRestorable, match="needs an empty one"):
                await backup.restore_into(backup.revision, etcd)
        await etcd.close()
    finally:
        process.kill()
        process.wait()
        await store.close()


async def test_what_exists_is_never_written_over(tmp_path):
    store = SqliteStore(tmp_path / "store.db")
    await store.create("/registry/a", b"1")
    with closing(Backup(tmp_path / "b")) as backup:
        await backup.copy(SqliteSource(tmp_path / "store.db"), now=1.0)
        with pytest.raises(NotRestorable, match="exists"):
            backup.restore_file(backup.revision, tmp_path / "store.db")
        with pytest.raises(NotRestorable, match="knows revisions 1 to 1, not 7"):
            backup.restore_file(7, tmp_path / "new.db")
    assert await state_of(store) == {"/registry/a": b"1"}
    await store.close()


async def test_a_restore_that_was_cut_off_is_begun_anew(tmp_path):
    store = SqliteStore(tmp_path / "store.db")
    await store.create("/registry/a", b"1")
    (tmp_path / "new.db.restoring").write_text("half of a file, " * 1000)
    with closing(Backup(tmp_path / "b")) as backup:
        await backup.copy(SqliteSource(tmp_path / "store.db"), now=1.0)
        assert await restored(backup, backup.revision, tmp_path / "new.db") == await state_of(store)
    await store.close()


def test_files_that_are_no_backup(tmp_path):
    (tmp_path / "text").write_text("no database at all, " * 200)
    with closing(sqlite3.connect(tmp_path / "other")) as other:
        other.execute("CREATE TABLE t (x)")
    (tmp_path / "empty").touch()
    for name, said in (("text", "no backup"), ("other", "no backup"), ("empty", "is empty"), ("absent", "not exist")):
        with pytest.raises(StoreError, match=said):
            Backup(tmp_path / name, must_exist=True)
    assert not (tmp_path / "absent").exists()


async def test_newer_layout_is_refused_with_a_sentence(tmp_path):
    await SqliteStore(tmp_path / "store.db").close()
    with closing(sqlite3.connect(tmp_path / "store.db")) as file:
        file.execute("UPDATE numbers SET value = 2 WHERE name = 'schema'")
        file.commit()
    with pytest.raises(StoreError, match="written by a newer release of dray"):
        SqliteStore(tmp_path / "store.db")
    with closing(Backup(tmp_path / "b")) as backup, pytest.raises(StoreError, match="newer release"):
        await backup.copy(SqliteSource(tmp_path / "store.db"), now=1.0)


async def test_copy_that_is_killed_leaves_a_whole_file(tmp_path):
    """`kill -9` at random moments while the store is written: whatever the file then holds can be restored and was once true."""
    store = SqliteStore(tmp_path / "store.db")
    states: dict[int, State] = {}
    chance = random.Random(5)
    await store.create("/registry/first", b"1")
    command = [sys.executable, "-m", "dray", "backup", str(tmp_path / "b"), "--store", f"sqlite://{tmp_path}/store.db"]
    for _ in range(4):
        copying = start([*command, "--every", "0.1"])
        before = moments(tmp_path / "b")

        async def writes_until_copied(before: int = before) -> bool:
            for _ in range(10):
                await change_something(store, chance)
                states[await store.current_revision()] = await state_of(store)
            return moments(tmp_path / "b") > before

        await eventually(writes_until_copied, "a copy", within_s=60)
        for _ in range(chance.randrange(40)):
            await change_something(store, chance)
            states[await store.current_revision()] = await state_of(store)
        os.kill(copying.pid, signal.SIGKILL)
        copying.wait()
    with closing(Backup(tmp_path / "b", must_exist=True)) as backup:
        for number, (_, revision) in enumerate(backup.moments()[1:]):
            assert await restored(backup, revision, tmp_path / f"r{number}.db") == states[revision]
    await store.close()


def start(command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def moments(path: Path) -> int:
    if not path.exists():
        return 0
    try:
        with closing(Backup(path)) as backup:
            return len(backup.moments())
    except StoreError:
        return 0
