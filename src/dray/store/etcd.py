"""The store in etcd, for several API servers on one set of objects.

A key `/registry/...` is kept below the address's prefix (`/dray/registry/...`). Keys that expire hang on leases,
many keys on one. One watch over everything feeds all watches of this process; older history is replayed from
etcd. `/server/tick` is written to learn a revision that this watch will surely reach, also where another user of the
etcd made the last one; no watch shows it.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Any

from dray.clock import Clock, RealClock
from dray.proto import etcd_pb2 as pb
from dray.store.errors import (
    Compacted,
    Conflict,
    FutureRevision,
    StoreError,
    StoreRefuses,
    StoreUnavailable,
)
from dray.store.etcd_connection import EtcdConnection, EtcdLeases
from dray.store.interface import (
    Batch,
    Change,
    Delete,
    Entry,
    Operation,
    Page,
    Precondition,
    Put,
)
from dray.store.store_base import (
    StoreBase,
    WatchQueues,
    changes_after,
    check_commit,
)
from dray.store.store_url import StoreAddress
from dray.tasks import cancelled

TICK = "/server/tick"
RANGE_CHUNK = 2000
RECONNECT_S = 0.2
# How long our own change may take to arrive through the watch before we write a tick.
NUDGE_S = 0.03


class EtcdStore(StoreBase):
    def __init__(self, address: StoreAddress, clock: Clock | None = None) -> None:
        self._prefix = address.prefix
        self._root = address.prefix.encode() + b"/"
        self._clock = clock or RealClock()
        self._connection = EtcdConnection(address)
        self._leases = EtcdLeases(self._connection, self._clock)
        self._followers = WatchQueues()
        self._published = 0
        self._compacted = 0
        self._tail: asyncio.Task[None] | None = None
        self._nudging: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, address: StoreAddress, clock: Clock | None = None) -> "EtcdStore":
        """Raises StoreUnavailable if no endpoint answers, StoreRefuses if one answers and refuses us."""
        store = cls(address, clock)
        try:
            await store._start_tail()
        except BaseException:  # also when the opening task is cancelled
            await store.close()
            raise
        return store

    async def close(self) -> None:
        await cancelled(self._tail, self._nudging)
        self._followers.fail_all(StoreUnavailable("the store is closed"))
        await self._connection.close()

    # --- reading -----------------------------------------------------------------------------------------------------

    def _encode(self, key: str) -> bytes:
        return (self._prefix + key).encode()

    def _decode(self, key: bytes) -> str:
        return key[len(self._root) - 1 :].decode()

    def _entry(self, kv: Any) -> Entry:
        return Entry(self._decode(kv.key), kv.value, kv.mod_revision, kv.create_revision)

    async def _range(self, request: Any) -> Any:
        return await self._connection.read(lambda endpoint: endpoint.kv.Range, request)

    async def get(self, key: str) -> Entry | None:
        answer = await self._range(pb.RangeRequest(key=self._encode(key)))
        return self._entry(answer.kvs[0]) if answer.kvs else None

    async def get_many(self, keys: Sequence[str]) -> dict[str, Entry]:
        reads = [pb.RequestOp(request_range=pb.RangeRequest(key=self._encode(key))) for key in keys]
        found: dict[str, Entry] = {}
        if not reads:
            return found
        answer = await self._connection.read(lambda endpoint: endpoint.kv.Txn, pb.TxnRequest(success=reads))
        for response in answer.responses:
            for kv in response.response_range.kvs:
                entry = self._entry(kv)
                found[entry.key] = entry
        return found

    async def list(self, prefix: str, *, limit: int = 0, start_after: str = "", revision: int = 0) -> Page:
        start, end = self._span(prefix)
        if start_after:
            start = max(start, self._encode(start_after) + b"\0")
        entries: list[Entry] = []
        at = revision
        while True:
            chunk = min(limit - len(entries), RANGE_CHUNK) if limit else RANGE_CHUNK
            answer = await self._range_at(pb.RangeRequest(key=start, range_end=end, limit=chunk, revision=at))
            at = at or answer.header.revision
            entries.extend(self._entry(kv) for kv in answer.kvs)
            if not answer.more or (limit and len(entries) >= limit):
                remaining = answer.count - len(answer.kvs) if answer.more else 0
                return Page(tuple(entries), at, remaining)
            if not answer.kvs or answer.kvs[-1].key < start:
                raise StoreUnavailable("etcd says that there is more, and does not give it")
            start = answer.kvs[-1].key + b"\0"

    async def pages(self, prefix: str) -> AsyncGenerator[Page, None]:
        page = await self.list(prefix, limit=RANGE_CHUNK)
        yield page
        while page.remaining:
            page = await self.list(prefix, limit=RANGE_CHUNK, start_after=page.entries[-1].key, revision=page.revision)
            yield page

    async def _range_at(self, request: Any) -> Any:
        try:
            return await self._range(request)
        except Compacted:
            raise Compacted(request.revision, await self.compacted_revision()) from None
        except FutureRevision:
            raise FutureRevision(request.revision, await self.current_revision()) from None

    async def expiring_keys(self) -> set[str]:
        """Keys that hang on a lease."""
        start, end = self._span("")
        answer = await self._range(pb.RangeRequest(key=start, range_end=end, keys_only=True))
        return {self._decode(kv.key) for kv in answer.kvs if kv.lease}

    def _span(self, prefix: str) -> tuple[bytes, bytes]:
        start = self._encode(prefix) if prefix else self._root
        return start, start[:-1] + bytes([start[-1] + 1])

    async def current_revision(self) -> int:
        answer = await self._range(pb.RangeRequest(key=self._encode(TICK), count_only=True))
        revision = int(answer.header.revision)
        if revision > self._published and self._nudging is None:
            self._nudging = asyncio.create_task(self._nudge(revision))
        return revision

    async def _nudge(self, revision: int) -> None:
        """Writes a tick, so that our watches pass a revision made by another user of the etcd.

        Such a revision changes none of our keys, so no event of ours reports it. The tick comes after it and does.
        """
        try:
            await self._clock.sleep(NUDGE_S)
            if self._published < revision:
                await self.commit([Put(TICK, b"")])
        except StoreError:
            pass  # the waiting caller asks again
        finally:
            self._nudging = None

    async def compacted_revision(self) -> int:
        """The newest compaction that this process has met: etcd reports it only to a request for older history."""
        request = pb.WatchCreateRequest(key=self._encode(TICK), start_revision=1)
        async with contextlib.aclosing(self._connection.watch(request)) as responses:
            async for response in responses:
                if response.compact_revision:
                    self._compacted = max(self._compacted, int(response.compact_revision))
                if response.canceled or response.events:
                    break
        return self._compacted

    # --- writing -----------------------------------------------------------------------------------------------------

    async def commit(self, operations: Sequence[Operation], preconditions: Sequence[Precondition] = ()) -> int:
        check_commit(operations, preconditions)
        request = pb.TxnRequest(
            compare=[self._compare(wanted) for wanted in preconditions],
            success=[await self._request_op(operation) for operation in operations],
            failure=[
                pb.RequestOp(request_range=pb.RangeRequest(key=self._encode(wanted.key), keys_only=True))
                for wanted in preconditions
            ],
        )
        answer = await self._connection.write(lambda endpoint: endpoint.kv.Txn, request)
        if not answer.succeeded:
            raise Conflict(list(_failed(preconditions, answer.responses)))
        return int(answer.header.revision)

    def _compare(self, wanted: Precondition) -> Any:
        return pb.Compare(
            key=self._encode(wanted.key),
            target=pb.Compare.MOD,
            result=pb.Compare.EQUAL,
            mod_revision=wanted.revision,
        )

    async def _request_op(self, operation: Operation) -> Any:
        key = self._encode(operation.key)
        if isinstance(operation, Delete):
            return pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=key))
        lease = await self._leases.for_ttl(operation.ttl_s) if operation.ttl_s else 0
        return pb.RequestOp(request_put=pb.PutRequest(key=key, value=operation.value, lease=lease))

    async def compact(self, revision: int) -> None:
        try:
            await self._connection.write(lambda endpoint: endpoint.kv.Compact, pb.CompactionRequest(revision=revision))
        except Compacted:
            raise Compacted(revision, await self.compacted_revision()) from None
        except FutureRevision:
            raise FutureRevision(revision, await self.current_revision()) from None
        self._compacted = max(self._compacted, revision)

    # --- watching ----------------------------------------------------------------------------------------------------

    async def watch(self, prefix: str, after_revision: int) -> AsyncGenerator[Batch, None]:
        follower = self._followers.add(prefix)
        delivered = after_revision
        try:
            while True:
                # The queue collects from here on; earlier changes are replayed from etcd.
                follower.restart()
                published = self._published
                if delivered < published:
                    async with contextlib.aclosing(self._changes(delivered)) as past:
                        async for revision, changes in past:
                            delivered = revision
                            mine = tuple(change for change in changes if change.key.startswith(prefix))
                            yield Batch(revision, mine)
                            # `published` is the revision of a change of ours, so the replay surely meets it.
                            if revision >= published:
                                break
                while batch := await follower.next():
                    if batch.revision > delivered:
                        fresh = changes_after(batch, delivered)
                        delivered = batch.revision
                        yield fresh
        finally:
            self._followers.remove(follower)

    async def _start_tail(self) -> None:
        self._published = await self._first_tick()
        self._tail = asyncio.create_task(self._follow_tail())

    async def _first_tick(self) -> int:
        """Writes the first tick to the first endpoint that accepts it. A refusal is reported rather than a timeout of another endpoint."""
        failures: list[StoreUnavailable] = []
        for _ in range(self._connection.size):
            try:
                return await self.commit([Put(TICK, b"")])
            except StoreUnavailable as error:
                failures.append(error)
        raise next((each for each in failures if isinstance(each, StoreRefuses)), failures[-1])

    async def _follow_tail(self) -> None:
        """Feeds every watch of this process and reconnects when the stream breaks."""
        while True:
            try:
                async with contextlib.aclosing(self._changes(self._published)) as stream:
                    async for revision, changes in stream:
                        self._published = revision
                        self._followers.publish(revision, changes)
            except Compacted as error:
                # Changes in between are lost: watches must start over from a list, and so does the tail.
                self._followers.fail_all(error)
                self._published = await self._tick_until_answered()
            except StoreError:
                await self._clock.sleep(RECONNECT_S)

    async def _tick_until_answered(self) -> int:
        while True:
            try:
                return await self.commit([Put(TICK, b"")])
            except StoreError:
                await self._clock.sleep(RECONNECT_S)

    async def _changes(self, after: int) -> AsyncGenerator[tuple[int, Sequence[Change]], None]:
        """Everything below the prefix after a revision, in groups that never split a revision."""
        start, end = self._span("")
        request = pb.WatchCreateRequest(key=start, range_end=end, start_revision=after + 1, prev_kv=True)
        async with contextlib.aclosing(self._connection.watch(request)) as responses:
            async for response in responses:
                if response.compact_revision:
                    self._compacted = max(self._compacted, int(response.compact_revision))
                    raise Compacted(after, int(response.compact_revision))
                if response.canceled:
                    raise StoreUnavailable(f"etcd cancelled a watch: {response.cancel_reason}")
                if response.events:
                    revision = int(response.events[-1].kv.mod_revision)
                    yield revision, [change for change in map(self._change, response.events) if change.key != TICK]

    def _change(self, event: Any) -> Change:
        kv, previous = event.kv, event.prev_kv
        has_previous = bool(previous.key)
        is_deletion = event.type == pb.Event.DELETE
        return Change(
            key=self._decode(kv.key),
            revision=kv.mod_revision,
            value=None if is_deletion else kv.value,
            previous=previous.value if has_previous else None,
            previous_revision=previous.mod_revision,
            created=previous.create_revision if is_deletion else kv.create_revision,
        )


def _failed(preconditions: Sequence[Precondition], responses: Sequence[Any]) -> Iterable[str]:
    if len(responses) != len(preconditions):
        raise StoreUnavailable(f"etcd answered {len(responses)} of {len(preconditions)} questions")
    for wanted, response in zip(preconditions, responses, strict=True):
        kvs = response.response_range.kvs
        if (kvs[0].mod_revision if kvs else 0) != wanted.revision:
            yield wanted.key
