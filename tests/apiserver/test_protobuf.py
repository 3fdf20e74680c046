"""Bodies in protobuf: read as the JSON they stand for, refused in words where that is not possible."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.apiserver import manifests, protobuf_writer
from tests.apiserver.conftest import CLAIMS, Client

from dray.api.errors import DecodeError
from dray.api.schemas import TypeRef, known_kinds, schema_for, struct
from dray.apiserver.read import protobuf_encoding
from dray.apiserver.read.protobuf_encoding import encode_object
from dray.apiserver.request.request_info import LOOPBACK, Request
from dray.apiserver.write import protobuf
from dray.http.responses import Response

PROTOBUF = "application/vnd.kubernetes.protobuf"
PODS = "/api/v1/namespaces/default/pods"
ROOTS = {
    "DeviceClass": "/apis/resource.k8s.io/v1/deviceclasses",
    "ResourceSlice": "/apis/resource.k8s.io/v1/resourceslices",
    "ResourceClaim": CLAIMS,
    "ResourceClaimTemplate": "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates",
    "Pod": PODS,
    "Node": "/api/v1/nodes",
}

AN_EVENT = {
    "apiVersion": "events.k8s.io/v1",
    "kind": "Event",
    "metadata": {"name": "e", "namespace": "default"},
    "eventTime": "2026-01-02T03:04:05.678901Z",
    "reportingController": "default-scheduler",
    "reportingInstance": "default-scheduler-1",
    "action": "Binding",
    "reason": "Scheduled",
    "regarding": {"kind": "Pod", "namespace": "default", "name": "p"},
    "note": "bound",
    "type": "Normal",
}
A_LEASE = {
    "apiVersion": "coordination.k8s.io/v1",
    "kind": "Lease",
    "metadata": {"name": "l", "namespace": "default"},
    "spec": {"holderIdentity": "me", "leaseDurationSeconds": 15, "renewTime": "2026-01-02T03:04:05.000000Z"},
}
A_RICH_POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "rich", "namespace": "default", "labels": {"a": "b"}},
    "spec": {
        "volumes": [
            {"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}},
            {"name": "settings", "configMap": {"name": "c", "items": [{"key": "k", "path": "p"}]}},
        ],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}],
        "containers": [
            {
                "name": "main",
                "image": "image",
                "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
                "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
                "resources": {"requests": {"cpu": "500m"}, "claims": [{"name": "gpu"}]},
                "readinessProbe": {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 5},
                "securityContext": {"runAsNonRoot": False},
            }
        ],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}
                    ]
                }
            }
        },
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
        "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}],
    },
}


def everything() -> list[dict[str, Any]]:
    found = [document for document in manifests.everything() if document["kind"] in ROOTS]
    return [*found, AN_EVENT, A_LEASE, A_RICH_POD]


@pytest.mark.parametrize("document", everything(), ids=lambda document: document["metadata"]["name"])
def test_what_was_written_is_read(document: dict[str, Any]) -> None:
    assert protobuf.read(protobuf_writer.body(document)) == document


async def test_objects_are_the_same_in_both_encodings(server: Client) -> None:
    """Also zeros: Go writes those of fields that are no pointers, and JSON leaves them out."""
    await server.post("/api/v1/namespaces/default/serviceaccounts", manifests.service_account())
    for document in everything():
        if not (root := ROOTS.get(document["kind"])):
            continue
        query = f"{root}?dryRun=All"
        plain = (await server.post(query, document)).body
        binary = await server.send("POST", query, protobuf_writer.body(document), content_type=PROTOBUF)
        assert binary.status == 201, binary.body
        for made in (plain, binary.body):
            del made["metadata"]["uid"], made["metadata"]["creationTimestamp"]
            made["metadata"].pop("managedFields", None)
            _without_generated_volume(made)
        assert binary.body == plain


def _without_generated_volume(pod: dict[str, Any]) -> None:
    spec = pod.get("spec") or {}
    if pod["kind"] != "Pod":
        return
    spec["volumes"] = [volume for volume in spec["volumes"] if "kube-api-access" not in volume["name"]]
    for container in spec["containers"]:
        mounts = container.get("volumeMounts") or []
        container["volumeMounts"] = [mount for mount in mounts if "kube-api-access" not in mount["name"]]


async def test_bindings_and_evictions(server: Client) -> None:
    await server.post("/api/v1/namespaces/default/serviceaccounts", manifests.service_account())
    await server.post("/api/v1/nodes", manifests.node("n"))
    await server.post(PODS, manifests.pod("p"))
    target = {"apiVersion": "v1", "kind": "Node", "name": "n"}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": target}
    bound = await server.send("POST", f"{PODS}/p/binding", protobuf_writer.body(binding), content_type=PROTOBUF)
    assert bound.status == 201, bound.body
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    evicted = await server.send("POST", f"{PODS}/p/eviction", protobuf_writer.body(eviction), content_type=PROTOBUF)
    assert evicted.status == 201, evicted.body
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
    gone = await server.send("DELETE", f"{PODS}/p", protobuf_writer.body(options), content_type=PROTOBUF)
    assert gone.status == 200, gone.body
    assert (await server.get(f"{PODS}/p")).status == 404


async def test_a_field_with_an_unknown_number_is_dropped(server: Client) -> None:
    claim = protobuf_writer.message(manifests.claim("c"), "resource.v1.ResourceClaim")
    body = _enveloped("resource.k8s.io/v1", "ResourceClaim", claim + protobuf_writer.block(900, b"new"))
    made = await server.send("POST", CLAIMS, body, content_type=PROTOBUF)
    assert made.status == 201
    assert made.body["spec"] == (await server.post(f"{CLAIMS}?dryRun=All", manifests.claim("d"))).body["spec"]


async def test_unknown_kinds_are_of_an_unknown_format(server: Client) -> None:
    body = _enveloped("resource.k8s.io/v1", "NoSuchKind", b"")
    refused = await server.send("POST", "/apis/resource.k8s.io/v1/devicetaintrules", body, content_type=PROTOBUF)
    assert (refused.status, refused.body["reason"]) == (415, "UnsupportedMediaType")


async def _answer(server: Client, path: str, accept: str) -> Response:
    path, _, query = path.partition("?")
    return await server.running.server.handle(Request("GET", path, query, {"accept": accept}, b"", user=LOOPBACK))


async def test_who_prefers_protobuf_gets_it(server: Client) -> None:
    shown = (await server.get("/api/v1/namespaces/default")).body
    listed = (await server.get("/api/v1/namespaces")).body
    for accept in (PROTOBUF, f"{PROTOBUF},application/json"):
        one = await _answer(server, "/api/v1/namespaces/default", accept)
        assert (one.content_type, protobuf.read(one.body)) == (PROTOBUF, shown)
        page = await _answer(server, "/api/v1/namespaces", accept)
        assert protobuf.read(page.body) == listed
    plain = await _answer(server, "/api/v1/namespaces/default", f"application/json,{PROTOBUF}")
    assert plain.content_type == "application/json"


async def test_a_watch_in_protobuf(server: Client) -> None:
    answer = await _answer(server, "/api/v1/namespaces?watch=1", PROTOBUF)
    assert (answer.content_type, answer.stream is None) == (f"{PROTOBUF};stream=watch", False)
    assert answer.stream is not None
    data = await anext(answer.stream)
    await answer.stream.aclose()  # type: ignore[attr-defined]
    size = int.from_bytes(data[:4], "big")
    event = dict(protobuf.fields(data[4 : 4 + size]))
    assert event[1] == b"ADDED"
    found = protobuf.read(protobuf.content(dict(protobuf.fields(protobuf.content(event[2])))[1]))
    assert found == (await server.get(f"/api/v1/namespaces/{found['metadata']['name']}")).body


def _enveloped(api_version: str, kind: str, data: bytes) -> bytes:
    meta = protobuf_writer.block(1, api_version.encode()) + protobuf_writer.block(2, kind.encode())
    return b"k8s\x00" + protobuf_writer.block(1, meta) + protobuf_writer.block(2, data)


@given(st.binary(max_size=200), st.sampled_from(["Pod", "Node", "Secret", "Event"]))
def test_garbage_is_refused(data: bytes, kind: str) -> None:
    try:
        found = protobuf.read(_enveloped("v1", kind, data))
    except DecodeError:
        return
    json.dumps(found)


@given(st.data())
def test_damaged_bodies_are_refused(data: st.DataObject) -> None:
    body = bytearray(protobuf_writer.body(A_RICH_POD))
    at = data.draw(st.integers(0, len(body) - 1))
    body[at] = data.draw(st.integers(0, 255))
    try:
        protobuf.read(bytes(body[: data.draw(st.integers(at, len(body)))]))
    except DecodeError:
        return


# --- every kind that Kubernetes serves -------------------------------------------------------------------------------

SAMPLES: dict[str, Any] = {
    "string": "text", "bool": True, "int32": 7, "int64": 2**40, "float": 1.5, "quantity": "5Gi", "intOrString": "80%",
    "time": "2026-01-02T03:04:05Z", "microTime": "2026-01-02T03:04:05.678901Z", "bytes": "AAECAw==", "any": {"a": [1, None]},
}  # fmt: skip
EITHER = ("JSONSchemaPropsOrArray", "JSONSchemaPropsOrBool", "JSONSchemaPropsOrStringArray")


def filled(type_name: str, depth: int = 0) -> dict[str, Any]:
    """A value of the type with all its fields, but for those that only JSON has."""
    fields = struct(type_name).fields.values()
    return {
        field.name: _filled_value(field.type, depth) for field in fields if field.numbers and _fits(field.type, depth)
    }


def _fits(ref: TypeRef, depth: int) -> bool:
    is_scalar = ref.shape == "scalar" or (ref.item is not None and _fits(ref.item, 99))
    return is_scalar or (depth < 8 and not ref.name.endswith(EITHER))


def _filled_value(ref: TypeRef, depth: int) -> Any:
    if ref.shape == "struct":
        return filled(ref.name, depth + 1)
    if ref.shape == "scalar":
        return SAMPLES[ref.name]
    assert ref.item is not None
    item = _filled_value(ref.item, depth)
    return [item, item] if ref.shape == "list" else {"key": item}


@pytest.mark.parametrize(("api_version", "kind"), known_kinds())
def test_every_field_of_every_kind_is_read(api_version: str, kind: str) -> None:
    schema = schema_for(api_version, kind)
    assert schema is not None
    document = {"apiVersion": api_version, "kind": kind, **filled(schema.name)}
    assert protobuf.read(protobuf_writer.body(document)) == document
    assert protobuf.read(encode_object(document, api_version, kind)) == document
    if (listed := schema_for(api_version, f"{kind}List")) is not None:
        page = {"apiVersion": api_version, "kind": f"{kind}List", **filled(listed.name)}
        assert protobuf.read(protobuf_writer.body(page)) == page


def test_a_schema_that_is_a_list_or_a_bool_is_read() -> None:
    """CustomResourceDefinitions hold messages for one of two things; JSON shows the thing itself."""

    def held(name: str, message: bytes) -> Any:
        outer = protobuf_writer.block(struct(PROPS).fields[name].numbers[0], message)
        return protobuf._message(outer, PROPS, 0)[name]

    schema = protobuf_writer.block(5, b"string")
    assert held("items", protobuf_writer.block(1, schema)) == {"type": "string"}
    assert held("items", protobuf_writer.block(2, schema)) == [{"type": "string"}]
    assert held("additionalProperties", protobuf_writer.number(1, 1)) is True
    assert held("additionalProperties", protobuf_writer.number(1, 0)) is False
    assert held("additionalProperties", protobuf_writer.block(2, schema)) == {"type": "string"}


PROPS = "apiextensions.v1.JSONSchemaProps"


@pytest.mark.parametrize(
    "schema",
    [
        {"items": {"type": "string"}},
        {"items": {}},
        {"items": [{"type": "string"}]},
        {"additionalProperties": False},
        {"additionalProperties": True},
        {"additionalProperties": {"type": "string"}},
        {"dependencies": {"a": ["b"]}},
        {"dependencies": {"a": {"type": "object"}}},
    ],
)
def test_schemas_of_definitions_survive_the_way_there_and_back(schema: dict[str, Any]) -> None:
    assert protobuf._message(protobuf_encoding._message(schema, PROPS), PROPS, 0) == schema
