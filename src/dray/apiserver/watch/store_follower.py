"""Follows the store: one list and one watch of everything below `/registry/`, handed to all caches and indexes of the server.

A subscriber first gets every object below its prefix, then every change in order, and every object again when the store
compacted changes before they were seen. `progress` tells how far all subscribers have come: a revision is reached when
each of them has applied it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from dray.apiserver import errors
from dray.apiserver.watch.stored_object import REGISTRY
from dray.clock import Clock
from dray.store.errors import Compacted, StoreError
from dray.store.interface import Change, Entry, Store
from dray.tasks import cancelled

log = logging.getLogger(__name__)

RETRY_S = 0.2
# How long a read waits for a revision that a client says it has seen.
FUTURE_WAIT_S = 3.0


class Subscriber(Protocol):
    def load(self, entries: Sequence[Entry], revision: int) -> None:
        """Replaces everything by these entries, which are all there are at `revision`."""
        ...

    def apply(self, change: Change) -> None: ...


# Called with the key and the new value, or None when the key is gone.
ApplyValue = Callable[[str, bytes | None], None]


class StoreFollower:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._subscribers: dict[str, list[Subscriber]] = {}
        self._following: asyncio.Task[None] | None = None
        self.progress = Progress()

    # --- subscribing --------------------------------------------------------------------------------------------------

    def subscribe(self, prefix: str, subscriber: Subscriber) -> None:
        """`prefix` is that of one kind (`resource_prefix`). To be called before `start`; subscribers are called in this order."""
        assert self._following is None, "the store is being followed already"
        self._subscribers.setdefault(prefix, []).append(subscriber)

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
        page = await self._store.list(REGISTRY)
        by_prefix: dict[str, list[Entry]] = {prefix: [] for prefix in self._subscribers}
        for entry in page.entries:
            entries = by_prefix.get(prefix_of(entry.key))
            if entries is not None:
                entries.append(entry)
        for prefix, entries in by_prefix.items():
            for subscriber in self._subscribers[prefix]:
                subscriber.load(entries, page.revision)
        self.progress.reach(page.revision)
        return page.revision

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

    def load(self, entries: Sequence[Entry], revision: int) -> None:
        found = {entry.key for entry in entries}
        for key in self._keys - found:
            self._pass_on(key, None)
        for entry in entries:
            self._pass_on(entry.key, entry.value)
        self._keys = found

    def apply(self, change: Change) -> None:
        if change.value is None:
            self._keys.discard(change.key)
        else:
            self._keys.add(change.key)
        self._pass_on(change.key, change.value)

    def _pass_on(self, key: str, value: bytes | None) -> None:
        try:
            self._apply(key, value)
        except Exception:
            # One unreadable object must not stop the index for all others.
            log.exception("cannot read %s", key)


class Progress:
    """How far the subscribers have come; readers wait here for a revision."""

    def __init__(self) -> None:
        self.revision = 0
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
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((revision, future))
        await future


def prefix_of(key: str) -> str:
    """`/registry/<group>/<plural>/` of an object's key."""
    group_end = key.find("/", len(REGISTRY))
    return key[: key.find("/", group_end + 1) + 1]
