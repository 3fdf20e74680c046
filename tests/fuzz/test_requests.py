"""Requests of every shape to a whole server: an answer below 500, every time, and the server as before."""

import asyncio
import json
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dray.apiserver.assembly import ServerOptions, start_server
from dray.apiserver.request.request_info import LOOPBACK, Request
from dray.store.sqlite import SqliteStore
from tests.fuzz.mutations import ANY_BYTES, almost
from tests.fuzz.test_files import POD, SLICE

EXAMPLES = int(os.environ.get("DRAY_FUZZ_EXAMPLES", "120"))
fuzzed = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))

CLAIM = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {"name": "c", "namespace": "default", "labels": {"a": "b"}, "finalizers": ["x/y"]},
    "spec": {
        "devices": {
            "requests": [
                {
                    "name": "r",
                    "exactly": {"deviceClassName": "k", "count": 1, "selectors": [{"cel": {"expression": "true"}}]},
                }
            ],
            "constraints": [{"requests": ["r"], "matchAttribute": "a/b"}],
            "config": [{"requests": ["r"], "opaque": {"driver": "d", "parameters": {"x": 1}}}],
        }
    },
    "status": {
        "allocation": {
            "devices": {"results": [{"request": "r", "driver": "d.example.com", "pool": "p", "device": "d"}]}
        },
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}],
    },
}
JSON_PATCH = [
    {"op": "add", "path": "/metadata/labels/x", "value": "y"},
    {"op": "copy", "from": "/spec", "path": "/metadata/annotations"},
    {"op": "test", "path": "/metadata/name", "value": "c"},
]
DRA = "/apis/resource.k8s.io"
COLLECTIONS = [
    f"{DRA}/v1/namespaces/default/resourceclaims",
    f"{DRA}/v1beta1/namespaces/default/resourceclaims",
    f"{DRA}/v1/resourceslices",
    "/api/v1/namespaces/default/pods",
    "/api/v1/nodes",
]
WORDS = st.sampled_from(
    [
        "api",
        "apis",
        "v1",
        "resource.k8s.io",
        "namespaces",
        "default",
        "pods",
        "resourceclaims",
        "c",
        "status",
        "binding",
        "eviction",
        "log",
        "watch",
        "..",
        "%2e%2e",
        "%00",
        "",
        "openapi",
        "v3",
        "healthz",
        "metrics",
        "😀",
    ]
)
PATHS = (
    st.sampled_from(COLLECTIONS)
    | st.sampled_from(COLLECTIONS).map(lambda path: path + "/c")
    | st.sampled_from(COLLECTIONS).map(lambda path: path + "/c/status")
    | st.lists(WORDS, max_size=8).map(lambda words: "/" + "/".join(words))
)
PARAMETERS = st.sampled_from(
    [
        "limit",
        "continue",
        "resourceVersion",
        "resourceVersionMatch",
        "fieldSelector",
        "labelSelector",
        "timeoutSeconds",
        "dryRun",
        "fieldManager",
        "fieldValidation",
        "propagationPolicy",
        "gracePeriodSeconds",
        "force",
        "pretty",
        "sendInitialEvents",
        "allowWatchBookmarks",
        "x",
    ]
)
TEXTS = st.text(max_size=12) | st.sampled_from(
    [
        "0",
        "-1",
        "1",
        "true",
        "All",
        "Strict",
        "Exact",
        "NotOlderThan",
        "a=b",
        "a in (b",
        "metadata.name=c",
        "99999999999999999999",
        "%zz",
        "a=b,!c,d notin (e)",
    ]
)
QUERIES = st.lists(st.tuples(PARAMETERS, TEXTS), max_size=3).map(
    lambda pairs: "&".join(f"{name}={value}" for name, value in pairs)
)
TYPES = st.sampled_from(
    [
        "application/json",
        "application/yaml",
        "application/merge-patch+json",
        "application/strategic-merge-patch+json",
        "application/json-patch+json",
        "application/apply-patch+yaml",
        "application/vnd.kubernetes.protobuf",
        "text/plain",
        "",
        'application/json;charset=utf-8;x="',
    ]
)
HEADERS = st.dictionaries(
    st.sampled_from(
        [
            "accept",
            "authorization",
            "impersonate-user",
            "impersonate-group",
            "if-match",
            "user-agent",
            "x-forwarded-for",
            "accept-encoding",
            "content-length",
        ]
    ),
    st.text(max_size=30) | st.sampled_from(["application/json;as=Table;v=v1;g=meta.k8s.io", "*/*;q=x", "Bearer a.b.c"]),
    max_size=3,
)
BODIES = (almost(CLAIM) | almost(POD) | almost(SLICE) | almost(JSON_PATCH)).map(
    lambda value: json.dumps(value, default=str).encode("utf-8", "replace")
) | ANY_BYTES


@pytest.fixture(scope="module")
def send(tmp_path_factory):
    """The server lives on a loop of its own, since hypothesis calls plain functions."""
    folder = tmp_path_factory.mktemp("server")
    loop = asyncio.new_event_loop()

    async def start():
        store = SqliteStore(folder / "dray.db")
        return store, await start_server(store, ServerOptions(folder, runtime_config="api/all=true"))

    store, running = loop.run_until_complete(start())

    async def once(request: Request) -> int:
        response = await asyncio.wait_for(running.server.handle(request), 10)
        if response.stream is not None:
            await response.stream.aclose()
        return response.status

    yield lambda request: loop.run_until_complete(once(request))
    loop.run_until_complete(running.stop())
    loop.run_until_complete(store.close())
    loop.close()


@fuzzed
@given(
    method=st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "", "get"]),
    path=PATHS,
    query=QUERIES,
    content_type=TYPES,
    headers=HEADERS,
    body=BODIES,
    is_known=st.booleans(),
)
def test_any_request_is_answered(send, method, path, query, content_type, headers, body, is_known):
    sent = {"content-type": content_type, "user-agent": "fuzz", **headers}
    request = Request(method, path, query, sent, body, user=LOOPBACK if is_known else None)
    status = send(request)
    # 501 and 503 are answers about the server (no node to ask for logs), not about a failure of ours.
    assert status < 500 or status in (501, 503), (status, request)


@fuzzed
@given(body=almost(CLAIM, most=5), content_type=TYPES, subresource=st.sampled_from(["", "/status"]))
def test_any_change_of_an_object_is_answered(send, body, content_type, subresource):
    claims = f"{DRA}/v1/namespaces/default/resourceclaims"
    send(Request("POST", claims, "", {"content-type": "application/json"}, json.dumps(CLAIM).encode(), user=LOOPBACK))
    data = json.dumps(body, default=str).encode("utf-8", "replace")
    for method in ("PUT", "PATCH"):
        request = Request(
            method, f"{claims}/c{subresource}", "fieldManager=fuzz", {"content-type": content_type}, data, user=LOOPBACK
        )
        assert send(request) < 500, request
