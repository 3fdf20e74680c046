"""What all request handlers share: `Core` (store, caches, write path, feature gates, clock, source of UIDs), and how they share the event loop.

`WritePriority` decides which write starts next. Normally all writes that have arrived start in the same turn of the event loop, since writes that
are committed together cost less. But a pod reaches its node by three writes of the scheduler, one after the other, and each would wait for all
others. So a trusted user may mark a write as urgent. While urgent writes keep coming, as many other writes start in each turn as urgent ones
came since the turn before, at least one, in the order of arrival.

`ContendedWrites` lets writes that meet at one object go one after the other. `JointCommit` stores several writes of one caller in one commit.

`in_thread_if_large` lets threads do the work of large requests, so that the loop answers others meanwhile. Only pure functions run there: decoding,
ownership, patches and validation look at the request and the stored object, and at nothing else; so does showing objects in another form.
"""

from __future__ import annotations

import asyncio
import traceback
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC
from random import Random, SystemRandom
from types import TracebackType
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from dray.api.scheme import WRITE_VERBS, by_kind
from dray.apiserver import errors
from dray.apiserver.errors import ApiError
from dray.apiserver.request.request_info import MASTERS, Request, RequestInfo, User
from dray.apiserver.watch.kind_cache import KindCache, KindCaches, Progress, StoreFollower
from dray.apiserver.watch.stored_object import RecentDocuments, Stored
from dray.apiserver.write.admission.chain import AdmissionChain
from dray.clock import Clock, rfc3339
from dray.features import FeatureGates
from dray.store.errors import Conflict
from dray.store.interface import Delete, Operation, Precondition, Put, Store

SCHEDULER = "system:kube-scheduler"
# RFC 9218.
MOST_URGENT = "u=0"
# Whoever must renew a lease has no time to lose, and there are few of them.
NEVER_DELAYED = frozenset({"leases"})
# Longer than it takes a scheduler to follow one write with the next.
URGENT_FOR_S = 0.02


def may_write_first(user: User) -> bool:
    return user.name == SCHEDULER or MASTERS in user.groups


class WritePriority:
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._hurry_until = 0.0
        # Urgent writes since others were last started.
        self._urgent = 0

    async def wait(self, user: User, request: Request, what: RequestInfo) -> None:
        """Returns when the request may start."""
        if what.verb not in WRITE_VERBS or what.plural in NEVER_DELAYED:
            return
        loop = self._loop
        if request.headers.get("priority") == MOST_URGENT and may_write_first(user):
            self._hurry_until = loop.time() + URGENT_FOR_S
            self._urgent += 1
            return
        if not self._waiting:
            if loop.time() >= self._hurry_until:
                return
            loop.call_soon(self._begin)
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        await turn

    def _begin(self) -> None:
        """Starts the oldest waiting writes; all of them, if no urgent write came lately."""
        loop, waiting = self._loop, self._waiting
        left = max(1, self._urgent) if loop.time() < self._hurry_until else len(waiting)
        self._urgent = 0
        while waiting and left:
            turn = waiting.popleft()
            if not turn.done():  # else its caller gave up
                turn.set_result(None)
                left -= 1
        if waiting:
            loop.call_soon(self._begin)


# A webhook that is asked about a change may change the same object, and must not wait for its own answer.
MOST_WAIT_S = 3.0


class ContendedWrites:
    """For writes that a conflict has stopped: of all that read an object at the same time only one can store it."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def alone(self, key: str) -> AsyncIterator[None]:
        """No other such write of the object meanwhile, unless one takes very long."""
        lock = self._locks.get(key) or self._locks.setdefault(key, asyncio.Lock())
        try:
            async with asyncio.timeout(MOST_WAIT_S):
                await lock.acquire()
        except TimeoutError:
            yield
            return
        try:
            yield
        finally:
            lock.release()


Result = TypeVar("Result")

# Bytes. The slowest work on a request of this size takes the loop for some 25 ms; the way to a thread and back takes 0.1 ms.
LARGE = 16 * 1024
# Reading an object that is stored, or showing it in another form, takes so many times less than the slowest work.
QUICK = 16
# Sending objects as they are stored takes still less, also if these are packed.
COPYING = 128
# Few: threads share one interpreter with the loop. Other large requests wait in a queue, and not for ever.
THREADS = 2
DEADLINE_S = 60.0

_threads = ThreadPoolExecutor(THREADS, thread_name_prefix="large-request")


async def in_thread_if_large(size: int, work: Callable[[], Result]) -> Result:
    """Runs `work` at once if `size` bytes are few, else in a thread; raises 504 if that takes too long."""
    return work() if size < LARGE else await in_thread(work)


async def in_thread(work: Callable[..., Result], *arguments: Any) -> Result:
    """Runs `work` in a thread; raises 504 if that takes too long."""
    try:
        async with asyncio.timeout(DEADLINE_S):
            return await asyncio.get_running_loop().run_in_executor(_threads, _done_here, work, *arguments)
    except TimeoutError:
        raise ApiError(504, "Timeout", "the server could not finish this large request in time") from None


def _done_here(work: Callable[..., Result], *arguments: Any) -> Result:
    try:
        return work(*arguments)
    except Exception as error:
        clear_frames_behind(error, error.__traceback__)
        raise


def clear_frames_behind(error: Exception, from_here: TracebackType | None) -> None:
    """The frames behind an exception keep the request as it was read, and the loop would let go of its many parts one by one."""
    traceback.clear_frames(from_here)
    behind = error.__context__
    while behind is not None:
        traceback.clear_frames(behind.__traceback__)
        behind = behind.__context__


Document = dict[str, Any]
# Writes an object together with what must change with it: operations, preconditions, the object before and after.
Commit = Callable[[Sequence[Operation], Sequence[Precondition], Document | None, Document | None], Awaitable[int]]
# Raises the refusals of `Commit` for the object before and after, without a write; returns what would go into the same commit.
CommitCheck = Callable[[Document | None, Document | None], Awaitable[tuple[list[Operation], list[Precondition]]]]
NAME_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
NAME_SUFFIX_LENGTH = 5
LETTERS = len(NAME_ALPHABET)
POWERS = [LETTERS**place for place in range(NAME_SUFFIX_LENGTH)]


class RandomNames:
    """New uids, and suffixes for generated names: of one number each, since the way to the system takes longer than all the rest."""

    def __init__(self, random: Random | None = None) -> None:
        self._random = random or SystemRandom()

    def uid(self) -> str:
        """A UUID of version 4."""
        digits = f"{self._random.getrandbits(128):032x}"
        variant = "89ab"[int(digits[16], 16) & 3]
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"

    def suffix(self) -> str:
        # So many bits that no letter is more likely than another by more than one in a billion.
        number = self._random.getrandbits(64)
        return "".join([NAME_ALPHABET[number // power % LETTERS] for power in POWERS])


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
        names = RandomNames(random)
        self.new_uid, self.new_name_suffix = names.uid, names.suffix
        self.admission = writes.admission
        self.commit = writes.commit
        self.check_commit = writes.check
        self.documents = RecentDocuments()
        # KEP-5517 forbids to resize pods whose claims take cpu or memory; Kubernetes today does not.
        self.resize_with_claims = resize_with_claims
        # Lists at an earlier revision have expired, also those that a cache could still serve.
        self.history_start = 0
        # Waits until the caches have everything the store has now; returns that revision.
        self.fresh = follower.fresh
        # Waits for a revision a client says it has seen; raises 504 if it does not come.
        self.reach = follower.reach
        self.cache = caches.of
        self._follower = follower
        self._caches = caches
        self._next_second, self._second_text = float("-inf"), ""

    async def document(self, stored: Stored) -> Document:
        """The document of a stored object, which nobody may change. A very large one is read in a thread."""
        if stored.size < LARGE * QUICK:
            return self.documents.of(stored)
        return await in_thread(self.documents.of, stored)

    def forget_history(self, before: int) -> None:
        self.history_start = before

    async def stop(self) -> None:
        await self._follower.stop()
        self.close_watchers()

    def close_watchers(self) -> None:
        self._caches.close_watchers()

    # --- reading ------------------------------------------------------------------------------------------------------

    def caches(self) -> list[KindCache]:
        return list(self._caches)

    @property
    def progress(self) -> Progress:
        return self._follower.progress

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
        moment = self.clock.monotonic()
        if moment >= self._next_second:
            now = self.clock.now()
            self._next_second, self._second_text = moment + 1 - now.microsecond / 1e6, rfc3339(now)
        return self._second_text

    def timestamp(self) -> float:
        return self.clock.now().astimezone(UTC).timestamp()


# Joint commits that meet at one counter set may pass each other this often before the client is asked to try again.
ATTEMPTS = 16


@dataclass(slots=True)
class WaitingObject:
    """An object as it is stored, and as it shall be. `provisional` has the new value at the old revision."""

    cache: KindCache
    condition: Precondition
    old: Document
    put: Put
    new: Document
    provisional: Stored


class JointCommit:
    """One commit for several writes: each has gone through its own stages, and what it would store waits here for the others.

    A later write of the same object begins with what the earlier one would store. The objects of one commit are of different kinds, since
    a watch of one kind that breaks between two events with the same revision would miss the second one.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._waiting: dict[str, WaitingObject] = {}

    def current(self, key: str) -> Stored | None:
        """The object as the writes before this one would leave it; None if none of them changes it."""
        waiting = self._waiting.get(key)
        return waiting.provisional if waiting is not None else None

    def add(self, cache: KindCache, stored: Stored, put: Put, old: Document, new: Document) -> Stored:
        """Takes part of the commit; returns the object as it will be, but for its revision."""
        provisional = cache.make(stored.namespace, stored.name, put.value, stored.revision, stored.created)
        earlier = self._waiting.get(put.key)
        if earlier is not None:
            earlier.put, earlier.new, earlier.provisional = put, new, provisional
            return provisional
        if any(waiting.cache is cache for waiting in self._waiting.values()):
            raise errors.bad_request(f"one commit may change one object of {cache.row.qualified_plural}")
        condition = Precondition(stored.key, stored.revision)
        self._waiting[put.key] = WaitingObject(cache, condition, old, put, new, provisional)
        return provisional

    async def commit(self) -> int:
        """Stores everything at one revision; raises 409 if an object has changed meanwhile or the guard refuses."""
        # The guard of bindings looks at the last object, for which the others were changed.
        *others, last = self._waiting.values()
        waiting = (last, *others)
        for _ in range(ATTEMPTS):
            operations: list[Operation] = [row.put for row in waiting]
            conditions = [row.condition for row in waiting]
            for row in others:
                more_operations, more_conditions = await self._core.check_commit(row.old, row.new)
                operations += more_operations
                conditions += more_conditions
            try:
                revision = await self._core.commit(operations, conditions, last.old, last.new)
            except Conflict as conflict:
                self._refuse_changed(conflict)
            else:
                self._stored(revision)
                return revision
        raise errors.conflict(last.cache.row, last.provisional.name)

    def _refuse_changed(self, conflict: Conflict) -> None:
        """Raises 409 if it is about an object, and not about what the guard knows of devices that several claims share."""
        for key, row in self._waiting.items():
            if key in conflict.keys:
                raise errors.conflict(row.cache.row, row.provisional.name) from None

    def _stored(self, revision: int) -> None:
        for key, row in self._waiting.items():
            stored = row.cache.written(key, row.put.value, revision, row.provisional.created)
            self._core.documents.moved(row.provisional, stored)
