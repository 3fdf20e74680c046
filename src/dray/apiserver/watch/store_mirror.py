"""Keeping an index next to the store: every value below a prefix once, then every change, for as long as the server runs."""

import asyncio
import contextlib
import logging
from collections.abc import Callable

from dray.clock import Clock, RealClock
from dray.store.errors import Compacted, StoreError
from dray.store.interface import Store
from dray.tasks import cancelled

log = logging.getLogger(__name__)

RETRY_S = 0.2

# Called with the key and the new value, or None when the key is gone.
Apply = Callable[[str, bytes | None], None]


class Mirror:
    """Feeds `apply` from one prefix. It is told of vanished keys also when the watch had to start over."""

    def __init__(self, store: Store, prefix: str, apply: Apply, clock: Clock | None = None) -> None:
        self._store = store
        self._prefix = prefix
        self._apply = apply
        self._clock = clock or RealClock()
        self._keys: set[str] = set()
        self._task: asyncio.Task[None] | None = None
        self.revision = 0

    async def start(self) -> None:
        """Returns once everything stored has been applied."""
        await self._load()
        self._task = asyncio.create_task(self._follow())

    async def stop(self) -> None:
        await cancelled(self._task)

    async def _load(self) -> None:
        page = await self._store.list(self._prefix)
        found = {entry.key for entry in page.entries}
        for key in self._keys - found:
            self._one(key, None)
        for entry in page.entries:
            self._one(entry.key, entry.value)
        self._keys = found
        self.revision = page.revision

    async def _follow(self) -> None:
        while True:
            try:
                async with contextlib.aclosing(self._store.watch(self._prefix, self.revision)) as batches:
                    async for batch in batches:
                        for change in batch.changes:
                            self._note(change.key, change.value)
                        self.revision = batch.revision
            except Compacted:
                await self._reload()
            except StoreError as error:
                log.warning("watching %s: %s", self._prefix, error)
                await self._clock.sleep(RETRY_S)

    async def _reload(self) -> None:
        while True:
            try:
                await self._load()
                return
            except StoreError as error:
                log.warning("listing %s: %s", self._prefix, error)
                await self._clock.sleep(RETRY_S)

    def _note(self, key: str, value: bytes | None) -> None:
        if value is None:
            self._keys.discard(key)
        else:
            self._keys.add(key)
        self._one(key, value)

    def _one(self, key: str, value: bytes | None) -> None:
        try:
            self._apply(key, value)
        except Exception:
            # One unreadable object must not stop the index for all others.
            log.exception("cannot read %s", key)
