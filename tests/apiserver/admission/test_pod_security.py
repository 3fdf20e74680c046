"""Pod Security at the server: who is refused, who is warned, and what a change of labels says."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from tests.apiserver.conftest import Answer, Client

from dray.apiserver.assembly import ServerOptions, start_server
from dray.features import FeatureGates
from dray.store.sqlite import SqliteStore

Document = dict[str, Any]
LABEL = "pod-security.kubernetes.io/"
PODS = "/api/v1/namespaces/team/pods"


async def label(server: Client, **labels: str) -> Answer:
    """Makes the namespace with these labels, or gives it these."""
    named = {LABEL + mode.replace("_", "-"): value for mode, value in labels.items()}
    body = {"metadata": {"name": "team", "labels": named}}
    made = await server.post("/api/v1/namespaces", body)
    if made.status != 409:
        await server.post("/api/v1/namespaces/team/serviceaccounts", {"metadata": {"name": "default"}})
        return made
    return await server.patch("/api/v1/namespaces/team", body)


def plain_pod(name: str = "p", **spec: Any) -> Document:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}], **spec}}


def a_careful_pod(name: str = "p") -> Document:
    pod = plain_pod(name, securityContext={"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}})
    careful = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    pod["spec"]["containers"][0]["securityContext"] = careful
    return pod


HOST = 'violate PodSecurity "baseline:latest": host namespaces (hostNetwork=true)'


async def test_a_pod_is_refused(server: Client) -> None:
    await label(server, enforce="baseline")
    refused = await server.post(PODS, plain_pod(hostNetwork=True))
    assert (refused.status, refused.body["reason"]) == (403, "Forbidden")
    assert refused.body["message"] == f'pods "p" is forbidden: {HOST.replace("violate", "violates")}'
    assert refused.body["details"] == {"name": "p", "kind": "pods"}
    assert refused.warnings == []
    assert (await server.post(PODS, plain_pod())).status == 201


async def test_a_pod_without_care_is_refused_by_restricted(server: Client) -> None:
    await label(server, enforce="restricted", enforce_version="v1.37")
    refused = await server.post(PODS, plain_pod())
    assert refused.body["message"].startswith(
        'pods "p" is forbidden: violates PodSecurity "restricted:v1.37": allowPrivilegeEscalation != false '
        '(container "c" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities ('
    )
    made = await server.post(PODS, a_careful_pod())
    assert (made.status, made.warnings) == (201, [])


async def test_a_pod_is_warned_about_and_noted(server: Client, caplog: pytest.LogCaptureFixture) -> None:
    await label(server, warn="baseline", audit="baseline", audit_version="v1.30")
    with caplog.at_level("INFO", "dray.audit"):
        made = await server.post(PODS, plain_pod(hostNetwork=True))
    assert (made.status, made.warnings) == (201, [f"would {HOST}"])
    (line,) = [record.getMessage() for record in caplog.records if record.name == "dray.audit"]
    assert 'audit-violations: would violate PodSecurity \\"baseline:v1.30\\": host namespaces' in line


TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": plain_pod(hostNetwork=True)["spec"]}
SELECTED = {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}
ONCE = copy.deepcopy(TEMPLATE)
ONCE["spec"]["restartPolicy"] = "Never"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/apis/apps/v1/namespaces/team/deployments", {"spec": SELECTED}),
        ("/apis/apps/v1/namespaces/team/replicasets", {"spec": SELECTED}),
        ("/apis/apps/v1/namespaces/team/daemonsets", {"spec": SELECTED}),
        ("/apis/apps/v1/namespaces/team/statefulsets", {"spec": {**SELECTED, "serviceName": "s"}}),
        ("/apis/batch/v1/namespaces/team/jobs", {"spec": {"template": ONCE}}),
        (
            "/apis/batch/v1/namespaces/team/cronjobs",
            {"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": ONCE}}}},
        ),
        ("/api/v1/namespaces/team/replicationcontrollers", {"spec": {"selector": {"a": "b"}, "template": TEMPLATE}}),
        ("/api/v1/namespaces/team/podtemplates", {"template": TEMPLATE}),
    ],
)
async def test_whoever_makes_a_workload_is_warned(server: Client, path: str, body: Document) -> None:
    await label(server, enforce="baseline")
    made = await server.post(path, {"metadata": {"name": "w"}, **body})
    assert (made.status, made.warnings) == (201, [f"would {HOST}"]), made.body
    changed = await server.patch(f"{path}/w", {"metadata": {"labels": {"x": "y"}}})
    assert (changed.status, changed.warnings) == (200, [f"would {HOST}"])
    await label(server, enforce="baseline", warn="privileged")
    changed = await server.patch(f"{path}/w", {"metadata": {"labels": {"x": "z"}}})
    assert (changed.status, changed.warnings) == (200, [])


async def test_only_changes_that_matter_are_looked_at(server: Client) -> None:
    await label(server)
    await server.post(PODS, plain_pod(hostNetwork=True))
    await label(server, enforce="baseline")
    assert (await server.patch(f"{PODS}/p", {"metadata": {"labels": {"a": "b"}}})).status == 200
    assert (await server.patch(f"{PODS}/p/status", {"status": {"phase": "Running"}})).status == 200
    image = {"spec": {"containers": [{"name": "c", "image": "other"}]}}
    refused = await server.patch(f"{PODS}/p", image, "strategic-merge")
    assert (refused.status, "hostNetwork=true" in refused.body["message"]) == (403, True)
    assert (await server.send("DELETE", f"{PODS}/p")).status == 200


async def test_ephemeral_containers_are_looked_at(server: Client) -> None:
    await label(server, enforce="baseline")
    await server.post(PODS, plain_pod())
    extra = {"name": "debug", "image": "i", "securityContext": {"privileged": True}}
    body = {"spec": {"ephemeralContainers": [extra]}}
    refused = await server.patch(f"{PODS}/p/ephemeralcontainers", body, "strategic-merge")
    assert refused.status == 403
    assert refused.body["message"].endswith('(container "debug" must not set securityContext.privileged=true)')
    extra["securityContext"] = {"privileged": False}
    added = await server.patch(f"{PODS}/p/ephemeralcontainers", body, "strategic-merge")
    assert added.status == 200, added.body


async def test_labels_that_cannot_be_read_are_refused(server: Client) -> None:
    refused = await label(server, enforce="strict")
    assert (refused.status, refused.body["reason"]) == (422, "Invalid")
    assert refused.body["message"] == (
        f'Namespace "team" is invalid: metadata.labels[{LABEL}enforce]: Invalid value: "strict": must be one of '
        "privileged, baseline, restricted"
    )
    (cause,) = refused.body["details"]["causes"]
    assert (cause["reason"], cause["field"]) == ("FieldValueInvalid", f"metadata.labels[{LABEL}enforce]")
    await label(server)
    assert (await label(server, warn_version="1.30")).status == 422


async def test_a_stricter_namespace_tells_which_pods_would_be_refused(server: Client) -> None:
    await label(server)
    for name in ("b", "a"):
        await server.post(PODS, plain_pod(name, hostNetwork=True))
    await server.post(PODS, a_careful_pod("c"))
    summary = 'existing pods in namespace "team" violate the new PodSecurity enforce level "{}:latest"'
    told = await label(server, enforce="baseline")
    assert (told.status, told.warnings) == (
        200,
        [summary.format("baseline"), "a (and 1 other pod): host namespaces"],
    )
    told = await label(server, enforce="restricted")
    assert told.warnings[0] == summary.format("restricted")
    assert told.warnings[1].startswith("a (and 1 other pod): host namespaces, allowPrivilegeEscalation != false")
    assert (await label(server, enforce="baseline")).warnings == []


async def test_an_emulated_release_has_its_own_rules(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    running = await start_server(store, ServerOptions(tmp_path, gates=FeatureGates.for_release("1.36")))
    server = Client(running, store)
    try:
        await label(server, enforce="baseline")
        pod = plain_pod(securityContext={"sysctls": [{"name": "net.ipv4.tcp_notsent_lowat", "value": "1"}]})
        refused = await server.post(PODS, pod)
        assert refused.body["message"].endswith("forbidden sysctls (net.ipv4.tcp_notsent_lowat)")
    finally:
        await running.stop()
        await store.close()
