"""The clusters of `dray up` on this machine: each has a file in a folder of the user, locked while its process lives.

A record whose file nobody locks belongs to a process that was killed. `end` tidies up after it, too.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from dray.atomic_files import private_folder
from dray.kubeconfig_file import ClusterEntry, KubeconfigError, remove_cluster

NAME = "dray"
_NAME_PATTERN = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")
END_WAIT_S = 60.0
POLL_S = 0.05


class ClusterNameError(ValueError):
    """The name is taken, unknown or not a name."""


class ClusterRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What others need to know about a running cluster. `url` is empty until it is ready; `data` where nothing is kept."""

    name: str
    process: int
    started: str
    url: str = ""
    dashboard: str = ""
    nodes: int = 0
    kubeconfig: str = ""
    data: str = ""
    log: str = ""
    # The entry in the kubeconfig, so that it can be taken out again.
    cluster: dict[str, str] = {}


class ListedCluster(msgspec.Struct, frozen=True):
    record: ClusterRecord
    is_alive: bool

    @property
    def state(self) -> str:
        if not self.is_alive:
            return "died"
        return "running" if self.record.url else "starting"


def cluster_name(given: str) -> str:
    """The name of a cluster, its context and its user: `lab` is `dray-lab`, so that it cannot be the name of another's."""
    if not _NAME_PATTERN.fullmatch(given):
        raise ClusterNameError(f"--name {given}: use lower-case letters, digits, - and ., 63 at most")
    return given if given == NAME or given.startswith(f"{NAME}-") else f"{NAME}-{given}"


class RunningClusters:
    """The records in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def of_user(cls) -> RunningClusters:
        """In the folder for the state of programs (see the XDG base directories); without a home, among temporary files."""
        state = Path(os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state"))
        folder = state / "dray" / "clusters"
        try:
            private_folder(folder)
        except OSError:
            folder = Path(tempfile.gettempdir()) / f"dray-clusters-{os.geteuid()}"
        return cls(folder)

    def log_of(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def list(self) -> list[ListedCluster]:
        found = (self.find(path.stem) for path in sorted(self.folder.glob("*.json"), key=lambda path: path.stem))
        return [each for each in found if each is not None]

    def find(self, name: str) -> ListedCluster | None:
        try:
            with self._path(name).open("rb") as file:
                is_alive = not _lock(file.fileno(), fcntl.LOCK_SH)
                record = msgspec.json.decode(file.read(), type=ClusterRecord)
        except (FileNotFoundError, msgspec.MsgspecError):
            # It ended just now, or was killed before it wrote a word.
            return None
        return ListedCluster(record, is_alive)

    @contextlib.contextmanager
    def reserve(self, given: str | None) -> Iterator[Reservation]:
        """Keeps a name for this process. Without one it takes the first of `dray`, `dray-2`, ... that is free."""
        private_folder(self.folder)
        if self.folder.stat().st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "belongs to another user", str(self.folder))
        reservation = self._named(cluster_name(given)) if given else self._first_free()
        try:
            yield reservation
        finally:
            reservation.give_back()

    def end(self, name: str) -> None:
        """Ends the cluster, waits for it, and removes its record. `TimeoutError` if it does not end."""
        found = self.find(name)
        if found is None:
            raise ClusterNameError(f"no cluster named {name}")
        if found.is_alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(found.record.process, signal.SIGTERM)
            self._wait_for(name)
        self._tidy(found.record)

    def _wait_for(self, name: str) -> None:
        until = time.monotonic() + END_WAIT_S
        while True:
            found = self.find(name)
            if found is None or not found.is_alive:
                return
            if time.monotonic() > until:
                raise TimeoutError(f"{name} (process {found.record.process}) has not ended after {END_WAIT_S:g} s")
            time.sleep(POLL_S)

    def _tidy(self, record: ClusterRecord) -> None:
        if record.kubeconfig and record.cluster:
            with contextlib.suppress(KubeconfigError, OSError):
                remove_cluster(Path(record.kubeconfig), ClusterEntry(record.name, dict(record.cluster), {}))
        self._path(record.name).unlink(missing_ok=True)
        self.log_of(record.name).unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.json"

    def _first_free(self) -> Reservation:
        number = 1
        while True:
            with contextlib.suppress(ClusterNameError):
                return self._named(NAME if number == 1 else f"{NAME}-{number}")
            number += 1

    def _named(self, name: str) -> Reservation:
        path = self._path(name)
        while True:
            file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            if not _lock(file, fcntl.LOCK_EX):
                os.close(file)
                raise ClusterNameError(f"a cluster named {name} is running; end it with: dray down {name}")
            # Who held it before may have removed the file between our opening and locking it.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file), path.stat()):
                    return Reservation(name, path, file)
            os.close(file)


class Reservation:
    """A name that belongs to this process; the kernel gives it back when the process ends, however it ends."""

    def __init__(self, name: str, path: Path, file: int) -> None:
        self.name = name
        self._path = path
        self._file = file
        self._is_mine = True

    def write(self, record: ClusterRecord) -> None:
        data = msgspec.json.encode(record)
        os.pwrite(self._file, data, 0)
        os.ftruncate(self._file, len(data))

    def leave_to_child(self) -> None:
        """A process that was forked since holds the name from now on."""
        self._is_mine = False
        os.close(self._file)

    def give_back(self) -> None:
        if self._is_mine:
            self._is_mine = False
            self._path.unlink(missing_ok=True)
            os.close(self._file)


def _lock(file: int, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
