"""What both stores share: the checks of a commit, and create, update and delete of one key expressed as commits."""

from collections.abc import Sequence
from typing import Protocol

from dray.store.errors import AlreadyExists, Conflict, NotFound
from dray.store.interface import Delete, Entry, Operation, Precondition, Put

# What an etcd accepts in one transaction, unless told otherwise, is 128.
MAX_OPERATIONS = 128
MAX_KEY_BYTES = 4096


def check_commit(operations: Sequence[Operation], preconditions: Sequence[Precondition]) -> None:
    """Raise ValueError unless every key is sane text and occurs once among the operations."""
    keys = {operation.key for operation in operations}
    if len(keys) != len(operations):
        raise ValueError("a key occurs twice in one commit")
    if len(operations) > MAX_OPERATIONS:
        raise ValueError(f"a commit has {len(operations)} operations; at most {MAX_OPERATIONS} are allowed")
    for operation in operations:
        if isinstance(operation, Put) and not isinstance(operation.value, bytes):
            raise ValueError("a value is not bytes")
    keys.update(precondition.key for precondition in preconditions)
    for key in keys:
        check_key(key)


def check_key(key: str) -> None:
    if not key.startswith("/") or "\0" in key:
        raise ValueError(f"{key!r} is not a key: it must start with a slash and hold no zero byte")
    try:
        size = len(key) if key.isascii() else len(key.encode())
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
