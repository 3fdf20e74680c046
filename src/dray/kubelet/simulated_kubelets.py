"""Many nodes in one process that run nothing: bound pods are reported as running, and deleted pods are removed.

One informer of pods and one of nodes serve all of them, so a thousand nodes cost little more than their objects. No driver
is called. A node that was marked as lost, say while the machine slept, is reported ready again.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence

from dray.api.core import Node, Pod
from dray.api.dra.pod_phase import is_deleted, is_finished
from dray.client import (
    NODES,
    PODS,
    STRATEGIC_PATCH,
    ApiError,
    Client,
    Handler,
    Informer,
    ServerUnreachable,
    WorkQueue,
    object_key,
)
from dray.clock import rfc3339
from dray.kubelet.node import NodeDescription, NodeRegistration, is_ready
from dray.kubelet.pod_status import (
    ContainerProgress,
    PodProgress,
    status_document,
)

log = logging.getLogger(__name__)

WORKERS = 8
REGISTER_AT_ONCE = 16
# All leases are renewed within this time, one after the other.
RENEW_ALL_S = 120.0


class SimulatedKubelets:
    """Registers nodes, renews their leases, and reports their pods as running."""

    def __init__(self, client: Client, nodes: Sequence[NodeDescription]) -> None:
        self._client = client
        self._nodes = {node.name: node for node in nodes}
        self._registrations = {node.name: NodeRegistration(client, node, RENEW_ALL_S) for node in nodes}
        self._pods: Informer[Pod] = Informer(client, PODS, field_selector="spec.nodeName!=")
        self._node_objects: Informer[Node] = Informer(client, NODES)
        self._queue: WorkQueue[str] = WorkQueue("simulated_pods", clock=client.clock)
        self._lost_nodes: WorkQueue[str] = WorkQueue("simulated_nodes", clock=client.clock)
        self._tasks: list[asyncio.Task[None]] = []
        self._uids: dict[str, str] = {}

    def uid_of(self, node_name: str) -> str:
        """Of a node that was registered."""
        return self._uids[node_name]

    async def start(self) -> None:
        """Register every node, then take pods."""
        limit = asyncio.Semaphore(REGISTER_AT_ONCE)

        async def register(name: str, registration: NodeRegistration) -> None:
            async with limit:
                self._uids[name] = (await registration.register()).metadata.uid

        await asyncio.gather(*(register(*each) for each in self._registrations.items()))
        self._pods.add_handler(Handler(on_add=self._changed, on_update=lambda old, new: self._changed(new)))
        self._node_objects.add_handler(Handler(on_add=self._node_seen, on_update=lambda old, new: self._node_seen(new)))
        self._pods.start()
        self._node_objects.start()
        await self._pods.synced()
        self._tasks.append(asyncio.create_task(self._queue.run(self._sync, WORKERS), name="simulated pods"))
        self._tasks.append(asyncio.create_task(self._lost_nodes.run(self._revive), name="simulated nodes"))
        self._tasks.append(asyncio.create_task(self._beat(), name="simulated heartbeats"))

    async def stop(self) -> None:
        self._queue.shut_down()
        self._lost_nodes.shut_down()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(self._pods.stop(), self._node_objects.stop())

    def _changed(self, pod: Pod) -> None:
        is_settled = is_finished(pod) or pod.status.phase == "Running"
        if pod.spec.node_name in self._nodes and (is_deleted(pod) or not is_settled):
            self._queue.add(object_key(pod))

    def _node_seen(self, node: Node) -> None:
        if node.metadata.name in self._nodes and not is_ready(node):
            self._lost_nodes.add(node.metadata.name)

    async def _revive(self, name: str) -> None:
        try:
            await self._registrations[name].refreshed()
        except ApiError as error:
            if not error.is_not_found:
                raise

    async def _sync(self, key: str) -> None:
        pod = self._pods.get(key)
        if pod is None:
            return
        metadata = pod.metadata
        try:
            if metadata.deletion_timestamp is not None:
                await self._client.delete(PODS, metadata.name, metadata.namespace, uid=metadata.uid, grace_seconds=0)
            elif pod.status.phase in ("", "Pending"):
                await self._report_running(pod)
        except ApiError as error:
            if not (error.is_not_found or error.is_conflict):
                raise

    async def _report_running(self, pod: Pod) -> None:
        now = rfc3339(self._client.clock.now())
        document = status_document(pod, running_progress(pod, now, self._nodes[pod.spec.node_name].address), now)
        await self._client.patch(
            PODS,
            pod.metadata.name,
            {"status": document},
            pod.metadata.namespace,
            patch_type=STRATEGIC_PATCH,
            subresource="status",
            uid=pod.metadata.uid,
        )

    async def _beat(self) -> None:
        """Renew one lease after the other, spread evenly."""
        while self._nodes:
            for name, registration in self._registrations.items():
                await self._client.clock.sleep(RENEW_ALL_S / len(self._registrations))
                try:
                    await registration.renew()
                except (ApiError, ServerUnreachable) as error:
                    log.info("lease of node %s: %s", name, error)


def running_progress(pod: Pod, now: str, address: str) -> PodProgress:
    """Every container up; init containers done."""
    names: Iterable[str] = (each.name for each in (*pod.spec.containers, *pod.spec.init_containers))
    containers = {
        name: ContainerProgress(container_id=f"none://{pod.metadata.uid}/{name}", started_at=now) for name in names
    }
    return PodProgress(
        containers=containers,
        start_time=now,
        has_sandbox=True,
        is_initialized=True,
        pod_ip=address,
        host_ip=address,
    )
