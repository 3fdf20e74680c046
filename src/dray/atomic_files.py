"""Replaces files atomically: after a crash the old or the new content is there, never a part of it. Files and folders for the owner only.

Permissions never depend on the umask that the program was started with.
"""

import os
import tempfile
from pathlib import Path
from typing import IO, Any


def write_atomically(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Replaces the file's content. Its permissions are `mode` from the first byte on."""
    make_folder(path.parent, 0o755)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def remove_with_unfinished(folder: Path, pattern: str) -> None:
    """Removes the files whose names match the glob pattern, and the unfinished copies of programs that were killed while they wrote them."""
    for path in (*folder.glob(pattern), *folder.glob(f".{pattern}-*")):
        path.unlink(missing_ok=True)


def write_private(path: Path, content: bytes) -> None:
    """Replaces the file's content; only the owner can read it."""
    write_atomically(path, content, 0o600)


def make_folder(path: Path, mode: int) -> None:
    """Creates the folder and its missing parents with at most this mode; those that exist stay as they are."""
    missing = []
    folder = path
    while not folder.exists() and folder != folder.parent:
        missing.append(folder)
        folder = folder.parent
    for each in reversed(missing):
        each.mkdir(mode, exist_ok=True)


def private_folder(path: Path) -> None:
    """Creates the folder for the owner only, and closes one of ours that exists to everybody else."""
    make_folder(path, 0o700)
    status = path.stat()
    if status.st_mode & 0o077 and status.st_uid == os.geteuid():
        path.chmod(status.st_mode & 0o700)


def open_private(path: Path, mode: str) -> IO[Any]:
    """Opens the file; if it is new, only the owner can read it."""
    return open(path, mode, opener=lambda name, flags: os.open(name, flags, 0o600))


def sync_folder(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
