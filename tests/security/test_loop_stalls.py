"""Requests that are small for what they make the server do. None may take the event loop for long."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from dray.apiserver.assembly import ServerOptions, start_server
from dray.apiserver.read import representations
from dray.apiserver.request.request_info import AUTHENTICATED, LOOPBACK, Request, User
from dray.store.interface import Put
from dray.store.sqlite import SqliteStore
from tests.apiserver.conftest import CLAIMS, Client, gold_claim
from tests.security.loop_stalls import loop_stalls

Document = dict[str, Any]
ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles"
MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
TENANT = User("tenant", (AUTHENTICATED,))
JSON = "application/json"
LONGEST_S = 0.05


def a_map(name: str = "m", **metadata: Any) -> Document:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}, "data": {}}


def a_role(verbs: int, groups: int, resources: int) -> Document:
    words = [[f"{word}{n}" for n in range(count)] for word, count in (("v", verbs), ("g", groups), ("r", resources))]
    rules = [{"verbs": words[0], "apiGroups": words[1], "resources": words[2]}]
    return {"metadata": {"name": "wide"}, "rules": rules}


def owners(count: int, *, same: bool = False) -> list[Document]:
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": f"o{0 if same else n}", "uid": f"u{0 if same else n}"}
        for n in range(count)
    ]


def with_selectors(count: int, size: int) -> Document:
    """Each of them new to the server, and as long as it may be."""
    document = gold_claim("selectors")
    texts = []
    for number in range(count):
        text = f'device.driver == "d{number}"'
        while len(text) < size - 30:
            text += f' || device.driver == "e{len(text)}"'
        texts.append({"cel": {"expression": text}})
    requests = []
    for at in range(0, count, 32):
        requests.append({"name": f"r{at}", "exactly": {"deviceClassName": "gold", "selectors": texts[at : at + 32]}})
    document["spec"]["devices"]["requests"] = requests
    return document


def doubling(times: int) -> Document:
    document = gold_claim("doubling")
    expression = "[[1]]" + "".join(".map(x, x + x)" for _ in range(times)) + ".size() > 0"
    document["spec"]["devices"]["requests"][0]["exactly"]["selectors"] = [{"cel": {"expression": expression}}]
    return document


def managed(count: int) -> list[Document]:
    return [
        {
            "manager": f"m{n}", "operation": "Update", "apiVersion": "v1", "time": "2024-01-01T00:00:00Z",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {f"f:k{n}": {}}},
        }
        for n in range(count)
    ]  # fmt: skip


def nested(depth: int) -> bytes:
    return b'{"metadata":{"name":"n"},"data":' + b'{"a":' * depth + b"1" + b"}" * depth + b"}"


def slice_with(devices: int) -> Document:
    return {
        "metadata": {"name": "s"},
        "spec": {
            "driver": "d.example.com",
            "nodeName": "n",
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            "devices": [
                {"name": f"d{n}", "attributes": {f"a{m}": {"string": "x"} for m in range(32)}} for n in range(devices)
            ],
        },
    }


def yaml_list(size: int) -> bytes:
    lines = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: y1\nitems:\n"
    return lines + b"- a: b\n" * ((size - len(lines)) // 7)


def yaml_flow(size: int) -> bytes:
    return (
        b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: y1}\ndata: {"
        + b"".join(b"k%d: v," % n for n in range(size // 9))
        + b"}\n"
    )


def pod_with(containers: int, env: int = 0) -> Document:
    return {
        "metadata": {"name": "p"},
        "spec": {
            "containers": [
                {"name": f"c{n}", "image": "x", "env": [{"name": f"E{m}", "value": "v"} for m in range(env)]}
                for n in range(containers)
            ]
        },
    }


# name: method, path, body, content type
REQUESTS: dict[str, tuple[str, str, Any, str]] = {
    "a wide role": ("POST", ROLES, a_role(120, 120, 120), JSON),
    "a role of many rules": ("POST", ROLES, {"metadata": {"name": "w"}, "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": [f"r{n}"]} for n in range(20_000)]}, JSON),
    "many owners": ("POST", MAPS, a_map(ownerReferences=owners(10_000)), JSON),
    "one owner many times": ("POST", MAPS, a_map(ownerReferences=owners(10_000, same=True)), JSON),
    "a long YAML list": ("POST", MAPS, yaml_list(2_800_000), "application/yaml"),
    "a long YAML map": ("POST", MAPS, yaml_flow(1_000_000), "application/yaml"),
    "many long selectors": ("POST", CLAIMS, with_selectors(256, 10_000), JSON),
    "one long selector": ("POST", CLAIMS, with_selectors(1, 10_000), JSON),
    "a selector that doubles a list": ("POST", CLAIMS, doubling(30), JSON),
    "deep JSON": ("POST", MAPS, nested(900), JSON),
    "very deep JSON": ("POST", MAPS, nested(400_000), JSON),
    "many unknown fields": ("POST", MAPS, {**a_map(), **{f"x{n}": 1 for n in range(100_000)}}, JSON),
    "the same field many times": ("POST", MAPS, b'{"metadata":{"name":"m"},"data":{' + b",".join(b'"a":"b"' for n in range(300_000)) + b"}}", JSON),
    "many keys": ("POST", MAPS, {**a_map(), "data": {f"k{n}": "v" for n in range(60_000)}}, JSON),
    "many labels": ("POST", MAPS, a_map(labels={f"k{n}": "v" for n in range(60_000)}), JSON),
    "many bad labels": ("POST", MAPS, a_map(labels={f"-k {n}": "-v-" for n in range(60_000)}), JSON),
    "many finalizers": ("POST", MAPS, a_map(finalizers=[f"a.b/k{n}" for n in range(60_000)]), JSON),
    "many managers": ("POST", MAPS, a_map(managedFields=managed(10_000)), JSON),
    "an object without meaning": ("POST", MAPS, b"[" * 1_000_000, JSON),
    "many devices": ("POST", SLICES, slice_with(128), JSON),
    "very many devices": ("POST", SLICES, slice_with(1200), JSON),
    "many containers": ("POST", PODS, pod_with(10_000), JSON),
    "many variables": ("POST", PODS, pod_with(10, 4_000), JSON),
    "many claims": ("POST", PODS, {**pod_with(1), "spec": {**pod_with(1)["spec"], "resourceClaims": [{"name": f"c{n}", "resourceClaimName": f"x{n}"} for n in range(20_000)]}}, JSON),
    "many tolerations": ("POST", PODS, {**pod_with(1), "spec": {**pod_with(1)["spec"], "tolerations": [{"key": f"c{n}", "operator": "Exists"} for n in range(20_000)]}}, JSON),
    "many requests": ("POST", CLAIMS, {**gold_claim("r"), "spec": {"devices": {"requests": [{"name": f"r{n}", "exactly": {"deviceClassName": "gold"}} for n in range(20_000)]}}}, JSON),
    "many constraints": ("POST", CLAIMS, {**gold_claim("r"), "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gold"}}], "constraints": [{"matchAttribute": f"a.b/c{n}"} for n in range(20_000)]}}}, JSON),
    "a JSON patch of many copies": ("PATCH", f"{MAPS}/there", [{"op": "copy", "from": "/data", "path": f"/metadata/annotations/a{n}"} for n in range(9_000)], "application/json-patch+json"),
    "a JSON patch of many additions": ("PATCH", f"{MAPS}/there", [{"op": "add", "path": f"/data/a{n}", "value": "b"} for n in range(9_999)], "application/json-patch+json"),
    "a JSON patch that inserts in front": ("PATCH", f"{MAPS}/there", [{"op": "add", "path": "/metadata/finalizers", "value": []}, *({"op": "add", "path": "/metadata/finalizers/0", "value": f"a.b/c{n}"} for n in range(9_998))], "application/json-patch+json"),
    "a strategic merge of many owners": ("PATCH", f"{MAPS}/there", {"metadata": {"ownerReferences": owners(10_000)}}, "application/strategic-merge-patch+json"),
    "a strategic merge of many containers": ("PATCH", f"{PODS}/there", pod_with(10_000), "application/strategic-merge-patch+json"),
    "a merge of many keys": ("PATCH", f"{MAPS}/there", {"data": {f"k{n}": "v" for n in range(60_000)}}, "application/merge-patch+json"),
    "an apply of many keys": ("PATCH", f"{MAPS}/there?fieldManager=x&force=true", {**a_map("there"), "data": {f"k{n}": "v" for n in range(20_000)}}, "application/apply-patch+yaml"),
    "an apply of many owners": ("PATCH", f"{MAPS}/there?fieldManager=x&force=true", a_map("there", ownerReferences=owners(5_000)), "application/apply-patch+yaml"),
    "a long label selector": ("GET", f"{MAPS}?labelSelector=" + ",".join(f"k{n}" for n in range(2_000)), None, JSON),
    "a long list of label values": ("GET", f"{MAPS}?labelSelector=k+in+(" + ",".join(f"v{n}" for n in range(2_500)) + ")", None, JSON),
    "a long field selector": ("GET", f"{PODS}?fieldSelector=" + ",".join(f"spec.nodeName!=n{n}" for n in range(700)), None, JSON),
    "a field selector of backslashes": ("GET", f"{PODS}?fieldSelector=" + "%5C" * 15_000, None, JSON),
    "a long query": ("GET", f"{PODS}?" + "&".join(f"a{n}=b" for n in range(8_000)), None, JSON),
    "a long accept header": ("GET", PODS, None, "accept:" + ",".join("a/b;q=0.1" for _ in range(6_000))),
    "a long path": ("GET", "/api" + "/a" * 30_000, None, JSON),
    "a deletion with a long YAML body": ("DELETE", f"{MAPS}/missing", yaml_list(500_000), "application/yaml"),
    "a deletion of many with a long YAML body": ("DELETE", f"{MAPS}?labelSelector=none", yaml_list(500_000), "application/yaml"),
    "a long YAML eviction": ("POST", f"{PODS}/there/eviction", yaml_list(500_000), "application/yaml"),
    "a long YAML binding": ("POST", f"{PODS}/there/binding", yaml_list(500_000), "application/yaml"),
    "a long YAML request for a token": ("POST", "/api/v1/namespaces/default/serviceaccounts/default/token", yaml_list(500_000), "application/yaml"),
    "a long YAML scale": ("PUT", "/apis/apps/v1/namespaces/default/deployments/missing/scale", yaml_list(500_000), "application/yaml"),
    "a review of a user with much to say": ("POST", "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews", {"spec": {"user": "u", "extra": {f"k{n}": ["a"] for n in range(60_000)}, "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "default"}}}, JSON),
    "a review of much": ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods", "labelSelector": {"requirements": [{"key": f"k{n}", "operator": "In", "values": ["a"]} for n in range(20_000)]}}}}, JSON),
}  # fmt: skip


@pytest.fixture
async def attacked(tmp_path: Path) -> AsyncIterator[Client]:
    store = SqliteStore(tmp_path / "store.db")
    running = await start_server(store, ServerOptions(tmp_path, runtime_config="api/all=true"))
    client = Client(running, store)
    for path, document in (
        (MAPS, a_map("there", annotations={"a": "b"})),
        ("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}}),
        (PODS, {**pod_with(1), "metadata": {"name": "there"}}),
    ):
        await client.post(path, document)
    rbac = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    binding = {
        "metadata": {"name": "t"},
        "subjects": [{"kind": "User", "name": "tenant"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
    }
    await client.post(rbac, binding)
    yield client
    await running.stop()
    await store.close()


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.timeout(300)
async def test_a_request_does_not_stop_the_loop(attacked: Client, name: str) -> None:
    method, path, body, content_type = REQUESTS[name]
    data = body if isinstance(body, bytes) or body is None else json.dumps(body, separators=(",", ":")).encode()
    cluster_wide = path.startswith((SLICES,))
    user = {} if cluster_wide else {"user": TENANT}
    headers = {"accept": content_type[7:]} if content_type.startswith("accept:") else {"content_type": content_type}
    await attacked.send(method, path.partition("?")[0], b"{}", content_type=JSON)  # loads what loads once
    path, _, query = path.partition("?")
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    request = Request(
        method, path, query, {"user-agent": "test", **headers}, data or b"", user=user.get("user", LOOPBACK)
    )
    with loop_stalls() as stalls:
        answer = await asyncio.create_task(attacked.running.server.handle(request))
    assert answer.status < 500, answer.body
    assert stalls.longest_s < LONGEST_S, stalls.longest


YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
MERGE = "application/merge-patch+json"
# Small requests about large objects: method, path below the objects, body, content type, what is accepted
ABOUT_LARGE_OBJECTS: dict[str, tuple[str, str, Any, str, str]] = {
    "as YAML": ("GET", "/large-0", None, JSON, YAML),
    "all in protobuf": ("GET", "", None, JSON, PROTOBUF),
    "all as a table": ("GET", "", None, JSON, TABLE),
    "all their metadata": ("GET", "", None, JSON, PARTIAL.replace("Metadata;", "MetadataList;")),
    "one of them once more": ("POST", "", a_map("large-0"), JSON, JSON),
    "a patch": ("PATCH", "/large-0", {"data": {"a": "b"}}, MERGE, JSON),
    "a patch that is only tried": ("PATCH", "/large-0?dryRun=All", {"data": {"a": "c"}}, MERGE, JSON),
    "a patch that does not fit": ("PATCH", "/large-0", {"metadata": {"labels": {"-": "-"}}}, MERGE, JSON),
    "another object in its place": ("PUT", "/large-1?dryRun=All", a_map("large-1"), JSON, JSON),
    "a deletion that is only tried": ("DELETE", "/large-1?dryRun=All", None, JSON, JSON),
    "a deletion of another one": ("DELETE", "/large-1", {"preconditions": {"uid": "x"}}, JSON, JSON),
    "a deletion": ("DELETE", "/large-1", None, JSON, JSON),
}


@pytest.mark.timeout(300)
async def test_a_small_request_about_large_objects_does_not_stop_the_loop(attacked: Client) -> None:
    for number in range(3):
        large = {**a_map(f"large-{number}"), "data": {f"k{n}": "v" for n in range(60_000)}}
        assert (await attacked.post(MAPS, large)).status == 201
    found = {}
    for name, (method, below, body, content_type, accept) in ABOUT_LARGE_OBJECTS.items():
        path, _, query = (MAPS + below).partition("?")
        headers = {"user-agent": "test", "content-type": content_type, "accept": accept}
        request = Request(method, path, query, headers, json.dumps(body).encode() if body else b"", user=TENANT)
        with loop_stalls() as stalls:
            answer = await asyncio.create_task(attacked.running.server.handle(request))
        assert answer.status in (200, 409, 422), (name, answer.body)
        found[name] = stalls.longest_s
    assert {name: s for name, s in found.items() if s >= LONGEST_S} == {}


async def test_the_scale_of_a_large_workload_does_not_stop_the_loop(attacked: Client) -> None:
    environment = [{"name": f"E{n}", "value": "v"} for n in range(70_000)]
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i", "env": environment}]},
    }
    deployment = {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}
    assert (await attacked.post("/apis/apps/v1/namespaces/default/deployments", deployment)).status == 201
    with loop_stalls() as stalls:
        path = "/apis/apps/v1/namespaces/default/deployments/d/scale"
        shown = await asyncio.create_task(attacked.get(path))
        changed = await asyncio.create_task(attacked.send("PATCH", path, {"spec": {"replicas": 3}}, content_type=MERGE))
    assert (shown.body["spec"], changed.body["spec"]) == ({"replicas": 1}, {"replicas": 3})
    assert stalls.longest_s < LONGEST_S, stalls.longest


async def test_yaml_has_a_length(attacked: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(representations, "MOST_YAML", 1000)
    await attacked.post(MAPS, {**a_map("longer"), "data": {"a": "b" * 1000}})
    answer = await attacked.send("GET", f"{MAPS}/longer", accept=YAML)
    assert (answer.status, answer.body["reason"]) == (406, "NotAcceptable")
    assert "are too many to be shown in YAML: ask for JSON" in answer.body["message"]
    assert (await attacked.send("GET", f"{MAPS}/there", accept=YAML)).status == 200


async def test_a_list_of_devices_that_was_refused_is_as_large_the_next_time(attacked: Client) -> None:
    """Lists that were stored are known and cheap. This one is known from the first request, and still has to be checked whole."""
    body = json.dumps(slice_with(1200), separators=(",", ":")).encode()
    request = Request("POST", SLICES, "", {"user-agent": "test", "content-type": JSON}, body, user=LOOPBACK)
    assert (await attacked.running.server.handle(request)).status == 422
    with loop_stalls() as stalls:
        answer = await asyncio.create_task(attacked.running.server.handle(request))
    assert answer.status == 422
    assert stalls.longest_s < LONGEST_S / 2, stalls.longest


async def test_the_loop_does_not_clear_up_after_a_request_with_many_mistakes(attacked: Client) -> None:
    method, path, document, _ = REQUESTS["many bad labels"]
    headers = {"user-agent": "test", "content-type": JSON}
    body = json.dumps(document, separators=(",", ":")).encode()
    with loop_stalls() as stalls:
        for _ in range(4):
            request = Request(method, path, "", headers, body, user=TENANT)
            assert (await asyncio.create_task(attacked.running.server.handle(request))).status == 422
    assert stalls.longest_s < LONGEST_S / 3, stalls.longest


async def test_a_role_of_very_many_permissions_is_not_spelled_out(attacked: Client) -> None:
    answer = await attacked.send("POST", ROLES, a_role(40, 40, 40), user=TENANT)
    assert answer.status == 403
    assert "the rules spell out 64000 permissions, at most" in answer.body["message"]


async def test_a_policy_of_many_long_expressions_does_not_stop_the_loop(attacked: Client) -> None:
    """Neither when it is written, nor when the first request has to be judged by it."""
    policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"
    parts = [f'object.metadata.name != "n{n}"' for n in range(300)]
    expressions = [" && ".join([f'object.metadata.name != "e{number}"', *parts]) for number in range(20)]
    maps = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    policy = {
        "metadata": {"name": "long"},
        "spec": {
            "matchConstraints": {"resourceRules": [maps]},
            "validations": [{"expression": expression} for expression in expressions],
        },
    }
    binding = {"metadata": {"name": "long"}, "spec": {"policyName": "long", "validationActions": ["Deny"]}}
    await attacked.post(f"{policies}ybindings", binding)
    await attacked.post(f"{policies}ies", {})  # loads what loads once
    with loop_stalls() as stalls:
        written = await asyncio.create_task(attacked.post(f"{policies}ies", policy))
        allowed = await asyncio.create_task(attacked.send("POST", MAPS, a_map("m1"), user=TENANT))
        refused = await asyncio.create_task(attacked.send("POST", MAPS, a_map("n7"), user=TENANT))
    assert (written.status, allowed.status, refused.status) == (201, 201, 422), (written.body, allowed.body)
    assert stalls.longest_s < LONGEST_S, stalls.longest


async def test_many_labels_beside_many_webhooks_do_not_stop_the_loop(attacked: Client) -> None:
    """Each webhook and each policy asks for the labels, before it is known whether it means the object at all."""
    secrets = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["secrets"]}
    webhooks = [
        {
            "name": f"w{number}.example.com",
            "clientConfig": {"url": "https://127.0.0.1:1/"},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "rules": [secrets],
            "objectSelector": {"matchLabels": {"k1": "v"}},
        }
        for number in range(60)
    ]
    configurations = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    assert (await attacked.post(configurations, {"metadata": {"name": "w"}, "webhooks": webhooks})).status == 201
    method, path, document, _ = REQUESTS["many labels"]
    headers = {"user-agent": "test", "content-type": JSON}
    request = Request(method, path, "", headers, json.dumps(document).encode(), user=TENANT)
    with loop_stalls() as stalls:
        assert (await asyncio.create_task(attacked.running.server.handle(request))).status == 201
    assert stalls.longest_s < LONGEST_S, stalls.longest


async def test_a_mutating_policy_of_many_long_expressions_does_not_stop_the_loop(attacked: Client) -> None:
    policies = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolic"
    parts = [f'object.metadata.name == "n{n}"' for n in range(300)]
    maps = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    patch = 'Object{metadata: Object.metadata{labels: {"policy": "seen"}}}'
    policy = {
        "metadata": {"name": "long"},
        "spec": {
            "matchConstraints": {"resourceRules": [maps]},
            "reinvocationPolicy": "Never",
            "variables": [{"name": f"v{n}", "expression": " || ".join([f"{n} > 5", *parts])} for n in range(12)],
            "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": patch}}],
        },
    }
    await attacked.post(f"{policies}ybindings", {"metadata": {"name": "long"}, "spec": {"policyName": "long"}})
    await attacked.post(f"{policies}ies", {})  # loads what loads once
    with loop_stalls() as stalls:
        written = await asyncio.create_task(attacked.post(f"{policies}ies", policy))
        changed = await asyncio.create_task(attacked.send("POST", MAPS, a_map("m1"), user=TENANT))
    assert (written.status, changed.status) == (201, 201), (written.body, changed.body)
    assert changed.body["metadata"]["labels"] == {"policy": "seen"}
    assert stalls.longest_s < LONGEST_S, stalls.longest


# --- watches, and lists of very many objects

NODES_PODS = "fieldSelector=spec.nodeName=n1"


async def watch(client: Client, path: str, query: str, accept: str = JSON) -> AsyncIterator[bytes]:
    request = Request("GET", path, f"watch=1&{query}", {"user-agent": "test", "accept": accept}, b"", user=LOOPBACK)
    answer = await client.running.server.handle(request)
    assert answer.stream is not None, answer.body
    return answer.stream


def events_in(chunk: bytes, accept: str) -> list[str]:
    """The types of the events."""
    if accept != PROTOBUF:
        return [json.loads(line)["type"] for line in chunk.splitlines()]
    types = []
    while chunk:
        length = int.from_bytes(chunk[:4], "big")
        types.append(chunk[6 : 6 + chunk[5]].decode())
        chunk = chunk[4 + length :]
    return types


@pytest.mark.parametrize("accept", [PROTOBUF, TABLE])
async def test_a_watch_of_large_objects_does_not_stop_the_loop(attacked: Client, accept: str) -> None:
    """Neither when it begins with them, nor when they change; small events do not overtake large ones."""
    large = {**a_map("large"), "data": {f"k{n}": "v" for n in range(60_000)}}
    assert (await attacked.post(MAPS, large)).status == 201
    await attacked.send("GET", f"{MAPS}/there", accept=accept)  # loads what loads once
    with loop_stalls() as stalls:
        streams = [await watch(attacked, MAPS, "includeObject=Object", accept) for _ in range(3)]
        for method, name, body in (
            ("PATCH", "large", b'{"data":{"a":"b"}}'),
            ("DELETE", "there", b""),
            ("DELETE", "large", b""),
        ):
            headers = {"user-agent": "test", "content-type": MERGE if body else JSON}
            await attacked.running.server.handle(Request(method, f"{MAPS}/{name}", "", headers, body, user=LOOPBACK))
        seen = []
        for stream in streams:
            types: list[str] = []
            while len(types) < 5:
                types += await asyncio.to_thread(events_in, await anext(stream), accept)
            seen.append(types)
    assert seen == [["ADDED", "ADDED", "MODIFIED", "DELETED", "DELETED"]] * 3
    assert stalls.longest_s < LONGEST_S, stalls.longest


@pytest.fixture
async def crowded(attacked: Client) -> Client:
    """Ten thousand pods that nobody has read yet, every hundredth of them on node n1."""
    key = "/registry/core/pods/default/"
    found = await attacked.store.get(f"{key}there")
    assert found is not None
    for start in range(0, 10_000, 100):
        puts = []
        for number in range(start, start + 100):
            document = json.loads(found.value)
            document["metadata"]["name"] = f"p{number:05}"
            document["spec"]["nodeName"] = f"n{number % 100}"
            puts.append(Put(f"{key}p{number:05}", json.dumps(document, separators=(",", ":")).encode()))
        await attacked.store.commit(puts, [])
    await attacked.running.server.core.fresh()
    return attacked


async def test_a_field_selector_over_very_many_objects_does_not_stop_the_loop(crowded: Client) -> None:
    with loop_stalls() as stalls:
        listed = await asyncio.create_task(crowded.get(f"{PODS}?{NODES_PODS}&limit=60"))
        stream = await asyncio.create_task(watch(crowded, PODS, "fieldSelector=spec.nodeName!=n1"))
        await crowded.send("DELETE", f"{PODS}/p00002?gracePeriodSeconds=0")
        types: list[str] = []
        while len(types) < 9902:
            types += await asyncio.to_thread(events_in, await anext(stream), JSON)
    assert [pod["metadata"]["name"] for pod in listed.body["items"]] == [f"p{n:05}" for n in range(1, 6000, 100)]
    assert listed.body["metadata"]["continue"]
    assert types == ["ADDED"] * 9901 + ["DELETED"]
    assert stalls.longest_s < LONGEST_S, stalls.longest


async def test_a_label_selector_of_thousands_of_keys_is_matched_at_once(crowded: Client) -> None:
    absent = ",".join(f"!k{n}" for n in range(2_000))
    same = ",".join(f"k!={n}" for n in range(2_000))
    with loop_stalls() as stalls:
        for selector in (absent, same):
            answer = await asyncio.create_task(crowded.get(f"{PODS}?labelSelector={selector}&limit=900"))
            assert len(answer.body["items"]) == 900
    assert stalls.longest_s < LONGEST_S, stalls.longest


BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
EXTENDED = {"resource.kubernetes.io/extended-resource-claim": "true"}
POLICY_KINDS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"


async def copied(client: Client, path: str, document: Document, count: int) -> None:
    """Makes one such object, and as many more like it as whoever may write in the namespace could make."""
    made = await client.post(path, document)
    assert made.status == 201, made.body
    name = made.body["metadata"]["name"]
    entry = next(
        each for each in (await client.store.list("/registry/")).entries if each.key.endswith(f"/default/{name}")
    )
    prefix = entry.key.removesuffix(name)
    for start in range(0, count, 100):
        puts = []
        for number in range(start, min(start + 100, count)):
            value = entry.value.replace(f'"name":"{name}"'.encode(), f'"name":"{name}-{number}"'.encode(), 1)
            puts.append(Put(f"{prefix}{name}-{number}", value))
        await client.store.commit(puts, [])
    await client.running.server.core.fresh()


async def many_budgets(client: Client) -> tuple[str, Document]:
    await client.patch(f"{PODS}/there/status", {"status": {"phase": "Running"}})
    labels = {f"k{n}": "v" for n in range(800)}
    budget = {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}}}
    await copied(client, BUDGETS, budget, 1_000)
    return f"{PODS}/there/eviction?dryRun=All", {"metadata": {"name": "there"}}


async def many_slices_of_endpoints(client: Client) -> tuple[str, Document]:
    endpoints = [{"addresses": [f"10.1.0.{n}"], "targetRef": {"kind": "Pod", "name": f"p{n}"}} for n in range(40)]
    of = {
        "metadata": {"name": "e", "labels": {"kubernetes.io/service-name": "other"}},
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": [{"port": 80}],
    }
    await copied(client, "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", of, 6_000)
    service = {"metadata": {"name": "there"}, "spec": {"ports": [{"port": 80}]}}
    await client.post("/api/v1/namespaces/default/services", service)
    return "/api/v1/namespaces/default/services/there:80/proxy/", {}


async def many_claims(client: Client) -> tuple[str, Document]:
    quotas = "/api/v1/namespaces/default/resourcequotas"
    await client.post(quotas, {"metadata": {"name": "q"}, "spec": {"hard": {"count/secrets": "1"}}})
    await client.patch(f"{quotas}/q/status", {"status": {"hard": {"count/secrets": "1"}, "used": {}}})
    await copied(client, CLAIMS, gold_claim("c"), 6_000)
    uid = (await client.get(f"{PODS}/there")).body["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "there", "uid": uid, "controller": True}
    claim = gold_claim("mine")
    claim["metadata"] = {"name": "mine", "annotations": EXTENDED, "ownerReferences": [owner]}
    return CLAIMS, claim


async def many_parameters(client: Client) -> tuple[str, Document]:
    maps = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["secrets"]}
    spec = {
        "matchConstraints": {"resourceRules": [maps]},
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "validations": [{"expression": "true"}],
    }
    await client.post(f"{POLICY_KINDS}ies", {"metadata": {"name": "p"}, "spec": spec})
    wanted = {"selector": {"matchLabels": {"a": "b"}}, "parameterNotFoundAction": "Allow"}
    bound = {"policyName": "p", "validationActions": ["Deny"], "paramRef": wanted}
    await client.post(f"{POLICY_KINDS}ybindings", {"metadata": {"name": "p"}, "spec": bound})
    await copied(client, MAPS, {**a_map("m"), "data": {f"k{n}": "v" for n in range(1_000)}}, 1_000)
    return "/api/v1/namespaces/default/secrets", {"metadata": {"name": "s"}}


@pytest.mark.parametrize("make", [many_budgets, many_slices_of_endpoints, many_claims, many_parameters])
@pytest.mark.timeout(300)
async def test_what_else_is_in_the_namespace_does_not_stop_the_loop(
    attacked: Client, make: Callable[[Client], Awaitable[tuple[str, Document]]]
) -> None:
    """A request that has to look through the objects of a namespace, which its writer has filled."""
    path, document = await make(attacked)
    path, _, query = path.partition("?")
    for _ in range(2):
        headers = {"user-agent": "test", "content-type": JSON}
        request = Request("POST", path, query, headers, json.dumps(document).encode(), user=LOOPBACK)
        with loop_stalls() as stalls:
            answer = await asyncio.create_task(attacked.running.server.handle(request))
        assert answer.status in (201, 409, 503), answer.body
        assert stalls.longest_s < LONGEST_S, stalls.longest


FIRST_CALL = """
import asyncio, sys
from dray.apiserver.write.webhooks.calling import CallFailed, ClientConfig, WebhookCaller
from tests.security.loop_stalls import loop_stalls

async def main():
    caller = WebhookCaller(None)
    calls = [caller.post(ClientConfig("https://127.0.0.1:1/", None, b""), b"{}", 5) for _ in range(2)]
    assert "aiohttp" not in sys.modules
    with loop_stalls() as stalls:
        answers = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(answer, CallFailed) for answer in answers), answers
    await caller.close()
    print(stalls.longest_s)

asyncio.run(main())
"""


def test_the_first_call_of_a_webhook_does_not_stop_the_loop() -> None:
    done = subprocess.run([sys.executable, "-c", FIRST_CALL], capture_output=True, text=True, check=True)
    assert float(done.stdout) < LONGEST_S
