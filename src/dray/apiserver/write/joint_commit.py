"""One commit for several writes: each has gone through its own stages, and what it would store waits here for the others.

A later write of the same object begins with what the earlier one would store. The objects of one commit are of different kinds, since
a watch of one kind that breaks between two events with the same revision would miss the second one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dray.apiserver import errors
from dray.apiserver.core import Core
from dray.apiserver.watch.kind_cache import KindCache
from dray.apiserver.watch.stored_object import Stored
from dray.store.errors import Conflict
from dray.store.interface import Operation, Precondition, Put

Document = dict[str, Any]
# Joint commits that meet at one counter set may pass each other this often before the client is asked to try again.
ATTEMPTS = 16


@dataclass(slots=True)
class WaitingObject:
    """An object as it is stored, and as it shall be. `provisional` has the new value at the old revision."""

    cache: KindCache
    condition: Precondition
    old: Document
    put: Put
    new: Document
    provisional: Stored


class JointCommit:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._waiting: dict[str, WaitingObject] = {}

    def current(self, key: str) -> Stored | None:
        """The object as the writes before this one would leave it; None if none of them changes it."""
        waiting = self._waiting.get(key)
        return waiting.provisional if waiting is not None else None

    def add(self, cache: KindCache, stored: Stored, put: Put, old: Document, new: Document) -> Stored:
        """Takes part of the commit; returns the object as it will be, but for its revision."""
        provisional = cache.make(stored.namespace, stored.name, put.value, stored.revision, stored.created)
        earlier = self._waiting.get(put.key)
        if earlier is not None:
            earlier.put, earlier.new, earlier.provisional = put, new, provisional
            return provisional
        if any(waiting.cache is cache for waiting in self._waiting.values()):
            raise errors.bad_request(f"one commit may change one object of {cache.row.qualified_plural}")
        condition = Precondition(stored.key, stored.revision)
        self._waiting[put.key] = WaitingObject(cache, condition, old, put, new, provisional)
        return provisional

    async def commit(self) -> int:
        """Stores everything at one revision; raises 409 if an object has changed meanwhile or the guard refuses."""
        # The guard of bindings looks at the last object, for which the others were changed.
        *others, last = self._waiting.values()
        waiting = (last, *others)
        for _ in range(ATTEMPTS):
            operations: list[Operation] = [row.put for row in waiting]
            conditions = [row.condition for row in waiting]
            for row in others:
                more_operations, more_conditions = await self._core.check_commit(row.old, row.new)
                operations += more_operations
                conditions += more_conditions
            try:
                revision = await self._core.commit(operations, conditions, last.old, last.new)
            except Conflict as conflict:
                self._refuse_changed(conflict)
            else:
                self._stored(revision)
                return revision
        raise errors.conflict(last.cache.row, last.provisional.name)

    def _refuse_changed(self, conflict: Conflict) -> None:
        """Raises 409 if it is about an object, and not about what the guard knows of devices that several claims share."""
        for key, row in self._waiting.items():
            if key in conflict.keys:
                raise errors.conflict(row.cache.row, row.provisional.name) from None

    def _stored(self, revision: int) -> None:
        for key, row in self._waiting.items():
            stored = row.cache.written(key, row.put.value, revision, row.provisional.created)
            self._core.documents.moved(row.provisional, stored)
