"""Two and more API servers on one etcd are one API."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.builders.manifests import a_claim, a_request

from dray.apiserver.assembly import RunningServer, ServerOptions, start_server
from dray.apiserver.request.request_info import LOOPBACK, Request, User
from dray.store.store_url import open_store

Document = dict[str, Any]
DRA = "/apis/resource.k8s.io/v1"
CLAIMS = f"{DRA}/namespaces/default/resourceclaims"
MERGE = "application/merge-patch+json"


async def send(
    running: RunningServer, method: str, path: str, body: Any = None, *, user: User | None = LOOPBACK, **headers: str
) -> tuple[int, Document]:
    path, _, query = path.partition("?")
    data = json.dumps(body).encode() if body is not None else b""
    kind = MERGE if method == "PATCH" else "application/json"
    sent = {"content-type": kind, "accept": "application/json", "user-agent": "test/1", **headers}
    response = await running.server.handle(Request(method, path, query, sent, data, user))
    return response.status, json.loads(response.body or b"{}")


@pytest.fixture
async def servers(
    etcd_address: str, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[list[RunningServer]]:
    """Two, or as many as the test is parametrized with."""
    running = []
    stores = []
    for name in map(str, range(getattr(request, "param", 2))):
        store = await open_store(f"etcd://{etcd_address}/{request.node.name}", tmp_path / name)
        stores.append(store)
        running.append(await start_server(store, ServerOptions(tmp_path / name)))
    yield running
    for server in running:
        await server.stop()
    for store in stores:
        await store.close()


async def test_a_write_on_one_is_read_on_the_other_at_once(servers: list[RunningServer]) -> None:
    one, two = servers
    for number in range(10):
        writer, reader = (one, two) if number % 2 else (two, one)
        status, made = await send(writer, "POST", CLAIMS, a_claim(f"c{number}", a_request(device_class="gold")))
        assert status == 201
        status, read = await send(reader, "GET", f"{CLAIMS}/c{number}")
        assert (status, read) == (200, made)
        status, listed = await send(reader, "GET", CLAIMS)
        assert f"c{number}" in [entry["metadata"]["name"] for entry in listed["items"]]


async def test_both_write_one_object_and_lose_nothing(servers: list[RunningServer]) -> None:
    await send(servers[0], "POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "c"}, "data": {}})

    async def add(number: int) -> int:
        patch = {"data": {f"k{number}": "v"}}
        path = "/api/v1/namespaces/default/configmaps/c"
        while True:
            status, _ = await send(servers[number % 2], "PATCH", path, patch)
            if status != 409:
                return status

    assert set(await asyncio.gather(*(add(number) for number in range(20)))) == {200}
    _, found = await send(servers[1], "GET", "/api/v1/namespaces/default/configmaps/c")
    assert len(found["data"]) == 20


async def test_a_watch_on_one_sees_the_writes_of_both(servers: list[RunningServer]) -> None:
    one = servers[0]
    _, listed = await send(one, "GET", CLAIMS)
    revision = listed["metadata"]["resourceVersion"]
    query = f"watch=true&resourceVersion={revision}&timeoutSeconds=20"
    response = await one.server.handle(Request("GET", CLAIMS, query, {"accept": "application/json"}, b"", LOOPBACK))
    assert response.stream is not None
    for number in range(6):
        await send(servers[number % 2], "POST", CLAIMS, a_claim(f"w{number}", a_request(device_class="gold")))
    names: list[str] = []
    revisions: list[int] = []
    async with asyncio.timeout(30):
        async for chunk in response.stream:
            for line in chunk.splitlines():
                event = json.loads(line)
                names.append(event["object"]["metadata"]["name"])
                revisions.append(int(event["object"]["metadata"]["resourceVersion"]))
            if len(names) >= 6:
                break
    assert names == [f"w{number}" for number in range(6)]
    assert revisions == sorted(revisions)


async def test_credentials_of_one_are_good_for_the_other(servers: list[RunningServer]) -> None:
    one, two = servers
    path = "/api/v1/namespaces/default/serviceaccounts"
    await send(one, "POST", path, {"metadata": {"name": "robot"}})
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    _, answer = await send(one, "POST", f"{path}/robot/token", body)
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    status, seen = await send(
        *(two, "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", review),
        user=None,
        authorization=f"Bearer {answer['status']['token']}",
    )
    assert status == 201
    assert seen["status"]["userInfo"]["username"] == "system:serviceaccount:default:robot"
    assert one.credentials.authority == two.credentials.authority


async def test_a_device_is_given_once_whoever_is_asked(servers: list[RunningServer]) -> None:
    for number in range(8):
        await send(servers[0], "POST", CLAIMS, a_claim(f"c{number}", a_request(device_class="gold")))
    results = [{"request": "r", "driver": "d.example.com", "pool": "p", "device": "gpu"}]
    patch = {"status": {"allocation": {"devices": {"results": results}}}}
    answers = await asyncio.gather(
        *(send(servers[number % 2], "PATCH", f"{CLAIMS}/c{number}/status", patch) for number in range(8))
    )
    assert sorted(status for status, _ in answers) == [200] + [409] * 7
    for status, answer in answers:
        assert status == 200 or "is already allocated to claim default/c" in answer["message"]


async def test_a_quota_holds_across_both(servers: list[RunningServer]) -> None:
    name = "gold.deviceclass.resource.k8s.io/devices"
    path = "/api/v1/namespaces/default/resourcequotas"
    body = {"metadata": {"name": "q"}, "spec": {"hard": {name: "5"}}}
    await send(servers[0], "POST", path, body)
    await send(servers[0], "PATCH", f"{path}/q/status", {"status": {"hard": {name: "5"}, "used": {name: "0"}}})
    answers = await asyncio.gather(
        *(
            send(servers[number % 2], "POST", CLAIMS, a_claim(f"q{number}", a_request(device_class="gold", count=2)))
            for number in range(8)
        )
    )
    assert sorted(status for status, _ in answers) == [201] * 2 + [403] * 6
    _, quota = await send(servers[1], "GET", f"{path}/q")
    assert quota["status"]["used"] == {name: "4"}


@pytest.mark.parametrize("servers", [4], indirect=True)
async def test_four_servers_under_writers_keep_devices_quota_and_names_apart(servers: list[RunningServer]) -> None:
    """All at once: claims for too few devices, more objects than a quota allows, and the same names everywhere."""
    hard, path = {"count/secrets": "6"}, "/api/v1/namespaces/default/resourcequotas"
    await send(servers[0], "POST", path, {"metadata": {"name": "q"}, "spec": {"hard": hard}})
    await send(servers[0], "PATCH", f"{path}/q/status", {"status": {"hard": hard, "used": {"count/secrets": "0"}}})
    for number in range(12):
        await send(servers[number % 4], "POST", CLAIMS, a_claim(f"c{number}", a_request(device_class="gold")))

    async def allocate(number: int) -> tuple[int, Document]:
        result = {"request": "r", "driver": "d.example.com", "pool": "p", "device": f"d{number % 3}"}
        patch = {"status": {"allocation": {"devices": {"results": [result]}}}}
        return await send(servers[number % 4], "PATCH", f"{CLAIMS}/c{number}/status", patch)

    async def make(number: int, plural: str, name: str) -> tuple[int, Document]:
        return await send(
            servers[number % 4], "POST", f"/api/v1/namespaces/default/{plural}", {"metadata": {"name": name}}
        )

    allocated, secrets, maps = await asyncio.gather(
        asyncio.gather(*map(allocate, range(12))),
        asyncio.gather(*(make(number, "secrets", f"s{number}") for number in range(16))),
        asyncio.gather(*(make(number, "configmaps", f"same{number // 4}") for number in range(16))),
    )
    assert sorted(status for status, _ in allocated) == [200] * 3 + [409] * 9
    held = [a["status"]["allocation"]["devices"]["results"][0]["device"] for status, a in allocated if status == 200]
    assert sorted(held) == ["d0", "d1", "d2"]
    assert sorted(status for status, _ in secrets) == [201] * 6 + [403] * 10
    assert sorted(status for status, _ in maps) == [201] * 4 + [409] * 12
    uids = {answer["metadata"]["name"]: answer["metadata"]["uid"] for status, answer in maps if status == 201}
    for server in servers:
        _, listed = await send(server, "GET", "/api/v1/namespaces/default/configmaps")
        stored = {item["metadata"]["name"]: item["metadata"]["uid"] for item in listed["items"]}
        assert uids.items() <= stored.items()
    everything = [answer["metadata"]["uid"] for status, answer in (*secrets, *maps) if status == 201]
    assert len(set(everything)) == 10
