"""Compacts the store regularly, and keeps enough history for a watch that was away for a few minutes.

Several servers on one store need no coordination: each drops only history that is a whole interval old, and dropping history
that another server has dropped already is no error.
"""

from collections.abc import Callable

from dray.clock import Clock
from dray.store.errors import Compacted, FutureRevision, StoreError
from dray.store.interface import Put, Store

INTERVAL_S = 300.0
# Written once per interval. Without it a list that is read page by page would never expire in a store that nobody writes to.
MARK = "/dray/history"


async def keep_history(
    store: Store,
    clock: Clock,
    interval_s: float = INTERVAL_S,
    forgotten: Callable[[int], None] = lambda revision: None,
) -> None:
    """Runs until cancelled. History is always at least one interval deep, and at most about two.

    `forgotten` is told the revision before which nothing is kept any more.
    """
    seen = await _revision(store)
    while True:
        await clock.sleep(interval_s)
        now = await _mark(store)
        if seen:
            await _forget(store, seen)
            forgotten(seen)
        seen = now


async def _revision(store: Store) -> int:
    """The current revision, or 0 if the store does not answer: then this round compacts nothing."""
    try:
        return await store.current_revision()
    except StoreError:
        return 0


async def _mark(store: Store) -> int:
    """Writes the mark and returns its revision, or 0 as above."""
    try:
        return await store.commit([Put(MARK, b"")])
    except StoreError:
        return 0


async def _forget(store: Store, revision: int) -> None:
    try:
        if revision > await store.compacted_revision():
            await store.compact(revision)
    except (Compacted, FutureRevision):
        return  # another server did it
    except StoreError:
        return  # the next round tries again
