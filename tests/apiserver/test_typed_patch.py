"""Configurations that do not fit their kind are refused with all that is wrong, in the words of Kubernetes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.apiserver.conftest import Client

from dray.api.schemas import schema_for
from dray.apiserver.write.patching.schema_patches import typed_problems


def in_pod(**container: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "c", **container}]}}


GOT = "got &value.valueUnstructured{Value:"
MAIN = '.spec.containers[name="c"]'


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        (in_pod(image="i", ports=[{"containerPort": 1}], tty=True), []),
        (in_pod(image=5), [f"{MAIN}.image: expected string, {GOT}5}}"]),
        (in_pod(tty="yes"), [f'{MAIN}.tty: expected boolean, {GOT}"yes"}}']),
        (in_pod(command="sh"), [f'{MAIN}.command: expected list, {GOT}"sh"}}']),
        (in_pod(resources=[1, "a"]), [f'{MAIN}.resources: expected map, {GOT}[]interface {{}}{{1, "a"}}}}']),
        (in_pod(ports=[{"containerPort": "80"}]), [f'{MAIN}.ports[containerPort="80"].containerPort: expected numeric (int or float), {GOT}"80"}}']),
        (in_pod(colour="red"), [f"{MAIN}.colour: field not declared in schema"]),
        ({"metadata": {"labels": {"a": {"b": None}}}}, [f'.metadata.labels.a: expected string, {GOT}map[string]interface {{}}{{"b":interface {{}}(nil)}}}}']),
        ({"metadata": {"finalizers": ["a/b", "a/b"]}}, ['.metadata.finalizers: duplicate entries for key [="a/b"]']),
        ({"spec": {"containers": [{"image": "i"}]}}, ['.spec.containers: element 0: associative list with keys has an element that omits all key fields ["name"] (and doesn\'t have default values for any key fields)']),
        ({"spec": {"containers": [{"name": "c"}, {"name": "c"}]}}, ['.spec.containers: duplicate entries for key [name="c"]']),
    ],
)  # fmt: skip
def test_what_does_not_fit(tree: dict[str, Any], expected: list[str]) -> None:
    schema = schema_for("v1", "Pod")
    assert schema is not None
    assert typed_problems(tree, schema) == expected


async def test_the_refusal_names_object_and_kind(server: Client) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": 5}, "extra": 1}
    path = "/api/v1/namespaces/default/configmaps/m?fieldManager=f"
    refused = await server.patch(path, body, "apply")
    assert refused.status == 400
    assert refused.body["message"] == (
        "failed to create typed patch object (default/m; /v1, Kind=ConfigMap): errors:\n"
        "  .data.a: expected string, got &value.valueUnstructured{Value:5}\n  .extra: field not declared in schema"
    )


CONFIG = "/api/v1/namespaces/default/configmaps/m"
DECODING = "error decoding patch: json: cannot unmarshal"


@pytest.mark.parametrize(
    ("kind", "patch", "status", "message"),
    [
        ("json", {"a": 1}, 400, f"{DECODING} object into Go value of type []handlers.jsonPatchOp"),
        ("json", [1], 400, f"{DECODING} number into Go value of type handlers.jsonPatchOp"),
        ("json", [{"op": 1}], 400, f"{DECODING} number into Go struct field jsonPatchOp.op of type string"),
        ("json", [None], 422, "the server rejected our request due to an error in our request"),
        ("merge", [1], 400, f"{DECODING} array into Go value of type map[string]interface {{}}"),
        ("strategic-merge", [1], 400, "json: cannot unmarshal array into Go value of type map[string]interface {}"),
        ("strategic-merge", {"data": {"a": 1}}, 422, "cannot convert int64 to string"),
        ("merge", {"data": {"a": 1}}, 422, "json: cannot unmarshal number into Go struct field ConfigMap.data of type string"),
        ("merge", {"kind": "Foo"}, 422, 'no kind "Foo" is registered for version "v1"'),
        ("merge", {"apiVersion": "a/b/c"}, 422, "unexpected GroupVersion string: a/b/c"),
        ("merge", {"metadata": {"namespace": "x"}}, 400, "the namespace of the provided object does not match the namespace sent on the request"),
        ("strategic-merge", {"metadata": {"finalizers": [["a"]]}}, 422, "unrecognized type: string"),
    ],
)  # fmt: skip
async def test_patches_that_fit_no_config_map(server: Client, kind: str, patch: Any, status: int, message: str) -> None:
    await server.post("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "m"}, "data": {"a": "b"}})
    refused = await server.patch(CONFIG, patch, kind)
    assert refused.status == status
    assert message in refused.body["message"]


@pytest.mark.parametrize(
    ("kind", "patch"),
    [
        ("strategic-merge", {"kind": "Secret", "apiVersion": "v9"}),
        ("strategic-merge", {"metadata": {"namespace": None}}),
        ("merge", {"metadata": {"namespace": None}}),
    ],
)
async def test_patches_that_change_nothing(server: Client, kind: str, patch: Any) -> None:
    made = await server.post("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "m"}, "data": {"a": "b"}})
    patched = await server.patch(CONFIG, patch, kind)
    assert (patched.status, patched.body) == (200, made.body)


async def test_a_list_of_lists_in_a_strategic_patch_is_refused(server: Client) -> None:
    found = {"metadata": {"name": "m", "finalizers": ["a.b/c"]}}
    await server.post("/api/v1/namespaces/default/configmaps", found)
    refused = await server.patch(CONFIG, {"metadata": {"finalizers": [["a"], ["b"]]}}, "strategic-merge")
    assert refused.status == 400
    assert refused.body["message"] == "list element types are not identical: [[a.b/c] [[a] [b]]]"


async def test_apply_owns_the_selector_of_a_service_as_a_whole(server: Client) -> None:
    path = "/api/v1/namespaces/default/services/s"
    body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}
    body["spec"]["selector"] = {"app": "web"}  # type: ignore[index]
    assert (await server.patch(f"{path}?fieldManager=a", body, "apply")).status == 201
    body["spec"]["selector"] = {"x": "y"}  # type: ignore[index]
    refused = await server.patch(f"{path}?fieldManager=b", body, "apply")
    assert refused.status == 409
    assert refused.body["message"] == 'Apply failed with 1 conflict: conflict with "a": .spec.selector'
    forced = await server.patch(f"{path}?fieldManager=b&force=true", body, "apply")
    assert forced.body["spec"]["selector"] == {"x": "y"}
    owned = {entry["manager"]: entry["fieldsV1"]["f:spec"] for entry in forced.body["metadata"]["managedFields"]}
    assert ("f:selector" in owned["a"], owned["b"]["f:selector"]) == (False, {})
