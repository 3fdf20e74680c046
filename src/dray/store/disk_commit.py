"""Runs COMMIT on the event loop while the disk is quick, and in a thread while it is slow.

A thread leaves the loop free, but thread and loop compete for the interpreter lock: a commit that takes the disk half a
millisecond takes its caller four. Waiting for a quick disk on the loop is cheaper. A slow disk gets the thread until it is
quick again.
"""

import asyncio
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

# The longest average commit that the loop waits for. (Every few hundred writes SQLite checkpoints its log, which takes ten
# milliseconds even on a quick disk.) Above this the loop loses more than the thread costs.
QUICK_S = 0.002
REMEMBERED = 32


class DiskCommit:
    """Commits the transaction of one connection. Nobody else may use the connection until the commit has ended."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
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
        started = time.monotonic()
        try:
            self._connection.execute("COMMIT")
        finally:
            self._average_s += (time.monotonic() - started - self._average_s) / REMEMBERED
