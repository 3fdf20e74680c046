"""Evictions of pods that a PodDisruptionBudget covers: what is taken from it, and every refusal with its cause."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.apiserver.conftest import Client

from dray.apiserver.write.admission.chain import Admission

PODS = "/api/v1/namespaces/default/pods"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
REFUSED = "Cannot evict pod as it would violate the pod's disruption budget."
READY = {"observedGeneration": 1, "currentHealthy": 3, "desiredHealthy": 2, "expectedPods": 3}


@pytest.fixture
async def server(server: Client) -> Client:
    await server.post("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
    return server


async def a_running_pod(server: Client, name: str = "p", ready: str = "True", phase: str = "Running") -> None:
    spec = {"containers": [{"name": "c", "image": "i"}], "nodeName": "n1"}
    made = await server.post(PODS, {"metadata": {"name": name, "labels": {"app": "a"}}, "spec": spec})
    assert made.status == 201, made.body
    status = {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}
    assert (await server.patch(f"{PODS}/{name}/status", {"status": status})).status == 200


async def a_budget(server: Client, status: dict[str, Any], name: str = "b", **spec: Any) -> None:
    spec = {"minAvailable": 2, "selector": {"matchLabels": {"app": "a"}}, **spec}
    assert (await server.post(BUDGETS, {"metadata": {"name": name}, "spec": spec})).status == 201
    answer = await server.patch(f"{BUDGETS}/{name}/status", {"status": status})
    assert answer.status == 200, answer.body


async def evict(server: Client, name: str = "p", **options: Any) -> Any:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, "deleteOptions": options}
    return await server.post(f"{PODS}/{name}/eviction", body)


async def status_of(server: Client, name: str = "b") -> dict[str, Any]:
    status: dict[str, Any] = (await server.get(f"{BUDGETS}/{name}")).body["status"]
    return status


async def is_leaving(server: Client, name: str = "p") -> bool:
    return "deletionTimestamp" in (await server.get(f"{PODS}/{name}")).body["metadata"]


async def test_an_eviction_takes_one_disruption_and_notes_the_pod(server: Client) -> None:
    await a_running_pod(server)
    await a_budget(server, {**READY, "disruptionsAllowed": 2})
    assert (await evict(server)).status == 201
    status = await status_of(server)
    assert status["disruptionsAllowed"] == 1
    assert list(status["disruptedPods"]) == ["p"]
    assert "conditions" not in status


async def test_the_last_disruption_changes_the_condition(server: Client) -> None:
    await a_running_pod(server)
    await a_budget(server, {**READY, "disruptionsAllowed": 1})
    assert (await evict(server)).status == 201
    (condition,) = (await status_of(server))["conditions"]
    assert condition.pop("lastTransitionTime")
    assert condition == {
        "type": "DisruptionAllowed",
        "status": "False",
        "reason": "InsufficientPods",
        "message": "",
        "observedGeneration": 1,
    }


async def test_of_many_evictions_at_once_only_the_allowed_ones_pass(server: Client) -> None:
    for number in range(5):
        await a_running_pod(server, f"p{number}")
    await a_budget(server, {**READY, "disruptionsAllowed": 2})
    answers = await asyncio.gather(*(evict(server, f"p{number}") for number in range(5)))
    assert sorted(answer.status for answer in answers) == [201, 201, 429, 429, 429]
    assert len((await status_of(server))["disruptedPods"]) == 2


async def test_as_many_evictions_at_once_as_a_budget_allows_pass(server: Client) -> None:
    for number in range(20):
        await a_running_pod(server, f"p{number}")
    await a_budget(server, {**READY, "disruptionsAllowed": 20})
    answers = await asyncio.gather(*(evict(server, f"p{number}") for number in range(20)))
    assert {answer.status for answer in answers} == {201}
    assert len((await status_of(server))["disruptedPods"]) == 20


async def test_an_eviction_that_is_only_tried_takes_nothing(server: Client) -> None:
    await a_running_pod(server)
    await a_budget(server, {**READY, "disruptionsAllowed": 1})
    assert (await evict(server, dryRun=["All"])).status == 201
    assert (await status_of(server))["disruptionsAllowed"] == 1
    await server.patch(f"{BUDGETS}/b/status", {"status": {"disruptionsAllowed": 0}})
    assert (await evict(server, dryRun=["All"])).status == 429


FAILED = {"type": "DisruptionAllowed", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("status", "cause", "retry_after"),
    [
        pytest.param({}, "The disruption budget b is still being processed by the server.", "10", id="not-seen"),
        pytest.param(
            {**READY, "currentHealthy": 2},
            "The disruption budget b needs 2 healthy pods and has 2 currently",
            None,
            id="used-up",
        ),
        pytest.param(
            {**READY, "conditions": [{**FAILED, "reason": "SyncFailed", "message": "no scale"}]},
            "The disruption budget b does not allow evicting pods currently because it failed sync: no scale",
            None,
            id="failed",
        ),
        pytest.param(
            {**READY, "conditions": [{**FAILED, "reason": "Holiday", "message": "closed"}]},
            "The disruption budget b does not allow evicting pods currently (Holiday): closed",
            None,
            id="says-no",
        ),
        pytest.param(READY, "The disruption budget b does not allow evicting pods currently", None, id="plain"),
    ],
)
async def test_a_refusal_names_its_cause(server: Client, status: Any, cause: str, retry_after: str | None) -> None:
    await a_running_pod(server)
    await a_budget(server, status)
    refused = await evict(server)
    assert (refused.status, refused.body["reason"], refused.body["message"]) == (429, "TooManyRequests", REFUSED)
    assert refused.body["details"]["causes"] == [{"reason": "DisruptionBudget", "message": cause}]
    assert refused.headers.get("retry-after") == retry_after
    assert not await is_leaving(server)


async def test_too_many_unconfirmed_evictions_are_forbidden(server: Client) -> None:
    await a_running_pod(server)
    disrupted = {f"gone-{number}": "2026-01-01T00:00:00Z" for number in range(2001)}
    await a_budget(server, {**READY, "disruptionsAllowed": 1, "disruptedPods": disrupted})
    refused = await evict(server)
    assert refused.status == 403
    assert "too many evictions not confirmed by PDB controller" in refused.body["message"]


@pytest.mark.parametrize(
    ("policy", "healthy", "expected"),
    [
        pytest.param(None, 1, 429, id="by-default-refused-while-the-budget-is-not-healthy"),
        pytest.param("IfHealthyBudget", 1, 429, id="if-healthy-refused"),
        pytest.param("IfHealthyBudget", 2, 201, id="if-healthy-allowed"),
        pytest.param(None, 2, 201, id="by-default-allowed-while-the-budget-is-healthy"),
        pytest.param("AlwaysAllow", 0, 201, id="always"),
    ],
)
async def test_a_pod_that_is_not_ready(server: Client, policy: str | None, healthy: int, expected: int) -> None:
    await a_running_pod(server, ready="False")
    spec = {"unhealthyPodEvictionPolicy": policy} if policy else {}
    await a_budget(server, {**READY, "currentHealthy": healthy, "disruptionsAllowed": 0}, **spec)
    assert (await evict(server)).status == expected
    assert await is_leaving(server) is (expected == 201)
    assert "disruptedPods" not in await status_of(server)


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed"])
async def test_pods_that_do_not_run_need_no_budget(server: Client, phase: str) -> None:
    await a_running_pod(server, phase=phase)
    await a_budget(server, {})
    assert (await evict(server)).status == 201


async def test_a_pod_that_starts_while_webhooks_are_asked_needs_its_budget(
    server: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await a_running_pod(server, phase="Pending")
    await a_budget(server, READY)
    validate = server.core.admission.validate

    async def validate_slowly(admission: Admission) -> None:
        if admission.kind == "Eviction":
            await server.patch(f"{PODS}/p/status", {"status": {"phase": "Running"}})
        await validate(admission)

    monkeypatch.setattr(server.core.admission, "validate", validate_slowly)
    assert (await evict(server)).status == 429
    assert not await is_leaving(server)


async def test_a_pod_that_starts_before_it_is_deleted_needs_its_budget(
    server: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await a_running_pod(server, phase="Pending")
    await a_budget(server, READY)
    fresh, calls = server.core.fresh, iter(range(1000))

    async def start_the_pod_after_it_was_read() -> None:
        if next(calls) == 1:
            await server.patch(f"{PODS}/p/status", {"status": {"phase": "Running"}})
        await fresh()

    monkeypatch.setattr(server.core, "fresh", start_the_pod_after_it_was_read)
    assert (await evict(server)).status == 429
    assert not await is_leaving(server)


async def test_preconditions_are_about_the_pod_that_was_named(server: Client) -> None:
    await a_running_pod(server, ready="False")
    await a_budget(server, {**READY, "currentHealthy": 0}, unhealthyPodEvictionPolicy="AlwaysAllow")
    assert (await evict(server, preconditions={"resourceVersion": "1"})).status == 409
    version = (await server.get(f"{PODS}/p")).body["metadata"]["resourceVersion"]
    assert (await evict(server, preconditions={"resourceVersion": version})).status == 201


EVICTION = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
NOT_NAMED = "name in URL does not match name in Eviction object"
OPTIONS = 'DeleteOptions.meta.k8s.io "" is invalid: '


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({}, 400, NOT_NAMED),
        ({**EVICTION, "metadata": {}}, 400, NOT_NAMED),
        ({**EVICTION, "metadata": {"name": "q"}}, 400, NOT_NAMED),
        (
            {**EVICTION, "metadata": {"name": "p", "namespace": "kube-system"}},
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            {**EVICTION, "deleteOptions": {"dryRun": ["Some"]}},
            422,
            OPTIONS + 'dryRun: Unsupported value: ["Some"]: supported values: "All"',
        ),
        (
            {**EVICTION, "deleteOptions": {"propagationPolicy": "Sideways"}},
            422,
            OPTIONS + 'propagationPolicy: Unsupported value: "Sideways": supported values: "Foreground", "Background", '
            '"Orphan", "nil"',
        ),
        (
            {**EVICTION, "deleteOptions": {"propagationPolicy": "Orphan", "orphanDependents": True}},
            422,
            OPTIONS + 'propagationPolicy: Invalid value: "Orphan": orphanDependents and deletionPropagation cannot be '
            "both set",
        ),
        (
            {**EVICTION, "deleteOptions": {"ignoreStoreReadErrorWithClusterBreakingPotential": True}},
            422,
            'Eviction.policy "p" is invalid: deleteOptions.ignoreStoreReadErrorWithClusterBreakingPotential: Invalid '
            "value: true: can not be set for pod eviction, try after removing the option",
        ),
    ],
)
async def test_an_odd_eviction_is_refused_and_the_pod_stays(
    server: Client, body: dict[str, Any], status: int, message: str
) -> None:
    await a_running_pod(server)
    refused = await server.post(f"{PODS}/p/eviction", body)
    assert (refused.status, refused.body["message"]) == (status, message)
    assert not await is_leaving(server)


async def test_an_eviction_of_another_pod_of_this_name_says_so(server: Client) -> None:
    await server.post(PODS, {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
    refused = await evict(server, preconditions={"uid": "other"})
    assert refused.status == 409
    assert 'Operation cannot be fulfilled on Pod "p": the UID in the precondition (other)' in refused.body["message"]
    assert refused.body["details"]["kind"] == "Pod"


async def test_an_eviction_of_an_older_version_counts(server: Client) -> None:
    await a_running_pod(server)
    answer = await server.post(f"{PODS}/p/eviction", {**EVICTION, "apiVersion": "policy/v1beta1"})
    assert answer.status == 201, answer.body
    assert await is_leaving(server)
