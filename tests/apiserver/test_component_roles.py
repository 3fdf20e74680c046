"""The parts of a cluster run with their own rights: nothing they need is missing from the default roles."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import eventually

from dray.apiserver.assembly import RunningServer, ServerOptions, start_server
from dray.apiserver.request.request_info import LOOPBACK, Request, User
from dray.client.kinds import NODES
from dray.client.rest import Client, InProcessTransport
from dray.client.shared_informers import Informers
from dray.controllers.context import ControllerContext
from dray.controllers.controller_manager import (
    ControllerManager,
    ControllerOptions,
)
from dray.features import FeatureGates
from dray.scheduler.service import SchedulerService
from dray.store.sqlite import SqliteStore

Document = dict[str, Any]
SCHEDULER = User("system:kube-scheduler", ("system:authenticated",))
DRA = "/apis/resource.k8s.io/v1"


class Cluster:
    def __init__(self, running: RunningServer) -> None:
        self._server = running.server
        self.refusals: list[str] = []

    def client(self, user: User) -> Client:
        async def handle(request: Request) -> Any:
            response = await self._server.handle(request)
            if response.status in (401, 403):
                self.refusals.append(f"{request.method} {request.path}: {response.body.decode()}")
            return response

        return Client(InProcessTransport(handle, partial(Request, user=user)))


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    store = SqliteStore(tmp_path / "dray.db")
    running = await start_server(store, ServerOptions(tmp_path))
    yield Cluster(running)
    await running.stop()
    await store.close()


async def test_a_scheduler_schedules_with_its_own_rights(cluster: Cluster) -> None:
    admin = cluster.client(LOOPBACK)

    async def make(path: str, body: Document) -> None:
        await admin.raw("POST", path, body=json.dumps(body).encode())

    await make("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
    capacity = {"cpu": "8", "memory": "8Gi", "pods": "10"}
    ready = {"type": "Ready", "status": "True"}
    status = {"capacity": capacity, "allocatable": capacity, "conditions": [ready]}
    await make("/api/v1/nodes", {"metadata": {"name": "n1"}, "status": status})
    # A new node is tainted until a controller finds it ready; here the administrator stands in for it.
    await admin.patch(NODES, "n1", {"spec": {"taints": None}})
    await make(f"{DRA}/deviceclasses", {"metadata": {"name": "gpu"}, "spec": {}})
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    spec: Document = {"driver": "gpu.example.com", "nodeName": "n1", "pool": pool, "devices": [{"name": "gpu-0"}]}
    await make(f"{DRA}/resourceslices", {"metadata": {"name": "s"}, "spec": spec})
    requests = [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]
    claim = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": requests}}}
    await make(f"{DRA}/namespaces/default/resourceclaims", claim)
    container = {"name": "main", "image": "x", "resources": {"claims": [{"name": "gpu"}], "requests": {"cpu": "1"}}}
    claims = [{"name": "gpu", "resourceClaimName": "c"}]
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [container], "resourceClaims": claims}}
    await make("/api/v1/namespaces/default/pods", pod)
    huge = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "99"}}}
    await make("/api/v1/namespaces/default/pods", {"metadata": {"name": "big"}, "spec": {"containers": [huge]}})

    service = SchedulerService(cluster.client(SCHEDULER))
    running = asyncio.create_task(service.run())
    found: Document = {}

    async def is_bound() -> bool:
        found.update(json.loads((await admin.raw("GET", "/api/v1/namespaces/default/pods/p")).body))
        return bool(found["spec"].get("nodeName"))

    await eventually(is_bound, "the pod to be bound")
    await eventually(lambda: not service.scheduler.running, "the scheduler to finish")
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    assert cluster.refusals == []
    assert found["spec"].get("nodeName") == "n1", found.get("status")


MANAGER = User("system:kube-controller-manager", ("system:authenticated",))


async def test_controllers_work_with_their_own_rights(cluster: Cluster) -> None:
    admin = cluster.client(LOOPBACK)

    async def make(path: str, body: Document) -> None:
        await admin.raw("POST", path, body=json.dumps(body).encode())

    async def read(path: str) -> Document:
        found: Document = json.loads((await admin.raw("GET", path)).body)
        return found

    client = cluster.client(MANAGER)
    manager = ControllerManager(
        ControllerContext(client, Informers(client), FeatureGates.default()), ControllerOptions(root_ca="certificate")
    )
    running = asyncio.create_task(manager.run())
    await asyncio.wait_for(manager.ready.wait(), 30)
    await make("/api/v1/namespaces", {"metadata": {"name": "team"}})
    requests = [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]
    template = {"metadata": {"name": "t"}, "spec": {"spec": {"devices": {"requests": requests}}}}
    await make(f"{DRA}/namespaces/team/resourceclaimtemplates", template)
    await make("/api/v1/namespaces/team/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "10"}}})
    labels = {"app": "x"}
    container = {"name": "main", "image": "x", "resources": {"claims": [{"name": "gpu"}]}}
    spec = {"containers": [container], "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]}
    pods = {"metadata": {"labels": labels}, "spec": spec}
    deployment = {"replicas": 2, "selector": {"matchLabels": labels}, "template": pods}
    await make("/apis/apps/v1/namespaces/team/deployments", {"metadata": {"name": "d"}, "spec": deployment})
    items: list[Document] = []

    async def two_claims() -> bool:
        items[:] = (await read(f"{DRA}/namespaces/team/resourceclaims"))["items"]
        return len(items) == 2

    await eventually(two_claims, "two claims")
    assert cluster.refusals == []
    assert len(items) == 2
    await admin.raw("DELETE", "/api/v1/namespaces/team")

    async def is_gone() -> bool:
        return "team" not in [entry["metadata"]["name"] for entry in (await read("/api/v1/namespaces"))["items"]]

    await eventually(is_gone, "the namespace to go")
    assert "team" not in [entry["metadata"]["name"] for entry in (await read("/api/v1/namespaces"))["items"]]
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    # What is created into a namespace while it ends is refused, and meant to be.
    assert [text for text in cluster.refusals if "because it is being terminated" not in text] == []
