"""A node is never overbooked by bindings, however many schedulers bind."""

import asyncio
import subprocess
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.apiserver.conftest import Answer, Client
from tests.builders.manifests import a_container, a_pod, claim_entries
from tests.store.conftest import free_port, start_etcd

from dray.apiserver.assembly import ServerOptions, start_server
from dray.apiserver.guard import binding_guard
from dray.apiserver.guard.binding_guard import node_key
from dray.store.etcd import EtcdStore
from dray.store.sqlite import SqliteStore
from dray.store.store_url import StoreAddress

Document = dict[str, Any]
PODS = "/api/v1/namespaces/default/pods"
ROOMY = {"cpu": "4", "memory": "8Gi", "pods": "110"}


async def add_node(server: Client, name: str = "n1", **allocatable: str) -> None:
    """A node; names with dots and slashes come as `example_com__gpu`."""
    amounts = {key.replace("__", "/").replace("_", "."): value for key, value in allocatable.items()}
    await server.post("/api/v1/nodes", {"metadata": {"name": name}, "kind": "Node", "apiVersion": "v1"})
    answer = await server.patch(f"/api/v1/nodes/{name}/status", {"status": {"allocatable": amounts}})
    assert answer.status == 200, answer.body


def pod_that_asks(name: str, *, node: str = "", claim: str = "", **requests: str) -> Document:
    amounts = {key.replace("__", "/").replace("_", "."): value for key, value in requests.items()}
    limits = {key: value for key, value in amounts.items() if "/" in key}
    container = a_container("c", resources={"requests": amounts, "limits": limits})
    entries = {"resourceClaims": claim_entries({"own": claim})} if claim else {}
    return a_pod(name, container, namespace="", node=node, **entries)


async def add_pod(server: Client, name: str, **options: Any) -> Document:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    await server.post("/api/v1/namespaces/default/serviceaccounts", account)
    answer = await server.post(PODS, pod_that_asks(name, **options))
    assert answer.status == 201, answer.body
    return dict(answer.body)


async def bind(server: Client, name: str, node: str = "n1", query: str = "") -> Answer:
    return await server.post(f"{PODS}/{name}/binding{query}", {"target": {"kind": "Node", "name": node}})


async def end(server: Client, name: str) -> None:
    answer = await server.patch(f"{PODS}/{name}/status", {"status": {"phase": "Succeeded"}})
    assert answer.status == 200, answer.body


async def test_node_is_filled_to_the_brim_and_no_further(server: Client) -> None:
    await add_node(server, **ROOMY)
    for name, cpu in (("a", "1500m"), ("b", "2500m"), ("c", "1m")):
        await add_pod(server, name, cpu=cpu)
    assert (await bind(server, "a")).status == 201
    assert (await bind(server, "b")).status == 201
    refused = await bind(server, "c")
    assert refused.status == 409
    assert refused.body["reason"] == "Conflict"
    assert refused.body["message"] == (
        'Operation cannot be fulfilled on pods/binding "c": node n1: Insufficient cpu: 1m asked, 4 of 4 in use'
    )
    assert "nodeName" not in (await server.get(f"{PODS}/c")).body["spec"]


async def test_everything_that_is_short_is_named(server: Client) -> None:
    await add_node(server, cpu="1", memory="1Gi", pods="1")
    await add_pod(server, "a", cpu="1", memory="1Gi")
    await add_pod(server, "b", cpu="1", memory="512Mi")
    await bind(server, "a")
    message = (await bind(server, "b")).body["message"]
    assert message.endswith(
        "node n1: Too many pods: 1 asked, 1 of 1 in use; Insufficient cpu: 1 asked, 1 of 1 in use; "
        "Insufficient memory: 512Mi asked, 1Gi of 1Gi in use"
    )


async def test_bindings_at_the_same_moment_share_the_room(server: Client) -> None:
    await add_node(server, **ROOMY)
    names = [f"p{index}" for index in range(10)]
    for name in names:
        await add_pod(server, name, cpu="1")
    answers = await asyncio.gather(*(bind(server, name) for name in names))
    assert Counter(answer.status for answer in answers) == {201: 4, 409: 6}


async def test_room_comes_back_when_a_pod_is_over_or_gone(server: Client) -> None:
    await add_node(server, **ROOMY)
    for name in "abcd":
        await add_pod(server, name, cpu="4")
    assert (await bind(server, "a")).status == 201
    assert (await bind(server, "b")).status == 409
    await end(server, "a")
    assert (await bind(server, "b")).status == 201
    await server.send("DELETE", f"{PODS}/b?gracePeriodSeconds=0")
    assert (await bind(server, "c")).status == 201
    await server.send("DELETE", f"{PODS}/c")
    # A pod that is still leaving needs its room.
    assert (await bind(server, "d")).status == 409


async def test_pod_of_the_same_name_is_another_one(server: Client) -> None:
    await add_node(server, **ROOMY)
    await add_pod(server, "a", cpu="3")
    await bind(server, "a")
    await server.send("DELETE", f"{PODS}/a?gracePeriodSeconds=0")
    await add_pod(server, "a", cpu="4")
    assert (await bind(server, "a")).status == 201
    await add_pod(server, "b", cpu="1")
    assert (await bind(server, "b")).status == 409


async def test_pods_that_came_without_a_scheduler_count(server: Client) -> None:
    await add_node(server, **ROOMY)
    await add_pod(server, "static", node="n1", cpu="5")
    await add_pod(server, "frugal")
    await add_pod(server, "a", cpu="1m")
    assert (await bind(server, "frugal")).status == 201, "a pod that asks for nothing takes nothing"
    assert (await bind(server, "a")).status == 409


async def test_node_that_shrank_takes_what_does_not_ask_for_the_short_resource(server: Client) -> None:
    await add_node(server, **ROOMY)
    await add_pod(server, "a", cpu="4")
    await bind(server, "a")
    await server.patch("/api/v1/nodes/n1/status", {"status": {"allocatable": {"cpu": "2"}}})
    await add_pod(server, "b", memory="1Gi")
    await add_pod(server, "c", cpu="1m")
    assert (await bind(server, "b")).status == 201
    assert (await bind(server, "c")).status == 409
    await server.patch("/api/v1/nodes/n1/status", {"status": {"allocatable": {"cpu": "5"}}})
    assert (await bind(server, "c")).status == 201


@pytest.mark.parametrize(
    ("allocatable", "requests"),
    [
        pytest.param({}, {"cpu": "100"}, id="node-that-says-nothing"),
        pytest.param({"memory": "1Gi"}, {"cpu": "100"}, id="resource-the-node-does-not-mention"),
        pytest.param(ROOMY, {"example_com__gpu": "2"}, id="extended-resource-that-devices-serve"),
        pytest.param(ROOMY | {"example_com__gpu": "0"}, {"example_com__gpu": "2"}, id="device-plugin-that-left"),
    ],
)
async def test_only_what_the_node_says_it_has_is_checked(
    server: Client, allocatable: dict[str, str], requests: dict[str, str]
) -> None:
    await add_node(server, **allocatable)
    await add_pod(server, "a", **requests)
    assert (await bind(server, "a")).status == 201


async def test_unknown_node_is_not_checked(server: Client) -> None:
    await add_pod(server, "a", cpu="100")
    assert (await bind(server, "a", "nowhere")).status == 201


async def test_device_plugins_resource_is_checked(server: Client) -> None:
    await add_node(server, **ROOMY, example_com__gpu="2")
    await add_pod(server, "a", example_com__gpu="2")
    await add_pod(server, "b", example_com__gpu="1")
    assert (await bind(server, "a")).status == 201
    assert "Insufficient example.com/gpu" in (await bind(server, "b")).body["message"]


async def test_what_claims_take_counts(server: Client) -> None:
    await add_node(server, **ROOMY)
    for name in "ab":
        await add_pod(server, name, cpu="1", claim=f"cores-{name}")
        taken = {"resourceClaimName": f"cores-{name}", "containers": ["c"], "resources": {"cpu": "2"}}
        answer = await server.patch(
            f"{PODS}/{name}/status", {"status": {"nodeAllocatableResourceClaimStatuses": [taken]}}
        )
        assert answer.status == 200, answer.body
    assert (await bind(server, "a")).status == 201
    assert (await bind(server, "b")).body["message"].endswith("Insufficient cpu: 3 asked, 3 of 4 in use")


async def test_dry_run_tells_and_takes_nothing(server: Client) -> None:
    await add_node(server, **ROOMY)
    await add_pod(server, "a", cpu="3")
    await add_pod(server, "b", cpu="2")
    assert (await bind(server, "a", query="?dryRun=All")).status == 201
    assert (await bind(server, "b")).status == 201
    assert (await bind(server, "a", query="?dryRun=All")).status == 409


async def test_refused_binding_leaves_the_room(server: Client) -> None:
    await add_node(server, **ROOMY)
    await add_pod(server, "a", cpu="3")
    await add_pod(server, "b", cpu="3")
    wrong = {"metadata": {"uid": "other"}, "target": {"kind": "Node", "name": "n1"}}
    assert (await server.post(f"{PODS}/a/binding", wrong)).status == 409
    assert (await bind(server, "b")).status == 201


async def test_server_that_starts_again_counts_what_is_stored(tmp_path: Path) -> None:
    for turn, expected in enumerate((201, 409)):
        store = SqliteStore(tmp_path / "store.db")
        running = await start_server(store, ServerOptions(tmp_path))
        server = Client(running, store)
        if not turn:
            await add_node(server, **ROOMY)
        await add_pod(server, f"p{turn}", cpu="3")
        assert (await bind(server, f"p{turn}")).status == expected
        await running.stop()
        await store.close()


async def test_overbooking_can_be_allowed(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    running = await start_server(store, ServerOptions(tmp_path, overbooking=True))
    server = Client(running, store)
    await add_node(server, **ROOMY)
    await add_pod(server, "a", cpu="100")
    assert (await bind(server, "a")).status == 201
    await running.stop()
    await store.close()


def _etcd(directory: Path) -> tuple[int, subprocess.Popen[bytes]]:
    """Somebody else may take a free port before etcd does; then on another one."""
    for attempt in range(5):
        port = free_port()
        try:
            return port, start_etcd(directory / f"etcd-{attempt}", port)
        except AssertionError:
            continue
    raise AssertionError("etcd does not start")


@pytest.fixture
async def two_servers(tmp_path: Path) -> AsyncIterator[list[Client]]:
    """Two API servers on one etcd."""
    port, process = _etcd(tmp_path)
    stores, clients = [], []
    try:
        for index in range(2):
            store = await EtcdStore.open(StoreAddress.parse(f"etcd://127.0.0.1:{port}/dray"))
            stores.append(store)
            clients.append(Client(await start_server(store, ServerOptions(tmp_path / f"data-{index}")), store))  # type: ignore[arg-type]
        yield clients
    finally:
        for client in clients:
            await client.running.stop()
        for store in stores:
            await store.close()
        process.kill()
        process.wait()


async def test_two_servers_on_one_etcd_share_the_room(two_servers: list[Client]) -> None:
    first, second = two_servers
    await add_node(first, **ROOMY)
    names = [f"p{index}" for index in range(12)]
    for name in names:
        await add_pod(first, name, cpu="1")
    answers = await asyncio.gather(*(bind(two_servers[turn % 2], name) for turn, name in enumerate(names)))
    assert Counter(answer.status for answer in answers) == {201: 4, 409: 8}
    assert any("Insufficient cpu" in answer.body["message"] for answer in answers if answer.status == 409)
    placed = [pod for pod in (await second.get(PODS)).body["items"] if pod["spec"].get("nodeName")]
    assert len(placed) == 4


async def test_a_node_that_is_gone_leaves_nothing_in_the_guard(two_servers: list[Client]) -> None:
    server, _ = two_servers
    await add_node(server, **ROOMY)
    await add_pod(server, "a", cpu="1")
    assert (await bind(server, "a")).status == 201
    key = node_key("n1")
    assert await server.store.get(key) is not None
    assert (await server.send("DELETE", "/api/v1/nodes/n1")).status == 200
    assert await server.store.get(key) is None


async def test_binding_costs_one_reading_of_the_pod(server: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The room is counted from what changed: not from all pods, and the bound pod is read once."""
    await add_node(server, cpu="1000", memory="1Ti", pods="1000")
    read: list[str] = []
    plain = binding_guard.decode

    def counted(kind: type, value: bytes) -> Any:
        read.append(kind.__name__)
        return plain(kind, value)

    monkeypatch.setattr(binding_guard, "decode", counted)
    for index in range(20):
        await add_pod(server, f"p{index}", cpu="1")
        await bind(server, f"p{index}")
    assert Counter(read) == {"Pod": 20, "Node": 1}


async def test_pods_that_are_never_bound_leave_nothing_behind(server: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binding_guard, "MAX_WAITING_CHANGES", 8)
    await add_node(server, **ROOMY)
    await add_pod(server, "first", cpu="1")
    assert (await bind(server, "first")).status == 201
    kept = server.core.commit.__self__._node_room  # type: ignore[attr-defined]
    for number in range(3):
        await add_pod(server, f"early{number}", cpu="1m")
    waiting = {key.rpartition("/")[2] for key in kept._changed}
    assert waiting == {"first", "early0", "early1", "early2"}, "nobody has asked since, so nobody has looked at them"
    for number in range(20):
        await add_pod(server, f"p{number}", node="n1", cpu="1m")
        await server.send("DELETE", f"{PODS}/p{number}?gracePeriodSeconds=0")
    assert len(kept._changed) < 8
    await add_pod(server, "last", cpu="3")
    assert (await bind(server, "last")).status == 201


async def test_room_of_a_pod_that_was_counted_comes_back_when_it_is_gone_or_another_takes_its_name(
    server: Client,
) -> None:
    """The node is asked between binding and deletion, so the pod is in its ledger and not only on the way there."""
    await add_node(server, **ROOMY)
    await add_node(server, "n2", **ROOMY)
    for name in ("a", "b", "c"):
        await add_pod(server, name, cpu="4")
    assert (await bind(server, "a")).status == 201
    assert (await bind(server, "b")).status == 409
    await server.send("DELETE", f"{PODS}/a?gracePeriodSeconds=0")
    await add_pod(server, "a", cpu="4")
    assert (await bind(server, "b")).status == 201, "the new pod of that name waits, and takes nothing"
    assert (await bind(server, "c", "n2")).status == 201
    assert (await bind(server, "a", "n2")).status == 409
    await server.send("DELETE", f"{PODS}/c?gracePeriodSeconds=0")
    assert (await bind(server, "a", "n2")).status == 201
