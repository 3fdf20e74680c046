"""Our own writes, remembered until the watch has shown them: no decision on state older than the last write."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

from dray.client.informer import Informer
from dray.client.kinds import ApiObject, object_key
from dray.clock import Clock

T = TypeVar("T", bound=ApiObject)

MAX_OBJECTS = 1000
LIFETIME_S = 3600.0


def is_newer(one: ApiObject, other: ApiObject) -> bool:
    """By revision, which grows with every write; without numbers nothing counts as newer."""
    try:
        return int(one.metadata.resource_version) > int(other.metadata.resource_version)
    except ValueError:
        return False


class OwnWrites(Generic[T]):
    """Layered over an informer: `get` and `by_index` answer with the newer of what was written and what was seen."""

    def __init__(self, informer: Informer[T], clock: Clock) -> None:
        self._informer = informer
        self._clock = clock
        self._written: OrderedDict[str, tuple[T, float]] = OrderedDict()

    def remember(self, obj: T) -> None:
        key = object_key(obj)
        self._written.pop(key, None)
        self._written[key] = (obj, self._clock.monotonic() + LIFETIME_S)
        if len(self._written) > MAX_OBJECTS:
            self._written.popitem(last=False)

    def forget(self, key: str) -> None:
        self._written.pop(key, None)

    def get(self, key: str) -> T | None:
        seen = self._informer.get(key)
        written = self._own(key, seen)
        return seen if written is None else written

    def by_index(self, name: str, value: str) -> list[T]:
        """As the informer's index, plus objects written so recently that the watch has not brought them."""
        found = {object_key(obj): obj for obj in self._informer.by_index(name, value)}
        indexer = self._informer.objects.indexer(name)
        for key in list(self._written):
            written = self._own(key, self._informer.get(key))
            if written is None:
                continue
            if value in indexer(written):
                found[key] = written
            else:
                found.pop(key, None)
        return list(found.values())

    def _own(self, key: str, seen: T | None) -> T | None:
        entry = self._written.get(key)
        if entry is None:
            return None
        written, expires = entry
        if self._clock.monotonic() > expires or (seen is not None and not is_newer(written, seen)):
            del self._written[key]
            return None
        return written
