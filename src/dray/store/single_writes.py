"""Writes of one key, said in terms of commits: the same for every store."""

from collections.abc import Sequence
from typing import Protocol

from dray.store.errors import AlreadyExists, Conflict, NotFound
from dray.store.interface import Delete, Entry, Operation, Precondition, Put


class _Commits(Protocol):
    async def get(self, key: str) -> Entry | None: ...

    async def commit(self, operations: Sequence[Operation], preconditions: Sequence[Precondition] = ()) -> int: ...


class SingleWrites:
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
