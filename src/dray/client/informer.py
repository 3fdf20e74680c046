"""A local copy of one kind of object, kept current by a watch, and callbacks for every change; a cache of our own writes over it.

The copy is fed by a WatchList where the server offers it, else by a chunked list and a watch from its revision. A watch
that ends resumes from the last revision seen (bookmarks count); a revision that is gone means one new list, which is
compared with the copy so that handlers get exactly the differences. With `MutationCache` no decision is made on state older than our last write.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from dray.client.errors import ApiError, CredentialsError, ServerUnreachable
from dray.client.indexed_objects import IndexedObjects, Indexer
from dray.client.kinds import SHARED_DEVICES_LIST, ApiObject, Kind, WatchEvent, object_key, trimmed
from dray.client.rest import Client
from dray.client.shared_parts import SharedParts
from dray.clock import Clock

log = logging.getLogger(__name__)

T = TypeVar("T", bound=ApiObject)

BACKOFF_START_S = 0.8
BACKOFF_CAP_S = 30.0
# A watch that ends sooner without an event means that the server has failed, not a timeout or a lost connection.
SHORT_WATCH_S = 1.0
# Objects that did not change for so long share their parts with others. Those that come and go soon are not worth it.
SETTLED_S = 20.0
SETTLED_PER_CHANGE = 4


def _nothing(*_: object) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Handler(Generic[T]):
    """Plain functions, called in order on the event loop; they must not block.

    An object that was deleted and re-created between two looks arrives as `on_delete` and then `on_add`.
    """

    on_add: Callable[[T], None] = _nothing
    on_update: Callable[[T, T], None] = _nothing
    on_delete: Callable[[T], None] = _nothing


class Informer(Generic[T]):
    """Start with `start()`, wait with `await synced()`, read with `get`, `by_index` and iteration."""

    def __init__(
        self,
        client: Client,
        kind: Kind[T],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        indexers: Mapping[str, Indexer[T]] | None = None,
        resync_s: float = 0.0,
        watch_list: bool = True,
    ) -> None:
        self.kind = kind
        self.objects: IndexedObjects[T] = IndexedObjects(indexers)
        self.revision = ""
        self.relists = 0
        self._client = client
        self._namespace = namespace
        self._label_selector = label_selector
        self._field_selector = field_selector
        self._resync_s = resync_s
        # A list of slices has equal lists of devices once, a watch repeats them for each slice.
        self._watch_list = watch_list and kind.accept_list != SHARED_DEVICES_LIST
        # Lists of devices, the bulk of slices, are shared when they are decoded.
        self._parts = SharedParts() if kind.accept_list != SHARED_DEVICES_LIST else None
        # When each object changed, in this order, until its parts are shared.
        self._unsettled: OrderedDict[str, float] = OrderedDict()
        # The handlers of each type of event: most handlers leave some out, and there are many events.
        self._on_add: list[Callable[[T], None]] = []
        self._on_update: list[Callable[[T, T], None]] = []
        self._on_delete: list[Callable[[T], None]] = []
        self._synced = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._backoff_s = BACKOFF_START_S
        # When the present watch was opened.
        self._open_since: float | None = None

    # --- reading

    def get(self, key: str) -> T | None:
        return self.objects.get(key)

    def by_index(self, name: str, value: str) -> list[T]:
        return self.objects.by_index(name, value)

    def add_indexer(self, name: str, indexer: Indexer[T]) -> None:
        self.objects.add_indexer(name, indexer)

    def __iter__(self) -> Iterator[T]:
        return iter(self.objects)

    def __len__(self) -> int:
        return len(self.objects)

    @property
    def has_synced(self) -> bool:
        return self._synced.is_set()

    async def synced(self) -> None:
        await self._synced.wait()

    def add_handler(self, handler: Handler[T]) -> None:
        """A handler that is added late is called with every object that is known already."""
        if handler.on_add is not _nothing:
            self._on_add.append(handler.on_add)
        if handler.on_update is not _nothing:
            self._on_update.append(handler.on_update)
        if handler.on_delete is not _nothing:
            self._on_delete.append(handler.on_delete)
        for obj in self.objects:
            self._call(handler.on_add, obj)

    # --- life

    def start(self) -> None:
        if self._tasks:
            return
        self._tasks.append(asyncio.create_task(self.run(), name=f"informer {self.kind.plural}"))
        if self._resync_s:
            self._tasks.append(asyncio.create_task(self._resync(), name=f"resync {self.kind.plural}"))

    async def stop(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def run(self) -> None:
        """Lists and watches until cancelled; failures are retried with backoff."""
        while True:
            started, before, self._open_since = self._client.clock.monotonic(), self.revision, None
            try:
                seen = await self._follow() if self.revision else await self._load()
            except ApiError as error:
                if self.revision and error.is_expired:
                    log.info("%s: revision %s is gone, listing again", self.kind.plural, self.revision)
                    self.revision = ""
                    continue
                await self._back_off(error)
            except ServerUnreachable as error:
                # A healthy watch that was cut resumes at once, so that the next event is not delayed.
                if self.revision == before and not self._was_healthy():
                    await self._back_off(error)
                else:
                    self._backoff_s = BACKOFF_START_S
            except (CredentialsError, msgspec.MsgspecError) as error:
                await self._back_off(error)
            except Exception as error:
                # This is a bug, but a copy that silently stops following would be worse.
                log.exception("%s: unexpected failure", self.kind.plural)
                await self._back_off(error)
            else:
                if not seen and self._client.clock.monotonic() - started < SHORT_WATCH_S:
                    await self._back_off("watch ended at once")

    def _was_healthy(self) -> bool:
        """Whether the watch that has just ended was open for a while."""
        since = self._open_since
        return since is not None and self._client.clock.monotonic() - since >= SHORT_WATCH_S

    async def _back_off(self, reason: object) -> None:
        if self._was_healthy():
            self._backoff_s = BACKOFF_START_S
        wait_s = self._backoff_s * random.uniform(1.0, 1.5)
        if isinstance(reason, ApiError) and reason.retry_after_s:
            wait_s = max(wait_s, reason.retry_after_s)
        self._backoff_s = min(self._backoff_s * 2, BACKOFF_CAP_S)
        log.warning("%s: %s; trying again in %.1f s", self.kind.plural, reason, wait_s)
        await self._client.clock.sleep(wait_s)

    # --- the first state

    async def _load(self) -> bool:
        if self._watch_list:
            try:
                return await self._load_by_watch()
            except ApiError as error:
                if error.code not in (400, 404, 405, 422):
                    raise
                if error.code != 404:
                    self._watch_list = False
                    log.info("%s: no WatchList (%s), listing instead", self.kind.plural, error)
        listing = await self._client.list(
            self.kind, self._namespace, label_selector=self._label_selector, field_selector=self._field_selector
        )
        self._replace(map(trimmed, listing.items), listing.revision)
        return True

    async def _load_by_watch(self) -> bool:
        """Initial events, then live ones, in one stream. A stream that ends or is cut too early turns to listing."""
        initial: dict[str, T] = {}
        try:
            return await self._read_watch_list(initial)
        except ServerUnreachable:
            if initial and not self.revision:
                # The pages of a list are kept; another stream would have to start from the first object.
                self._watch_list = False
            raise

    async def _read_watch_list(self, initial: dict[str, T]) -> bool:
        async with self._client.watch(
            self.kind,
            self._namespace,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            initial_events=True,
        ) as events:
            self._open_since = self._client.clock.monotonic()
            async for event in events:
                if event.ends_initial_events:
                    self._replace(initial.values(), event.object.metadata.resource_version)
                    async for live_event in events:
                        self._apply(live_event)
                    return True
                if event.type == "DELETED":
                    initial.pop(object_key(event.object), None)
                elif event.type != "BOOKMARK":
                    initial[object_key(event.object)] = event.object
        self._watch_list = False
        return True

    def _replace(self, items: Iterable[T], revision: str) -> None:
        """Replaces the copy by `items` and calls handlers with the differences only."""
        self.relists += 1
        self._backoff_s = BACKOFF_START_S
        fresh = {object_key(item): item for item in items}
        for key in [key for key in self.objects.keys() if key not in fresh]:  # noqa: SIM118
            self._delete(key)
        for obj in fresh.values():
            self._put(obj)
        self.revision = revision
        self._synced.set()

    # --- changes

    async def _follow(self) -> bool:
        seen = False
        async with self._client.watch(
            self.kind,
            self._namespace,
            since=self.revision,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
        ) as events:
            self._open_since = self._client.clock.monotonic()
            async for event in events:
                seen = True
                self._apply(event)
        return seen

    def _apply(self, event: WatchEvent[T]) -> None:
        if event.type == "DELETED":
            self._delete(object_key(event.object), event.object)
        elif event.type != "BOOKMARK":
            self._put(event.object)
        self.revision = event.object.metadata.resource_version or self.revision
        self._backoff_s = BACKOFF_START_S

    def _put(self, obj: T) -> None:
        key = object_key(obj)
        old = self.objects.get(key)
        if old is not None and old.metadata.uid != obj.metadata.uid:
            self._delete(key)
            old = None
        elif old is not None and old.metadata.resource_version == obj.metadata.resource_version:
            return
        self.objects.put(obj, key)
        if self._parts is not None:
            self._settle(self._parts, key)
        if old is None:
            for on_add in self._on_add:
                self._call(on_add, obj)
        else:
            for on_update in self._on_update:
                self._call(on_update, old, obj)

    def _settle(self, parts: SharedParts, changed: str) -> None:
        """Each change pays for a few objects that have been quiet, so that no task and no timer is needed."""
        now, unsettled = self._client.clock.monotonic(), self._unsettled
        unsettled[changed] = now
        unsettled.move_to_end(changed)
        for _ in range(SETTLED_PER_CHANGE):
            oldest = next(iter(unsettled))
            if now - unsettled[oldest] < SETTLED_S:
                return
            del unsettled[oldest]
            quiet = self.objects.get(oldest)
            if isinstance(quiet, msgspec.Struct):
                parts.share(quiet)

    def _delete(self, key: str, last_state: T | None = None) -> None:
        known = self.objects.remove(key)
        self._unsettled.pop(key, None)
        gone = last_state if last_state is not None else known
        if known is None or gone is None:
            return
        for on_delete in self._on_delete:
            self._call(on_delete, gone)

    async def _resync(self) -> None:
        """Calls the handlers with every object again, in case one was missed."""
        while True:
            await self._client.clock.sleep(self._resync_s)
            for obj in self.objects:
                for on_update in self._on_update:
                    self._call(on_update, obj, obj)

    def _call(self, callback: Callable[..., None], *objects: T) -> None:
        try:
            callback(*objects)
        except Exception:
            # One handler's bug must not stop the copy that the other handlers use.
            log.exception("%s: a handler failed on %s", self.kind.plural, object_key(objects[-1]))


# --- our own writes ---------------------------------------------------------------------------------------------------

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
