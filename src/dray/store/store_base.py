"""What the stores share: writes of one key become commits, commits are checked, and live changes wait in bounded queues, one per watch."""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Protocol

from dray.store.errors import AlreadyExists, Conflict, NotFound
from dray.store.interface import Batch, Change, Delete, Entry, Operation, Precondition, Put

# What an etcd accepts in one transaction, unless told otherwise, is 128.
MAX_OPERATIONS = 128
MAX_KEY_BYTES = 4096


def check_commit(operations: Sequence[Operation], preconditions: Sequence[Precondition]) -> None:
    """Raise ValueError unless every key is sane text and occurs once among the operations."""
    if len(operations) > MAX_OPERATIONS:
        raise ValueError(f"a commit has {len(operations)} operations; at most {MAX_OPERATIONS} are allowed")
    checked = set()
    for operation in operations:
        key = operation.key
        if key in checked:
            raise ValueError("a key occurs twice in one commit")
        if type(operation) is Put and type(operation.value) is not bytes:
            raise ValueError("a value is not bytes")
        check_key(key)
        checked.add(key)
    for precondition in preconditions:
        if precondition.key not in checked:
            check_key(precondition.key)


def check_key(key: str) -> None:
    if not key.startswith("/") or "\0" in key:
        raise ValueError(f"{key!r} is not a key: it must start with a slash and hold no zero byte")
    if key.isascii() and len(key) <= MAX_KEY_BYTES:
        return
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        raise ValueError(f"{key!r} is not a key: it is not valid Unicode") from None
    if size > MAX_KEY_BYTES:
        raise ValueError(f"a key has {size} bytes; at most {MAX_KEY_BYTES} are allowed")


class _Commits(Protocol):
    async def get(self, key: str) -> Entry | None: ...

    async def commit(self, operations: Sequence[Operation], preconditions: Sequence[Precondition] = ()) -> int: ...


class StoreBase:
    """Base of a store that has `get` and `commit`."""

    async def create(self: _Commits, key: str, value: bytes, *, ttl_s: int = 0) -> int:
        try:
            return await self.commit([Put(key, value, ttl_s=ttl_s)], [Precondition(key, 0)])
        except Conflict:
            raise AlreadyExists(key) from None

    async def update(self: _Commits, key: str, value: bytes, expected_revision: int) -> int:
        return await _replace(self, Put(key, value), expected_revision)

    async def delete(self: _Commits, key: str, expected_revision: int) -> int:
        return await _replace(self, Delete(key), expected_revision)


async def _replace(store: _Commits, operation: Operation, expected_revision: int) -> int:
    try:
        return await store.commit([operation], [Precondition(operation.key, expected_revision)])
    except Conflict:
        if await store.get(operation.key) is None:
            raise NotFound(operation.key) from None
        raise


def changes_after(batch: Batch, revision: int) -> Batch:
    """The batch without changes up to `revision`."""
    if not batch.changes or batch.changes[0].revision > revision:
        return batch
    return Batch(batch.revision, tuple(change for change in batch.changes if change.revision > revision))


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
