"""The caches of stored objects, one per kind, and the follower of the store that keeps them up to date.

Lists, gets and watches are answered from the caches. The newest events are kept, so that a watcher that was away for a moment
continues without asking the store.

`StoreFollower` lists and watches everything below `/registry/` once, and hands it to all caches and indexes of the server. A subscriber first gets
every object below its prefix, then every change in order, and every object again when the store compacted changes before they were
seen. `progress` tells how far all subscribers have come: a revision is reached when each of them has applied it.
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import logging
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby
from typing import Protocol

from dray.api.scheme import RESOURCES, Resource, by_plural
from dray.apiserver import errors
from dray.apiserver.watch.packed_objects import packing_of
from dray.apiserver.watch.stored_object import (
    REGISTRY,
    Document,
    Stored,
    namespace_prefix,
    resource_prefix,
    storage_row,
    stored_factory,
)
from dray.apiserver.watch.watchers import WatchedChange, Watcher, WatcherIndex
from dray.clock import Clock
from dray.store.errors import Compacted, StoreError
from dray.store.interface import Change, Entry, Store
from dray.tasks import cancelled

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
        # Objects that are many and have not changed for a while are packed: when they leave the newest events.
        self._packing = packing_of(row)
        self._objects: dict[str, Stored] = {}
        self._keys: list[str] = []
        self._events: deque[WatchedChange] = deque()
        self._event_bytes = 0
        self._has_ended = False

    def __len__(self) -> int:
        return len(self._objects)

    # --- filling ------------------------------------------------------------------------------------------------------

    def loading(self) -> KindLoad:
        return KindLoad(self)

    def kept(self, entry: Entry, others: int) -> Stored:
        """An object of a load as this cache keeps it, beside so many others."""
        stored = self._make(entry.key, entry.value, entry.revision, entry.created)
        return self._packing.pack(stored) if self._packing and self._packing.is_worth_it(others) else stored

    def load(self, objects: dict[str, Stored], revision: int) -> None:
        """Start from what is stored at `revision`. Watchers cannot be told what they missed: they start over, too."""
        for watcher in self.watchers:
            watcher.close()
        self._objects = objects
        self._keys = sorted(objects)
        self._events.clear()
        self._event_bytes = 0
        self.changed = max(self.changed, max((each.revision for each in objects.values()), default=0))
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
            if not (self._packing and gone.new and self._packing.is_worth_it(len(self._objects))):
                continue
            if self._objects.get(gone.new.key) is gone.new:
                self._objects[gone.new.key] = self._packing.pack(gone.new)

    # --- reading ------------------------------------------------------------------------------------------------------

    def key(self, namespace: str, name: str) -> str:
        return f"{self.prefix}{namespace}/{name}" if namespace and self.row.namespaced else self.prefix + name

    def make(self, namespace: str, name: str, value: bytes, revision: int, created: int) -> Stored:
        """An object that is not stored like this."""
        return self._make(self.key(namespace, name), value, revision, created)

    def written(self, key: str, value: bytes, revision: int, created: int) -> Stored:
        """An object after its write: usually the follower has brought it here already."""
        found = self._objects.get(key)
        return found if found and found.revision == revision else self._make(key, value, revision, created)

    def remembered(self, entry: Entry) -> Stored:
        """An object from the store's history."""
        return self._make(entry.key, entry.value, entry.revision, entry.created)

    def at_key(self, key: str) -> Stored | None:
        return self._objects.get(key)

    def get(self, namespace: str, name: str) -> Stored | None:
        return self._objects.get(self.key(namespace, name))

    def list(self, namespace: str = "", start_after: str = "") -> Iterator[Stored]:
        """Objects in key order; the caller must not await while it iterates."""
        if not self._keys:
            return iter(())
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
        """A watcher that comes too late, since another cache took this one's place, starts over."""
        self.watchers.add(watcher)
        if self._has_ended:
            watcher.close()

    def entries(self) -> Sequence[Entry]:
        """The objects as the store has them."""
        return [Entry(key, stored.value, stored.revision, stored.created) for key, stored in self._objects.items()]

    def close_watchers(self) -> None:
        """No further change comes to this cache."""
        self._has_ended = True
        for watcher in self.watchers:
            watcher.close()


class KindLoad:
    """The objects of one kind while they are read. The cache has its former ones until all are there."""

    def __init__(self, cache: KindCache) -> None:
        self._cache = cache
        self._objects: dict[str, Stored] = {}

    def add(self, entries: Iterable[Entry]) -> None:
        kept, before = self._cache.kept, len(self._objects)
        self._objects.update((entry.key, kept(entry, before)) for entry in entries)

    def finish(self, revision: int) -> None:
        self._cache.load(self._objects, revision)


class ObjectLookup(Protocol):
    """How admission, authentication and quota read other objects: as new as the store.

    `get` and `list` give copies that the caller may change; `look` and `look_at_all` what all callers share and nobody changes, for
    the few objects that nearly every write asks about.
    """

    async def get(self, group: str, plural: str, namespace: str, name: str) -> Document | None: ...

    async def list(self, group: str, plural: str, namespace: str = "") -> list[Document]: ...

    def row_of_kind(self, group: str, kind: str) -> Resource | None:
        """The row of a stored kind."""
        ...

    async def look(self, group: str, plural: str, namespace: str, name: str) -> Document | None: ...

    async def look_at_all(self, group: str, plural: str) -> builtins.list[Document]: ...

    async def labels(self, group: str, plural: str, namespace: str, name: str) -> Mapping[str, str]:
        """Of an object that is large, such as a node; none if there is no such object."""
        ...

    async def stored(self, group: str, plural: str, namespace: str) -> builtins.list[Stored]:
        """The objects of a namespace as they are kept, for those who read them in a thread."""
        ...


class KindCaches:
    """The caches of all stored kinds; each is filled and brought forward by the follower of the store."""

    def __init__(self, follower: StoreFollower) -> None:
        self._follower = follower
        stored = [row for row in RESOURCES if row.is_stored and storage_row(row) is row]
        self._by_name = {row.qualified_plural: KindCache(row) for row in stored}
        self._by_row: dict[Resource, KindCache] = {}
        for cache in self._by_name.values():
            follower.subscribe(cache.prefix, cache)

    def put(self, row: Resource, revision: int) -> None:
        """The cache of a kind that is served from now on, or whose definition changed; its objects stay."""
        name = row.qualified_plural
        before = self._by_name.get(name)
        cache = self._by_name[name] = KindCache(row)
        self._by_row.clear()
        load = cache.loading()
        if before is not None:
            load.add(before.entries())
            before.close_watchers()
        load.finish(revision)
        self._follower.put(cache.prefix, cache)

    def drop(self, row: Resource) -> None:
        cache = self._by_name.pop(row.qualified_plural, None)
        self._by_row.clear()
        if cache is not None:
            cache.close_watchers()
            self._follower.drop(cache.prefix)

    def row(self, group: str, plural: str) -> Resource | None:
        cache = self._by_name.get(f"{plural}.{group}" if group else plural)
        return cache.row if cache is not None else by_plural(group, plural)

    def row_of_kind(self, group: str, kind: str) -> Resource | None:
        return next((cache.row for cache in self if (cache.row.group, cache.row.kind) == (group, kind)), None)

    def of(self, row: Resource) -> KindCache:
        found = self._by_row.get(row)
        if found is None:
            found = self._by_row[row] = self._by_name[storage_row(row).qualified_plural]
        return found

    def __iter__(self) -> Iterator[KindCache]:
        return iter(self._by_name.values())

    async def get(self, group: str, plural: str, namespace: str, name: str) -> Document | None:
        stored = (await self._fresh(group, plural)).get(namespace, name)
        return stored.document() if stored else None

    async def list(self, group: str, plural: str, namespace: str = "") -> list[Document]:
        return [stored.document() for stored in (await self._fresh(group, plural)).list(namespace)]

    async def look(self, group: str, plural: str, namespace: str, name: str) -> Document | None:
        stored = (await self._fresh(group, plural)).get(namespace, name)
        return stored.shared_document() if stored else None

    async def look_at_all(self, group: str, plural: str) -> builtins.list[Document]:
        return [stored.shared_document() for stored in (await self._fresh(group, plural)).list()]

    async def labels(self, group: str, plural: str, namespace: str, name: str) -> Mapping[str, str]:
        stored = (await self._fresh(group, plural)).get(namespace, name)
        return stored.labels() if stored else {}

    async def stored(self, group: str, plural: str, namespace: str) -> builtins.list[Stored]:
        return [*(await self._fresh(group, plural)).list(namespace)]

    async def _fresh(self, group: str, plural: str) -> KindCache:
        await self._follower.fresh()
        found = self._by_name.get(f"{plural}.{group}" if group else plural)
        if found is None:
            row = by_plural(group, plural)
            assert row is not None, f"{group}/{plural} is not served"
            found = self.of(row)
        return found

    def close_watchers(self) -> None:
        for cache in self:
            cache.close_watchers()


log = logging.getLogger(__name__)

RETRY_S = 0.2
# How long a read waits for a revision that a client says it has seen.
FUTURE_WAIT_S = 3.0


class SubscriberLoad(Protocol):
    """Everything that is stored for one subscriber, page by page. A load that is not finished never happened."""

    def add(self, entries: Sequence[Entry]) -> None: ...

    def finish(self, revision: int) -> None:
        """The entries that were added are all there are at `revision`; they replace everything from before."""
        ...


class Subscriber(Protocol):
    def loading(self) -> SubscriberLoad: ...

    def apply(self, change: Change) -> None: ...


class CollectedLoad:
    """A load for a subscriber that needs all entries at once."""

    def __init__(self, load: Callable[[Sequence[Entry], int], None]) -> None:
        self._load = load
        self._entries: list[Entry] = []

    def add(self, entries: Sequence[Entry]) -> None:
        self._entries += entries

    def finish(self, revision: int) -> None:
        self._load(self._entries, revision)


# Called with the key and the new value, or None when the key is gone.
ApplyValue = Callable[[str, bytes | None], None]


class StoreFollower:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._subscribers: dict[str, list[Subscriber]] = {}
        # Prefixes of kinds that come and go with their definitions. They are loaded after these.
        self._defined: set[str] = set()
        self._following: asyncio.Task[None] | None = None
        self.progress = Progress()

    # --- subscribing --------------------------------------------------------------------------------------------------

    def subscribe(self, prefix: str, subscriber: Subscriber) -> None:
        """`prefix` is that of one kind (`resource_prefix`). To be called before `start`; subscribers are called in this order."""
        assert self._following is None, "the store is being followed already"
        self._subscribers.setdefault(prefix, []).append(subscriber)

    def put(self, prefix: str, subscriber: Subscriber) -> None:
        """The only subscriber of a prefix, from now on; also while the store is followed."""
        self._subscribers[prefix] = [subscriber]
        self._defined.add(prefix)

    def drop(self, prefix: str) -> None:
        self._subscribers.pop(prefix, None)
        self._defined.discard(prefix)

    def subscribe_index(self, prefixes: Iterable[str], apply: ApplyValue) -> None:
        """For an index that needs keys and values only."""
        for prefix in prefixes:
            self.subscribe(prefix, _Index(apply))

    # --- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Returns once every subscriber has everything that is stored."""
        revision = await self._load()
        self._following = asyncio.get_running_loop().create_task(self._follow(revision))

    async def stop(self) -> None:
        await cancelled(self._following)

    async def _load(self) -> int:
        """Reads the store page by page, so that of most values only the part that subscribers keep is ever in memory."""
        revision = 0
        loads = {
            prefix: [each.loading() for each in subscribers]
            for prefix, subscribers in self._subscribers.items()
            if prefix not in self._defined
        }
        others: dict[str, list[Entry]] = {}
        async with contextlib.aclosing(self._store.pages(REGISTRY)) as pages:
            async for page in pages:
                revision = page.revision
                for prefix, entries in groupby(page.entries, lambda entry: prefix_of(entry.key)):
                    if prefix in loads:
                        found = tuple(entries)
                        for load in loads[prefix]:
                            load.add(found)
                    else:
                        others.setdefault(prefix, []).extend(entries)
        for load in chain.from_iterable(loads.values()):
            load.finish(revision)
        # Definitions have brought the caches of their kinds by now.
        for prefix in self._defined:
            for subscriber in self._subscribers[prefix]:
                load = subscriber.loading()
                load.add(others.get(prefix, ()))
                load.finish(revision)
        self.progress.reach(revision)
        return revision

    async def _follow(self, revision: int) -> None:
        while True:
            try:
                async with contextlib.aclosing(self._store.watch(REGISTRY, revision)) as batches:
                    async for batch in batches:
                        for change in batch.changes:
                            for subscriber in self._subscribers.get(prefix_of(change.key), ()):
                                subscriber.apply(change)
                        revision = batch.revision
                        self.progress.reach(revision)
            except Compacted:
                log.warning("the store forgot revision %d before we saw it: loading everything again", revision)
                revision = await self._reload()
            except StoreError as error:
                log.warning("watching the store: %s", error)
                await self._clock.sleep(RETRY_S)

    async def _reload(self) -> int:
        while True:
            try:
                return await self._load()
            except StoreError as error:
                log.warning("listing the store: %s", error)
                await self._clock.sleep(RETRY_S)

    # --- waiting ------------------------------------------------------------------------------------------------------

    async def fresh(self) -> int:
        """Waits until all subscribers have everything the store has now; returns that revision."""
        revision = await self._store.current_revision()
        if self.progress.revision < revision:
            await self.progress.wait_for(revision)
        return revision

    async def reach(self, revision: int) -> None:
        """Waits for a revision a client says it has seen; raises 504 if it does not come."""
        if self.progress.revision >= revision:
            return
        current = await self.fresh()
        if current >= revision:
            return
        waiting = asyncio.ensure_future(self.progress.wait_for(revision))
        timer = asyncio.ensure_future(self._clock.sleep(FUTURE_WAIT_S))
        done, _ = await asyncio.wait({waiting, timer}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        timer.cancel()
        if waiting not in done:
            raise errors.revision_too_large(revision, self.progress.revision)


class _Index:
    """Feeds an index from one prefix. After a reload the index also hears of keys that are gone."""

    def __init__(self, apply: ApplyValue) -> None:
        self._apply = apply
        self._keys: set[str] = set()

    def loading(self) -> _IndexLoad:
        return _IndexLoad(self)

    def drop_others(self, found: set[str]) -> None:
        for key in self._keys - found:
            self.pass_on(key, None)
        self._keys = found

    def apply(self, change: Change) -> None:
        if change.value is None:
            self._keys.discard(change.key)
        else:
            self._keys.add(change.key)
        self.pass_on(change.key, change.value)

    def pass_on(self, key: str, value: bytes | None) -> None:
        try:
            self._apply(key, value)
        except Exception:
            # One unreadable object must not stop the index for all others.
            log.exception("cannot read %s", key)


class _IndexLoad:
    """The index hears of each value when it is read, and at the end of the keys that are gone."""

    def __init__(self, index: _Index) -> None:
        self._index = index
        self._keys: set[str] = set()

    def add(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self._keys.add(entry.key)
            self._index.pass_on(entry.key, entry.value)

    def finish(self, revision: int) -> None:
        self._index.drop_others(self._keys)


class Progress:
    """How far the subscribers have come; readers wait here for a revision."""

    def __init__(self) -> None:
        self.revision = 0
        self._loop = asyncio.get_running_loop()
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    def reach(self, revision: int) -> None:
        self.revision = revision
        if self._waiting:
            still = []
            for wanted, future in self._waiting:
                if future.done():
                    continue
                if wanted <= revision:
                    future.set_result(None)
                else:
                    still.append((wanted, future))
            self._waiting = still

    async def wait_for(self, revision: int) -> None:
        if self.revision >= revision:
            return
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((revision, future))
        await future


def prefix_of(key: str) -> str:
    """`/registry/<group>/<plural>/` of an object's key."""
    group_end = key.find("/", len(REGISTRY))
    return key[: key.find("/", group_end + 1) + 1]
