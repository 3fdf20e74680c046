"""The disk of an etcd member: small enough to be filled, and slow on request.

A small disk is a tmpfs, which only root can mount. A slow one is made by strace, which holds the member up in each fsync.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

# etcd takes 64 MiB at a time for its log, and the next 64 MiB in advance. After an hour its database has some 150 MB, and a member that was away gets a copy of it.
SIZE_MIB = 800
CHUNK = 1 << 20


class SmallDisk:
    """A file system of its own, mounted at `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ballast = folder / "ballast"

    def mount(self) -> bool:
        """False where that is not allowed; the folder is then an ordinary one."""
        self._folder.mkdir(parents=True, exist_ok=True)
        if os.geteuid() != 0 or shutil.which("mount") is None:
            return False
        command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MIB}m", "tmpfs", str(self._folder)]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def unmount(self) -> None:
        subprocess.run(["umount", "--lazy", str(self._folder)], capture_output=True, check=False)

    def fill(self) -> None:
        """Until not a byte more has room."""
        with self._ballast.open("ab", buffering=0) as file:
            for size in (CHUNK, 4096, 1):
                with contextlib.suppress(OSError):
                    while file.write(b"\0" * size):
                        pass

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)


class SlowDisk:
    """Each fsync of a process takes longer while this lasts; the process itself goes on, as beside a disk that is busy."""

    def __init__(self) -> None:
        self._strace: subprocess.Popen[bytes] | None = None

    @staticmethod
    def is_possible() -> bool:
        return shutil.which("strace") is not None

    @property
    def is_on(self) -> bool:
        return self._strace is not None

    @property
    def has_ended(self) -> bool:
        """By itself: the process is gone, or may not be held up."""
        return self._strace is not None and self._strace.poll() is not None

    def begin(self, pid: int, seconds: float) -> None:
        calls = "fsync,fdatasync"
        self._strace = subprocess.Popen(
            [
                *("strace", "-f", "-qq", "-o", "/dev/null", "-p", str(pid), "-e", f"trace={calls}"),
                *("-e", f"inject={calls}:delay_enter={int(seconds * 1_000_000)}"),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def end(self) -> bool:
        """Whether it was slow: strace may not be allowed to hold a process up, and then it ends with an error."""
        was_slow = self._strace is not None and not self._strace.poll()
        if self._strace is not None:
            self._strace.terminate()
            try:
                self._strace.wait(10)
            except subprocess.TimeoutExpired:
                self._strace.kill()
                self._strace.wait()
            self._strace = None
        return was_slow
