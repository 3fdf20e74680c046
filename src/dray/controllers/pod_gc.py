"""Deletes pods that nobody will finish: on lost nodes, deleted before they were scheduled, or finished and too many."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from dray.api.core import Node, Pod
from dray.api.dra.pod_phase import is_finished
from dray.client import NODES, PODS, ApiError, Handler, ServerUnreachable
from dray.client.rest import Document
from dray.controllers.context import ControllerContext
from dray.controllers.pod_eviction import disruption_target

log = logging.getLogger(__name__)

INTERVAL_S = 20.0
NODE_QUARANTINE_S = 40.0
TERMINATED_THRESHOLD = 12_500
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"

TERMINATED, LOST_NODE, ORPHANED, UNSCHEDULED = "terminated", "out-of-service", "orphaned", "unscheduled"


class PodGarbageCollector:
    """Looks every 20 seconds, but only after something changed or while a missing node is waited for."""

    name = "pod-garbage-collector-controller"

    def __init__(self, context: ControllerContext, *, terminated_threshold: int = TERMINATED_THRESHOLD) -> None:
        self._client = context.client.named("pod-garbage-collector")
        self._clock = context.clock
        self._informers = context.informers
        self._threshold = terminated_threshold
        self._pods = context.informers.of(PODS)
        self._nodes = context.informers.of(NODES)
        self._missing_since: dict[str, float] = {}
        self._changed = asyncio.Event()
        labels = ("namespace", "reason")
        self._deletions = context.registry.counter(
            "pod_gc_collector_force_delete_pods_total", "Number of pods that are being forcefully deleted", labels
        )
        self._errors = context.registry.counter(
            "pod_gc_collector_force_delete_pod_errors_total", "Number of errors when forcefully deleting pods", labels
        )
        self._pods.add_handler(Handler(self._mark, lambda *_: self._changed.set(), self._mark))
        self._nodes.add_handler(Handler(self._mark, lambda *_: self._changed.set(), self._mark))

    def _mark(self, _: object) -> None:
        self._changed.set()

    async def run(self) -> None:
        await self._informers.synced()
        while True:
            if not self._missing_since:
                await self._changed.wait()
            await self._clock.sleep(INTERVAL_S)
            self._changed.clear()
            await self.collect()

    async def collect(self) -> None:
        """One round over all pods."""
        await self._delete_surplus()
        for pod in self._pods:
            is_deleting = pod.metadata.deletion_timestamp is not None
            if is_deleting and self._is_out_of_service(pod):
                await self._force_delete(pod, LOST_NODE)
            elif is_deleting and not pod.spec.node_name:
                await self._force_delete(pod, UNSCHEDULED)
        await self._delete_orphaned()

    def _is_out_of_service(self, pod: Pod) -> bool:
        node = self._nodes.get(pod.spec.node_name) if pod.spec.node_name else None
        return node is not None and not is_ready(node) and any(t.key == OUT_OF_SERVICE for t in node.spec.taints)

    async def _delete_surplus(self) -> None:
        """The oldest of the finished pods, beyond what may stay; evicted ones first."""
        if self._threshold <= 0:
            return
        finished = [pod for pod in self._pods if is_finished(pod)]
        surplus = len(finished) - self._threshold
        if surplus <= 0:
            return
        finished.sort(key=lambda pod: (pod.status.reason != "Evicted", pod.metadata.creation_timestamp or ""))
        for pod in finished[:surplus]:
            await self._force_delete(pod, TERMINATED)

    async def _delete_orphaned(self) -> None:
        now = self._clock.monotonic()
        by_missing_node: dict[str, list[Pod]] = {}
        for pod in self._pods:
            name = pod.spec.node_name
            if name and self._nodes.get(name) is None:
                by_missing_node.setdefault(name, []).append(pod)
        self._missing_since = {name: self._missing_since.get(name, now) for name in by_missing_node}
        for name, pods in by_missing_node.items():
            if now - self._missing_since[name] >= NODE_QUARANTINE_S and await self._is_gone(name):
                await self._delete_all(pods)

    async def _is_gone(self, node_name: str) -> bool:
        """The server decides, not our copy; and a server that does not answer means no."""
        try:
            return await self._client.find(NODES, node_name) is None
        except (ApiError, ServerUnreachable) as error:
            log.warning("node %s: %s; its pods are left alone", node_name, error)
            return False

    async def _delete_all(self, pods: Iterable[Pod]) -> None:
        for pod in pods:
            await self._force_delete(pod, ORPHANED)

    async def _force_delete(self, pod: Pod, reason: str) -> None:
        metadata = pod.metadata
        try:
            if not is_finished(pod):
                await self._fail(pod, reason)
            await self._client.delete(PODS, metadata.name, metadata.namespace, uid=metadata.uid, grace_seconds=0)
        except ApiError as error:
            if error.is_not_found:
                return
            self._errors.inc(metadata.namespace, reason)
            self._changed.set()
            log.warning("pod %s/%s (%s) not deleted: %s", metadata.namespace, metadata.name, reason, error)
        except ServerUnreachable as error:
            self._changed.set()
            log.warning("pod %s/%s (%s) not deleted: %s", metadata.namespace, metadata.name, reason, error)
        else:
            self._deletions.inc(metadata.namespace, reason)

    async def _fail(self, pod: Pod, reason: str) -> None:
        """A terminal phase first, so that everybody who counts on one sees it before the pod is gone."""
        status: Document = {"phase": "Failed"}
        if reason == ORPHANED:
            condition = disruption_target("DeletionByPodGC", "PodGC: node no longer exists", self._clock.now())
            status["conditions"] = [condition]
        metadata = pod.metadata
        await self._client.patch(
            PODS,
            metadata.name,
            {"status": status},
            metadata.namespace,
            patch_type="application/strategic-merge-patch+json",
            subresource="status",
            uid=metadata.uid,
        )


def is_ready(node: Node) -> bool:
    return any(condition.type == "Ready" and condition.status == "True" for condition in node.status.conditions)
