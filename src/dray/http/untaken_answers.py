"""Bounds the memory of answers that clients do not take: one who asks and does not read must not fill it.

An answer is held until its client has read it or its time is over. While those that wait take more memory than they may, the
connection that has waited longest is cut, of the client that has most: who reads at once is not cut for one who does not.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dray.http.connection import HttpConnection

log = logging.getLogger(__name__)

LEAST_BYTES = 256 * 2**20
PART_OF_MEMORY = 8
_GROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def most_bytes() -> int:
    """A part of what the machine or its cgroup has: a server of a large cluster has much, and sends long lists."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):
        memory = min(memory, int(_GROUP_LIMIT.read_text()))
    return max(LEAST_BYTES, memory // PART_OF_MEMORY)


class UntakenAnswers:
    def __init__(self, most: int | None = None) -> None:
        self._most = most_bytes() if most is None else most
        # Whose each is and its bytes, in the order in which they began to wait.
        self._waiting: dict[HttpConnection, tuple[str, int]] = {}
        self._bytes_of: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def bytes(self) -> int:
        return self._bytes_of.total()

    @contextmanager
    def waiting(self, connection: HttpConnection, size: int) -> Iterator[None]:
        """While the client of the connection has not taken an answer of so many bytes."""
        self._waiting[connection] = connection.peer.common_name or connection.peer.remote, size
        self._bytes_of[self._waiting[connection][0]] += size
        self._make_room_for(connection)
        try:
            yield
        finally:
            self._forget(connection)

    def _forget(self, connection: HttpConnection) -> None:
        owner, size = self._waiting.pop(connection, ("", 0))
        self._bytes_of[owner] -= size
        if not self._bytes_of[owner]:
            del self._bytes_of[owner]

    def _make_room_for(self, newest: HttpConnection) -> None:
        while self.bytes > self._most:
            ((owner, _),) = self._bytes_of.most_common(1)
            oldest = next(each for each, (whose, _) in self._waiting.items() if whose == owner)
            if oldest is newest:
                return  # the only one of its client, however long it is
            log.info("answers for %s are not read; the oldest is given up: %d bytes", owner, self._waiting[oldest][1])
            self._forget(oldest)
            oldest.abort()
