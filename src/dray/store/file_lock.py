"""One process per store file: an advisory lock beside it, held until the process ends, however it ends."""

import fcntl
import os
from pathlib import Path

from dray.store.errors import StoreInUse


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
