"""A refusal because another claim holds the device names that claim only to who may read it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dray.apiserver.assembly import ServerOptions, start_server
from dray.apiserver.request.request_info import AUTHENTICATED, User
from dray.store.sqlite import SqliteStore
from tests.apiserver.conftest import Client

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
SCHEDULER = User("system:kube-scheduler", (AUTHENTICATED,))
TENANT = User("tenant", (AUTHENTICATED,))


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Client]:
    """A claim in a secret namespace holds a device; the tenant may allocate, and read claims of its own namespace."""
    store = SqliteStore(tmp_path / "dray.db")
    running = await start_server(store, ServerOptions(tmp_path))
    client = Client(running, store)
    for namespace in ("secret-project", "team"):
        await client.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
        spec = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}
        claims = CLAIMS.format(namespace)
        assert (await client.post(claims, {"metadata": {"name": "merger"}, "spec": spec})).status == 201
    assert (await client.patch(f"{CLAIMS.format('secret-project')}/merger/status", allocated())).status == 200
    rules = [
        {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims/status"], "verbs": ["patch"]},
        {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims/binding"], "verbs": ["patch"]},
    ]
    await client.post(f"{RBAC}/clusterroles", {"metadata": {"name": "allocates"}, "rules": rules})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "allocates"}
    subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "tenant"}]
    binding = {"metadata": {"name": "allocates"}, "roleRef": role, "subjects": subjects}
    assert (await client.post(f"{RBAC}/clusterrolebindings", binding)).status == 201
    yield client
    await running.stop()
    await store.close()


def allocated() -> dict[str, Any]:
    result = {"request": "r", "driver": "d.example.com", "pool": "p", "device": "x"}
    return {"status": {"allocation": {"devices": {"results": [result]}}}}


async def test_a_tenant_does_not_learn_who_holds_a_device(server: Client) -> None:
    for query in ("", "?dryRun=All"):
        path = f"{CLAIMS.format('team')}/merger/status{query}"
        merge = "application/merge-patch+json"
        answer = await server.send("PATCH", path, allocated(), user=TENANT, content_type=merge)
        assert answer.status == 409
        assert "device d.example.com/p/x is already allocated to another claim" in answer.body["message"]
        assert answer.body["details"]["causes"][0]["reason"] == "DevicesHeld"
        assert "secret-project" not in str(answer.body)


async def test_the_scheduler_does(server: Client) -> None:
    path, merge = f"{CLAIMS.format('team')}/merger/status", "application/merge-patch+json"
    answer = await server.send("PATCH", path, allocated(), user=SCHEDULER, content_type=merge)
    assert answer.status == 409
    assert "is already allocated to claim secret-project/merger" in answer.body["message"]
