"""Bounded queues of live changes, one per watch."""

import asyncio
from collections import deque
from collections.abc import Iterable

from dray.store.interface import Batch, Change

# Batches a watch may leave unread before it is sent back to replaying from the store.
QUEUE_LIMIT = 1024


class WatchQueue:
    """The unread changes of one watch. `next` returns None when the watch fell too far behind and must replay from the store."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._unread: deque[Batch] = deque()
        self._overrun = False
        self._closed: BaseException | None = None
        self._waiter: asyncio.Future[None] | None = None

    def restart(self) -> None:
        """Drops unread changes: the caller reads everything published so far from the store."""
        self._unread.clear()
        self._overrun = False

    def offer(self, batch: Batch) -> None:
        if self._overrun:
            return
        prefix = self._prefix
        changes = tuple(change for change in batch.changes if change.key.startswith(prefix))
        mine = Batch(batch.revision, changes)
        if self._unread and not self._unread[-1].changes and not changes:
            self._unread[-1] = mine
        elif len(self._unread) >= QUEUE_LIMIT:
            self._overrun = True
            self._unread.clear()
        else:
            self._unread.append(mine)
        self._wake()

    def fail(self, error: BaseException) -> None:
        self._closed = error
        self._wake()

    async def next(self) -> Batch | None:
        while True:
            if self._closed:
                raise self._closed
            if self._overrun:
                return None
            if self._unread:
                return self._unread.popleft()
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    def _wake(self) -> None:
        if self._waiter and not self._waiter.done():
            self._waiter.set_result(None)


class WatchQueues:
    def __init__(self) -> None:
        self._all: set[WatchQueue] = set()

    def add(self, prefix: str) -> WatchQueue:
        follower = WatchQueue(prefix)
        self._all.add(follower)
        return follower

    def remove(self, follower: WatchQueue) -> None:
        self._all.discard(follower)

    def publish(self, revision: int, changes: Iterable[Change]) -> None:
        batch = Batch(revision, tuple(changes))
        for follower in self._all:
            follower.offer(batch)

    def fail_all(self, error: BaseException) -> None:
        for follower in self._all:
            follower.fail(error)
