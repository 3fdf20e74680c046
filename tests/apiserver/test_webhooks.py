"""Admission webhooks: which writes they see, what they may change, and what happens when they misbehave."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.apiserver.conftest import Client
from tests.apiserver.test_mutating_policies import a_policy, applies
from tests.apiserver.test_mutating_policies import register as register_policy
from tests.apiserver.webhook_server import (
    WebhookServer,
    a_configuration,
    a_webhook,
    configurations_path,
    json_patch,
)
from tests.waiting import eventually

from dray.apiserver.security.certificates import Authority
from dray.apiserver.write.webhooks import calling
from dray.http.connection import HttpRequest
from dray.http.responses import Response

Document = dict[str, Any]
MAPS = "/api/v1/namespaces/default/configmaps"
AUTHORITY = Authority.create("webhook-ca")


@pytest.fixture
async def webhook() -> AsyncIterator[WebhookServer]:
    server = WebhookServer(AUTHORITY)
    await server.start()
    yield server
    await server.stop()


def a_map(name: str = "m", **more: Any) -> Document:
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name, **more.pop("metadata", {})}, **more}


async def register(client: Client, *webhooks: Document, mutating: bool = False, name: str = "guards") -> None:
    body = a_configuration(*webhooks, mutating=mutating, name=name)
    answer = await client.post(configurations_path(mutating=mutating), body)
    assert answer.status == 201, answer.body
    await client.core.fresh()


async def forget(client: Client, *, mutating: bool = False) -> None:
    assert (await client.send("DELETE", f"{configurations_path(mutating=mutating)}/guards")).status == 200
    await client.core.fresh()


def deny(message: str = "no", **status: Any) -> Any:
    return lambda request: {"allowed": False, "status": {"message": message, **status}}


# --- validating ------------------------------------------------------------------------------------------------------


async def test_a_webhook_sees_the_write_and_refuses_it(server: Client, webhook: WebhookServer) -> None:
    await register(server, a_webhook(webhook.client_config))
    webhook.decide = deny("keep out", code=418, reason="Teapot")
    answer = await server.post(f"{MAPS}?fieldManager=me&fieldValidation=Strict", a_map(data={"a": "1"}))
    assert answer.status == 418
    assert answer.body["message"] == 'admission webhook "guard.example.com" denied the request: keep out'
    assert answer.body["reason"] == "Teapot"
    review = webhook.reviews[0]
    kind = {"group": "", "version": "v1", "kind": "ConfigMap"}
    resource = {"group": "", "version": "v1", "resource": "configmaps"}
    assert (review["kind"], review["requestKind"]) == (kind, kind)
    assert (review["resource"], review["requestResource"]) == (resource, resource)
    assert (review["name"], review["namespace"], review["operation"]) == ("m", "default", "CREATE")
    assert (review["dryRun"], review["oldObject"]) == (False, None)
    assert review["object"]["data"] == {"a": "1"}
    assert review["object"]["metadata"]["namespace"] == "default"
    assert review["userInfo"]["username"] == "system:apiserver"
    assert review["options"] == {
        "kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "me", "fieldValidation": "Strict",
    }  # fmt: skip
    assert webhook.requests[0].headers["content-type"] == "application/json"
    assert (await server.get(f"{MAPS}/m")).status == 404


REFUSALS: list[tuple[Any, ...]] = [
    ({}, 400, "denied the request without explanation"),
    ({"reason": "Because"}, 400, "denied the request: Because"),
    ({"message": "x", "code": 200}, 400, "denied the request: x"),
    ({"message": "x", "code": 7000}, 400, "denied the request: x"),
]


async def test_calls_are_counted(server: Client, webhook: WebhookServer) -> None:
    webhook.decide = deny(code=418)
    await register(server, a_webhook(webhook.client_config))
    await server.post(MAPS, a_map())
    shown = server.running.server.metrics.registry.text()
    labels = 'name="guard.example.com",type="validating",operation="CREATE"'
    for line in (
        f'apiserver_admission_webhook_rejection_count{{{labels},error_type="no_error",rejection_code="418"}} 1',
        f'apiserver_admission_webhook_admission_duration_seconds_count{{{labels},rejected="true"}} 1',
        f'apiserver_admission_webhook_request_total{{{labels},code="418",rejected="true"}} 1',
    ):
        assert line in shown


async def test_a_refusal_is_always_one(server: Client, webhook: WebhookServer) -> None:
    await register(server, a_webhook(webhook.client_config))
    for status, code, message in REFUSALS:
        webhook.decide = lambda request, status=status: {"allowed": False, "status": status}
        answer = await server.post(MAPS, a_map())
        assert (answer.status, answer.body["status"]) == (code, "Failure")
        assert answer.body["message"].endswith(message)


async def test_updates_patches_and_deletions_are_seen_with_the_old_object(
    server: Client, webhook: WebhookServer
) -> None:
    await server.post(MAPS, a_map(data={"a": "1"}))
    await register(server, a_webhook(webhook.client_config, rule={"operations": ["*"]}))
    await server.patch(f"{MAPS}/m", {"data": {"a": "2"}})
    await server.send("DELETE", f"{MAPS}/m")
    changed, deleted = webhook.reviews
    assert (changed["operation"], changed["object"]["data"], changed["oldObject"]["data"]) == (
        "UPDATE", {"a": "2"}, {"a": "1"},
    )  # fmt: skip
    assert changed["options"]["kind"] == "UpdateOptions"
    assert (deleted["operation"], deleted["object"], deleted["oldObject"]["data"]) == ("DELETE", None, {"a": "2"})
    assert deleted["options"]["kind"] == "DeleteOptions"


SEEN_WRITES: list[tuple[Any, ...]] = [
    ({}, True),
    ({"rule": {"operations": ["UPDATE"]}}, False),
    ({"rule": {"apiGroups": ["apps"]}}, False),
    ({"rule": {"resources": ["secrets"]}}, False),
    ({"rule": {"resources": ["*"]}}, True),
    ({"rule": {"resources": ["*/*"]}}, True),
    ({"rule": {"resources": ["configmaps/status"]}}, False),
    ({"rule": {"scope": "Namespaced"}}, True),
    ({"rule": {"scope": "Cluster"}}, False),
    ({"objectSelector": {"matchLabels": {"team": "a"}}}, True),
    ({"objectSelector": {"matchLabels": {"team": "b"}}}, False),
    ({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}}, True),
    ({"namespaceSelector": {"matchExpressions": [{"key": "x", "operator": "Exists"}]}}, False),
    ({"matchConditions": [{"name": "c", "expression": "object.metadata.name == 'm'"}]}, True),
    ({"matchConditions": [{"name": "c", "expression": "request.userInfo.username == 'bob'"}]}, False),
    (
        {
            "matchConditions": [
                {"name": "c", "expression": "object.data.x == '1'"},
                {"name": "d", "expression": "request.operation == 'DELETE'"},
            ]
        },
        False,
    ),
]


async def test_which_writes_a_webhook_sees(server: Client, webhook: WebhookServer) -> None:
    for more, called in SEEN_WRITES:
        await register(server, a_webhook(webhook.client_config, **json.loads(json.dumps(more))))
        answer = await server.post(MAPS, a_map(metadata={"labels": {"team": "a"}}))
        assert (answer.status, bool(webhook.reviews)) == (201, called), more
        await forget(server)
        await server.send("DELETE", f"{MAPS}/m")
        webhook.reviews.clear()


async def test_a_condition_without_an_answer_follows_the_failure_policy(server: Client, webhook: WebhookServer) -> None:
    broken = {"matchConditions": [{"name": "c", "expression": "object.data.missing == '1'"}]}
    await register(server, a_webhook(webhook.client_config, failurePolicy="Ignore", **broken), name="open")
    assert (await server.post(MAPS, a_map("a"))).status == 201
    await register(server, a_webhook(webhook.client_config, **broken), name="closed")
    answer = await server.post(MAPS, a_map("b"))
    assert answer.status == 403
    assert "expression 'object.data.missing == '1'' resulted in error: no such key: data" in answer.body["message"]
    assert webhook.reviews == []


async def test_an_equivalent_version_is_shown_as_the_rule_names_it(server: Client, webhook: WebhookServer) -> None:
    rule = {"apiGroups": ["resource.k8s.io"], "apiVersions": ["v1beta1"], "resources": ["resourceclaims"]}
    await register(server, a_webhook(webhook.client_config, rule=rule))
    exact = a_webhook(webhook.client_config, "exact.example.com", rule=rule, matchPolicy="Exact")
    await register(server, exact, name="exact")
    claim = {
        "metadata": {"name": "c"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gold"}}]}},
    }
    answer = await server.post("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims", claim)
    assert answer.status == 201, answer.body
    (review,) = webhook.reviews
    assert (review["kind"]["version"], review["requestKind"]["version"]) == ("v1beta1", "v1")
    assert review["object"]["apiVersion"] == "resource.k8s.io/v1beta1"
    assert review["object"]["spec"]["devices"]["requests"][0]["deviceClassName"] == "gold"


async def test_one_of_several_is_enough_to_refuse_and_they_are_asked_side_by_side(
    server: Client, webhook: WebhookServer
) -> None:
    waiting: list[asyncio.Future[None]] = []

    async def together(request: HttpRequest) -> Response:
        waiting.append(asyncio.get_running_loop().create_future())
        if len(waiting) == 3:
            for future in waiting:
                future.set_result(None)
        await waiting[-1]
        return await webhook._review(request)

    webhook.respond = together
    webhook.decide = lambda request: {"allowed": len(webhook.reviews) != 2, "status": {"message": "second"}}
    hooks = [a_webhook(webhook.client_config, f"h{i}.example.com") for i in range(3)]
    await register(server, *hooks)
    answer = await server.post(MAPS, a_map())
    assert answer.status == 400
    assert answer.body["message"].endswith("denied the request: second")


async def test_warnings_and_annotations_are_passed_on(
    server: Client, webhook: WebhookServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "dray.audit")
    await register(server, a_webhook(webhook.client_config))
    webhook.decide = lambda request: {
        "allowed": True, "warnings": ["old\nfield", *(f"w{i}" for i in range(1000))], "auditAnnotations": {"k": "v"},
    }  # fmt: skip
    answer = await server.post(MAPS, a_map())
    assert answer.status == 201
    assert answer.warnings[0] == "old\nfield"
    assert len(answer.warnings) == 50
    assert "guard.example.com/k=v" in caplog.text


async def test_configurations_and_policies_are_never_shown(server: Client, webhook: WebhookServer) -> None:
    everything = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}
    webhook.decide = deny()
    await register(server, a_webhook(webhook.client_config, rule=everything))
    await register(server, a_webhook(webhook.client_config, rule=everything), mutating=True)
    assert (await server.post(MAPS, a_map())).status == 400
    for mutating in (False, True):
        path = f"{configurations_path(mutating=mutating)}/guards"
        assert (await server.patch(path, {"metadata": {"labels": {"a": "b"}}})).status == 200
        assert (await server.send("DELETE", path)).status == 200
    assert {review["resource"]["resource"] for review in webhook.reviews} == {"configmaps"}
    assert (await server.post(MAPS, a_map())).status == 201


async def test_a_dry_run_reaches_webhooks_without_side_effects_only(server: Client, webhook: WebhookServer) -> None:
    await register(server, a_webhook(webhook.client_config))
    assert (await server.post(f"{MAPS}?dryRun=All", a_map())).status == 201
    assert webhook.reviews[0]["dryRun"] is True
    assert webhook.reviews[0]["options"]["dryRun"] == ["All"]
    assert (await server.get(f"{MAPS}/m")).status == 404


# --- mutating --------------------------------------------------------------------------------------------------------


def adds(key: str, value: str = "1") -> Any:
    def decide(request: Document) -> Document:
        data = request["object"].get("data")
        if data is None:
            return json_patch({"op": "add", "path": "/data", "value": {key: value}})
        return json_patch({"op": "add", "path": f"/data/{key}", "value": value})

    return decide


async def test_a_patch_changes_what_is_stored_and_what_later_webhooks_see(
    server: Client, webhook: WebhookServer
) -> None:
    other = WebhookServer(AUTHORITY)
    await other.start()
    webhook.decide, other.decide = adds("first"), adds("second")
    await register(server, a_webhook(webhook.client_config), mutating=True, name="a")
    await register(server, a_webhook(other.client_config), mutating=True, name="b")
    await register(server, a_webhook(other.client_config, "v.example.com"))
    other_decide, seen = other.decide, []

    def decide(request: Document) -> Document:
        seen.append(request["object"].get("data"))
        return other_decide(request) if len(seen) == 1 else {"allowed": True}

    other.decide = decide
    answer = await server.post(MAPS, a_map())
    await other.stop()
    assert answer.status == 201, answer.body
    assert answer.body["data"] == {"first": "1", "second": "1"}
    assert seen == [{"first": "1"}, {"first": "1", "second": "1"}]


async def test_what_a_webhook_adds_is_defaulted_validated_and_seen_by_the_built_in_plugins(
    server: Client, webhook: WebhookServer
) -> None:
    await server.post("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "robot"}})
    sidecar = {"name": "side", "image": "i"}
    webhook.decide = lambda request: json_patch({"op": "add", "path": "/spec/containers/-", "value": sidecar})
    await register(server, a_webhook(webhook.client_config, rule={"resources": ["pods"]}), mutating=True)
    pod = {
        "metadata": {"name": "p"},
        "spec": {"serviceAccountName": "robot", "containers": [{"name": "c", "image": "i"}]},
    }
    answer = await server.post("/api/v1/namespaces/default/pods", pod)
    assert answer.status == 201, answer.body
    added = answer.body["spec"]["containers"][1]
    assert added["terminationMessagePath"] == "/dev/termination-log"
    assert [mount["mountPath"] for mount in added["volumeMounts"]] == ["/var/run/secrets/kubernetes.io/serviceaccount"]
    sidecar["name"] = "NO"
    pod["metadata"] = {"name": "q"}
    answer = await server.post("/api/v1/namespaces/default/pods", pod)
    assert (answer.status, answer.body["details"]["causes"][0]["field"]) == (422, "spec.containers[1].name")


async def test_a_webhook_is_called_again_only_if_it_wants_to_be_and_a_later_one_changed_the_object(
    server: Client, webhook: WebhookServer
) -> None:
    calls: list[str] = []
    servers = {}
    for name, again in (("again", "IfNeeded"), ("never", "Never"), ("last", "IfNeeded")):
        found = servers[name] = WebhookServer(AUTHORITY)
        await found.start()
        found.respond = _noting(calls, name, found)
        hook = a_webhook(found.client_config, reinvocationPolicy=again)
        await register(server, hook, mutating=True, name=f"{len(servers)}-{name}")
    await server.post(MAPS, a_map("quiet"))
    assert calls == ["again", "never", "last"]
    calls.clear()
    servers["last"].decide = adds("x")
    assert (await server.post(MAPS, a_map("loud"))).body["data"] == {"x": "1"}
    assert calls == ["again", "never", "last", "again"]
    for found in servers.values():
        await found.stop()


async def test_a_webhook_is_called_again_after_a_policy_that_ran_again_changed_the_object(
    server: Client, webhook: WebhookServer
) -> None:
    """The webhook's own change lets the policy run again, and only what the policy then writes calls the webhook again."""
    calls: list[str] = []
    webhook.respond = _noting(calls, "webhook", webhook)
    webhook.decide = adds("x")
    await register(server, a_webhook(webhook.client_config, reinvocationPolicy="IfNeeded"), mutating=True)
    await server.post(MAPS, a_map("alone", data={"y": "1"}))
    assert calls == ["webhook"]
    calls.clear()
    size = 'Object{metadata: Object.metadata{annotations: {"size": string(size(object.?data.orValue({})))}}}'
    await register_policy(server, a_policy(applies(size), name="sizes", reinvocationPolicy="IfNeeded"))
    made = await server.post(MAPS, a_map("counted", data={"y": "1"}))
    assert made.body["metadata"]["annotations"] == {"size": "2"}
    assert calls == ["webhook", "webhook"]


def _noting(calls: list[str], name: str, server: WebhookServer) -> Any:
    async def respond(request: HttpRequest) -> Response:
        calls.append(name)
        return await server._review(request)

    return respond


async def test_a_patch_in_an_older_version_comes_back_in_the_stored_one(server: Client, webhook: WebhookServer) -> None:
    rule = {"apiGroups": ["resource.k8s.io"], "apiVersions": ["v1beta1"], "resources": ["resourceclaims"]}
    webhook.decide = lambda request: json_patch(
        {"op": "replace", "path": "/spec/devices/requests/0/deviceClassName", "value": "silver"}
    )
    await register(server, a_webhook(webhook.client_config, rule=rule), mutating=True)
    claim = {
        "metadata": {"name": "c"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gold"}}]}},
    }
    answer = await server.post("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims", claim)
    assert answer.status == 201, answer.body
    assert answer.body["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] == "silver"


async def test_the_scale_of_a_workload_is_shown_as_a_scale(server: Client, webhook: WebhookServer) -> None:
    path = "/apis/apps/v1/namespaces/default/deployments"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    made = await server.post(
        path, {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}
    )
    assert made.status == 201, made.body
    rule = {"apiGroups": ["apps"], "resources": ["deployments/scale"]}
    webhook.decide = lambda request: json_patch({"op": "replace", "path": "/spec/replicas", "value": 7})
    await register(server, a_webhook(webhook.client_config, rule=rule), mutating=True)
    answer = await server.patch(f"{path}/d/scale", {"spec": {"replicas": 3}})
    assert (answer.status, answer.body["spec"]["replicas"]) == (200, 7)
    assert webhook.reviews[0]["kind"] == {"group": "autoscaling", "version": "v1", "kind": "Scale"}
    assert webhook.reviews[0]["object"]["spec"] == {"replicas": 3}


BAD_PATCHES: list[tuple[Any, ...]] = [
    ([{"op": "remove", "path": "/data/none"}], 500, "none"),
    (
        [{"op": "replace", "path": "/metadata/namespace", "value": "kube-system"}],
        400,
        "does not match the namespace",
    ),
    ([{"op": "replace", "path": "/kind", "value": "Secret"}], 500, "Kind=Secret"),
    ([{"op": "replace", "path": "", "value": []}], 500, "leaves no ConfigMap"),
    ([{"op": "add", "path": "/data", "value": 7}], 500, "cannot unmarshal"),
    ([{"op": "add", "path": "/metadata/name", "value": "UPPER"}], 422, "metadata.name"),
    ([{"op": "test", "path": "/metadata/name", "value": "other"}], 500, "testing value /metadata/name failed"),
    ([{"op": "copy", "from": "", "path": "/data"}] * 400, 500, "the accumulated size increase of copy"),
]


async def test_a_patch_that_leads_nowhere_changes_nothing(server: Client, webhook: WebhookServer) -> None:
    await register(server, a_webhook(webhook.client_config), mutating=True)
    for operations, code, text in BAD_PATCHES:
        webhook.decide = lambda request, operations=operations: json_patch(*operations)
        answer = await server.post(MAPS, a_map())
        assert answer.status == code, answer.body
        assert text in answer.body["message"]
        assert (await server.get(MAPS)).body["items"] == []


async def test_an_update_cannot_be_turned_into_one_of_another_object(server: Client, webhook: WebhookServer) -> None:
    await server.post(MAPS, a_map("m"))
    victim = (await server.post(MAPS, a_map("victim", data={"a": "1"}))).body
    webhook.decide = lambda request: json_patch({"op": "replace", "path": "/metadata/name", "value": "victim"})
    await register(server, a_webhook(webhook.client_config, rule={"operations": ["UPDATE"]}), mutating=True)
    answer = await server.patch(f"{MAPS}/m", {"data": {"b": "2"}})
    assert (answer.status, answer.body["details"]["causes"][0]["field"]) == (422, "metadata.name")
    assert (await server.get(f"{MAPS}/victim")).body == victim


async def test_owners_of_fields_are_not_the_business_of_webhooks(server: Client, webhook: WebhookServer) -> None:
    webhook.decide = lambda request: json_patch({"op": "remove", "path": "/metadata/managedFields"})
    await register(server, a_webhook(webhook.client_config), mutating=True)
    answer = await server.post(MAPS, a_map(data={"a": "1"}))
    assert [entry["manager"] for entry in answer.body["metadata"]["managedFields"]] == ["test"]


async def test_a_deletion_cannot_be_changed(server: Client, webhook: WebhookServer) -> None:
    await server.post(MAPS, a_map())
    webhook.decide = lambda request: json_patch({"op": "add", "path": "/data", "value": {}})
    await register(server, a_webhook(webhook.client_config, rule={"operations": ["DELETE"]}), mutating=True)
    answer = await server.send("DELETE", f"{MAPS}/m")
    assert answer.status == 500
    assert "attempted to modify the object, which is not supported for this operation" in answer.body["message"]


# --- webhooks that misbehave -----------------------------------------------------------------------------------------


def says(body: Any, status: int = 200, **headers: str) -> Any:
    async def respond(request: HttpRequest) -> Response:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return Response(status, data, headers=tuple(headers.items()))

    return respond


def review(response: Document | None, **more: Any) -> Document:
    return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response, **more}


BAD_ANSWERS: list[tuple[Any, ...]] = [
    (says(b"hello"), "failed to call webhook: couldn't get version/kind; json parse error: invalid character 'h'"),
    (says(b""), "failed to call webhook: 0-length response with status code: 200"),
    (says([]), "failed to call webhook: couldn't get version/kind; json parse error: json: cannot unmarshal array"),
    (says(b"[" * 5000), "failed to call webhook"),
    (says({"kind": "Pod", "apiVersion": "v1"}), 'failed to call webhook: no kind "Pod" is registered'),
    (says(review(None)), "received invalid webhook response: webhook response was absent"),
    (says(review({"uid": "lie", "allowed": True})), "received invalid webhook response: expected response.uid="),
    (says(review({"uid": 7, "allowed": True})), "failed to call webhook: json: cannot unmarshal number"),
    (says(b"oops", 500), 'failed to call webhook: an error on the server ("unknown") has prevented the request'),
    (says(b'"\xe4"', 500), 'failed to call webhook: an error on the server ("unknown") has prevented the request'),
    (says({"kind": "Status", "message": "mine"}, 500), "failed to call webhook: mine"),
    (
        says({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1beta1", "response": {}}),
        "failed to call webhook: converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): unknown conversion",
    ),
    (says(b"", 404), "failed to call webhook: the server could not find the requested resource"),
    (
        says(b"", 302, Location="https://127.0.0.1:1/"),
        "failed to call webhook: the server answered with a redirect",
    ),
    (says(b"", 308, Location="/elsewhere"), "failed to call webhook: the server answered with a redirect"),
]


@pytest.mark.parametrize("mutating", [False, True])
async def test_an_answer_that_is_none(server: Client, webhook: WebhookServer, mutating: bool) -> None:
    await register(server, a_webhook(webhook.client_config), mutating=mutating)
    for respond, text in BAD_ANSWERS:
        webhook.respond = respond
        answer = await server.post(MAPS, a_map())
        assert (answer.status, answer.body["reason"]) == (500, "InternalError")
        expected = f'Internal error occurred: failed calling webhook "guard.example.com": {text}'
        assert answer.body["message"].startswith(expected), answer.body["message"]
    assert len(webhook.requests) == len(BAD_ANSWERS)
    assert (await server.get(MAPS)).body["items"] == []


NO_UTF8 = base64.b64encode(b'[{"op":"add","\xe4":1}]').decode()
NO_PATCHES: list[tuple[Any, ...]] = [
    ({"patch": "W10=", "patchType": "JSONPatch"}, False, "validating webhook may not return response.patch"),
    ({"patchType": "JSONPatch"}, False, "validating webhook may not return response.patchType"),
    ({"patch": "W10="}, True, "webhook returned response.patch but not response.patchType"),
    ({"patchType": "JSONPatch"}, True, "webhook returned response.patchType but not response.patch"),
    ({"patch": "W3sib3AiOiJhZGQifV0=", "patchType": "Magic"}, True, 'unsupported patch type "Magic"'),
    ({"patch": "eHl6", "patchType": "JSONPatch"}, True, "received undecodable patch in webhook response"),
    ({"patch": "e30=", "patchType": "JSONPatch"}, True, "received undecodable patch in webhook response"),
    ({"patch": NO_UTF8, "patchType": "JSONPatch"}, True, "received undecodable patch in webhook response"),
]


async def test_a_patch_that_is_none(server: Client, webhook: WebhookServer) -> None:
    for response, mutating, text in NO_PATCHES:
        webhook.decide = lambda request, response=response: {"allowed": True, **response}
        await register(server, a_webhook(webhook.client_config), mutating=mutating)
        answer = await server.post(MAPS, a_map())
        assert answer.status == 500
        assert text in answer.body["message"]
        await forget(server, mutating=mutating)


async def test_a_webhook_that_hangs_costs_its_timeout_and_nobody_else_waits(
    server: Client, webhook: WebhookServer
) -> None:
    async def hang(request: HttpRequest) -> Response:
        await asyncio.Event().wait()
        raise AssertionError

    webhook.respond = hang
    await register(server, a_webhook(webhook.client_config, timeoutSeconds=1))
    started = time.monotonic()
    refused = asyncio.ensure_future(server.post(MAPS, a_map()))
    await eventually(lambda: webhook.requests, "the webhook to be called")
    other = await server.post("/api/v1/namespaces/default/secrets", {"metadata": {"name": "s"}})
    assert (other.status, refused.done()) == (201, False)
    answer = await refused
    assert 0.9 < time.monotonic() - started < 5
    assert answer.body["message"] == (
        'Internal error occurred: failed calling webhook "guard.example.com": failed to call webhook: '
        f'Post "{webhook.url}?timeout=1s": context deadline exceeded'
    )
    assert webhook.requests[0].target.endswith(b"/hook?timeout=1s")


async def test_an_endless_answer_is_cut_off(server: Client, webhook: WebhookServer) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while sent < 100_000_000:
            sent += 1_000_000
            yield b"x" * 1_000_000

    async def respond(request: HttpRequest) -> Response:
        return Response(200, stream=endless())

    webhook.respond = respond
    await register(server, a_webhook(webhook.client_config))
    answer = await server.post(MAPS, a_map())
    assert answer.status == 500
    assert f"the answer has more than {calling.MAX_ANSWER_BYTES} bytes" in answer.body["message"]
    assert sent < 30_000_000


async def test_failures_that_are_to_be_ignored(
    server: Client, webhook: WebhookServer, caplog: pytest.LogCaptureFixture
) -> None:
    webhook.respond = says(b"", 500)
    for mutating in (False, True):
        await register(server, a_webhook(webhook.client_config, failurePolicy="Ignore"), mutating=mutating)
    assert (await server.post(MAPS, a_map())).status == 201
    assert len(webhook.requests) == 2
    assert "failed calling webhook" in caplog.text


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"url": "https://127.0.0.1:1/"}, "dial tcp 127.0.0.1:1: connect: connection refused"),
        ({"service": {"namespace": "default", "name": "gone"}}, 'Post "https://gone.default.svc:443/?timeout=5s": service "gone" not found'),
    ],
)  # fmt: skip
async def test_a_webhook_that_is_not_there(server: Client, config: Document, text: str) -> None:
    await register(server, a_webhook(config))
    answer = await server.post(MAPS, a_map())
    assert answer.status == 500
    assert text in answer.body["message"]


async def test_a_certificate_of_somebody_else_is_not_trusted(server: Client, webhook: WebhookServer) -> None:
    stranger = WebhookServer()
    await register(server, a_webhook({"url": webhook.url, "caBundle": stranger.ca_bundle}))
    answer = await server.post(MAPS, a_map())
    assert "tls: failed to verify certificate" in answer.body["message"]
    assert webhook.reviews == []


# --- services --------------------------------------------------------------------------------------------------------


async def test_a_service_is_reached_at_its_endpoint_under_its_own_name(server: Client, webhook: WebhookServer) -> None:
    reference = {"service": {"namespace": "default", "name": "guard", "path": "/check"}, "caBundle": webhook.ca_bundle}
    await register(server, a_webhook(reference))
    port = {"name": "https", "port": 443, "targetPort": 8443}
    service = {"metadata": {"name": "guard"}, "spec": {"ports": [port], "selector": {"app": "guard"}}}
    assert (await server.post("/api/v1/namespaces/default/services", service)).status == 201
    answer = await server.post(MAPS, a_map())
    assert 'no endpoints available for service "guard"' in answer.body["message"]
    endpoints = {
        "metadata": {"name": "guard-1", "labels": {"kubernetes.io/service-name": "guard"}},
        "addressType": "IPv4",
        "ports": [{"name": "https", "port": webhook.port}],
        "endpoints": [
            {"addresses": ["127.0.0.1"]},
            {"addresses": ["203.0.113.1"], "conditions": {"ready": False}},
        ],
    }
    made = await server.post("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", endpoints)
    assert made.status == 201, made.body
    answer = await server.post(MAPS, a_map())
    assert answer.status == 201, answer.body
    (request,) = webhook.requests
    assert request.target == b"/check?timeout=5s"
    assert request.headers["host"] == "guard.default.svc:443"


# --- configurations --------------------------------------------------------------------------------------------------


MISTAKES: list[tuple[Any, ...]] = [
    ({"name": "short"}, 'webhooks[0].name: Invalid value: "short": should be a domain with at least three segments separated by dots'),
    ({"name": ""}, "webhooks[0].name: Required value"),
    ({"sideEffects": "Some"}, 'webhooks[0].sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun"'),
    ({"sideEffects": None}, "webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun"),
    ({"timeoutSeconds": 31}, "webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds"),
    ({"failurePolicy": "Maybe"}, 'webhooks[0].failurePolicy: Unsupported value: "Maybe": supported values: "Fail", "Ignore"'),
    ({"admissionReviewVersions": ["v9"]}, 'webhooks[0].admissionReviewVersions: Invalid value: ["v9"]: must include at least one of v1, v1beta1'),
    ({"clientConfig": {}}, "webhooks[0].clientConfig: Required value: exactly one of url or service is required"),
    ({"clientConfig": {"url": "http://x/"}}, "webhooks[0].clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; desired format: https://host[/path]"),
    ({"clientConfig": {"service": {"name": "a", "namespace": "b", "path": "x//y"}}}, "webhooks[0].clientConfig.service.path: Invalid value: \"x//y\": must start with a '/'"),
    ({"rule": {"operations": ["*", "CREATE"]}}, "webhooks[0].rules[0].operations: Invalid value: [\"*\",\"CREATE\"]: if '*' is present, must not specify other operations"),
    ({"rule": {"resources": ["*/*", "pods"]}}, "webhooks[0].rules[0].resources: Invalid value: [\"*/*\",\"pods\"]: if '*/*' is present, must not specify other resources"),
    ({"rule": {"scope": "Galaxy"}}, 'webhooks[0].rules[0].scope: Unsupported value: "Galaxy": supported values: "*", "Cluster", "Namespaced"'),
    ({"objectSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}, "webhooks[0].objectSelector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'"),
    ({"matchConditions": [{"name": "c", "expression": "object ="}]}, 'webhooks[0].matchConditions[0].expression: Invalid value: "object ="'),
    ({"matchConditions": [{"name": "c", "expression": "1 + 1"}]}, "webhooks[0].matchConditions[0].expression: Invalid value"),
    ({"matchConditions": [{"name": "c", "expression": "true"}] * 2}, 'webhooks[0].matchConditions[1].name: Duplicate value: "c"'),
]  # fmt: skip


@pytest.mark.parametrize("mutating", [False, True])
async def test_configurations_with_mistakes(server: Client, mutating: bool) -> None:
    for more, problem in MISTAKES:
        hook = a_webhook({"url": "https://127.0.0.1/"}, **json.loads(json.dumps(more)))
        answer = await server.post(configurations_path(mutating=mutating), a_configuration(hook, mutating=mutating))
        assert answer.status == 422, answer.body
        assert problem in answer.body["message"]


async def test_webhooks_of_one_configuration_have_names_of_their_own(server: Client) -> None:
    hooks = [a_webhook({"url": "https://127.0.0.1/"})] * 2
    answer = await server.post(configurations_path(), a_configuration(*hooks))
    assert 'webhooks[1].name: Duplicate value: "guard.example.com"' in answer.body["message"]


# --- what is not used costs nothing ----------------------------------------------------------------------------------


async def test_a_server_without_webhooks_runs_none_of_their_code(server: Client, webhook: WebhookServer) -> None:
    assert await _calls_into_webhooks(server, "a") == 0
    hook = a_webhook(webhook.client_config)
    await register(server, hook)
    assert await _calls_into_webhooks(server, "b") > 0
    await server.send("DELETE", f"{configurations_path()}/guards")
    await server.core.fresh()
    assert await _calls_into_webhooks(server, "c") == 0


async def _calls_into_webhooks(client: Client, name: str) -> int:
    calls = 0

    def count(frame: Any, event: str, _: Any) -> None:
        nonlocal calls
        path = frame.f_code.co_filename.rpartition("/src/dray/")
        calls += event == "call" and bool(path[1]) and "webhook" in path[2]

    sys.setprofile(count)
    try:
        answer = await client.post(MAPS, a_map(name))
    finally:
        sys.setprofile(None)
    assert answer.status == 201
    return calls
