"""ResourcePoolStatusRequests: one look at a driver's pools, written once into the request's status."""

from __future__ import annotations

import msgspec

from dray.api.meta import Condition
from dray.api.resource import ResourcePoolStatusRequest, ResourcePoolStatusRequestStatus
from dray.client import CLAIMS, POOL_STATUS_REQUESTS, SLICES, ApiError, Handler, WorkQueue
from dray.clock import rfc3339
from dray.controllers.context import Context
from dray.controllers.pool_counts import pool_statuses

DEFAULT_LIMIT = 100


class PoolStatusController:
    name = "resource-pool-status-request-controller"

    def __init__(self, context: Context) -> None:
        self._client = context.client.named("resource-pool-status-request-controller")
        self._informers = context.informers
        self._requests = context.informers.of(POOL_STATUS_REQUESTS)
        self._slices = context.informers.of(SLICES)
        self._claims = context.informers.of(CLAIMS)
        self.queue: WorkQueue[str] = WorkQueue(
            "resource_pool_status_request", clock=context.clock, registry=context.registry
        )
        self._requests.add_handler(Handler(self._seen, lambda _, new: self._seen(new)))

    def _seen(self, request: ResourcePoolStatusRequest) -> None:
        if request.status is None:
            self.queue.add(request.metadata.name)

    async def run(self) -> None:
        await self._informers.synced()
        await self.queue.run(self.sync)

    async def sync(self, name: str) -> None:
        request = self._requests.get(name)
        if request is None or request.status is not None:
            return
        updated = msgspec.structs.replace(request, status=self._answer(request))
        try:
            await self._client.update_status(POOL_STATUS_REQUESTS, updated)
        except ApiError as error:
            if not error.is_not_found:
                raise

    def _answer(self, request: ResourcePoolStatusRequest) -> ResourcePoolStatusRequestStatus:
        pools = pool_statuses(request.spec, self._slices, self._claims)
        limit = DEFAULT_LIMIT if request.spec.limit is None else request.spec.limit
        shown = pools[:limit]
        message = (
            f"{len(shown)} of {len(pools)} pools are listed" if len(shown) < len(pools) else "all pools are listed"
        )
        complete = Condition(
            type="Complete",
            status="True",
            reason="CalculationComplete",
            message=message,
            last_transition_time=rfc3339(self._client.clock.now()),
        )
        return ResourcePoolStatusRequestStatus(pool_count=len(pools), pools=tuple(shown), conditions=(complete,))
