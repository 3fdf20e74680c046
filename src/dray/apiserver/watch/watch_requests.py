"""Watch requests: where a watch starts, its bookmarks and its end."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import resource
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, count
from random import Random
from typing import Any

from dray.apiserver import errors
from dray.apiserver.core import QUICK, Core, in_thread_if_large
from dray.apiserver.errors import ApiError
from dray.apiserver.read.get_and_list import Reader, selected
from dray.apiserver.read.representations import (
    Representation,
    Table,
    representation_of,
)
from dray.apiserver.request.request_info import ApiCall
from dray.apiserver.request.request_options import (
    ListOptions,
    list_options,
    revision_number,
)
from dray.apiserver.watch.kind_cache import KindCache
from dray.apiserver.watch.stored_object import Stored
from dray.apiserver.watch.watchers import (
    BOOKMARK,
    ERROR,
    Line,
    WatchedChange,
    Watcher,
)
from dray.clock import Clock
from dray.store.errors import Compacted
from dray.tasks import cancelled

Known = weakref.ref[Watcher]

INITIAL_EVENTS_END = {"k8s.io/initial-events-end": "true"}
MIN_TIMEOUT_S = 1800
BOOKMARK_INTERVAL_S = 60.0
# The last bookmark comes this long before the end, so that the client can continue from a recent revision.
LAST_BOOKMARK_S = 2.0
TICK_S = 0.1
RESERVED_FILES = 256
# Choosing and encoding so many usual events takes some milliseconds.
EVENTS_AT_ONCE = 256


class Timers:
    """Timers of thousands of watches in one sleeping task."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._order = count()
        self._task: asyncio.Task[None] | None = None

    def after(self, seconds: float, action: Callable[[], object]) -> None:
        heapq.heappush(self._due, (self._clock.monotonic() + seconds, next(self._order), action))
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while self._due:
            await self._clock.sleep(TICK_S)
            now = self._clock.monotonic()
            while self._due and self._due[0][0] <= now:
                heapq.heappop(self._due)[2]()

    async def stop(self) -> None:
        await cancelled(self._task)


class TableWatcher(Watcher):
    """Sends the column definitions once, with the first row."""

    __slots__ = ()

    def _lines_of(self, state: Sequence[Stored]) -> Iterator[Line]:
        first = list(super()._lines_of(state[:1]))
        if first:
            self._forget_columns()
        return chain(first, super()._lines_of(state[1:]))

    def offer(self, event: WatchedChange) -> bool:
        is_sent = super().offer(event)
        if is_sent:
            self._forget_columns()
        return is_sent

    def _forget_columns(self) -> None:
        if isinstance(self.representation, Table) and self.representation.with_columns:
            self.representation = replace(self.representation, with_columns=False)


class WatchStream:
    """The response stream of a watch."""

    def __init__(self, watcher: Watcher, leave: Callable[[Watcher], None]) -> None:
        self._watcher = watcher
        self._leave = leave

    def __aiter__(self) -> WatchStream:
        return self

    async def __anext__(self) -> bytes:
        piece = await self._watcher.take()
        # Usually one event, which is encoded already.
        if len(piece) == 1 and isinstance(line := piece[0], bytes):
            return line
        if not piece:
            await self.aclose()
            raise StopAsyncIteration
        try:
            return await in_thread_if_large(piece.bytes_to_encode // QUICK, piece.encode)
        except ApiError:  # too late: the client watches again, from the last event that it has
            await self.aclose()
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        self._watcher.close()
        self._leave(self._watcher)


class WatchRequests:
    def __init__(self, core: Core, reader: Reader, random: Random) -> None:
        self._core = core
        self._reader = reader
        self._random = random
        self._timers = Timers(core.clock)
        self.open = 0
        self.limit = max(resource.getrlimit(resource.RLIMIT_NOFILE)[0] - RESERVED_FILES, 64)

    async def stop(self) -> None:
        await self._timers.stop()

    async def watch(self, call: ApiCall) -> WatchStream:
        options = list_options(call.query, watch=True)
        selection = self._reader.selection(call, options)
        shown = representation_of(call, self._core.clock, is_list=False)
        after = revision_number(options.resource_version, "")
        if self.open >= self.limit:
            raise errors.too_many_requests(f"too many watches: {self.open} are open, the limit is {self.limit}")
        kind = TableWatcher if isinstance(shown, Table) else Watcher
        watcher = kind(selection, shown, after)
        cache = self._core.cache(call.row)
        self.open += 1
        try:
            await self._start(watcher, cache, options, after)
        except BaseException:
            self.open -= 1
            raise
        self._set_timers(watcher, options)
        return WatchStream(watcher, self._leave)

    def _leave(self, watcher: Watcher) -> None:
        if watcher.leave is not None:
            watcher.leave(watcher)
            watcher.leave = None
            self.open -= 1

    async def _start(self, watcher: Watcher, cache: KindCache, options: ListOptions, after: int) -> None:
        wants_state = options.send_initial_events
        if wants_state is None:
            wants_state = after == 0
        if after and wants_state:
            await self._core.reach(after)
        elif not after and options.resource_version != "0":
            await self._core.fresh()
        if not after or wants_state:
            watcher.revision = self._core.progress.revision
        if wants_state:
            await self._send_state(watcher, cache, options)
        try:
            await self._catch_up(watcher, cache)
        except Compacted as gone:
            self._too_old(watcher, gone)
        watcher.leave = cache.watchers.remove
        cache.watch(watcher)

    async def _send_state(self, watcher: Watcher, cache: KindCache, options: ListOptions) -> None:
        watcher.begin_with(await selected(watcher.selection, cache.list(watcher.selection.namespace)))
        if options.send_initial_events and options.bookmarks:
            self._bookmark(watcher, INITIAL_EVENTS_END, watcher.revision)

    async def _catch_up(self, watcher: Watcher, cache: KindCache) -> None:
        """Sends the events after the watcher's revision: from the cache, or, if they are older, from the store's history.

        When it returns, not one event is missing. Others take their turn after every few events. The history can be ahead of the cache,
        which will bring those events once more: that is why the watcher's revision moves with what it was offered.
        """
        while True:
            if watcher.revision < cache.complete_after:
                await self._read_history(watcher, cache)
            few = list(_of_whole_revisions(cache.events_after(watcher.revision), EVENTS_AT_ONCE))
            for event in few:
                watcher.offer(event)
            if few:
                watcher.revision = few[-1].revision
            if len(few) < EVENTS_AT_ONCE:
                return
            await asyncio.sleep(0)

    async def _read_history(self, watcher: Watcher, cache: KindCache) -> None:
        async with contextlib.aclosing(self._core.store.watch(cache.prefix, watcher.revision)) as batches:
            async for batch in batches:
                for change in batch.changes:
                    watcher.offer(cache.event(change))
                watcher.revision = max(watcher.revision, batch.revision)
                if batch.revision >= cache.complete_after:
                    break

    def _too_old(self, watcher: Watcher, gone: Compacted) -> None:
        error = errors.expired(f"too old resource version: {gone.requested} ({gone.compacted})")
        self._fail(watcher, error)

    def _fail(self, watcher: Watcher, error: ApiError) -> None:
        shown: Representation = watcher.representation  # type: ignore[assignment]
        watcher.push(shown.event(ERROR, shown.failed(error.status())))
        watcher.close()

    # --- time ---------------------------------------------------------------------------------------------------------

    def _set_timers(self, watcher: Watcher, options: ListOptions) -> None:
        """Timers hold weak references: a watch that ended early must not stay in memory until its timeout."""
        timeout = options.timeout_s
        if not timeout or timeout < 0:
            timeout = round(MIN_TIMEOUT_S * (1 + self._random.random()))
        known = weakref.ref(watcher)
        self._timers.after(timeout, partial(self._close, known))
        if options.bookmarks:
            self._timers.after(max(timeout - LAST_BOOKMARK_S, 0.0), partial(self._bookmark_if_open, known))
            self._next_bookmark(known)

    def _close(self, known: Known) -> None:
        watcher = known()
        if watcher is not None:
            watcher.close()

    def _next_bookmark(self, known: Known) -> None:
        def send() -> None:
            if self._bookmark_if_open(known):
                self._next_bookmark(known)

        self._timers.after(BOOKMARK_INTERVAL_S * (0.75 + self._random.random() / 2), send)

    def _bookmark_if_open(self, known: Known) -> bool:
        watcher = known()
        if watcher is None or watcher.closed:
            return False
        self._bookmark(watcher, None, max(self._core.progress.revision, watcher.revision))
        return True

    def _bookmark(self, watcher: Watcher, annotations: dict[str, Any] | None, revision: int) -> None:
        shown: Representation = watcher.representation  # type: ignore[assignment]
        watcher.push(shown.event(BOOKMARK, shown.bookmark(revision, annotations)))


def _of_whole_revisions(events: Iterator[WatchedChange], count: int) -> Iterator[WatchedChange]:
    """The first `count` events, and those after them that have the revision of the last one."""
    last = 0
    for number, event in enumerate(events):
        if number >= count and event.revision != last:
            return
        last = event.revision
        yield event
