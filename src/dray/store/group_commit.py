"""Group commit: many callers share one transaction and one wait for the disk.

Commits that arrive while the disk is busy form the next group, and so do those that the next few turns of the event loop
bring. Statements run on the loop, where they take microseconds. `DiskCommit` decides where COMMIT waits; nobody uses the
connection until it has ended.

COMMIT runs on the loop while the disk is quick, and in a thread while it is slow. A thread leaves the loop free, but thread and loop compete
for the interpreter lock: a commit that takes the disk half a millisecond takes its caller four. Waiting for a quick disk on the loop is
cheaper. A slow disk gets the thread until it is quick again.
"""

import asyncio
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

import msgspec

from dray.store import sqlite_tables as tables
from dray.store.errors import Conflict, StoreError, StoreUnavailable
from dray.store.interface import Change, Operation, Precondition, Put

# The longest average commit that the loop waits for. (Every few hundred writes SQLite checkpoints its log, which takes ten
# milliseconds even on a quick disk.) Above this the loop loses more than the thread costs.
QUICK_S = 0.002
REMEMBERED = 32


class DiskCommit:
    """Commits the transaction of one connection. Nobody else may use the connection until the commit has ended."""

    def __init__(self, connection: sqlite3.Connection, now: Callable[[], float] = time.monotonic) -> None:
        self._connection = connection
        self._now = now
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store-commit")
        self._average_s = 0.0

    @property
    def is_quick(self) -> bool:
        return self._average_s < QUICK_S

    def commit(self, done: Callable[[BaseException | None], None]) -> None:
        """Commits and calls `done` with the error or None, either at once or later from the loop."""
        if self.is_quick:
            try:
                self._commit()
            except Exception as problem:
                # The caller waits for an answer, whatever the error is.
                done(problem)
            else:
                done(None)
            return
        committing = asyncio.get_running_loop().run_in_executor(self._thread, self._commit)
        committing.add_done_callback(lambda finished: done(finished.exception()))

    async def commit_apart(self) -> None:
        """Commits in the thread, however quick the disk is; for large transactions."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._commit)

    def close(self) -> None:
        self._thread.shutdown()

    def _commit(self) -> None:
        started = self._now()
        try:
            self._connection.execute("COMMIT")
        finally:
            self._average_s += (self._now() - started - self._average_s) / REMEMBERED


# Operations per group: bounds how long one group keeps the event loop.
GROUP_LIMIT = 256
# How long a group waits for more of them, as long as every turn of the loop brings some. All that follows a group, down to
# the watch events of other processes, costs less the more changes share it.
GATHER_S = 0.004
# Rows that are remembered, as many as there are leases and objects on their way in a large cluster. The server's caches hold most of these values
# anyway: all but those that they have packed by now, and long values, of which they keep a part. Long rows are read when somebody needs them.
MOST_RECENT = 32_768
LONG_VALUE = 8 * 1024


class PendingCommit(msgspec.Struct, eq=False):
    operations: Sequence[Operation]
    preconditions: Sequence[Precondition]
    done: asyncio.Future[int]
    answer: int | StoreError = 0

    def deliver(self) -> None:
        if self.done.done():
            return  # the caller gave up waiting; the write stands
        if isinstance(self.answer, StoreError):
            self.done.set_exception(self.answer)
        else:
            self.done.set_result(self.answer)


@dataclass(slots=True)
class Group:
    commits: list[PendingCommit] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    writes: tables.Writes = field(default_factory=tables.Writes)
    revision: int = 0
    expiries: dict[str, int | None] = field(default_factory=dict)


class GroupCommit:
    """Owns the writing connection. `publish` is called with every group once it is on disk, before its callers get answers."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        now_s: Callable[[], int],
        publish: Callable[[int, list[Change]], None],
    ) -> None:
        self._connection = connection
        self._now_s = now_s
        self._publish = publish
        self.revision = tables.number(connection, "revision")
        self.expiries = tables.read_expiries(connection)
        # Rows that were written or read last, as they are after the last group; None for a key that is not there.
        self.recent: dict[str, tables.Row | None] = {}
        self._waiting: deque[PendingCommit] = deque()
        self._disk = DiskCommit(connection)
        # Kept, since Python asks the system for the number of the process each time it is asked for the running loop.
        self._loop = asyncio.get_running_loop()
        self._gathering_since = 0.0
        self._gathered = 0
        self._busy = False
        self._scheduled = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._jobs_waiting = 0
        self._closed = False

    def submit(self, operations: Sequence[Operation], preconditions: Sequence[Precondition]) -> asyncio.Future[int]:
        done: asyncio.Future[int] = self._loop.create_future()
        if self._closed:
            done.set_exception(StoreUnavailable("the store is closed"))
            return done
        self._waiting.append(PendingCommit(operations, preconditions, done))
        self._schedule()
        return done

    def rows(self, keys: Sequence[str]) -> list[tables.Row | None] | None:
        """The rows of these keys after the last group. None if they are not remembered and a group is just being written."""
        if self._busy and not all(key in self.recent for key in keys):
            return None
        return [self._known_row(key) for key in keys]

    async def run_between_groups(self, work: Callable[[sqlite3.Connection], None]) -> None:
        """Runs `work` in a transaction of its own, without a revision and without events."""
        self._jobs_waiting += 1
        try:
            while self._busy:
                await self._idle.wait()
        finally:
            self._jobs_waiting -= 1
        if self._closed:
            return
        self._busy = True
        self._idle.clear()
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            work(self._connection)
            await self._disk.commit_apart()
        except sqlite3.Error as error:
            self._rollback()
            raise StoreUnavailable(f"cannot write the store: {error}") from error
        finally:
            self._finish()

    async def close(self) -> None:
        """Waits until everything submitted is on disk, then refuses more."""
        while self._busy or self._waiting:
            await self._idle.wait()
            await asyncio.sleep(0)
        self._closed = True
        self._disk.close()

    def _schedule(self) -> None:
        if not self._busy and not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._start_group)

    def _start_group(self) -> None:
        self._scheduled = False
        # Work between groups has its turn first: under steady load there is never an idle moment by chance.
        if self._busy or self._jobs_waiting or not self._waiting:
            return
        if self._more_is_coming():
            self._schedule()
            return
        self._busy = True
        self._idle.clear()
        group = Group(revision=self.revision)
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            self._fill(group)
            group.writes.write(self._connection)
            tables.set_number(self._connection, "revision", group.revision)
        except Exception as error:
            # Callers must get an answer and the next group must start, whatever the error is.
            self._fail(group, error)
            return
        if group.changes or group.expiries:
            self._disk.commit(partial(self._end_group, group))
        else:
            self._rollback()  # nothing but refusals and empty deletes
            self._end_group(group, None)

    def _more_is_coming(self) -> bool:
        """Whether the last turn of the loop brought a commit. The first turn counts as yes, which costs a lone caller one turn."""
        now, waiting = time.monotonic(), len(self._waiting)
        if not self._gathered:
            self._gathering_since = now
        if waiting > self._gathered and now - self._gathering_since < GATHER_S:
            self._gathered = waiting
            return True
        self._gathered = 0
        return False

    def _fill(self, group: Group) -> None:
        size = 0
        while self._waiting and size < GROUP_LIMIT:
            pending = self._waiting.popleft()
            group.commits.append(pending)
            size += len(pending.operations) + 1
            pending.answer = self._apply(group, pending)

    def _apply(self, group: Group, pending: PendingCommit) -> int | StoreError:
        known: dict[str, tables.Row | None] = {}
        failed = []
        for wanted in pending.preconditions:
            row = known[wanted.key] = self._row(group, wanted.key)
            if tables.revision_of_row(row) != wanted.revision:
                failed.append(wanted.key)
        if failed:
            return Conflict(failed)
        revision = group.revision + 1
        changed = False
        for position, operation in enumerate(pending.operations):
            value = operation.value if isinstance(operation, Put) else None
            key = operation.key
            old = known[key] if key in known else self._row(group, key)
            change = group.writes.put(revision, position, key, value, old)
            if change:
                changed = True
                group.changes.append(change)
                self._note_expiry(group, operation)
        if changed:
            group.revision = revision
        return group.revision

    def _row(self, group: Group, key: str) -> tables.Row | None:
        written = group.writes.current
        return written[key] if key in written else self._known_row(key)

    def _known_row(self, key: str) -> tables.Row | None:
        """Nobody else writes the file, so a row that was written or read last need not be read again."""
        recent = self.recent
        if key in recent:
            return recent[key]
        if len(recent) >= MOST_RECENT:
            recent.clear()
        row = tables.read_row(self._connection, key)
        if row is None or len(row[1]) <= LONG_VALUE:
            recent[key] = row
        return row

    def _note_expiry(self, group: Group, operation: Operation) -> None:
        at = self._now_s() + operation.ttl_s if isinstance(operation, Put) and operation.ttl_s else None
        if at is None and operation.key not in self.expiries and operation.key not in group.expiries:
            return
        tables.set_expiry(self._connection, operation.key, at)
        group.expiries[operation.key] = at

    def _end_group(self, group: Group, error: BaseException | None) -> None:
        if error is not None:
            self._fail(group, error)
            return
        self.revision = group.revision
        self.recent |= group.writes.current
        for change in group.changes:
            if change.value is not None and len(change.value) > LONG_VALUE:
                self.recent.pop(change.key, None)
        for key, at in group.expiries.items():
            if at is None:
                self.expiries.pop(key, None)
            else:
                self.expiries[key] = at
        if group.changes:
            self._publish(group.revision, group.changes)
        for pending in group.commits:
            pending.deliver()
        self._finish()

    def _fail(self, group: Group, error: BaseException) -> None:
        self._rollback()
        for pending in group.commits:
            pending.answer = StoreUnavailable(f"cannot write the store: {error}")
            pending.deliver()
        self._finish()

    def _rollback(self) -> None:
        self.recent.clear()
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _finish(self) -> None:
        self._busy = False
        self._idle.set()
        if self._waiting:
            self._schedule()
