"""Bad input gets a 4xx in bounded time, and the server is healthy afterwards."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import ssl
import time
from collections.abc import Iterator
from functools import cache

import pytest
import urllib3
from tests.apiserver.conftest import CLAIMS, Live, gold_claim
from tests.apiserver.exchanges import Server

MIB = 2**20
pytestmark = pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning")


@pytest.fixture(scope="module")
def server(live: Live) -> Server:
    return Server(live.kubeconfig)


@pytest.fixture(autouse=True)
def healthy_afterwards(server: Server) -> Iterator[None]:
    yield
    started = time.monotonic()
    assert server.pool.request("GET", server.url + "/readyz", timeout=30).data == b"ok"
    assert time.monotonic() - started < 20


def send(server: Server, method: str, path: str, body: bytes = b"", **headers: str) -> urllib3.BaseHTTPResponse:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return server.pool.request(
        method, server.url + path, body=body or None, headers={"content-type": "application/json", **names},
        timeout=20, redirect=False,
    )  # fmt: skip


def nested(depth: int) -> bytes:
    return (
        b'{"metadata":{"name":"deep"},"spec":{"devices":{"config":[{"opaque":{"parameters":'
        + (b'{"a":' * depth + b"1" + b"}" * depth)
        + b"}}]}}}"
    )


BODIES = {
    "empty": b"",
    "not JSON": b"hello",
    "half an object": b'{"metadata":',
    "a list": b"[]",
    "a number": b"7",
    "null": b"null",
    "NUL bytes": b"\x00" * 100,
    "not UTF-8": b'{"metadata":{"name":"\xff\xfe"}}',
    "lone surrogate": b'{"metadata":{"name":"\\ud800"}}',
    "deep nesting": nested(5000),
    "deep lists": b"[" * 100_000,
    "wrong types": b'{"metadata":{"name":5},"spec":[]}',
    "huge number": b'{"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"c","count":1e999}}]}}}',
    "long digits": b'{"metadata":{"generation":' + b"9" * 5000 + b"}}",
    "many keys": json.dumps({"metadata": {"labels": {f"k{i}": "v" for i in range(20_000)}}}).encode(),
    "unknown fields": json.dumps({f"x{i}": 1 for i in range(20_000)}).encode(),
    "long CEL": json.dumps(
        {**gold_claim("x"), "spec": {"devices": {"requests": [{"name": "r", "exactly": {
            "deviceClassName": "c", "selectors": [{"cel": {"expression": "(" * 4000 + "true" + ")" * 4000}}]}}]}}}
    ).encode(),
}  # fmt: skip


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_bodies(server: Server, body: bytes) -> None:
    for method, path in (("POST", CLAIMS), ("PUT", f"{CLAIMS}/x")):
        started = time.monotonic()
        answer = send(server, method, path, body)
        assert 400 <= answer.status < 500, (method, answer.status, answer.data[:200])
        assert answer.json()["kind"] == "Status"
        assert time.monotonic() - started < 20


# An empty list is a JSON patch that changes nothing, and many labels are just many labels.
BAD_PATCHES = [name for name in BODIES if name not in ("a list", "many keys")]


@pytest.mark.parametrize(
    "kind", ["json-patch+json", "merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml"]
)
@pytest.mark.parametrize("body", [BODIES[name] for name in BAD_PATCHES], ids=BAD_PATCHES)
def test_patches(server: Server, kind: str, body: bytes) -> None:
    send(server, "POST", CLAIMS, json.dumps(gold_claim("patched")).encode())
    answer = send(
        server,
        "PATCH",
        f"{CLAIMS}/patched?fieldManager=m&fieldValidation=Strict",
        body,
        content_type=f"application/{kind}",
    )
    assert 400 <= answer.status < 500, (answer.status, answer.data[:300])


YAML_BODIES = {
    "aliases": b"a: &a [x,x,x,x,x,x,x,x,x]\n"
    + b"".join(b"b%d: &b%d [*%s,*%s,*%s]\n" % (i, i, *([b"a" if i == 0 else b"b%d" % (i - 1)] * 3)) for i in range(30)),
    "tags": b"!!python/object/apply:os.system ['true']",
    "tabs": b"\t- a\n\t\tb: c",
    "several documents": b"a: 1\n---\nb: 2\n",
}


@pytest.mark.parametrize("body", YAML_BODIES.values(), ids=YAML_BODIES.keys())
def test_yaml(server: Server, body: bytes) -> None:
    answer = send(server, "POST", CLAIMS, body, content_type="application/yaml")
    assert 400 <= answer.status < 500, (answer.status, answer.data[:300])


def test_too_large_bodies(server: Server) -> None:
    big = b'{"metadata":{"name":"big","annotations":{"a":"' + b"x" * (3 * MIB) + b'"}}}'
    answer = send(server, "POST", CLAIMS, big)
    assert answer.status == 413
    assert "limit is 3145728" in answer.json()["message"]


def test_too_large_bodies_in_chunks(server: Server) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(64):
            yield b"x" * (64 * 1024)

    try:
        answer = server.pool.request(
            "POST", server.url + CLAIMS, body=endless(), headers={"content-type": "application/json"}, timeout=20
        )
        assert answer.status == 413
    except urllib3.exceptions.ProtocolError:
        pass  # the answer came, and the connection was closed, before all was sent


@pytest.mark.parametrize(
    "path",
    [
        "/..", "/../../etc/passwd", "/api/v1/../../../etc/passwd", "/api/v1/namespaces/..", "/api/v1/namespaces/%2e%2e/pods",
        "/api/v1/namespaces/a%2fb/pods", "/api//v1/pods", "/api/v1//pods", "/api/v1/pods%00", "/api/v1/namespaces/%ff/pods/x",
        "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/x/status/more", "/api/v1/namespaces/default/pods/a/b/c/d",
        "/" + "a" * 5000, "/api/v1/" + "a/" * 2000, "/api/v1/namespaces/default/pods/" + "x" * 3000,
        "/openapi/v3/../../x", "/openapi/v3/apis/none/v1", "/readyz/../metrics", "/apis/resource.k8s.io/v1/watch",
        "/apis/resource.k8s.io/v1/watch/namespaces/default/resourceclaims/a/status",
    ],
)  # fmt: skip
def test_paths(live: Live, server: Server, path: str) -> None:
    client = connect(live, server)
    client.settimeout(30)
    client.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    answer = client.recv(4096)
    client.close()
    assert re.match(rb"HTTP/1.1 (400|404|405) ", answer), answer


@pytest.mark.parametrize("method", ["BREW", "TRACE", "OPTIONS", "LINK", "PROPFIND", "M-SEARCH", "X" * 30])
def test_methods(server: Server, method: str) -> None:
    answer = send(server, method, CLAIMS)
    assert 400 <= answer.status < 500, answer.status


@pytest.mark.parametrize(
    "query",
    [
        "labelSelector=" + "a," * 20_000, "labelSelector=a%20in%20(" + "x," * 3000 + ")", "labelSelector=(((((", "limit=-1",
        "labelSelector=%00", "fieldSelector=" + "a=b," * 9000, "fieldSelector=%5C", "limit=99999999999999999999",
        "continue=" + "A" * 4000, "continue=..%2f..", "resourceVersion=-1", "resourceVersion=99999999999999999999999",
        "resourceVersion=1&resourceVersionMatch=Exact&limit=1", "timeoutSeconds=x", "watch=true&resourceVersion=abc", "x" * 70_000,
        "watch=true&timeoutSeconds=1&resourceVersion=18446744073709551615", "dryRun=%00&fieldManager=%00",
    ],
)  # fmt: skip
def test_queries(server: Server, query: str) -> None:
    started = time.monotonic()
    answer = send(server, "GET", f"{CLAIMS}?{query}")
    assert answer.status < 500, (answer.status, answer.data[:200])
    assert time.monotonic() - started < 20


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("accept", "text/csv"), ("accept", "application/vnd.kubernetes.protobuf"), ("accept", ";;;,,,q=" + "9" * 3000),
        ("accept", "application/json;as=Table;v=v9;g=meta.k8s.io"), ("authorization", "Bearer " + "x" * 20_000),
        ("authorization", "Basic Og=="), ("impersonate-group", "a"), ("impersonate-extra-%zz", "x"),
    ],
)  # fmt: skip
def test_headers(server: Server, name: str, value: str) -> None:
    answer = server.anonymous.request("GET", server.url + CLAIMS, headers={name: value}, timeout=30)
    assert 400 <= answer.status < 500, answer.status


def test_protobuf_is_answered_to_who_asks_for_it_first(server: Server) -> None:
    answer = send(server, "GET", CLAIMS, accept="application/vnd.kubernetes.protobuf")
    assert (answer.status, answer.data[:4]) == (200, b"k8s\x00")
    both = send(server, "GET", CLAIMS, accept="application/vnd.kubernetes.protobuf,application/json")
    assert both.headers["content-type"] == "application/vnd.kubernetes.protobuf"
    first = send(server, "GET", CLAIMS, accept="application/json,application/vnd.kubernetes.protobuf")
    assert first.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"k8s\x00",
        b"k8s\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        b"k8s\x00\x0a\x05abc",
        b"k8s\x00" + b"\x0a" * 500,
    ],
)
def test_broken_protobuf(server: Server, body: bytes) -> None:
    answer = send(server, "POST", CLAIMS, body, content_type="application/vnd.kubernetes.protobuf")
    assert answer.status in (400, 415)


@cache
def tls(certificate: str = "", key: str = "") -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if certificate:
        context.load_cert_chain(certificate, key)
    return context


def connect(live: Live, user: Server | None = None) -> ssl.SSLSocket:
    """A connection to write to by hand, as nobody or as the administrator."""
    host, port = live.url.removeprefix("https://").split(":")
    files = user.pool.connection_pool_kw if user else {}
    context = tls(files.get("cert_file", ""), files.get("key_file", ""))
    return context.wrap_socket(socket.create_connection((host, int(port)), 10))


def test_slow_and_half_closed_clients_cost_nobody_else(live: Live, server: Server) -> None:
    slow = [connect(live) for _ in range(50)]
    for number, client in enumerate(slow):
        client.sendall(
            b"POST /api/v1/namespaces HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n"
            + (b"\r\n{" if number % 2 else b"")
        )
    answer = send(server, "GET", CLAIMS)
    assert answer.status == 200
    for client in slow[:25]:
        client.shutdown(socket.SHUT_WR)
    for client in slow:
        client.close()


def test_endless_headers_are_cut_off(live: Live) -> None:
    client = connect(live)
    client.settimeout(30)
    answer = b""
    try:
        client.sendall(b"GET /api HTTP/1.1\r\n")
        for _ in range(200):
            client.sendall(b"X-Long: " + b"a" * 1000 + b"\r\n")
        answer = client.recv(1000)
    except (ConnectionError, ssl.SSLError):
        pass  # closed while we were still talking
    assert answer == b"" or re.match(rb"HTTP/1.1 4\d\d", answer)


def test_plain_http_on_the_https_port(live: Live) -> None:
    host, port = live.url.removeprefix("https://").split(":")
    with socket.create_connection((host, int(port)), 5) as client:
        client.sendall(b"GET / HTTP/1.1\r\n\r\n")
        client.settimeout(20)
        with contextlib.suppress(ConnectionError):
            assert not client.recv(100).startswith(b"HTTP/1.1 200")


def test_pipelined_requests_are_answered_in_order(live: Live) -> None:
    client = connect(live)
    client.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 20)
    client.settimeout(30)
    data = b""
    while data.count(b"HTTP/1.1 200") < 20:
        data += client.recv(65536)
    client.close()


def test_expressions_cannot_burn_the_server(server: Server) -> None:
    """A selector whose cost has no bound is refused."""
    bomb = "device.attributes['a'].x" + "".join(f" == device.attributes['a'].y{i} ? 'a' : 'b'" for i in range(300))
    document = gold_claim("bomb")
    document["spec"]["devices"]["requests"][0]["exactly"]["selectors"] = [{"cel": {"expression": bomb}}]
    started = time.monotonic()
    assert send(server, "POST", CLAIMS, json.dumps(document).encode()).status in (201, 422)
    assert time.monotonic() - started < 20
