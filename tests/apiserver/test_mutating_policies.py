"""MutatingAdmissionPolicy: apply configurations and JSON patches in CEL, and what happens when they make no sense."""

from __future__ import annotations

from typing import Any

import pytest
from tests.apiserver.conftest import Client

Document = dict[str, Any]
GROUP = "admissionregistration.k8s.io"
POLICIES, BINDINGS = (f"/apis/{GROUP}/v1/mutatingadmissionpolic{end}" for end in ("ies", "ybindings"))
MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"


def applies(expression: str) -> Document:
    return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}


def patches(expression: str) -> Document:
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}


def a_policy(*mutations: Document, name: str = "p", resource: str = "configmaps", **spec: Any) -> Document:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": [resource]}
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "mutations": list(mutations),
        "reinvocationPolicy": "Never",
        **spec,
    }
    return {"metadata": {"name": name}, "spec": spec}


async def register(client: Client, policy: Document, **binding: Any) -> None:
    name = policy["metadata"]["name"]
    made = await client.post(POLICIES, policy)
    assert made.status == 201, made.body
    bound = await client.post(BINDINGS, {"metadata": {"name": f"{name}-b"}, "spec": {"policyName": name, **binding}})
    assert bound.status == 201, bound.body
    await client.core.fresh()


def a_map(name: str = "m", **more: Any) -> Document:
    return {"metadata": {"name": name, **more.pop("metadata", {})}, **more}


async def test_an_apply_configuration_is_merged_into_the_object(server: Client) -> None:
    sidecar = """
        Object{
          metadata: Object.metadata{labels: {"proxied": object.metadata.name}},
          spec: Object.spec{
            initContainers: [Object.spec.initContainers{name: "proxy", image: "proxy:1", restartPolicy: "Always"}]
          }
        }"""
    once = [{"name": "once", "expression": "!object.spec.?initContainers.orValue([]).exists(c, c.name == 'proxy')"}]
    await register(server, a_policy(applies(sidecar), resource="pods", matchConditions=once))
    containers = [{"name": "c", "image": "i"}]
    spec = {"containers": containers, "initContainers": [{"name": "other", "image": "i"}], "serviceAccountName": "x"}
    await server.post("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "x"}})
    answer = await server.post(PODS, {"metadata": {"name": "p", "labels": {"a": "b"}}, "spec": spec})
    assert answer.status == 201, answer.body
    found = {container["name"]: container for container in answer.body["spec"]["initContainers"]}
    assert set(found) == {"other", "proxy"}
    assert found["proxy"]["terminationMessagePath"] == "/dev/termination-log", "defaults are filled in"
    assert found["proxy"]["volumeMounts"], "built-in plugins see the change"
    assert answer.body["metadata"]["labels"] == {"a": "b", "proxied": "p"}


async def test_a_json_patch_is_applied(server: Client) -> None:
    patch = """
        [JSONPatch{op: "test", path: "/data/color", value: "red"},
         JSONPatch{op: "replace", path: "/data/color", value: "green"},
         JSONPatch{op: "add", path: "/metadata/labels", value: {"example.com/a": "1"}},
         JSONPatch{op: "add", path: "/metadata/labels/" + jsonpatch.escapeKey("example.com/b~"), value: variables.two}]"""
    await register(server, a_policy(patches(patch), variables=[{"name": "two", "expression": "string(1 + 1)"}]))
    answer = await server.post(MAPS, a_map(data={"color": "red"}))
    assert answer.status == 422, "the label is not a valid one, which validation says"
    assert "example.com/b~" in answer.body["message"]
    await server.send("DELETE", f"{POLICIES}/p")
    await register(
        server, a_policy(patches(patch.replace("b~", "b")), name="q", variables=[{"name": "two", "expression": "'2'"}])
    )
    answer = await server.post(MAPS, a_map(data={"color": "red"}))
    assert answer.body["data"] == {"color": "green"}
    assert answer.body["metadata"]["labels"] == {"example.com/a": "1", "example.com/b": "2"}
    blue = await server.post(MAPS, a_map("n", data={"color": "blue"}))
    assert (blue.status, blue.body["data"]) == (201, {"color": "blue"}), "a test that fails leaves the object alone"


async def test_parameters_and_optional_fields(server: Client) -> None:
    await server.post(MAPS, a_map("settings", data={"tier": "gold"}))
    expression = 'Object{data: {"tier": params.data.tier}, ?immutable: optional.none()}'
    kind = {"apiVersion": "v1", "kind": "ConfigMap"}
    reference = {"name": "settings", "namespace": "default", "parameterNotFoundAction": "Deny"}
    await register(server, a_policy(applies(expression), paramKind=kind), paramRef=reference)
    answer = await server.post(MAPS, a_map())
    assert answer.status == 201, answer.body
    assert answer.body["data"] == {"tier": "gold"}
    assert "immutable" not in answer.body


async def test_a_policy_runs_again_if_needed_after_a_later_change(server: Client) -> None:
    count = 'Object{metadata: Object.metadata{annotations: {"size": string(size(object.?data.orValue({})))}}}'
    await register(server, a_policy(applies(count), name="a", reinvocationPolicy="IfNeeded"))
    await register(server, a_policy(applies('Object{data: {"added": "1"}}'), name="b"))
    answer = await server.post(MAPS, a_map())
    assert answer.body["metadata"]["annotations"] == {"size": "1"}


@pytest.mark.parametrize(
    ("mutation", "text"),
    [
        (applies("Object{data: object.data}"), "no such key: data"),
        (applies("Object{spec: Object.wrong{}}"), 'unexpected type name "Object.wrong", expected "Object.spec"'),
        (patches('[JSONPatch{op: "remove", path: "/data/x"}]'), "JSON Patch: "),
        (patches('[JSONPatch{op: "dance", path: "/data/x"}]'), "JSON Patch: "),
    ],
)
async def test_a_mutation_without_a_result_follows_the_failure_policy(
    server: Client, mutation: Document, text: str
) -> None:
    await register(server, a_policy(mutation))
    answer = await server.post(MAPS, a_map())
    assert (answer.status, answer.body["reason"]) == (403, "Invalid"), answer.body
    assert answer.body["message"].startswith("policy 'p' with binding 'p-b' denied request: ")
    assert text in answer.body["message"]
    await server.patch(f"{POLICIES}/p", {"spec": {"failurePolicy": "Ignore"}})
    await server.core.fresh()
    assert (await server.post(MAPS, a_map())).status == 201


async def test_atomic_lists_are_not_replaced_by_accident(server: Client) -> None:
    expression = 'Object{spec: Object.spec{containers: [Object.spec.containers{name: "c", command: ["x"]}]}}'
    await register(server, a_policy(applies(expression), resource="pods"))
    await server.post("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "x"}})
    spec = {"containers": [{"name": "c", "image": "i"}], "serviceAccountName": "x"}
    answer = await server.post(PODS, {"metadata": {"name": "p"}, "spec": spec})
    assert answer.status == 403
    assert "may not mutate atomic arrays, maps or structs: .spec.containers[0].command" in answer.body["message"]


BAD_POLICIES: list[tuple[Any, str]] = [
    (a_policy(), "spec.mutations"),
    (a_policy({"patchType": "Magic"}), "spec.mutations[0].patchType"),
    (a_policy({"patchType": "JSONPatch"}), "spec.mutations[0].jsonPatch"),
    (a_policy({**applies("Object{}"), "jsonPatch": {"expression": "[]"}}), "spec.mutations[0].jsonPatch"),
    (a_policy(applies("1")), "spec.mutations[0].applyConfiguration.expression"),
    (a_policy(applies("Object{")), "spec.mutations[0].applyConfiguration.expression"),
    (a_policy(patches("Object{}")), "spec.mutations[0].jsonPatch.expression"),
    (a_policy(patches("[JSONPatch{op: 1}]")), "spec.mutations[0].jsonPatch.expression"),
    (a_policy(patches('[JSONPatch{what: "x"}]')), "spec.mutations[0].jsonPatch.expression"),
    (a_policy(applies("Object{}"), reinvocationPolicy="Sometimes"), "spec.reinvocationPolicy"),
]


async def test_policies_with_mistakes(server: Client) -> None:
    for policy, field in BAD_POLICIES:
        answer = await server.post(POLICIES, policy)
        assert answer.status == 422, answer.body
        assert [cause["field"] for cause in answer.body["details"]["causes"]] == [field]


async def test_a_deletion_cannot_be_changed(server: Client) -> None:
    policy = a_policy(applies("Object{}"))
    policy["spec"]["matchConstraints"]["resourceRules"][0]["operations"] = ["DELETE"]
    answer = await server.post(POLICIES, policy)
    assert 'Unsupported value: "DELETE": supported values: "*", "CONNECT", "CREATE", "UPDATE"' in answer.body["message"]
