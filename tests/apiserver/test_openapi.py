"""The server's own description of itself: complete, and what it promises is what happens."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.apiserver.conftest import Client

from dray.api.schemas import struct, struct_names
from dray.api.served_versions import served_versions
from dray.apiserver.discovery import field_descriptions
from dray.apiserver.discovery.field_descriptions import field_text, type_text, words_of
from dray.apiserver.discovery.openapi import PRESERVES, OpenApi, in_version_2
from dray.apiserver.request.request_info import Request
from dray.apiserver.request.request_options import Query

Document = dict[str, Any]
API = OpenApi(served_versions("api/all=true"))


def document(path: str) -> Document:
    body = API._cached(path, lambda: API._v3(*_group_version(path)))
    found: Document = json.loads(body)
    return found


def _group_version(path: str) -> tuple[str, str]:
    parts = path.split("/")
    return ("", parts[1]) if parts[0] == "api" else (parts[1], parts[2])


def references(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*(references(entry) for entry in value.values()))
    if isinstance(value, list):
        return set().union(*(references(entry) for entry in value))
    return set()


async def test_every_group_version_has_a_document(server: Client) -> None:
    index = (await server.get("/openapi/v3")).body["paths"]
    assert {"api/v1", "apis/resource.k8s.io/v1", "apis/resource.k8s.io/v1beta1", "apis/apps/v1"} <= index.keys()
    for entry in index.values():
        answer = await server.get(entry["serverRelativeURL"])
        assert answer.status == 200
        schemas = answer.body["components"]["schemas"]
        missing = {name.rpartition("/")[2] for name in references(answer.body)} - schemas.keys()
        assert not missing


def test_a_reference_to_an_attribute_needs_all_its_fields() -> None:
    schemas = document("api/v1")["components"]["schemas"]
    selector = schemas["io.k8s.api.core.v1.ResourceSliceAttributeSelector"]
    assert set(selector["required"]) == {"claimName", "requestName", "attribute"}
    assert set(selector["properties"]) == set(selector["required"]), "in particular there is no `optional`"
    assert selector["x-kubernetes-map-type"] == "atomic"


async def test_the_servers_version_is_described(server: Client) -> None:
    index = (await server.get("/openapi/v3")).body["paths"]
    assert index["version"]["serverRelativeURL"].startswith("/openapi/v3/version?hash=")
    third, second = (await server.get("/openapi/v3/version")).body, (await server.get("/openapi/v2")).body
    said = (await server.get("/version")).body
    for paths, types in ((third["paths"], third["components"]["schemas"]), (second["paths"], second["definitions"])):
        assert paths["/version/"]["get"]["operationId"] == "getCodeVersion"
        described = types["io.k8s.apimachinery.pkg.version.Info"]
        assert set(described["required"]) <= said.keys() <= described["properties"].keys()


async def test_version_2_is_whole(server: Client) -> None:
    body = (await server.get("/openapi/v2")).body
    assert not {name.rpartition("/")[2] for name in references(body)} - body["definitions"].keys()
    assert "io.k8s.api.resource.v1.ResourceClaim" in body["definitions"]


@pytest.mark.parametrize("path", ["/openapi", "/openapi/", "/openapi/v4", "/openapi/v3/nothing", "/openapi/v2/nothing"])
async def test_what_is_not_published_is_not_found(server: Client, path: str) -> None:
    assert (await server.send("GET", path)).status == 404


async def test_unchanged_documents_need_not_travel(server: Client) -> None:
    tag = (await server.get("/openapi/v2")).headers["etag"]
    assert (await server.get("/openapi/v2", if_none_match=tag)).status == 304


async def test_kubectl_finds_its_options(server: Client) -> None:
    """kubectl looks here to learn whether the server checks fields and can dry-run."""
    body = (await server.get("/openapi/v3/apis/resource.k8s.io/v1")).body
    patch = body["paths"]["/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}"]["patch"]
    assert patch["x-kubernetes-group-version-kind"] == {
        "group": "resource.k8s.io",
        "version": "v1",
        "kind": "ResourceClaim",
    }
    assert {"fieldValidation", "dryRun"} <= {parameter["name"] for parameter in patch["parameters"]}


# --- objects made up from the schemas, right and wrong -------------------------------------------------------------------

WORDS = st.sampled_from(["", "a", "gpu.example.com", "a/b", "Not Valid", "x" * 70, "1Gi", "-1", "0", "é", "\u0000"])
LEAVES = {
    "string": WORDS | st.text(max_size=4),
    "integer": st.integers(-(2**65), 2**65) | st.sampled_from([0, 1, -1]),
    "boolean": st.booleans(),
    "number": st.floats(allow_nan=False, allow_infinity=False),
}
STRANGE = st.none() | st.booleans() | st.integers(-9, 9) | WORDS | st.just([]) | st.just({}) | st.just([None])


def made_from(schema: Document, schemas: Document, depth: int) -> st.SearchStrategy[Any]:
    """Values that mostly fit a schema, and sometimes do not."""
    schema = schema["allOf"][0] if "allOf" in schema else schema
    if "$ref" in schema:
        schema = schemas[schema["$ref"].rpartition("/")[2]]
    if depth <= 0:
        return STRANGE
    kind = schema.get("type")
    if kind == "array":
        fitting: st.SearchStrategy[Any] = st.lists(made_from(schema["items"], schemas, depth - 1), max_size=2)
    elif kind == "object" and "properties" in schema:
        names = {
            name: st.deferred(lambda entry=entry: made_from(entry, schemas, depth - 1))
            for name, entry in schema["properties"].items()
        }
        fitting = st.fixed_dictionaries({}, optional=names)
    elif kind == "object":
        inner = schema.get("additionalProperties", {})
        fitting = st.dictionaries(WORDS, made_from(inner, schemas, depth - 1), max_size=2)
    else:
        fitting = LEAVES.get(str(kind), WORDS)
    return st.one_of(fitting, fitting, fitting, STRANGE)


KINDS = [
    ("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims", True),
    ("resource.k8s.io", "v1", "ResourceSlice", "resourceslices", False),
    ("resource.k8s.io", "v1beta1", "ResourceSlice", "resourceslices", False),
    ("resource.k8s.io", "v1", "DeviceClass", "deviceclasses", False),
    ("resource.k8s.io", "v1", "DeviceTaintRule", "devicetaintrules", False),
    ("resource.k8s.io", "v1alpha3", "ResourcePoolStatusRequest", "resourcepoolstatusrequests", False),
    ("", "v1", "Pod", "pods", True),
    ("", "v1", "Node", "nodes", False),
    ("", "v1", "Event", "events", True),
    ("apps", "v1", "ReplicaSet", "replicasets", True),
    ("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", False),
    ("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", False),
]  # fmt: skip


@pytest.mark.parametrize(
    ("group", "version", "kind", "plural", "namespaced"), KINDS, ids=[f"{k[2]}-{k[1]}" for k in KINDS]
)
async def test_made_up_objects_never_break_the_server(
    server: Client, group: str, version: str, kind: str, plural: str, namespaced: bool
) -> None:
    root = f"apis/{group}/{version}" if group else f"api/{version}"
    schemas = document(root)["components"]["schemas"]
    name = next(
        name for name, schema in schemas.items()
        if {"group": group, "version": version, "kind": kind} in schema.get("x-kubernetes-group-version-kind", [])
    )  # fmt: skip
    bodies: list[Any] = []
    strategy = made_from({"$ref": f"#/{name}"}, schemas, 6)

    @settings(
        max_examples=60, deadline=None, database=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate]
    )
    @given(strategy)
    def collect(value: Any) -> None:
        bodies.append(value)

    collect()
    path = f"/{root}/namespaces/default/{plural}" if namespaced else f"/{root}/{plural}"
    for number, body in enumerate(bodies):
        if isinstance(body, dict) and number % 2:
            metadata = body.get("metadata") if isinstance(body.get("metadata"), dict) else {}
            kept = {key: value for key, value in metadata.items() if key not in ("resourceVersion", "namespace")}
            body = {**body, "kind": kind, "apiVersion": f"{group}/{version}" if group else version, "metadata": kept}
            kept["name"] = f"n{number}"
        text = json.dumps(body)
        for method, where, media_type in (
            ("POST", path, "application/json"),
            ("PUT", f"{path}/n{number}", "application/json"),
            ("PUT", f"{path}/n{number}/status", "application/json"),
            ("PATCH", f"{path}/n{number}", "application/merge-patch+json"),
            ("PATCH", f"{path}/n{number}", "application/strategic-merge-patch+json"),
            ("PATCH", f"{path}/n{number}?fieldManager=f&force=true", "application/apply-patch+yaml"),
        ):
            answer = await server.send(method, where, text.encode(), content_type=media_type)
            assert answer.status < 500, (method, where, text, answer.body)
    assert (await server.get(path)).status == 200
    assert (await server.get(path, accept="application/json;as=Table;v=v1;g=meta.k8s.io")).status == 200


def test_the_second_version_in_protobuf_is_a_document_without_definitions() -> None:
    headers = {"accept": "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"}
    request = Request("GET", "/openapi/v2", headers=headers)
    answer = API.answer(["openapi", "v2"], request, Query(""))
    assert answer is not None
    assert answer.content_type == "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
    assert answer.body.startswith(b"\n\x032.0\x12")
    assert answer.body.endswith(b"B\x00J\x00")


# --- what kubectl explain says ---------------------------------------------------------------------------------------

OF_NO_MEANING = {"the", "a", "an", "of", "this", "that", "is", "in", "for", "its", "s", "and", "to", "device"}
SHARED_TYPES = ["meta.v1.Condition", "meta.v1.ObjectMeta", "meta.v1.OwnerReference", "core.v1.NodeSelectorRequirement"]
DRA_TYPES = [name for name in struct_names() if name.startswith("resource.")] + SHARED_TYPES


def meaningful_words(text: str) -> set[str]:
    return set(re.findall(r"[a-z]+", text.lower())) - OF_NO_MEANING


@pytest.mark.parametrize("name", DRA_TYPES)
def test_every_type_and_field_of_the_dra_group_is_explained(name: str) -> None:
    assert not type_text(name).startswith(f"{name.rpartition('.')[2]}: "), name
    for field in struct(name).fields:
        text = field_text(name, field)
        assert text != f"The {words_of(field)}.", f"{name}.{field} has no text"
        assert meaningful_words(text) - meaningful_words(words_of(field)), f"{name}.{field} only repeats its name"
        assert text.endswith((".", '."', ")")), f"{name}.{field}"


def test_no_text_is_left_over() -> None:
    """A text whose type or field is gone is removed."""
    fields = {name.rpartition(".")[2]: set() for name in struct_names()}
    for name in struct_names():
        fields[name.rpartition(".")[2]] |= struct(name).fields.keys()
    texts = field_descriptions._read()
    for types, described in texts["fields"].items():
        if types != field_descriptions.EVERY_TYPE:
            assert described.keys() <= set().union(*(fields[name] for name in types.split())), types
    assert texts["types"].keys() <= {*fields, *struct_names()}


def test_version_2_leaves_out_what_kubectl_would_misunderstand() -> None:
    schema = {
        "type": "object",
        "required": ["a", "b"],
        "properties": {
            "a": {"type": "string", "nullable": True},
            "b": {"type": "array", "items": {"type": "object", PRESERVES: True, "properties": {"c": {}}}},
            "d": {"type": "integer", "anyOf": [{"minimum": 1}], "not": {"minimum": 5}},
            "e": {"type": "array", PRESERVES: True, "items": {"type": "string"}},
        },
    }
    assert in_version_2(schema) == {
        "type": "object",
        "required": ["b"],
        "properties": {
            "a": {},
            "b": {"type": "array", "items": {PRESERVES: True}},
            "d": {"type": "integer"},
            "e": {PRESERVES: True},
        },
    }
