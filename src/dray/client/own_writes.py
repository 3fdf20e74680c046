"""Our own writes, remembered until the watch has shown them: no decision on state older than the last write."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

from dray.client.indexed import IndexedObjects
from dray.client.informer import Informer
from dray.client.kinds import ApiObject, object_key
from dray.clock import Clock

T = TypeVar("T", bound=ApiObject)

MAX_OBJECTS = 1000
LIFETIME_S = 3600.0


def is_newer(one: ApiObject, other: ApiObject) -> bool:
    """By revision, which grows with every write; without numbers nothing counts as newer."""
    return _number(one.metadata.resource_version) > _number(other.metadata.resource_version)


class OwnWrites(Generic[T]):
    """Layered over an informer: `get` and `by_index` answer with the newer of what was written and what was seen.

    Once the informer has reached the revision of a write, it is the truth again, also when it no longer has the object.
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
        """The oldest writes, up to one that the watch has not shown yet: nobody may ever ask for them again."""
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
        """As the informer's index, plus objects written so recently that the watch has not brought them."""
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
