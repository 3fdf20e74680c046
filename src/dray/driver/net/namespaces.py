"""Network namespaces: work inside one, hear what changes in one."""

import contextlib
import ctypes
import os
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

OWN = Path("/proc/self/ns/net")
"""The namespace of the driver's process."""
_NETLINK_ROUTE = 0
_GROUPS = 0x1 | 0x10 | 0x40 | 0x100 | 0x400
"""Links, addresses and routes, of IPv4 and IPv6."""


class NetlinkMissing(OSError):
    """There is no netlink binding."""


def netlink() -> Any:
    """The netlink binding; it is imported here only, so that no other command pays for it."""
    try:
        import pyroute2
    except ImportError:
        raise NetlinkMissing("the network driver needs the package pyroute2: pip install 'dray[net]'") from None
    return pyroute2


def within(namespace: Path, work: Callable[[], T]) -> T:
    """What `work` answers when it runs in the namespace, in a thread that is used for nothing else."""

    def enter_and_work() -> T:
        with namespace.open() as file:
            netlink().netns.setns(file)
        return work()

    with ThreadPoolExecutor(1, thread_name_prefix="namespace") as threads:
        return threads.submit(enter_and_work).result()


def ask(namespace: Path, question: Callable[[Any], T]) -> T:
    """What `question` answers with a netlink connection of the namespace."""

    def open_and_ask() -> T:
        with netlink().IPRoute() as routes:
            return question(routes)

    return within(namespace, open_and_ask)


def open_events(namespace: Path) -> socket.socket:
    """A socket on which the kernel tells that links, addresses or routes of the namespace changed."""

    def subscribe() -> socket.socket:
        events = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_ROUTE)
        events.bind((0, _GROUPS))
        events.setblocking(False)
        return events

    return within(namespace, subscribe)


def identity(namespace: Path | int) -> tuple[int, int]:
    """What tells one namespace from another, by its file or an open descriptor."""
    found = os.stat(namespace)
    return found.st_dev, found.st_ino


# --- keeping namespaces alive ---------------------------------------------------------------------------------------

_MS_BIND, _MNT_DETACH = 4096, 2


class KeptNamespaces:
    """Namespaces of pods, kept by a mount in the driver's folder: one outlives its pod and the driver until it is let go.

    The kernel would end a namespace with its last process, and with it every virtual interface inside.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, key: str) -> Path | None:
        """The namespace that is kept under the key; None after a reboot, too, when only the file is left."""
        path = self._folder / key
        try:
            return path if identity(path)[0] == identity(OWN)[0] else None
        except FileNotFoundError:
            return None

    def keep(self, key: str, namespace: Path) -> Path:
        """Keeps the namespace, unless it is kept already."""
        path = self._folder / key
        if self.get(key) is None:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            path.touch(mode=0o600)
            _mount(_libc().mount(os.fsencode(namespace), os.fsencode(path), None, _MS_BIND, None), path)
        return path

    def let_go(self, key: str) -> None:
        path = self._folder / key
        if self.get(key) is not None:
            _mount(_libc().umount2(os.fsencode(path), _MNT_DETACH), path)
        path.unlink(missing_ok=True)


def namespace_with_processes(wanted: tuple[int, int]) -> Path | None:
    """The file of the namespace with this identity, if a process is in it."""
    for each in Path("/proc").glob("[0-9]*/ns/net"):
        with contextlib.suppress(OSError):
            if identity(each) == wanted:
                return each
    return None


def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def _mount(result: int, path: Path) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(path))
