"""What a node tries with its own credentials, and a tenant with theirs: secrets of others, the API server's identity, priority, finalizers."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dray.apiserver.assembly import RunningServer, ServerOptions, start_server
from dray.apiserver.request.request_info import AUTHENTICATED, User
from dray.apiserver.subresources.pod_logs import CLIENT_NAME
from dray.store.sqlite import SqliteStore
from tests.apiserver.conftest import CLAIMS, Client

Document = dict[str, Any]
NODE = User("system:node:n1", ("system:nodes", "system:authenticated"))
PODS = "/api/v1/namespaces/default/pods"
PROTECTION = "resource.kubernetes.io/delete-protection"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Client]:
    store = SqliteStore(tmp_path / "dray.db")
    running = await start_server(store, ServerOptions(tmp_path))
    client = Client(running, store)
    await client.post("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
    yield client
    await running.stop()
    await store.close()


def node_pod(name: str = "p", **spec: Any) -> Document:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}], **spec}}


# --- pod logs --------------------------------------------------------------------------------------------------------


class FakeKubelet:
    """Answers every request with the same bytes, and keeps what was asked and by whom."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.asked: list[str] = []
        self.subjects: list[Any] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.asked.append(head.split(b" ")[1].decode())
        self.subjects.append(writer.get_extra_info("ssl_object").getpeercert()["subject"])
        writer.write(self.answer)
        await writer.drain()
        writer.close()


@asynccontextmanager
async def kubelet(running: RunningServer, answer: bytes, folder: Path) -> AsyncIterator[tuple[FakeKubelet, int]]:
    """A node agent with a certificate of its own, which asks clients for one of the cluster's authority."""
    authority = running.credentials.authority
    pair = authority.issue_server("n1", ["127.0.0.1"])
    (folder / "kubelet.pem").write_bytes(pair.key_pem + pair.certificate_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "kubelet.pem")
    context.load_verify_locations(cadata=authority.certificate_pem.decode())
    context.verify_mode = ssl.CERT_REQUIRED
    fake = FakeKubelet(answer)
    listening = await asyncio.start_server(fake.serve, "127.0.0.1", 0, ssl=context)
    try:
        yield fake, listening.sockets[0].getsockname()[1]
    finally:
        listening.close()


async def node_that_serves_logs(server: Client, address: str, port: int) -> None:
    """A node that says where its agent serves logs, and a pod on it."""
    status = {
        "addresses": [{"type": "InternalIP", "address": address}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }
    await server.post("/api/v1/nodes", {"metadata": {"name": "n1"}})
    answer = await server.send("PATCH", "/api/v1/nodes/n1/status", {"status": status}, user=NODE,
                               content_type="application/merge-patch+json")  # fmt: skip
    assert answer.status == 200, answer.body
    assert (await server.post(PODS, node_pod(nodeName="n1"))).status == 201


@pytest.mark.parametrize(
    "address", ["127.0.0.1:PORT/api/v1/secrets#", "localhost", "metadata.internal", "user@127.0.0.1", "fe80::1%lo", ""]
)
async def test_logs_are_fetched_from_ip_addresses_only(server: Client, tmp_path: Path, address: str) -> None:
    async with kubelet(server.running, b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nsecret", tmp_path) as (fake, port):
        await node_that_serves_logs(server, address.replace("PORT", str(port)), port)
        answer = await server.get(f"{PODS}/p/log")
    assert answer.status == 400
    assert fake.asked == []


async def test_a_redirect_of_a_node_is_not_followed(server: Client, tmp_path: Path) -> None:
    redirect = b"HTTP/1.1 302 Found\r\nlocation: /api/v1/secrets\r\ncontent-length: 0\r\n\r\n"
    async with kubelet(server.running, redirect, tmp_path) as (fake, port):
        await node_that_serves_logs(server, "127.0.0.1", port)
        answer = await server.get(f"{PODS}/p/log")
    assert answer.status == 400
    assert fake.asked == ["/containerLogs/default/p/c"]


async def test_the_identity_that_fetches_logs_may_do_nothing_else(server: Client, tmp_path: Path) -> None:
    async with kubelet(server.running, b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", tmp_path) as (fake, port):
        await node_that_serves_logs(server, "127.0.0.1", port)
        assert (await server.get(f"{PODS}/p/log")).status == 200
    assert fake.subjects == [((("commonName", CLIENT_NAME),),)]
    fetching = User(CLIENT_NAME, (AUTHENTICATED,))
    for path in ("/api/v1/secrets", "/api/v1/nodes", PODS, "/apis/rbac.authorization.k8s.io/v1/clusterroles"):
        assert (await server.send("GET", path, user=fetching)).status == 403
    assert (await server.send("POST", PODS, node_pod("q"), user=fetching)).status == 403


# --- mirror pods -----------------------------------------------------------------------------------------------------


def a_mirror_pod(uid: str, **spec: Any) -> Document:
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": uid, "controller": True}
    pod = node_pod("mirror", nodeName="n1", **spec)
    pod["metadata"] |= {"annotations": {"kubernetes.io/config.mirror": "x"}, "ownerReferences": [owner]}
    return pod


async def test_a_mirror_pod_does_not_open_secrets_with_ephemeral_containers(server: Client) -> None:
    node = await server.post("/api/v1/nodes", {"metadata": {"name": "n1"}})
    await server.post("/api/v1/namespaces/default/secrets", {"metadata": {"name": "key"}, "stringData": {"a": "b"}})
    env = [{"name": "E", "valueFrom": {"secretKeyRef": {"name": "key", "key": "a"}}}]
    debugging = [{"name": "debug", "image": "i", "env": env}]
    pod = a_mirror_pod(node.body["metadata"]["uid"], ephemeralContainers=debugging)
    answer = await server.send("POST", PODS, pod, user=NODE)
    assert answer.status == 403
    assert 'node "n1" can not create pods that reference secrets' in answer.body["message"]
    answer = await server.send("GET", "/api/v1/namespaces/default/secrets/key", user=NODE)
    assert answer.status == 403


async def test_no_pod_is_created_with_ephemeral_containers(server: Client) -> None:
    answer = await server.post(PODS, node_pod(ephemeralContainers=[{"name": "debug", "image": "i"}]))
    assert answer.status == 422
    assert "spec.ephemeralContainers: Forbidden: cannot be set on create" in answer.body["message"]


# --- priority and protection -----------------------------------------------------------------------------------------


async def test_system_priority_classes_are_for_kube_system(server: Client) -> None:
    await server.post("/api/v1/namespaces/kube-system/serviceaccounts", {"metadata": {"name": "default"}})
    for name in ("system-node-critical", "system-cluster-critical"):
        answer = await server.post(PODS, node_pod(name, priorityClassName=name))
        assert answer.status == 403
        assert "kube-system" in answer.body["message"]
        allowed = await server.post("/api/v1/namespaces/kube-system/pods", node_pod(name, priorityClassName=name))
        assert allowed.status == 201


async def test_the_protection_of_a_claim_in_use_cannot_be_removed(server: Client) -> None:
    claim = {
        "metadata": {"name": "c", "finalizers": [PROTECTION, "example.com/own"]},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}},
    }
    assert (await server.post(CLAIMS, claim)).status == 201
    result = {"request": "r", "driver": "d", "pool": "p", "device": "x"}
    used = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}],
    }
    assert (await server.patch(f"{CLAIMS}/c/status", {"status": used})).status == 200
    for kept in ([], ["example.com/own"], None):
        answer = await server.patch(f"{CLAIMS}/c", {"metadata": {"finalizers": kept}})
        assert answer.status == 403, kept
        assert PROTECTION in answer.body["message"]
    # Other finalizers, and the way a claim is released, stay open.
    assert (await server.patch(f"{CLAIMS}/c", {"metadata": {"finalizers": [PROTECTION]}})).status == 200
    assert (await server.patch(f"{CLAIMS}/c/status", {"status": {"reservedFor": None}})).status == 200
    assert (await server.patch(f"{CLAIMS}/c", {"metadata": {"finalizers": None}})).status == 200
