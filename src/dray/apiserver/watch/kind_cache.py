"""The caches of stored objects, one per kind, kept up to date by the follower of the store.

Lists, gets and watches are answered from here. The newest events are kept, so that a watcher that was away for a moment
continues without asking the store.
"""

import zlib
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from dray.api.scheme import RESOURCES, Resource, by_plural
from dray.api.strategies import strategy_of
from dray.apiserver.read.selectors import FieldSelector
from dray.apiserver.watch.store_follower import StoreFollower
from dray.apiserver.watch.stored_object import (
    Document,
    FieldsOf,
    Stored,
    labels_in,
    namespace_prefix,
    resource_prefix,
    storage_row,
    stored_factory,
)
from dray.apiserver.watch.watchers import (
    WatchedChange,
    Watcher,
    WatcherIndex,
)
from dray.store.interface import Change, Entry

KEPT_EVENTS = 4096
KEPT_BYTES = 16 * 2**20
LAST_CHARACTER = "\U0010ffff"


class KindCache:
    """All objects of one kind, in key order."""

    def __init__(self, row: Resource) -> None:
        self.row = row
        self.prefix = resource_prefix(row.group, row.plural)
        self.changed = 0  # the newest revision that touched this kind
        self.complete_after = 0  # events after this revision are all in `_events`
        self.watchers = WatcherIndex(row)
        self._make = stored_factory(row, self.prefix)
        # Objects that expire are many and seldom read: they are packed when they leave the newest events.
        self._packing = Packing(self.prefix) if strategy_of(row).ttl_s else None
        self._objects: dict[str, Stored] = {}
        self._keys: list[str] = []
        self._events: deque[WatchedChange] = deque()
        self._event_bytes = 0

    def __len__(self) -> int:
        return len(self._objects)

    # --- filling ------------------------------------------------------------------------------------------------------

    def load(self, entries: Sequence[Entry], revision: int) -> None:
        """Start from what is stored at `revision`. Watchers cannot be told what they missed: they start over, too."""
        for watcher in self.watchers:
            watcher.close()
        self._objects.clear()
        self._events.clear()
        self._event_bytes = 0
        for entry in entries:
            stored = self._make(entry.key, entry.value, entry.revision, entry.created)
            self._objects[entry.key] = self._packing.pack(stored) if self._packing else stored
            self.changed = max(self.changed, entry.revision)
        self._keys = sorted(self._objects)
        self.complete_after = revision

    def event(self, change: Change) -> WatchedChange:
        """The event of a change, without applying it."""
        new = old = None
        if change.value is not None:
            new = self._make(change.key, change.value, change.revision, change.created)
        if change.previous is not None:
            old = self._make(change.key, change.previous, change.previous_revision, change.created)
        return WatchedChange(change.revision, new, old)

    def apply(self, change: Change) -> None:
        """Applies a change and sends it to the watchers."""
        key = change.key
        old = self._objects.get(key)
        new = None
        if change.value is not None:
            new = self._make(key, change.value, change.revision, change.created)
            if old is None:
                insort(self._keys, key)
            self._objects[key] = new
        elif old is not None:
            del self._objects[key]
            del self._keys[bisect_left(self._keys, key)]
        self.changed = change.revision
        if new is None and old is None:
            return
        event = WatchedChange(change.revision, new, old)
        self._remember(event)
        self.watchers.deliver(event)
        event.forget_lines()

    def _remember(self, event: WatchedChange) -> None:
        self._events.append(event)
        self._event_bytes += event.size
        while len(self._events) > KEPT_EVENTS or self._event_bytes > KEPT_BYTES:
            gone = self._events.popleft()
            self._event_bytes -= gone.size
            self.complete_after = gone.revision
            if self._packing and gone.new and self._objects.get(gone.new.key) is gone.new:
                self._objects[gone.new.key] = self._packing.pack(gone.new)

    # --- reading ------------------------------------------------------------------------------------------------------

    def key(self, namespace: str, name: str) -> str:
        return f"{self.prefix}{namespace}/{name}" if namespace and self.row.namespaced else self.prefix + name

    def make(self, namespace: str, name: str, value: bytes, revision: int, created: int) -> Stored:
        """An object as it will be in the cache once the follower has applied its write."""
        return self._make(self.key(namespace, name), value, revision, created)

    def remembered(self, entry: Entry) -> Stored:
        """An object from the store's history."""
        return self._make(entry.key, entry.value, entry.revision, entry.created)

    def get(self, namespace: str, name: str) -> Stored | None:
        return self._objects.get(self.key(namespace, name))

    def list(self, namespace: str = "", start_after: str = "") -> Iterator[Stored]:
        """Objects in key order; the caller must not await while it iterates."""
        prefix = namespace_prefix(self.row.group, self.row.plural, namespace) if namespace else self.prefix
        begin = bisect_left(self._keys, start_after + "\0" if start_after else prefix)
        end = bisect_left(self._keys, prefix + LAST_CHARACTER)
        return (self._objects[key] for key in self._keys[begin:end])

    def count(self, namespace: str = "", start_after: str = "") -> int:
        prefix = namespace_prefix(self.row.group, self.row.plural, namespace) if namespace else self.prefix
        begin = bisect_left(self._keys, start_after + "\0" if start_after else prefix)
        return bisect_left(self._keys, prefix + LAST_CHARACTER) - begin

    def events_after(self, revision: int) -> Iterator[WatchedChange]:
        """Events after a revision that is not older than `complete_after`."""
        return (event for event in tuple(self._events) if event.revision > revision)

    def watch(self, watcher: Watcher) -> None:
        self.watchers.add(watcher)


class Objects(Protocol):
    """How admission, authentication and quota read other objects: as new as the store, as copies they may change."""

    async def get(self, group: str, plural: str, namespace: str, name: str) -> Document | None: ...

    async def list(self, group: str, plural: str, namespace: str = "") -> list[Document]: ...


class KindCaches:
    """The caches of all stored kinds; each is filled and brought forward by the follower of the store."""

    def __init__(self, follower: StoreFollower) -> None:
        self._follower = follower
        stored = [row for row in RESOURCES if row.is_stored and storage_row(row) is row]
        self._by_name = {row.qualified_plural: KindCache(row) for row in stored}
        for cache in self._by_name.values():
            follower.subscribe(cache.prefix, cache)

    def of(self, row: Resource) -> KindCache:
        return self._by_name[storage_row(row).qualified_plural]

    def __iter__(self) -> Iterator[KindCache]:
        return iter(self._by_name.values())

    async def get(self, group: str, plural: str, namespace: str, name: str) -> Document | None:
        stored = (await self._fresh(group, plural)).get(namespace, name)
        return stored.document() if stored else None

    async def list(self, group: str, plural: str, namespace: str = "") -> list[Document]:
        return [stored.document() for stored in (await self._fresh(group, plural)).list(namespace)]

    async def _fresh(self, group: str, plural: str) -> KindCache:
        row = by_plural(group, plural)
        assert row is not None, f"{group}/{plural} is not served"
        await self._follower.fresh()
        return self.of(row)

    def close_watchers(self) -> None:
        for cache in self:
            for watcher in cache.watchers:
                watcher.close()


# A window for two objects of usual size; a larger window takes more time to set up than it saves.
_WINDOW_BITS, _MEMORY_LEVEL, _LEVEL = -12, 5, 1


class Packing:
    """Compresses the objects of one kind that has many objects and few readers: Events, an hour of them.

    They are much alike, so one of them serves as the dictionary for the others: of a thousand bytes about 130 are left.
    Nothing that is read from a packed object is remembered beside it, since it would soon be larger than the object.
    """

    def __init__(self, prefix: str) -> None:
        self._cut = len(prefix)
        self._sample = b""

    def pack(self, stored: Stored) -> Stored:
        if not self._sample:
            self._sample = stored.value
        press = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOW_BITS, _MEMORY_LEVEL, zdict=self._sample)
        return Packed(stored, press.compress(stored.value) + press.flush(), self._sample, self._cut)


class Packed(Stored):
    """A Stored whose value, name and namespace are computed when they are read."""

    __slots__ = ("_cut", "_packed", "_sample")

    def __init__(self, stored: Stored, packed: bytes, sample: bytes, cut: int) -> None:
        # The base's constructor is not called: its slots stay empty, so that reading them calls `__getattr__`.
        self.key, self.revision, self.created, self._head = stored.key, stored.revision, stored.created, stored._head
        self._packed, self._sample, self._cut = packed, sample, cut
        self._labels = self._fields = None

    def __getattr__(self, name: str) -> Any:
        match name:
            case "value":
                return zlib.decompressobj(_WINDOW_BITS, zdict=self._sample).decompress(self._packed)
            case "name":
                return self.key[self._cut :].rpartition("/")[2]
            case "namespace":
                return self.key[self._cut :].rpartition("/")[0]
        raise AttributeError(name)

    @property
    def packed_size(self) -> int:
        return len(self._packed)

    def labels(self) -> Mapping[str, str]:
        return labels_in(self.value)

    def fields(self, fields_of: FieldsOf) -> dict[str, str]:
        document: Document = self.document()
        return fields_of(document)

    def matches_fields(self, selector: FieldSelector, fields_of: FieldsOf) -> bool:
        """Decodes only objects that contain the wanted values: a reader of one pod's events passes thousands of others."""
        value = self.value
        return all(text in value for text in selector.plain_texts) and selector.matches(self.fields(fields_of))
