"""A cache of our own writes over an informer, so that no decision is made on state older than our last write."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

from dray.client.indexed_objects import IndexedObjects
from dray.client.informer import Informer
from dray.client.kinds import ApiObject, object_key
from dray.clock import Clock

T = TypeVar("T", bound=ApiObject)

MAX_OBJECTS = 1000
LIFETIME_S = 3600.0


def is_newer(one: ApiObject, other: ApiObject) -> bool:
    """Compares revisions; a revision that is not a number never counts as newer."""
    return _number(one.metadata.resource_version) > _number(other.metadata.resource_version)


class MutationCache(Generic[T]):
    """`get` and `by_index` return the newer of the object we wrote and the informer's object.

    Once the informer has reached the revision of a write, its answer counts, also when it no longer has the object.
    """

    def __init__(self, informer: Informer[T], clock: Clock, *, limit: int = MAX_OBJECTS) -> None:
        self._informer = informer
        self._clock = clock
        self._limit = limit
        self._written: IndexedObjects[T] = IndexedObjects(informer.objects.indexers)
        self._expiry: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._written)

    def remember(self, obj: T) -> None:
        if self._was_seen(obj):
            return
        key = object_key(obj)
        self.forget(key)
        self._forget_seen()
        self._written.put(obj)
        self._expiry[key] = self._clock.monotonic() + LIFETIME_S
        if len(self._expiry) > self._limit:
            self.forget(next(iter(self._expiry)))

    def forget(self, key: str) -> None:
        self._written.remove(key)
        self._expiry.pop(key, None)

    def _forget_seen(self) -> None:
        """Drops the oldest writes up to the first that the watch has not shown yet."""
        while self._expiry:
            oldest = next(iter(self._expiry))
            written = self._written.get(oldest)
            if written is not None and not self._was_seen(written):
                return
            self.forget(oldest)

    def get(self, key: str) -> T | None:
        written = self._unseen(self._written.get(key))
        return self._informer.get(key) if written is None else written

    def by_index(self, name: str, value: str) -> list[T]:
        """The informer's index, plus objects that we wrote and the watch has not shown yet."""
        found = {object_key(obj): obj for obj in self._informer.by_index(name, value)}
        for obj in self._written.by_index(name, value):
            if self._unseen(obj) is not None:
                found[object_key(obj)] = obj
        return list(found.values())

    def _unseen(self, written: T | None) -> T | None:
        if written is None:
            return None
        key = object_key(written)
        if self._was_seen(written) or self._clock.monotonic() > self._expiry[key]:
            self.forget(key)
            return None
        return written

    def _was_seen(self, obj: T) -> bool:
        seen = self._informer.get(object_key(obj))
        if seen is not None and not is_newer(obj, seen):
            return True
        return _number(self._informer.revision) >= _number(obj.metadata.resource_version)


def _number(revision: str) -> int:
    return int(revision) if revision.isdigit() else -1
