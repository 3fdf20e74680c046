"""`pods/proxy`, `services/proxy` and `nodes/proxy`: what is passed on, to whom, and what is not connected to."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import warnings
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import urllib3
from tests.apiserver.conftest import Answer, Client
from tests.apiserver.exchanges import Server
from tests.security.test_node_credentials import PODS, kubelet, node_pod, node_that_serves_logs, server
from tests.waiting import eventually_blocking

from dray.apiserver.request.request_info import User
from dray.apiserver.subresources.proxies import Proxies, ProxyTarget, is_proxyable
from dray.http.proxied import BrokenAnswer
from dray.testing import cluster

__all__ = ["server"]

SERVICES = "/api/v1/namespaces/default/services"


@pytest.mark.parametrize(
    ("address", "allowed"),
    [
        ("10.1.2.3", True), ("2001:db8::1", True), ("127.0.0.1", False), ("::1", False), ("169.254.169.254", False),
        ("fe80::1", False), ("224.0.0.1", False), ("0.0.0.0", False), ("255.255.255.255", False), ("localhost", False), ("", False),
        ("::ffff:10.1.2.3", True), ("::ffff:127.0.0.1", False), ("::ffff:169.254.169.254", False), ("::ffff:0.0.0.0", False), ("fe80::1%lo", False),
    ],
)  # fmt: skip
def test_addresses_that_the_server_itself_connects_to(address: str, allowed: bool) -> None:
    assert is_proxyable(address) == allowed


@pytest.mark.parametrize("name", ["", "ftp:p:80", "a:b:c:d", "https::80", ":80"])
async def test_names_that_make_no_sense(server: Client, name: str) -> None:
    if name:
        answer = await server.get(f"{PODS}/{name}/proxy/")
        assert answer.status == 400
        assert f'invalid pod request "{name}"' in answer.body["message"]
    assert ProxyTarget.of("pod", "https:p:443") == ProxyTarget("https", "p", "443")
    assert ProxyTarget.of("pod", "p:web") == ProxyTarget("", "p", "web")


def proxies_of(server: Client) -> Proxies:
    """Those that have passed something on."""
    proxies = server.running.server._agent_requests._proxies
    assert proxies is not None
    return proxies


async def body_of(answer: Answer) -> bytes:
    return b"".join([piece async for piece in answer.stream])


async def test_the_agent_of_a_node(server: Client, tmp_path: Path) -> None:
    """With the server's own identity, and without the client's credentials."""
    said = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nx-own: yes\r\ncontent-length: 5\r\n\r\nhello"
    async with kubelet(server.running, said, tmp_path) as (fake, port):
        await node_that_serves_logs(server, "127.0.0.1", port)
        path = "/api/v1/nodes/n1/proxy/metrics/cadvisor?a=b%20c"
        answer = await server.get(path, authorization="Bearer secret", accept="text/html")
        assert await body_of(answer) == b"hello"
        proxies = proxies_of(server)
        assert proxies._open == 0
        unread = await server.get(path)
        assert proxies._open == 1
        await unread.stream.aclose()
        assert proxies._open == 0, "an answer that nobody reads is given up with its request"
        assert answer.headers["x-own"] == "yes"
        assert (await server.get(f"/api/v1/nodes/n1:{port}/proxy/")).status == 200
        refused = await server.get("/api/v1/nodes/n1:22/proxy/")
        assert (refused.status, refused.body["message"]) == (400, "address not allowed")
    assert fake.asked == [*["/metrics/cadvisor?a=b%20c"] * 2, "/"]
    assert b"secret" not in b"".join(fake.heads)
    assert b"accept: text/html" in fake.heads[0]


async def test_headers_of_one_connection_are_not_passed_on(server: Client, tmp_path: Path) -> None:
    said = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    async with kubelet(server.running, said, tmp_path) as (fake, port):
        await node_that_serves_logs(server, "127.0.0.1", port)
        named = {
            "connection": "close, X-Internal",
            "x_internal": "1",
            "x_other": "2",
            "impersonate_user": "root",
            "impersonate_group": "system:masters",
        }
        answer = await server.get(
            "/api/v1/nodes/n1/proxy/", **named, x_remote_user="root", proxy_authorization="Basic c2VjcmV0"
        )
        await body_of(answer)
    head = fake.heads[0].lower()
    assert b"x-other: 2" in head
    assert not [word for word in (b"x-internal", b"impersonate", b"x-remote", b"c2vjcmv0") if word in head]


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", "without having been asked"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 2000, "too many answers"),
        (b"HTTP/1.1 200 OK\r\ncontent-type: a\nset-cookie: b\r\ncontent-length: 0\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"x" * 200_000, "too long"),
        (b"", "ends early"),
    ],
)  # fmt: skip
async def test_answers_that_are_none(server: Client, tmp_path: Path, said: bytes, text: str) -> None:
    """Each is told to the client, and leaves nothing open."""
    async with kubelet(server.running, said, tmp_path) as (_, port):
        await node_that_serves_logs(server, "127.0.0.1", port)
        for _ in range(3):
            answer = await server.get("/api/v1/nodes/n1/proxy/")
            assert (answer.status, text in answer.body["message"]) == (503, True), answer.body
    assert proxies_of(server)._open == 0


@pytest.mark.parametrize(
    "said", [b"content-length: 10\r\n\r\nhello", b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n"]
)
async def test_a_part_of_an_answer_is_not_the_whole(server: Client, tmp_path: Path, said: bytes) -> None:
    async with kubelet(server.running, b"HTTP/1.1 200 OK\r\n" + said, tmp_path) as (_, port):
        await node_that_serves_logs(server, "127.0.0.1", port)
        with pytest.raises(BrokenAnswer, match="ends early"):
            await body_of(await server.get("/api/v1/nodes/n1/proxy/"))


async def test_a_path_is_needed(server: Client) -> None:
    answer = await server.get(f"{PODS}/p/proxy?x=y")
    assert (answer.status, answer.headers["location"]) == (301, f"{PODS}/p/proxy/?x=y")


async def test_each_method_is_a_right_of_its_own(server: Client) -> None:
    vera = User("vera", ("system:authenticated",))
    for method, verb in (("GET", "get"), ("POST", "create"), ("PUT", "update"), ("DELETE", "delete")):
        answer = await server.send(method, f"{PODS}/p/proxy/x", user=vera)
        assert f'cannot {verb} resource "pods/proxy"' in answer.body["message"]


async def test_what_cannot_be_reached(server: Client) -> None:
    await server.post(PODS, node_pod("lonely"))
    await server.post(SERVICES, {"metadata": {"name": "empty"}, "spec": {"ports": [{"port": 80}]}})
    for path, status, text in (
        (f"{PODS}/lonely/proxy/", 400, "pod lonely does not have a host assigned"),
        (f"{PODS}/none/proxy/", 404, 'pods "none" not found'),
        (f"{SERVICES}/none/proxy/", 503, 'no endpoints available for service "none"'),
        (f"{SERVICES}/none:80/proxy/", 404, 'services "none" not found'),
        ("/api/v1/nodes/none/proxy/", 404, 'nodes "none" not found'),
        (f"{SERVICES}/empty/proxy/", 503, 'no endpoints available for service "empty"'),
        (f"{SERVICES}/empty:81/proxy/", 503, 'no service port 81 found for service "empty"'),
        (f"{PODS}/lonely:no-port/proxy/", 400, "is not a port"),
        (f"{PODS}/lonely:0000019999999/proxy/", 400, "is not a port"),
        (f"{PODS}/lonely:65536/proxy/", 400, "is not a port"),
        (f"{SERVICES}/empty:%C2%B2/proxy/", 503, 'no endpoints available for service "empty"'),
        (f"{SERVICES}/empty:{'1' * 900}/proxy/", 503, 'no endpoints available for service "empty"'),
    ):
        answer = await server.get(path)
        assert (answer.status, text in answer.body["message"]) == (status, True), answer.body


# --- through an agent, into a pod


class InThePod(BaseHTTPRequestHandler):
    """A server as it may run in a pod: it says what it was asked."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif self.path == "/nothing":
            self.send_response(204)
            self.end_headers()
        elif self.path == "/long":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for _ in range(100):
                self.wfile.write(b"2710\r\n" + b"x" * 10_000 + b"\r\n")
            self.wfile.write(b"0\r\n\r\n")
        else:
            self._tell()

    def _tell(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        said = {"method": self.command, "path": self.path, "body": body.decode(), "headers": dict(self.headers)}
        text = json.dumps(said).encode()
        self.send_response(418)
        self.send_header("Content-Type", "application/json")
        self.send_header("Set-Cookie", "a=b")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def __getattr__(self, name: str) -> Any:
        """The other methods."""
        if name.startswith("do_"):
            return self._tell
        raise AttributeError(name)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def pod_port() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), InThePod) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield listening.server_port
        listening.shutdown()


@pytest.fixture(scope="module")
def web(pod_port: int) -> Iterator[Server]:
    """A pod behind a service. Nodes of this cluster are on loopback, so that everything goes through their agents."""
    with cluster(nodes=1, devices=()) as running:
        container = {"name": "c", "image": "i", "command": ["sleep", "1000"], "ports": [{"containerPort": pod_port}]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "labels": {"app": "web"}}}
        service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}}
        ports = [{"name": "http", "port": 80, "targetPort": pod_port}]
        running.apply(
            pod | {"spec": {"containers": [container]}},
            service | {"spec": {"selector": {"app": "web"}, "ports": ports}},
        )
        running.wait_until_running("web")
        # An address that is no pod's: the server does not connect to it.
        elsewhere = {"addresses": ["127.0.0.1"], "targetRef": {"kind": "Pod", "name": "gone", "namespace": "default"}}
        metadata = {"name": "elsewhere", "labels": {"kubernetes.io/service-name": "web"}}
        made = {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": metadata,
            "addressType": "IPv4",
        }
        running.apply({**made, "ports": [{"name": "http", "port": 1}], "endpoints": [elsewhere]})
        server = Server(Path(running.kubeconfig))
        eventually_blocking(
            lambda: ask(server, "GET", f"{SERVICES}/web:http/proxy/").status == 418, "the endpoints of the service"
        )
        yield server


def ask(web: Server, method: str, path: str, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", urllib3.exceptions.InsecureRequestWarning)
        return web.pool.request(method, web.url + path, redirect=False, retries=False, **options)


@pytest.mark.parametrize("target", [f"{PODS}/web", f"{PODS}/http:web:", f"{SERVICES}/web:http", f"{SERVICES}/web:80"])
def test_a_pod_and_its_service(web: Server, target: str) -> None:
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        body = b"some body" if method in ("POST", "PUT", "PATCH") else None
        answer = ask(web, method, f"{target}/proxy/a/b%20c/?x=1&y=%2F", body=body, headers={"X-Mine": "1"})
        assert (answer.status, answer.headers["Set-Cookie"]) == (418, "a=b"), answer.data
        said = answer.json()
        assert (said["method"], said["path"]) == (method, "/a/b%20c/?x=1&y=%2F")
        assert said["body"] == (body or b"").decode()
        assert said["headers"]["x-mine"] == "1"
        assert said["headers"]["X-Forwarded-Uri"] == f"{target}/proxy/a/b%20c/"


def test_redirects_lead_through_the_proxy_and_long_answers_are_whole(web: Server) -> None:
    moved = ask(web, "GET", f"{PODS}/web/proxy/moved")
    assert (moved.status, moved.headers["Location"]) == (302, f"{PODS}/web/proxy/elsewhere")
    assert len(ask(web, "GET", f"{PODS}/web/proxy/long").data) == 1_000_000
    head = ask(web, "HEAD", f"{PODS}/web/proxy/")
    assert (head.status, head.data) == (418, b"")


def test_an_answer_without_a_body_leaves_the_connection_usable(web: Server) -> None:
    """The next answer on it is that to the next request."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(web.pool.connection_pool_kw["cert_file"], web.pool.connection_pool_kw["key_file"])
    connection = http.client.HTTPSConnection(web.url.removeprefix("https://"), context=context)
    for path, status in (("nothing", 204), ("a", 418), ("nothing", 204), ("b", 418)):
        connection.request("GET", f"{PODS}/web/proxy/{path}")
        answer = connection.getresponse()
        assert (answer.status, "Transfer-Encoding" in answer.headers) == (status, status != 204)
        assert path in answer.read().decode() or status == 204
    connection.close()


def test_nobody_listens(web: Server) -> None:
    answer = ask(web, "GET", f"{PODS}/web:1/proxy/")
    assert answer.status == 503
    assert "failed to connect to localhost:1 inside the pod" in answer.json()["message"]


def test_pages_of_a_nodes_agent(web: Server) -> None:
    assert ask(web, "GET", "/api/v1/nodes/node-1/proxy/healthz").data == b"ok"
    assert b"# TYPE" in ask(web, "GET", "/api/v1/nodes/node-1/proxy/metrics").data
    assert ask(web, "GET", "/api/v1/nodes/node-1/proxy/none").status == 404


def test_commands_over_the_agents_own_api_need_its_right(web: Server) -> None:
    """`nodes/proxy` leads to everything that an agent serves, streams among them, as in Kubernetes."""
    headers = {"Connection": "Upgrade", "Upgrade": "SPDY/3.1", "X-Stream-Protocol-Version": "v9"}
    path = "/api/v1/nodes/node-1/proxy/exec/default/web/c?command=true&output=1"
    answer = ask(web, "POST", path, headers=headers)
    assert (answer.status, b"unable to negotiate protocol" in answer.data) == (403, True)
