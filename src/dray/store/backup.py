"""Copies a store into a backup file while it is in use, and makes a store from it as of any moment that the file knows.

A backup file is a store file that forgets nothing. Each copy adds what changed since the last one, in one transaction, so a copy that dies leaves the
file as it was. The source keeps only some minutes of its past: if more time has passed since the last copy, the present is compared with it, and
the revisions in between are a gap.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from dray.atomic_files import sync_folder
from dray.store import sqlite_tables as tables
from dray.store.errors import Compacted, StoreError
from dray.store.etcd import TICK, EtcdStore
from dray.store.interface import Change, Entry, Put, Store
from dray.store.store_base import MAX_OPERATIONS

_SCHEMA = """
CREATE TABLE IF NOT EXISTS moments (at REAL NOT NULL, revision INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS gaps (after INTEGER NOT NULL, before INTEGER NOT NULL);
"""
# A restored store goes on from here after the last revision of the backup. Clients that saw later revisions of the lost store then read everything anew.
REVISIONS_SKIPPED = 1_000_000
# Deletions that are found by comparison stand behind the values that were written by the same commit.
_FIRST_DELETION = tables.MAX_OPERATIONS // 2
# etcd does not tell when a key expires, only that it does.
EXPIRES_AFTER_S = 3600
_BYTES_OF_ONE_COMMIT = 500_000
# Where objects lie. A store without them may still hold etcd's tick.
OBJECTS = "/registry/"
# The end of the year 9999, in seconds since 1970.
LAST_MOMENT = 253402300799
# The sequence numbers of a later one would not fit into the file.
LAST_REVISION = (2**63 - 1) // tables.MAX_OPERATIONS - 2_000_000
# How many of the oldest keys are looked at to tell one cluster from another; most of them never change.
_COMPARED_KEYS = 50


class NotRestorable(StoreError):
    """The backup does not know the moment that was asked for, or the target is in use."""


class CopiedVersion(NamedTuple):
    """One value of a key, None where the key was deleted; `seq` as in a store file: revision and place in the commit."""

    seq: int
    key: str
    value: bytes | None
    created: int


@dataclass(frozen=True, slots=True)
class Portion:
    """What changed since the last copy, or (`is_whole`) all there is. To be read before the source is left."""

    revision: int
    is_whole: bool
    versions: Iterable[CopiedVersion]
    expiries: dict[str, int]


class BackupSource(Protocol):
    def portion(self, after: int, now_s: int) -> AbstractAsyncContextManager[Portion]:
        """What changed after a revision, where the source still knows; otherwise everything."""
        ...

    async def find(self, key: str) -> Entry | None: ...


class SqliteSource:
    """A store file; a server may be writing it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @asynccontextmanager
    async def portion(self, after: int, now_s: int) -> AsyncIterator[Portion]:
        with _opened(self._path) as connection:
            connection.execute("BEGIN")
            revision, compacted = tables.number(connection, "revision"), tables.number(connection, "compacted")
            is_whole = not after or after < compacted
            rows = tables.read_current(connection) if is_whole else tables.read_since(connection, after)
            yield Portion(revision, is_whole, map(CopiedVersion._make, rows), tables.read_expiries(connection))

    async def find(self, key: str) -> Entry | None:
        with _opened(self._path) as connection:
            row = tables.read_row(connection, key)
            return tables.entry_of(row) if row else None


class EtcdSource:
    def __init__(self, store: EtcdStore) -> None:
        self._store = store

    @asynccontextmanager
    async def portion(self, after: int, now_s: int) -> AsyncIterator[Portion]:
        expiries = dict.fromkeys(await self._store.expiring_keys(), now_s + EXPIRES_AFTER_S)
        yield (after and await self._since(after, expiries)) or await self._whole(expiries)

    async def find(self, key: str) -> Entry | None:
        return await self._store.get(key)

    async def _whole(self, expiries: dict[str, int]) -> Portion:
        page = await self._store.list("")
        return Portion(page.revision, True, _numbered(page.entries), expiries)

    async def _since(self, after: int, expiries: dict[str, int]) -> Portion | None:
        """None if etcd has forgotten a part of it."""
        up_to = await self._store.current_revision()
        changes: list[Change] = []
        try:
            async with aclosing(self._store.watch("", after)) as watch:
                while after < up_to:
                    batch = await anext(watch)
                    after = batch.revision
                    changes += (change for change in batch.changes if change.revision <= up_to)
        except Compacted:
            return None
        return Portion(up_to, False, _numbered(changes), expiries)


def _numbered(found: Iterable[Entry | Change]) -> Iterator[CopiedVersion]:
    """Each with its place among those of the same revision."""
    seen: Counter[int] = Counter()
    for each in found:
        yield CopiedVersion(tables.first_seq(each.revision) + seen[each.revision], each.key, each.value, each.created)
        seen[each.revision] += 1


# --- the backup file


class Backup:
    """A backup file; made where there is none. Close it after use."""

    def __init__(self, path: Path, *, must_exist: bool = False) -> None:
        if must_exist and not path.exists():
            raise StoreError(f"{path} does not exist")
        self.path = path
        try:
            self._connection = tables.connect_writer(path)
            path.chmod(0o600)
            self._prepare(must_exist)
        except (sqlite3.Error, TypeError, ValueError, OverflowError) as error:
            raise StoreError(f"{path} is no backup that can be read: {error}") from error

    def _prepare(self, must_exist: bool) -> None:
        names = tables.names(self._connection)
        if names and "moments" not in names:
            raise StoreError(f"{self.path} is an SQLite file, but no backup")
        if must_exist and not names:
            raise StoreError(f"{self.path} is empty")
        tables.prepare(self._connection, self.path)
        self._connection.executescript(_SCHEMA)

    def close(self) -> None:
        self._connection.close()

    @property
    def revision(self) -> int:
        """The last one that was copied; 0 if none was."""
        with _damage_named(self.path):
            return int(_number(tables.number(self._connection, "revision"), LAST_REVISION))

    def moments(self) -> list[tuple[float, int]]:
        """When something new was copied, in seconds since 1970, and up to which revision; oldest first."""
        with _damage_named(self.path):
            found = self._connection.execute("SELECT at, revision FROM moments ORDER BY rowid").fetchall()
            return [(_number(at, LAST_MOMENT), int(_number(revision, LAST_REVISION))) for at, revision in found]

    def gaps(self) -> list[tuple[int, int]]:
        """Revisions of which the states in between are not known."""
        with _damage_named(self.path):
            found = self._connection.execute("SELECT after, before FROM gaps ORDER BY after").fetchall()
            return [
                (int(_number(after, LAST_REVISION)), int(_number(before, LAST_REVISION))) for after, before in found
            ]

    async def copy(self, source: BackupSource, now: float) -> int:
        """Adds what the source has and the file has not, and returns the number of versions that were added."""
        last = self.revision
        if last and not await self._is_of(source):
            raise StoreError(f"{self.path} is the backup of another cluster")
        async with source.portion(last, int(now)) as portion:
            with _transaction(self._connection):
                return self._add(portion, last, now)

    async def _is_of(self, source: BackupSource) -> bool:
        """Whether the source has one of our oldest values, unchanged."""
        for entry in tables.read_oldest(self._connection, _COMPARED_KEYS):
            found = await source.find(entry.key)
            if found is not None and (found.revision, found.value) == (entry.revision, entry.value):
                return True
        return False

    def _add(self, portion: Portion, last: int, now: float) -> int:
        added = self._add_all(portion) if portion.is_whole else self._add_changes(portion.versions)
        if portion.is_whole and last:
            self._connection.execute("INSERT INTO gaps VALUES (?, ?)", (last, portion.revision))
        tables.replace_expiries(self._connection, portion.expiries)
        tables.set_number(self._connection, "revision", portion.revision)
        if portion.revision != last:
            self._connection.execute("INSERT INTO moments VALUES (?, ?)", (now, portion.revision))
        return added

    def _add_changes(self, versions: Iterable[CopiedVersion]) -> int:
        added = 0
        for version in versions:
            tables.enter_version(self._connection, *version)
            added += 1
        return added

    def _add_all(self, portion: Portion) -> int:
        """Values that are not known yet; a key that the source lacks was deleted meanwhile."""
        known = tables.read_revisions(self._connection)
        new = (each for each in portion.versions if known.pop(each.key, 0) != tables.revision_of(each.seq))
        added = self._add_changes(new)
        first = tables.first_seq(portion.revision) + _FIRST_DELETION
        return added + self._add_changes(CopiedVersion(first + at, key, None, 0) for at, key in enumerate(known))

    # --- restoring

    def moment_at(self, time: float) -> tuple[float, int]:
        """The last copy by then: when, and its revision."""
        found = [moment for moment in self.moments() if moment[0] <= time]
        if not found:
            raise NotRestorable(f"the first copy in {self.path} was made later than that")
        return found[-1]

    def check_revision(self, revision: int) -> None:
        """Refuses a revision whose state the file does not know, and names the nearest that it knows."""
        moments = self.moments()
        if not moments:
            raise NotRestorable(f"{self.path} holds no copy")
        first, last = moments[0][1], moments[-1][1]
        if not first <= revision <= last:
            raise NotRestorable(f"{self.path} knows revisions {first} to {last}, not {revision}")
        for after, before in self.gaps():
            if after < revision < before:
                raise NotRestorable(
                    f"{self.path} does not know revision {revision}: nothing was copied between {after} and {before}"
                )

    def restore_file(self, revision: int, target: Path) -> int:
        """Makes a store file of the state at a revision and returns the number of its keys. All or nothing."""
        self.check_revision(revision)
        if target.exists():
            raise NotRestorable(f"{target} exists; a restore never writes over a store")
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        unfinished = target.with_name(f"{target.name}.restoring")
        unfinished.unlink(missing_ok=True)
        with _damage_named(self.path), closing(tables.connect_writer(unfinished)) as connection:
            unfinished.chmod(0o600)
            tables.prepare(connection, unfinished)
            with _transaction(connection):
                count = self._fill(connection, revision)
            connection.execute("PRAGMA journal_mode=DELETE")
        unfinished.rename(target)
        sync_folder(target.parent)
        return count

    def _fill(self, connection: sqlite3.Connection, revision: int) -> int:
        count = 0
        expiries = tables.read_expiries(self._connection)
        for seq, key, value, created in tables.read_versions_at(self._connection, revision):
            tables.enter_version(connection, seq, key, value, created)
            if key in expiries:
                tables.set_expiry(connection, key, expiries[key])
            count += 1
        goes_on = self.revision + REVISIONS_SKIPPED
        tables.set_number(connection, "revision", goes_on)
        tables.set_number(connection, "compacted", goes_on)
        tables.set_number(connection, "swept", tables.first_seq(goes_on))
        return count

    async def restore_into(self, revision: int, store: Store) -> int:
        """Writes the state at a revision into an empty store. An etcd counts its own revisions, so they begin anew."""
        self.check_revision(revision)
        if (await store.list(OBJECTS, limit=1)).entries:
            raise NotRestorable("the store holds objects already; a restore needs an empty one")
        count = 0
        with _damage_named(self.path):
            for puts in self._commits_of(revision):
                await store.commit(puts)
                count += len(puts)
        return count

    def _commits_of(self, revision: int) -> Iterator[list[Put]]:
        """In portions that etcd takes."""
        expiries = tables.read_expiries(self._connection)
        puts: list[Put] = []
        size = 0
        for _, key, value, _ in tables.read_versions_at(self._connection, revision):
            if key == TICK:
                continue
            if puts and (len(puts) == MAX_OPERATIONS or size + len(value) > _BYTES_OF_ONE_COMMIT):
                yield puts
                puts, size = [], 0
            puts.append(Put(key, value, ttl_s=EXPIRES_AFTER_S if key in expiries else 0))
            size += len(value)
        if puts:
            yield puts


def _number(value: object, most: float) -> float:
    if not isinstance(value, (int, float)) or not 0 <= value <= most:
        raise ValueError(f"{value!r} is no number between 0 and {most}")
    return value


@contextmanager
def _damage_named(path: Path) -> Iterator[None]:
    """SQLite keeps what was written, of any type; a file that others had in their hands may hold anything."""
    try:
        yield
    except (sqlite3.Error, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise StoreError(f"{path} cannot be read or restored: {error}") from error


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A store file that somebody else may be writing; it is not made where there is none."""
    try:
        with closing(tables.connect_to_read_only(path)) as connection:
            tables.check_layout(connection, path)
            yield connection
    except sqlite3.Error as error:
        raise StoreError(f"cannot read {path}: {error}") from error


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
