"""Keys that vanish by themselves, in etcd: many keys share one lease.

A lease is a thing etcd must remember and revoke, so one per event would be costly. Keys written within one window with the
same time to live hang on the same lease, which lives a window longer; a key lives at least as long as it asked for.
"""

from typing import Any

from dray.clock import Clock
from dray.proto import etcd_pb2 as pb
from dray.store.errors import StoreUnavailable
from dray.store.etcd_connection import Connection

MAX_WINDOW_S = 60
KEYS_PER_LEASE = 1000


class Leases:
    def __init__(self, connection: Connection, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock
        # By time to live: the lease, until when it may be shared, and how many more keys it takes.
        self._shared: dict[int, tuple[int, float, int]] = {}

    async def for_ttl(self, ttl_s: int) -> int:
        lease, until, room = self._shared.get(ttl_s, (0, 0.0, 0))
        if room <= 0 or self._clock.monotonic() >= until:
            window = min(MAX_WINDOW_S, max(1, ttl_s // 20))
            lease = await self._grant(ttl_s + window)
            until, room = self._clock.monotonic() + window, KEYS_PER_LEASE
        self._shared[ttl_s] = (lease, until, room - 1)
        return lease

    async def _grant(self, ttl_s: int) -> int:
        answer: Any = await self._connection.write(
            lambda endpoint: endpoint.lease.LeaseGrant, pb.LeaseGrantRequest(TTL=ttl_s)
        )
        if answer.error:
            raise StoreUnavailable(f"etcd grants no lease: {answer.error}")
        return int(answer.ID)
