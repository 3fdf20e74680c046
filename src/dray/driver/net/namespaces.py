"""Network namespaces: work inside one, hear what changes in one."""

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
