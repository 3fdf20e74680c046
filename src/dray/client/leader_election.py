"""Leader election with a Lease: one of several replicas leads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec

from dray.api.core import Lease, LeaseSpec
from dray.api.meta import ObjectMeta
from dray.client.errors import ApiError, CredentialsError, LeadershipLost, ServerUnreachable
from dray.client.kinds import LEASES
from dray.client.rest import Client
from dray.clock import rfc3339_micro

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """Another replica takes over after `lease_s` without renewal; the leader gives up earlier."""

    lease_s: float = 15.0
    renew_deadline_s: float = 10.0
    retry_s: float = 2.0


class LeaderElector:
    """`await run(lead)` waits for the lease, runs `lead` while holding it, and raises `LeadershipLost` when it is lost."""

    def __init__(
        self,
        client: Client,
        name: str,
        identity: str,
        *,
        namespace: str = "kube-system",
        timing: LeaseTiming | None = None,
    ) -> None:
        self.identity = identity
        self.is_leader = False
        self._client = client
        self._clock = client.clock
        self._name = name
        self._namespace = namespace
        self._timing = timing or LeaseTiming()
        # The lease as last seen, and when by our own clock: the clocks of other machines may be wrong.
        self._seen: LeaseSpec | None = None
        self._seen_at = 0.0

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        await self.acquire()
        leading = asyncio.ensure_future(lead())
        renewing = asyncio.ensure_future(self._renew())
        try:
            await asyncio.wait({leading, renewing}, return_when=asyncio.FIRST_COMPLETED)
            if leading.done():
                leading.result()
                return
            renewing.result()
        finally:
            for task in (leading, renewing):
                task.cancel()
            await asyncio.gather(leading, renewing, return_exceptions=True)
            await self.release()

    async def acquire(self) -> None:
        while not await self._try_hold():
            await self._clock.sleep(self._timing.retry_s)
        self.is_leader = True
        log.info("%s leads as %s", self._name, self.identity)

    async def _renew(self) -> None:
        renewed_at = self._clock.monotonic()
        while True:
            await self._clock.sleep(self._timing.retry_s)
            if await self._try_hold():
                renewed_at = self._clock.monotonic()
            elif self._held_by_other() or self._clock.monotonic() - renewed_at > self._timing.renew_deadline_s:
                self.is_leader = False
                raise LeadershipLost(f"lease {self._namespace}/{self._name} could not be renewed as {self.identity}")

    async def release(self) -> None:
        """Releases the lease so that the next replica need not wait; errors are ignored."""
        if not self.is_leader:
            return
        self.is_leader = False
        try:
            lease = await self._client.get(LEASES, self._name, self._namespace)
            if lease.spec.holder_identity == self.identity:
                spec = msgspec.structs.replace(lease.spec, holder_identity="", lease_duration_seconds=1)
                await self._client.update(LEASES, msgspec.structs.replace(lease, spec=spec))
        except (ApiError, ServerUnreachable, CredentialsError) as error:
            log.info("lease %s not released: %s", self._name, error)

    async def _try_hold(self) -> bool:
        try:
            async with asyncio.timeout(self._timing.renew_deadline_s):
                return await self._hold()
        except (ApiError, ServerUnreachable, CredentialsError, TimeoutError) as error:
            log.info("lease %s: %s", self._name, error or "timed out")
            return False

    async def _hold(self) -> bool:
        """Creates the lease, renews it, or takes it over from a holder that no longer renews it."""
        lease = await self._client.find(LEASES, self._name, self._namespace)
        now = rfc3339_micro(self._clock.now())
        if lease is None:
            metadata = ObjectMeta(name=self._name, namespace=self._namespace)
            created = await self._client.create(LEASES, Lease(metadata=metadata, spec=self._spec(now, now, 0)))
            self._see(created.spec)
            return True
        self._see(lease.spec)
        if self._held_by_other() and not self._is_silent(lease.spec):
            return False
        old = lease.spec
        if old.holder_identity == self.identity:
            spec = self._spec(old.acquire_time or now, now, old.lease_transitions or 0)
        else:
            spec = self._spec(now, now, (old.lease_transitions or 0) + 1)
        # The resourceVersion in the lease makes this a compare-and-set: of two takers one gets a conflict.
        updated = await self._client.update(LEASES, msgspec.structs.replace(lease, spec=spec))
        self._see(updated.spec)
        return True

    def _spec(self, acquired: str, renewed: str, transitions: int) -> LeaseSpec:
        return LeaseSpec(
            holder_identity=self.identity,
            lease_duration_seconds=max(1, int(self._timing.lease_s)),
            acquire_time=acquired,
            renew_time=renewed,
            lease_transitions=transitions,
        )

    def _see(self, spec: LeaseSpec) -> None:
        if spec != self._seen:
            self._seen, self._seen_at = spec, self._clock.monotonic()

    def _held_by_other(self) -> bool:
        holder = self._seen.holder_identity if self._seen else None
        return bool(holder) and holder != self.identity

    def _is_silent(self, spec: LeaseSpec) -> bool:
        lease_s = spec.lease_duration_seconds or self._timing.lease_s
        return self._clock.monotonic() - self._seen_at > lease_s
