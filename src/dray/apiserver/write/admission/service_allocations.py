"""Which address or port belongs to which Service, fed from the store."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random, SystemRandom
from typing import Generic, Self, TypeVar

from dray.apiserver.watch.kind_cache import StoreFollower
from dray.apiserver.watch.stored_object import object_key, resource_prefix
from dray.apiserver.write.admission.chain import Admission
from dray.clock import Clock

# How long a creation may be on its way to the store; one that failed gives its values back after that.
RESERVED_S = 10.0

Value = TypeVar("Value", str, int)


class ServiceAllocations(Generic[Value]):
    """Values that one Service has at a time: those in the store, and those on their way there."""

    def __init__(self, clock: Clock, random: Random | None = None) -> None:
        self._clock = clock
        self._random = random or SystemRandom()
        self._owner: dict[Value, str] = {}
        self._values: dict[str, tuple[Value, ...]] = {}
        self._reserved: dict[Value, tuple[str, float]] = {}

    @classmethod
    def following(cls, follower: StoreFollower, clock: Clock) -> Self:
        book = cls(clock)
        follower.subscribe_index((resource_prefix("", "services"),), book.apply)
        return book

    def values_of(self, stored: bytes) -> Iterable[Value]:
        """The values in a stored Service."""
        raise NotImplementedError

    def apply(self, key: str, value: bytes | None) -> None:
        for before in self._values.pop(key, ()):
            if self._owner.get(before) == key:
                del self._owner[before]
        found = tuple(self.values_of(value)) if value is not None else ()
        if found:
            self._values[key] = found
        for each in found:
            self._owner[each] = key
            self._reserved.pop(each, None)

    def is_free(self, value: Value, key: str) -> bool:
        """Whether the Service may have it, which may have it already."""
        reserved_by, until = self._reserved.get(value, ("", 0.0))
        if reserved_by not in ("", key) and self._clock.monotonic() < until:
            return False
        return self._owner.get(value, key) == key

    def reserve(self, values: Iterable[Value], key: str) -> None:
        """Keeps values until their Service is in the store."""
        now = self._clock.monotonic()
        self._reserved = {known: entry for known, entry in self._reserved.items() if entry[1] > now}
        self._reserved |= dict.fromkeys(values, (key, now + RESERVED_S))


def service_key(admission: Admission) -> str:
    return object_key("", "services", admission.attributes.namespace, admission.name)
