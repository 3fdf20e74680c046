"""Marks nodes whose kubelet no longer renews its lease: the Ready condition becomes Unknown, and the node is tainted.

Only nodes that ever renewed a Lease are watched: a node that somebody wrote by hand promises nothing. A lease that says
it lasts longer than the grace period is believed: simulated nodes are many, and renew seldom. Pods on such a node are
deleted when they tolerate the taint no longer (see `node_taint_eviction`), and stay until the node is back, is declared out
of service (see `pod_gc`) or is deleted.
"""

from __future__ import annotations

import logging

from dray.api.core import Lease, Node
from dray.client import LEASES, NODES, ApiError, Handler, WorkQueue
from dray.client.rest import STRATEGIC_PATCH
from dray.clock import rfc3339
from dray.controllers.context import ControllerContext

log = logging.getLogger(__name__)

LEASE_NAMESPACE = "kube-node-lease"
GRACE_S = 50.0
UNREACHABLE = "node.kubernetes.io/unreachable"
NOT_READY = "node.kubernetes.io/not-ready"
MEMORY_PRESSURE = "node.kubernetes.io/memory-pressure"
OURS = (UNREACHABLE, NOT_READY, MEMORY_PRESSURE)
MESSAGE = "Kubelet stopped posting node status."


class NodeLifecycleController:
    name = "node-lifecycle-controller"

    def __init__(self, context: ControllerContext, *, grace_s: float = GRACE_S) -> None:
        self._client = context.client.named("node-controller")
        self._clock = context.clock
        self._informers = context.informers
        self._grace_s = grace_s
        self._nodes = context.informers.of(NODES)
        self._leases = context.informers.of(LEASES, namespace=LEASE_NAMESPACE)
        # When a node counts as silent, by our own clock: what a node's clock says is its business.
        self._silent_at: dict[str, float] = {}
        self.queue: WorkQueue[str] = WorkQueue(
            "node_lifecycle_controller", clock=context.clock, registry=context.registry
        )
        self._leases.add_handler(Handler(self._lease_seen, lambda _, new: self._lease_seen(new), self._lease_gone))
        self._nodes.add_handler(Handler(self._node_seen, self._node_changed))

    async def run(self) -> None:
        await self._informers.synced()
        await self.queue.run(self.sync)

    def _lease_seen(self, lease: Lease) -> None:
        name = lease.metadata.name
        is_new = name not in self._silent_at
        grace_s = max(self._grace_s, lease.spec.lease_duration_seconds or 0)
        self._silent_at[name] = self._clock.monotonic() + grace_s
        if is_new:
            self.queue.add_after(name, grace_s)

    def _lease_gone(self, lease: Lease) -> None:
        self._silent_at.pop(lease.metadata.name, None)

    def _node_seen(self, node: Node) -> None:
        if _taints(node) != _wanted_taints(node):
            self.queue.add(node.metadata.name)

    def _node_changed(self, _: Node, new: Node) -> None:
        self._node_seen(new)

    async def sync(self, name: str) -> None:
        node = self._nodes.get(name)
        if node is None:
            return
        silent_at = self._silent_at.get(name)
        if silent_at is not None:
            left_s = silent_at - self._clock.monotonic()
            if left_s > 0:
                self.queue.add_after(name, left_s)
            elif _status_of(node, "Ready") != "Unknown":
                await self._mark_unknown(node)
                return  # The taint follows when the watch shows the condition.
        if _taints(node) != _wanted_taints(node):
            await self._set_taints(node)

    async def _mark_unknown(self, node: Node) -> None:
        now = rfc3339(self._clock.now())
        condition = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": MESSAGE}
        condition["lastTransitionTime"] = now
        log.info("node %s: its lease was not renewed in time, marked Unknown", node.metadata.name)
        try:
            await self._client.patch(
                *(NODES, node.metadata.name, {"status": {"conditions": [condition]}}),
                patch_type=STRATEGIC_PATCH,
                subresource="status",
                uid=node.metadata.uid,
            )
        except ApiError as error:
            if not error.is_not_found:
                raise
        self.queue.add_after(node.metadata.name, self._grace_s)

    async def _set_taints(self, node: Node) -> None:
        """Taints are a list without keys that merge well: compare-and-set on the whole object's revision."""
        document = await self._client.get_document(NODES, node.metadata.name)
        if document["metadata"].get("resourceVersion") != node.metadata.resource_version:
            return  # An event about the newer state is on its way.
        now = rfc3339(self._clock.now())
        kept = [t for t in document.get("spec", {}).get("taints") or [] if t.get("key") not in OURS]
        added = [{"key": key, "effect": effect, "timeAdded": now} for key, effect in sorted(_wanted_taints(node))]
        patch = {"metadata": {"resourceVersion": node.metadata.resource_version}, "spec": {"taints": kept + added}}
        try:
            await self._client.patch(NODES, node.metadata.name, patch, uid=node.metadata.uid)
        except ApiError as error:
            if not error.is_not_found:
                raise


def _status_of(node: Node, condition_type: str) -> str:
    return next((condition.status for condition in node.status.conditions if condition.type == condition_type), "")


def _taints(node: Node) -> set[tuple[str, str]]:
    return {(taint.key, taint.effect) for taint in node.spec.taints if taint.key in OURS}


def _wanted_taints(node: Node) -> set[tuple[str, str]]:
    """A node without a Ready condition, written by hand, is taken as it is."""
    pressure = {(MEMORY_PRESSURE, "NoSchedule")} if _status_of(node, "MemoryPressure") == "True" else set()
    match _status_of(node, "Ready"):
        case "Unknown":
            return pressure | {(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")}
        case "False":
            return pressure | {(NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")}
        case "":
            return _taints(node)
    return pressure
