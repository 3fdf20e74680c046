"""`pods/exec`, `attach` and `portforward`: who may open them, what the node's agent is asked, and bytes both ways."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.apiserver.conftest import Client
from tests.security.test_node_credentials import PODS, kubelet, node_pod, node_that_serves_logs, server
from tests.waiting import eventually

from dray.apiserver.request.request_info import User
from dray.apiserver.subresources.pod_streams import PodStreams
from dray.http.tunnel import MAX_HELD

__all__ = ["server"]

UPGRADED = (
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
    b"X-Stream-Protocol-Version: v4.channel.k8s.io\r\nSet-Cookie: a=b\r\n\r\n"
)
UPGRADE = {
    "connection": "Upgrade",
    "upgrade": "SPDY/3.1",
    "x_stream_protocol_version": "v4.channel.k8s.io,v3.channel.k8s.io",
}
EXEC = f"{PODS}/p/exec?command=cat&command=a%20b%26c&stdin=true&stdout=true&stderr=false&tty=1"


def a_role(*verbs: str) -> dict[str, Any]:
    return {"metadata": {"name": "r"}, "rules": [{"apiGroups": [""], "resources": ["pods/exec"], "verbs": list(verbs)}]}


async def test_the_agent_is_asked_in_its_own_words(server: Client, tmp_path: Path) -> None:
    async with kubelet(server.running, UPGRADED, tmp_path) as (fake, port):
        await node_that_serves_logs(server, "127.0.0.1", port)
        answer = await server.send("POST", EXEC, authorization="Bearer secret", cookie="x=y", **UPGRADE)
        await server.send("POST", f"{PODS}/p/attach?stdout=1", **UPGRADE)
        await server.send("POST", f"{PODS}/p/portforward?ports=80&ports=81", **UPGRADE)
    assert answer.status == 101
    assert {name.lower() for name in answer.headers} >= {"connection", "upgrade", "x-stream-protocol-version"}
    assert "set-cookie" not in answer.headers
    assert fake.asked == [
        "/exec/default/p/c?input=1&output=1&tty=1&command=cat&command=a+b%26c",
        "/attach/default/p/c?output=1",
        "/portForward/default/p?port=80%2C81",
    ]
    assert b"secret" not in fake.heads[0]
    assert b"x=y" not in fake.heads[0]
    assert fake.heads[0].count(b"x-stream-protocol-version") == 2


@pytest.mark.parametrize(
    ("answer", "status", "text"),
    [
        (b"HTTP/1.1 404 Not Found\r\ncontent-length: 19\r\n\r\npod does not exist\n", 404, "pod does not exist"),
        (b"HTTP/1.1 302 Found\r\nlocation: /api/v1/secrets\r\ncontent-length: 0\r\n\r\n", 503, "status 302"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", 503, "status 200"),
        (b"not HTTP\r\n\r\n", 503, "not HTTP"),
        (b"", 503, "does not answer"),
        (b"HTTP/1.1 500 x\r\nx: " + b"y" * 200_000, 503, "too long"),
    ],
)
async def test_other_answers_of_the_agent(
    server: Client, tmp_path: Path, answer: bytes, status: int, text: str
) -> None:
    async with kubelet(server.running, answer, tmp_path) as (_, port):
        await node_that_serves_logs(server, "127.0.0.1", port)
        found = await server.send("POST", EXEC, **UPGRADE)
    assert found.status == status
    assert text in str(found.body)


@pytest.mark.parametrize("address", ["localhost", "127.0.0.1:80/x#", ""])
async def test_only_ip_addresses_are_connected_to(server: Client, tmp_path: Path, address: str) -> None:
    async with kubelet(server.running, UPGRADED, tmp_path) as (fake, port):
        await node_that_serves_logs(server, address, port)
        answer = await server.send("POST", EXEC, **UPGRADE)
    assert answer.status == 400
    assert fake.asked == []


async def test_whoever_may_only_read_runs_no_commands(server: Client, tmp_path: Path) -> None:
    """A WebSocket is opened with GET."""
    await server.post("/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles", a_role("get"))
    await server.post(
        "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
        {
            "metadata": {"name": "b"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
            "subjects": [{"kind": "User", "name": "vera"}],
        },
    )
    vera = User("vera", ("system:authenticated",))
    async with kubelet(server.running, UPGRADED, tmp_path) as (fake, port):
        await node_that_serves_logs(server, "127.0.0.1", port)
        refused = [await server.send(method, EXEC, user=vera, **UPGRADE) for method in ("GET", "POST")]
        assert [each.status for each in refused] == [403, 403]
        assert 'cannot create resource "pods/exec"' in refused[0].body["message"]
        assert fake.asked == []
        path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles/r"
        await server.patch(path, {"rules": a_role("get", "create")["rules"]})
        assert (await server.send("GET", EXEC, user=vera, **UPGRADE)).status == 101


@pytest.mark.parametrize(
    "headers", [{}, {"connection": "Upgrade"}, {"upgrade": "SPDY/3.1"}, {"connection": "no-upgrade", "upgrade": "x"}]
)
async def test_without_an_upgrade_no_agent_is_asked(server: Client, tmp_path: Path, headers: dict[str, str]) -> None:
    """Only the connection of a request that asks for another protocol can become a stream."""
    async with kubelet(server.running, UPGRADED, tmp_path) as (fake, port):
        await node_that_serves_logs(server, "127.0.0.1", port)
        answer = await server.send("POST", EXEC, **headers)
    assert (answer.status, answer.body["message"]) == (400, "Upgrade request required")
    assert fake.asked == []


async def test_what_no_agent_is_asked(server: Client) -> None:
    await server.post(PODS, node_pod())
    for path, headers, text in (
        (f"{PODS}/p/exec?command=x&stdout=1", UPGRADE, "pod p does not have a host assigned"),
        (f"{PODS}/p/exec?command=x&stdout=1&container=d", UPGRADE, "container d is not valid for pod p"),
        (f"{PODS}/q/exec?command=x&stdout=1", UPGRADE, 'pods "q" not found'),
    ):
        assert text in (await server.send("POST", path, **headers)).body["message"]
    await server.post("/api/v1/nodes", {"metadata": {"name": "n2"}})
    await server.post(PODS, node_pod("on-paper", nodeName="n2"))
    answer = await server.send("POST", f"{PODS}/on-paper/exec?command=x&stdout=1", **UPGRADE)
    assert "a simulated node has none, and runs no containers" in answer.body["message"]


# --- bytes


@asynccontextmanager
async def echoing_agent(server: Client, folder: Path) -> AsyncIterator[None]:
    """An agent that upgrades and then returns every byte, in capital letters."""
    authority = server.running.credentials.authority
    pair = authority.issue_server("system:node:n1", ["n1"])
    (folder / "echo.pem").write_bytes(pair.key_pem + pair.certificate_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "echo.pem")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(UPGRADED)
        while data := await reader.read(65536):
            writer.write(data.upper())
            await writer.drain()
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    await node_that_serves_logs(server, "127.0.0.1", listening.sockets[0].getsockname()[1])
    try:
        yield
    finally:
        listening.close()


async def connected(server: Client) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A client on the server's socket, that sends its first bytes with the request."""
    credentials = server.running.credentials
    context = ssl.create_default_context(cadata=credentials.authority.certificate_pem.decode())
    context.load_cert_chain(credentials.directory / "admin.crt", credentials.directory / "admin.key")
    url = await server.running.listen("127.0.0.1", 0)
    port = int(url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=context, server_hostname="localhost", limit=1024
    )
    head = [f"POST {EXEC} HTTP/1.1", "Host: x", "Connection: Upgrade", "Upgrade: SPDY/3.1", "Content-Length: 0"]
    writer.write("\r\n".join([*head, "", "first"]).encode())
    return reader, writer


async def test_bytes_go_both_ways_until_one_side_ends(server: Client, tmp_path: Path) -> None:
    async with echoing_agent(server, tmp_path), asyncio.timeout(20):
        reader, writer = await connected(server)
        assert b"101 Switching Protocols" in await reader.readuntil(b"\r\n\r\n")
        assert await reader.readexactly(5) == b"FIRST"
        for size in (1, 1000, 100_000):
            writer.write(b"x" * size)
            assert await reader.readexactly(size) == b"X" * size
        streams = server.running.server._agent_requests._pod_streams
        assert streams is not None
        assert streams._open == 1
        writer.close()
        await eventually(lambda: not streams._open)


async def test_a_client_that_never_reads_does_not_fill_the_servers_memory(server: Client, tmp_path: Path) -> None:
    """It sends for ever, and what comes back is held by nobody: the agent cannot send, so the server stops to read."""
    async with echoing_agent(server, tmp_path), asyncio.timeout(30):
        _, writer = await connected(server)
        sent = 0
        while True:
            writer.write(b"x" * 65536)
            try:
                async with asyncio.timeout(1):
                    await writer.drain()
            except TimeoutError:
                break
            sent += 65536
            assert sent < 64 * 2**20, "more than the sockets between them can hold"
        (connection,) = server.running._listeners[0]._connections
        assert connection.tunnel is not None
        assert len(connection.tunnel._held) <= MAX_HELD + 2**20
        assert connection._transport.get_write_buffer_size() < 2**20
        writer.transport.abort()


async def test_no_more_streams_than_allowed_at_once(server: Client, tmp_path: Path) -> None:
    async with kubelet(server.running, UPGRADED, tmp_path) as (_, port):
        await node_that_serves_logs(server, "127.0.0.1", port)
        requests = server.running.server._agent_requests
        requests._pod_streams = PodStreams(requests._agents(), most=0)
        answer = await server.send("POST", EXEC, **UPGRADE)
    assert answer.status == 429
    assert "no more are allowed" in answer.body["message"]
