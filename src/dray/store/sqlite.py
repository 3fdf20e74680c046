"""The store in one SQLite file: write-ahead log, full synchronisation, one writer, commits in groups, one process per file."""

import asyncio
import fcntl
import os
import sqlite3
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from dray.clock import Clock, RealClock
from dray.store import sqlite_tables as tables
from dray.store.errors import Compacted, FutureRevision, StoreError, StoreInUse, StoreUnavailable
from dray.store.group_commit import GroupCommit
from dray.store.interface import Batch, Change, Delete, Entry, Operation, Page, Precondition
from dray.store.store_base import (
    StoreBase,
    WatchQueues,
    changes_after,
    check_commit,
)


class FileLock:
    """Held from construction until `release`. The kernel drops it when the process dies, so nothing is ever stale.

    The lock is on a file of its own: closing any descriptor of the database file would drop SQLite's own locks.
    """

    def __init__(self, guarded: Path) -> None:
        self._descriptor = os.open(f"{guarded}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(self._descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(self._descriptor)
            raise StoreInUse(
                f"{guarded} is in use by another process (pid {holder}); stop it, or choose another data directory"
            ) from None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        os.close(self._descriptor)


# Rows read or dropped before the event loop gets its turn.
READ_CHUNK = 1000
SWEEP_CHUNK = 500
EXPIRY_INTERVAL_S = 5.0


class SqliteStore(StoreBase):
    """Opens (and recovers) the file at once; belongs to the event loop it is opened in."""

    def __init__(self, path: Path, clock: Clock | None = None) -> None:
        path = path.resolve()
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._clock = clock or RealClock()
        self._lock = FileLock(path)
        try:
            self._open(path)
        except (sqlite3.Error, StoreError) as error:
            self._lock.release()
            if isinstance(error, StoreError):
                raise
            raise StoreUnavailable(f"cannot open {path}: {error}") from error
        self._closed = False
        self._followers = WatchQueues()
        self._list_turn = asyncio.Lock()
        self._expiring = asyncio.get_running_loop().create_task(self._expire())

    def _open(self, path: Path) -> None:
        self._writing = tables.connect_writer(path)
        path.chmod(0o600)
        tables.prepare(self._writing, path)
        self._reading = tables.connect_reader(path)
        self._listing = tables.connect_reader(path)
        self._compacted = tables.number(self._writing, "compacted")
        self._commits = GroupCommit(self._writing, self._now_s, self._publish)

    def _now_s(self) -> int:
        return int(self._clock.now().timestamp())

    def _publish(self, revision: int, changes: list[Change]) -> None:
        self._followers.publish(revision, changes)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._expiring.cancel()
        await self._commits.close()
        self._followers.fail_all(StoreUnavailable("the store is closed"))
        for connection in (self._listing, self._reading, self._writing):
            connection.close()
        self._lock.release()

    # --- reading -----------------------------------------------------------------------------------------------------

    async def get(self, key: str) -> Entry | None:
        recent = self._commits.recent
        if key not in recent:
            return (await self.get_many([key])).get(key)
        row = recent[key]
        return tables.entry_of(row) if row else None

    async def get_many(self, keys: Sequence[str]) -> dict[str, Entry]:
        with _reads():
            rows = self._commits.rows(keys)
        if rows is None:
            with _one_moment(self._reading):
                rows = [tables.read_row(self._reading, key) for key in keys]
        return {row[0]: tables.entry_of(row) for row in rows if row}

    async def list(self, prefix: str, *, limit: int = 0, start_after: str = "", revision: int = 0) -> Page:
        async with self._list_turn:
            with _one_moment(self._listing):
                return await self._list_in_snapshot(prefix, limit, start_after, revision)

    async def _list_in_snapshot(self, prefix: str, limit: int, start_after: str, revision: int) -> Page:
        now = tables.number(self._listing, "revision")
        at = revision or now
        if at > now:
            raise FutureRevision(at, now)
        if at < self._compacted:
            raise Compacted(at, self._compacted)
        past = at if at < now else 0
        entries: list[Entry] = []
        for entry in tables.read_entries(self._listing, prefix, start_after, limit or -1, past):
            entries.append(entry)
            if len(entries) % READ_CHUNK == 0:
                await asyncio.sleep(0)
        remaining = 0
        if limit and len(entries) == limit:
            remaining = tables.count_entries(self._listing, prefix, entries[-1].key, past)
        return Page(tuple(entries), at, remaining)

    async def pages(self, prefix: str) -> AsyncGenerator[Page, None]:
        async with self._list_turn:
            with _one_moment(self._listing):
                revision = tables.number(self._listing, "revision")
                entries = tables.read_entries(self._listing, prefix, "", -1, 0)
                while page := tuple(islice(entries, READ_CHUNK)):
                    yield Page(page, revision)
                    await asyncio.sleep(0)
                yield Page((), revision)

    async def current_revision(self) -> int:
        """One process owns the file, so what it has acknowledged is all there is."""
        return self._commits.revision

    async def compacted_revision(self) -> int:
        return self._compacted

    # --- writing -----------------------------------------------------------------------------------------------------

    async def commit(self, operations: Sequence[Operation], preconditions: Sequence[Precondition] = ()) -> int:
        check_commit(operations, preconditions)
        return await self._commits.submit(operations, preconditions)

    # --- watching ----------------------------------------------------------------------------------------------------

    async def watch(self, prefix: str, after_revision: int) -> AsyncGenerator[Batch, None]:
        follower = self._followers.add(prefix)
        delivered = after_revision
        try:
            while True:
                # From here on the follower collects; everything up to `published` is read from the file.
                follower.restart()
                published = self._commits.revision
                async for batch in self._replay(prefix, delivered, published):
                    delivered = batch.revision
                    yield batch
                while live := await follower.next():
                    if live.revision > delivered:
                        fresh = changes_after(live, delivered)
                        delivered = live.revision
                        yield fresh
        finally:
            self._followers.remove(follower)

    async def _replay(self, prefix: str, after: int, up_to: int) -> AsyncGenerator[Batch, None]:
        seq, end = tables.first_seq(after + 1), tables.first_seq(up_to + 1)
        if after < self._compacted:
            raise Compacted(after, self._compacted)
        while seq < end:
            with _reads():
                found: Sequence[tuple[int, Change]] = tables.read_changes(self._reading, seq, end, READ_CHUNK)
            if tables.revision_of(seq) <= self._compacted and seq > tables.first_seq(after + 1):
                raise Compacted(tables.revision_of(seq), self._compacted)
            if len(found) < READ_CHUNK:
                last, seq = up_to, end
            else:
                # The last commit of a full chunk may go on in the next one: leave it to that.
                last = found[-1][1].revision - 1
                seq = tables.first_seq(last + 1)
                found = [row for row in found if row[0] < seq] or self._whole_commit(seq)
                last = found[-1][1].revision
                seq = tables.first_seq(last + 1)
            yield Batch(last, tuple(change for _, change in found if change.key.startswith(prefix)))
            await asyncio.sleep(0)

    def _whole_commit(self, seq: int) -> Sequence[tuple[int, Change]]:
        with _reads():
            return tables.read_changes(self._reading, seq, seq + tables.MAX_OPERATIONS, tables.MAX_OPERATIONS)

    # --- forgetting --------------------------------------------------------------------------------------------------

    async def compact(self, revision: int) -> None:
        now = await self.current_revision()
        if revision > now:
            raise FutureRevision(revision, now)
        if revision < self._compacted:
            raise Compacted(revision, self._compacted)
        await self._commits.run_between_groups(lambda db: tables.set_number(db, "compacted", revision))
        self._compacted = max(self._compacted, revision)
        more = True

        def sweep(connection: sqlite3.Connection) -> None:
            nonlocal more
            more = tables.forget_history(connection, revision, SWEEP_CHUNK)

        while more:
            await self._commits.run_between_groups(sweep)
            await asyncio.sleep(0)

    async def _expire(self) -> None:
        """Delete keys whose time has come, unless they were written again meanwhile."""
        while True:
            await self._clock.sleep(EXPIRY_INTERVAL_S)
            now = self._now_s()
            due = [key for key, at in self._commits.expiries.items() if at <= now]
            for entry in (await self.get_many(due)).values():
                try:
                    await self.commit([Delete(entry.key)], [Precondition(entry.key, entry.revision)])
                except StoreError:
                    continue  # written again, or the disk is unwell: the next round looks again


@contextmanager
def _reads() -> Iterator[None]:
    """A disk that does not let itself be read is the world's fault, and may be well again the next time."""
    try:
        yield
    except sqlite3.Error as error:
        raise StoreUnavailable(f"cannot read the store: {error}") from error


@contextmanager
def _one_moment(connection: sqlite3.Connection) -> Iterator[None]:
    """All that is read inside is of the same moment. However it ends, the next reader finds no transaction open."""
    with _reads():
        connection.execute("BEGIN")
        try:
            yield
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
