"""Deletes pods that have to leave, each with a condition that says so: whoever made the pod sees that it did not fail by itself."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from dray.api.core import Pod
from dray.client import PODS, ApiError, Client
from dray.client.rest import STRATEGIC_PATCH
from dray.clock import rfc3339
from dray.telemetry import CounterMetric, Histogram

DELETIONS_HELP = "Total number of Pods deleted by the controller"
DURATIONS_HELP = "Latency between the time when a Pod had to go and its deletion"
DURATION_BUCKETS = (0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0, 120.0, 180.0, 240.0)


def disruption_target(reason: str, message: str, now: datetime) -> dict[str, Any]:
    return {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": rfc3339(now),
    }


class PodEvictor:
    """Evictions for one reason, counted in the metrics of one controller."""

    def __init__(
        self, client: Client, reason: str, message: str, deletions: CounterMetric, durations: Histogram
    ) -> None:
        self._client = client
        self._reason = reason
        self._message = message
        self._deletions = deletions
        self._durations = durations

    async def evict(self, pod: Pod, due: datetime) -> None:
        """Condition first, then deletion of this very pod: a replacement under its name is not touched."""
        name, namespace, uid = pod.metadata.name, pod.metadata.namespace, pod.metadata.uid
        live = await self._client.find(PODS, name, namespace)
        if live is None or live.metadata.uid != uid or live.metadata.deletion_timestamp is not None:
            return
        condition = disruption_target(self._reason, self._message, self._client.clock.now())
        try:
            await self._client.patch(
                *(PODS, name, {"status": {"conditions": [condition]}}, namespace),
                patch_type=STRATEGIC_PATCH,
                subresource="status",
                uid=uid,
            )
            await self._client.delete(PODS, name, namespace, uid=uid)
        except ApiError as error:
            # Not found, or another pod under this name: the one we meant is gone.
            if not error.is_not_found and not (error.is_conflict and await self._was_replaced(pod)):
                raise
        else:
            self._deletions.inc()
            self._durations.observe(max(0.0, (self._client.clock.now() - due).total_seconds()))

    async def _was_replaced(self, pod: Pod) -> bool:
        live = await self._client.find(PODS, pod.metadata.name, pod.metadata.namespace)
        return live is None or live.metadata.uid != pod.metadata.uid
