"""What is reserved and in use of a slice's devices, as its computed status shows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.apiserver.conftest import CLAIMS, Client
from tests.builders.manifests import a_claim, a_result, a_slice, an_allocation

from dray.apiserver.assembly import ServerOptions, start_server
from dray.features import FeatureGates
from dray.store.sqlite import SqliteStore

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
SHARED = {"name": "shared", "allowMultipleAllocations": True, "capacity": {"memory": {"value": "8Gi"}}}


async def allocate(server: Client, name: str, result: dict[str, Any], *users: str) -> dict[str, Any]:
    made = (await server.post(CLAIMS, a_claim(name))).body
    reserved = [{"resource": "pods", "name": user, "uid": user} for user in users]
    status = {"allocation": an_allocation(result), "reservedFor": reserved}
    answer = await server.patch(f"{CLAIMS}/{name}/status", {"status": status})
    assert answer.status == 200, answer.body
    return dict(made["metadata"])


@pytest.fixture
async def published(server: Client) -> Client:
    assert (await server.post(SLICES, a_slice("s", "gpu-0", "gpu-1", SHARED))).status == 201
    return server


async def devices_of(server: Client) -> list[Any]:
    answer = await server.get(f"{SLICES}/s/status")
    assert answer.status == 200, answer.body
    assert answer.body["spec"]["driver"] == "gpu.example.com"
    found: list[Any] = answer.body["status"]["devices"]
    return found


async def test_reserved_and_used_devices_are_shown(published: Client) -> None:
    assert await devices_of(published) == []
    idle = await allocate(published, "idle", a_result("gpu-1"))
    used = await allocate(published, "used", a_result("gpu-0"), "pod-1")
    assert await devices_of(published) == [
        {
            "name": "gpu-0",
            "claims": [
                {
                    "namespace": "default",
                    "name": "used",
                    "uid": used["uid"],
                    "inUseBy": [{"resource": "pods", "name": "pod-1", "uid": "pod-1"}],
                }
            ],
        },
        {
            "name": "gpu-1",
            "claims": [{"namespace": "default", "name": "idle", "uid": idle["uid"], "inUseBy": []}],
        },
    ]
    await published.patch(f"{CLAIMS}/idle/status", {"status": {"allocation": None}})
    assert [device["name"] for device in await devices_of(published)] == ["gpu-0"]


async def test_shares_are_shown_with_what_they_consume(published: Client) -> None:
    share = a_result("shared", shareID="00000000-0000-4000-8000-000000000000", consumedCapacity={"memory": "2Gi"})
    await allocate(published, "part", share, "pod-1")
    [device] = await devices_of(published)
    [claim] = device["claims"]
    assert claim["shareID"] == "00000000-0000-4000-8000-000000000000"
    assert claim["consumedCapacity"] == {"memory": "2147483648"}


async def test_it_is_read_only_and_in_one_version(published: Client) -> None:
    assert (await published.patch(f"{SLICES}/s/status", {"status": {}})).status == 405
    assert (await published.get(f"{SLICES}/nobody/status")).status == 404
    assert (await published.get("/apis/resource.k8s.io/v1beta1/resourceslices/s/status")).status == 404
    assert "status" not in (await published.get(f"{SLICES}/s")).body


async def test_a_release_that_is_emulated_does_not_have_it(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    running = await start_server(store, ServerOptions(tmp_path, gates=FeatureGates.for_release("1.37")))
    server = Client(running, store)
    assert (await server.post(SLICES, a_slice("s", "gpu-0"))).status == 201
    assert (await server.get(f"{SLICES}/s/status")).status == 404
    await running.stop()
    await store.close()
