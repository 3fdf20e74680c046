"""Waiting for the disk: on the event loop while it is quick, in a thread while it is not.

A thread leaves the loop free, but it and the loop fight for the interpreter lock: of a commit that takes the disk half a
millisecond, callers notice four. A disk that is quick is cheaper to wait for. One that keeps the loop waiting is given the
thread, until it is quick again.
"""

import asyncio
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

# What the loop may be kept waiting, on average over the last commits. (Every few hundred writes SQLite tidies up, which takes ten
# milliseconds also of a quick disk.) Beyond it the loop loses more than the thread costs.
QUICK_S = 0.002
REMEMBERED = 32


class Disk:
    """Commits the transaction of one connection, which nobody touches meanwhile."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store-commit")
        self._average_s = 0.0

    @property
    def is_quick(self) -> bool:
        return self._average_s < QUICK_S

    def commit(self, done: Callable[[BaseException | None], None]) -> None:
        """Calls `done` with what went wrong, or with None: at once, or later from the loop."""
        if self.is_quick:
            try:
                self._commit()
            except Exception as problem:
                # Whatever it was: there is somebody who waits for the answer.
                done(problem)
            else:
                done(None)
            return
        committing = asyncio.get_running_loop().run_in_executor(self._thread, self._commit)
        committing.add_done_callback(lambda finished: done(finished.exception()))

    async def commit_apart(self) -> None:
        """In the thread, however quick the disk is: for much at once."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._commit)

    def close(self) -> None:
        self._thread.shutdown()

    def _commit(self) -> None:
        started = time.monotonic()
        try:
            self._connection.execute("COMMIT")
        finally:
            self._average_s += (time.monotonic() - started - self._average_s) / REMEMBERED
