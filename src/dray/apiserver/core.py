"""`Core` holds the parts that all request handlers share: store, caches, write path, feature gates, clock, source of UIDs."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random, SystemRandom
from typing import Any

from dray.api.scheme import Resource, by_kind
from dray.apiserver.watch.kind_cache import KindCache, KindCaches, Progress, StoreFollower
from dray.apiserver.watch.stored_object import Stored
from dray.apiserver.write.admission.chain import AdmissionChain
from dray.clock import Clock, rfc3339
from dray.features import FeatureGates
from dray.store.interface import Delete, Operation, Precondition, Store

Document = dict[str, Any]
# Writes an object together with what must change with it: operations, preconditions, the object before and after.
Commit = Callable[[Sequence[Operation], Sequence[Precondition], Document | None, Document | None], Awaitable[int]]
# Raises the refusals of `Commit` for the object before and after, without a write.
CommitCheck = Callable[[Document | None, Document | None], Awaitable[object]]
SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class WritePath:
    """The stages between a decoded write and the store. Dry runs end with `check` in place of `commit`."""

    admission: AdmissionChain
    commit: Commit
    check: CommitCheck


class Core:
    def __init__(
        self,
        store: Store,
        follower: StoreFollower,
        caches: KindCaches,
        writes: WritePath,
        clock: Clock,
        gates: FeatureGates,
        *,
        resize_with_claims: bool = False,
        random: Random | None = None,
    ) -> None:
        self.store = store
        self.clock = clock
        self.gates = gates
        self.random = random or SystemRandom()
        self.admission = writes.admission
        self.commit = writes.commit
        self.check_commit = writes.check
        # KEP-5517 forbids to resize pods whose claims take cpu or memory; Kubernetes today does not.
        self.resize_with_claims = resize_with_claims
        self._follower = follower
        self._caches = caches
        self._second = self._next_second = datetime.min.replace(tzinfo=UTC)
        self._second_text = ""

    async def stop(self) -> None:
        await self._follower.stop()
        self.close_watchers()

    def close_watchers(self) -> None:
        self._caches.close_watchers()

    # --- reading ------------------------------------------------------------------------------------------------------

    def cache(self, row: Resource) -> KindCache:
        return self._caches.of(row)

    def caches(self) -> list[KindCache]:
        return list(self._caches)

    @property
    def progress(self) -> Progress:
        return self._follower.progress

    async def fresh(self) -> int:
        """Waits until the caches have everything the store has now; returns that revision."""
        return await self._follower.fresh()

    async def reach(self, revision: int) -> None:
        """Waits for a revision a client says it has seen; raises 504 if it does not come."""
        await self._follower.reach(revision)

    def namespace_labels(self, document: Document) -> Mapping[str, str] | None:
        """Labels of the namespace an object is in; None if there is no such namespace."""
        namespace = document["metadata"].get("namespace")
        if not namespace:
            return {}
        stored = self._caches.of(by_kind("Namespace")).get("", namespace)
        return stored.labels() if stored else None

    # --- writing ------------------------------------------------------------------------------------------------------

    async def remove(self, stored: Stored, document: Document) -> int:
        """Delete exactly what was read; raises Conflict if it changed."""
        return await self.commit([Delete(stored.key)], [Precondition(stored.key, stored.revision)], document, None)

    # --- times and names ----------------------------------------------------------------------------------------------

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
