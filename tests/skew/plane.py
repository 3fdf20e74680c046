"""A control plane of which each part has gates of its own, over data that outlives it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from dray.client import CLAIMS, DEVICE_CLASSES, NODES, PODS, SERVICE_ACCOUNTS, SLICES, ApiError, Client, Informers
from dray.client.older_resource_api import OlderResourceApi
from dray.client.transport import Call
from dray.controllers.context import ControllerContext
from dray.controllers.controller_manager import ControllerManager
from dray.features import FeatureGates
from dray.proof import History, ProofReport, WatchRecorder, check
from dray.scheduler.service import SchedulerService
from dray.sim.control_plane import ControlPlane, ControlPlaneOptions
from tests.waiting import eventually

Document = dict[str, Any]
ON = FeatureGates.default()
GROUP = "resource.k8s.io/v1"


def without(*gates: str) -> FeatureGates:
    return ON.with_overrides(dict.fromkeys(gates, False))


class SkewedPlane:
    """One node without an agent: pods are bound, not run."""

    def __init__(self, plane: ControlPlane) -> None:
        self.client: Client = any_version(plane, "test")
        self.history = History()
        self._follower = WatchRecorder(any_version(plane, "follower"), self.history, "a")

    async def start(self) -> None:
        await self._follower.start()

    async def report(self) -> ProofReport:
        await self._follower.finish()
        return check(self.history)

    async def create(self, kind: Any, name: str, spec: Document, namespace: str = "") -> None:
        metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
        await self.client.create(kind, {"metadata": metadata, "spec": spec}, namespace)

    async def document(self, kind: Any, name: str, namespace: str = "") -> Document:
        return await self.client.get_document(kind, name, namespace)

    async def make_node(self, cpu: str = "8") -> None:
        amounts = {"cpu": cpu, "memory": "8Gi", "pods": "100"}
        status = {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
            "declaredFeatures": ["DRANodeAllocatableResources"],
        }
        await self.client.create(NODES, {"metadata": {"name": "n1"}, "status": status})
        await self.client.patch(NODES, "n1", {"status": status}, subresource="status")
        # Nobody runs here who would take away the taint of a new node.
        await self.client.patch(NODES, "n1", {"spec": {"taints": None}})
        with contextlib.suppress(ApiError):
            await self.client.create(SERVICE_ACCOUNTS, {"metadata": {"name": "default"}}, "default")

    async def publish(self, *devices: Document) -> None:
        pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": "d.example.com", "nodeName": "n1", "pool": pool, "devices": list(devices)}
        await self.create(SLICES, "slice", spec)
        with contextlib.suppress(ApiError):
            await self.create(DEVICE_CLASSES, "any", {"selectors": [{"cel": {"expression": "true"}}]})

    async def claim(self, name: str, **exactly: Any) -> None:
        requests = [{"name": "r", "exactly": {"deviceClassName": "any", **exactly}}]
        await self.create(CLAIMS, name, {"devices": {"requests": requests}}, "default")

    async def pod(self, name: str, *claims: str, cpu: str = "100m") -> None:
        container = {
            "name": "main",
            "image": "x",
            "resources": {"requests": {"cpu": cpu}, "claims": [{"name": each} for each in claims]},
        }
        entries = [{"name": each, "resourceClaimName": each} for each in claims]
        await self.create(PODS, name, {"containers": [container], "resourceClaims": entries}, "default")

    async def node_of(self, name: str, wait_s: float = 15.0) -> str:
        """Where the pod is; empty once the scheduler has said no."""

        async def decided() -> bool:
            pod = await self.client.get(PODS, name, "default")
            return bool(pod.spec.node_name) or any(each.type == "PodScheduled" for each in pod.status.conditions)

        await until(decided, f"a decision about {name}", wait_s)
        return (await self.client.get(PODS, name, "default")).spec.node_name or ""

    async def raw(self, method: str, path: str, body: bytes = b"") -> Document:
        answer = await self.client.transport.request(Call(method, path, body=body))
        if answer.status >= 400:
            raise ApiError.from_answer(answer.status, answer.body)
        decoded: Document = msgspec.json.decode(answer.body)
        return decoded


def any_version(plane: ControlPlane, component: str) -> Client:
    """As components connect to a server that they do not know."""
    return Client(OlderResourceApi(plane.client(component).transport), user_agent=component)


@contextlib.asynccontextmanager
async def skewed_plane(
    data: Path,
    *,
    server: FeatureGates = ON,
    scheduler: FeatureGates | None = ON,
    controllers: FeatureGates | None = None,
    runtime_config: str = "api/all=true",
) -> AsyncIterator[SkewedPlane]:
    """A part whose gates are None does not run. All clients find out which versions the server has."""
    plane = ControlPlane(
        ControlPlaneOptions(
            data, gates=server, runtime_config=runtime_config, with_controllers=False, with_scheduler=False
        )
    )
    await plane.start()
    tasks = []
    if scheduler is not None:
        service = SchedulerService(any_version(plane, "dray-scheduler"), gates=scheduler)
        tasks.append(asyncio.create_task(service.run()))
        await service.ready.wait()
    if controllers is not None:
        client = any_version(plane, "dray-controller-manager")
        manager = ControllerManager(ControllerContext(client, Informers(client), controllers))
        tasks.append(asyncio.create_task(manager.run()))
        await manager.ready.wait()
    skewed = SkewedPlane(plane)
    await skewed.start()
    try:
        yield skewed
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await plane.stop()


async def until(holds: Callable[[], Awaitable[bool]], what: str, wait_s: float = 15.0) -> None:
    await eventually(holds, what, wait_s)
