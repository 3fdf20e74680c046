"""What all parts of the server share: the store, the caches over it, gates, clock, admission."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from random import Random, SystemRandom
from typing import Any

from dray.api.scheme import RESOURCES, Resource
from dray.apiserver import errors
from dray.apiserver.read.storage_conversion import storage_row
from dray.apiserver.watch.kind_cache import (
    KindCache,
    Progress,
)
from dray.apiserver.watch.stored_object import REGISTRY, Stored
from dray.apiserver.write.admission.chain import Admission, AdmissionChain
from dray.clock import Clock, rfc3339
from dray.features import FeatureGates
from dray.store.errors import Compacted, StoreError
from dray.store.interface import Delete, Entry, Operation, Precondition, Store
from dray.tasks import cancelled

log = logging.getLogger(__name__)

Document = dict[str, Any]
# Writes an object together with what must change with it: operations, preconditions, the object before and after.
Commit = Callable[[Sequence[Operation], Sequence[Precondition], Document | None, Document | None], Awaitable[int]]
RETRY_S = 0.2
SECOND = timedelta(seconds=1)
# How long a read waits for a revision that is said to exist before it gives up.
FUTURE_WAIT_S = 3.0


class NoAdmission:
    async def mutate(self, admission: Admission) -> None: ...

    async def validate(self, admission: Admission) -> None: ...


async def _no_holdings(old: Document | None, new: Document | None) -> None:
    return None


class Core:
    def __init__(self, store: Store, clock: Clock, gates: FeatureGates, random: Random | None = None) -> None:
        self.store = store
        self.clock = clock
        self.gates = gates
        self.random = random or SystemRandom()
        self.admission: AdmissionChain = NoAdmission()
        self.commit: Commit = self._plain_commit
        # Raises 409 if a claim would hold what another has; for dry runs, which do not come as far as `commit`.
        self.check_holdings: Callable[[Document | None, Document | None], Awaitable[object]] = _no_holdings
        # KEP-5517 forbids to resize pods whose claims take cpu or memory; Kubernetes today does not.
        self.resize_with_claims = False
        self._second = self._next_second = datetime.min.replace(tzinfo=UTC)
        self._second_text = ""
        self.progress = Progress()
        self._caches = {row.qualified_plural: KindCache(row) for row in RESOURCES if row.is_stored}
        self._by_prefix = {
            cache.prefix: cache for cache in self._caches.values() if storage_row(cache.row) is cache.row
        }
        self._following: asyncio.Task[None] | None = None

    # --- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Returns once the caches hold everything that is stored."""
        revision = await self._load()
        self._following = asyncio.get_running_loop().create_task(self._follow(revision))

    async def stop(self) -> None:
        await cancelled(self._following)
        for cache in self._by_prefix.values():
            for watcher in cache.watchers:
                watcher.close()

    async def _load(self) -> int:
        page = await self.store.list(REGISTRY)
        sorted_out: dict[str, list[Entry]] = {prefix: [] for prefix in self._by_prefix}
        for entry in page.entries:
            entries = sorted_out.get(prefix_of(entry.key))
            if entries is not None:
                entries.append(entry)
        for prefix, entries in sorted_out.items():
            self._by_prefix[prefix].load(iter(entries), page.revision)
        self.progress.reach(page.revision)
        return page.revision

    async def _follow(self, revision: int) -> None:
        while True:
            try:
                async with contextlib.aclosing(self.store.watch(REGISTRY, revision)) as batches:
                    async for batch in batches:
                        for change in batch.changes:
                            cache = self._by_prefix.get(prefix_of(change.key))
                            if cache is not None:
                                cache.apply(change)
                        revision = batch.revision
                        self.progress.reach(revision)
            except Compacted:
                log.warning("the store forgot revision %d before we saw it: loading everything again", revision)
                revision = await self._reload()
            except StoreError as error:
                log.warning("watching the store: %s", error)
                await self.clock.sleep(RETRY_S)

    async def _reload(self) -> int:
        """Watchers cannot be told what they missed: they start over, too."""
        for prefix, cache in list(self._by_prefix.items()):
            for watcher in cache.watchers:
                watcher.close()
            fresh = KindCache(cache.row)
            self._by_prefix[prefix] = fresh
            self._caches[cache.row.qualified_plural] = fresh
        return await self._load()

    # --- reading ------------------------------------------------------------------------------------------------------

    def cache(self, row: Resource) -> KindCache:
        return self._caches[storage_row(row).qualified_plural]

    def caches(self) -> list[KindCache]:
        return list(self._by_prefix.values())

    async def fresh(self) -> int:
        """Waits until the caches have everything the store has now; answers that revision."""
        revision = await self.store.current_revision()
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
        timer = asyncio.ensure_future(self.clock.sleep(FUTURE_WAIT_S))
        done, _ = await asyncio.wait({waiting, timer}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        timer.cancel()
        if waiting not in done:
            raise errors.revision_too_large(revision, self.progress.revision)

    def namespace_labels(self, document: Document) -> Mapping[str, str] | None:
        """Labels of the namespace an object is in; None if there is no such namespace."""
        namespace = document["metadata"].get("namespace")
        if not namespace:
            return {}
        stored = self._caches["namespaces"].get("", namespace)
        return stored.labels() if stored else None

    # --- writing ------------------------------------------------------------------------------------------------------

    async def remove(self, stored: Stored, document: Document) -> int:
        """Delete exactly what was read; raises Conflict if it changed."""
        return await self.commit([Delete(stored.key)], [Precondition(stored.key, stored.revision)], document, None)

    async def _plain_commit(
        self,
        operations: Sequence[Operation],
        preconditions: Sequence[Precondition],
        old: Document | None,
        new: Document | None,
    ) -> int:
        return await self.store.commit(operations, preconditions)

    # --- making things up ---------------------------------------------------------------------------------------------

    def now(self) -> str:
        """The time as objects carry it; the text is made once a second."""
        moment = self.clock.now()
        if not self._second <= moment < self._next_second:
            self._second = moment.replace(microsecond=0)
            self._next_second, self._second_text = self._second + SECOND, rfc3339(self._second)
        return self._second_text

    def timestamp(self) -> float:
        return self.clock.now().astimezone(UTC).timestamp()

    def new_uid(self) -> str:
        return str(uuid.UUID(int=self.random.getrandbits(128), version=4))


def prefix_of(key: str) -> str:
    """`/registry/<group>/<plural>/` of an object's key."""
    group_end = key.find("/", len(REGISTRY))
    return key[: key.find("/", group_end + 1) + 1]
