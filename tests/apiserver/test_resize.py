"""pods/resize and pods/ephemeralcontainers: one part of a pod changes, the rest stays, and a node is not outgrown."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.apiserver import manifests
from tests.apiserver.conftest import Client
from tests.apiserver.test_writes import PODS, created_pod

from dray.apiserver.assembly import ServerOptions, start_server
from dray.store.sqlite import SqliteStore


def sized(cpu: str) -> dict[str, Any]:
    resources = {"requests": {"cpu": cpu, "memory": "1Gi"}, "limits": {"cpu": "4", "memory": "2Gi"}}
    return {"spec": {"containers": [{"name": "main", "resources": resources}]}}


async def test_resize(server: Client) -> None:
    container = {"name": "main", "image": "i", **sized("1")["spec"]["containers"][0]}
    await created_pod(server, containers=[container], resourceClaims=[])
    resized = await server.patch(f"{PODS}/p/resize", sized("2"), "strategic-merge")
    assert resized.status == 200, resized.body
    assert resized.body["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "2"
    assert resized.body["metadata"]["generation"] == 2
    too_much = await server.patch(f"{PODS}/p/resize", sized("5"), "strategic-merge")
    assert too_much.status == 422
    elsewhere = await server.patch(f"{PODS}/p", sized("3"), "strategic-merge")
    assert elsewhere.status == 422


async def test_pods_with_claims_on_node_resources_are_not_resized(server: Client) -> None:
    container = {"name": "main", "image": "i", **sized("1")["spec"]["containers"][0]}
    await created_pod(server, containers=[container])
    entry = {"resourceClaimName": "c", "containers": ["main"], "mapping": [{"name": "cpu", "quantity": "1"}]}
    claims = [{"name": "gpu", "resourceClaimName": "c"}]
    status = {"resourceClaimStatuses": claims, "nodeAllocatableResourceClaimStatuses": [entry]}
    written = await server.patch(f"{PODS}/p/status", {"status": status})
    assert written.status == 200, written.body
    refused = await server.patch(f"{PODS}/p/resize", sized("2"), "strategic-merge")
    assert refused.status == 422
    assert refused.body["details"]["causes"][0]["field"] == "status.nodeAllocatableResourceClaimStatuses"


@pytest.fixture
async def kubernetes(tmp_path: Path) -> AsyncIterator[Client]:
    """A server that allows what Kubernetes 1.37 allows."""
    store = SqliteStore(tmp_path / "store.db")
    running = await start_server(store, ServerOptions(tmp_path, resize_with_claims=True))
    yield Client(running, store)
    await running.stop()
    await store.close()


async def test_what_a_resize_ignores_changes_nothing_and_belongs_to_nobody(server: Client) -> None:
    container = {"name": "main", "image": "i", **sized("1")["spec"]["containers"][0]}
    made = await created_pod(server, containers=[container], resourceClaims=[])
    ignored = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "main", "image": "other"}]}}
    same = await server.patch(f"{PODS}/p/resize", ignored, "strategic-merge")
    assert same.status == 200, same.body
    assert same.body == made


async def test_containers_do_not_come_or_go_with_a_resize(server: Client) -> None:
    await created_pod(server)
    added = {"spec": {"containers": [{"name": "more", "image": "i"}]}}
    refused = await server.patch(f"{PODS}/p/resize", added, "strategic-merge")
    assert refused.status == 422
    assert refused.body["message"].endswith("spec: Forbidden: only cpu and memory resources are mutable")


async def test_a_pod_does_not_outgrow_its_node(server: Client) -> None:
    node = {**manifests.node("n"), "status": {"allocatable": {"cpu": "3", "memory": "8Gi", "pods": "9"}}}
    await server.post("/api/v1/nodes", node)
    container = {"name": "main", "image": "i", **sized("1")["spec"]["containers"][0]}
    await created_pod(server, containers=[container], resourceClaims=[], nodeName="n")
    assert (await server.patch(f"{PODS}/p/resize", sized("3"), "strategic-merge")).status == 200
    refused = await server.patch(f"{PODS}/p/resize", sized("3500m"), "strategic-merge")
    assert (refused.status, refused.body["reason"]) == (403, "Forbidden")
    (cause,) = refused.body["details"]["causes"]
    assert cause["reason"] == "NodeCapacity"
    assert "cpu, requested: 3500m, capacity: 3" in cause["message"]


async def test_a_pod_level_budget_covers_claims_after_a_resize(kubernetes: Client) -> None:
    """As in Kubernetes: pods with claims may be resized as long as the budget of the pod holds."""
    container = {"name": "main", "image": "i", **sized("1")["spec"]["containers"][0]}
    budget = {"requests": {"cpu": "3", "memory": "2Gi"}, "limits": {"cpu": "6", "memory": "4Gi"}}
    await created_pod(kubernetes, containers=[container], resources=budget)
    entry = {"resourceClaimName": "c", "containers": ["main"], "mapping": [{"name": "cpu", "quantity": "1"}]}
    claims = [{"name": "gpu", "resourceClaimName": "c"}]
    status = {"resourceClaimStatuses": claims, "nodeAllocatableResourceClaimStatuses": [entry]}
    assert (await kubernetes.patch(f"{PODS}/p/status", {"status": status})).status == 200
    assert (await kubernetes.patch(f"{PODS}/p/resize", sized("2"), "strategic-merge")).status == 200
    refused = await kubernetes.patch(f"{PODS}/p/resize", sized("2500m"), "strategic-merge")
    assert refused.status == 422
    (cause,) = refused.body["details"]["causes"]
    assert cause["field"] == "spec.resources"
    assert cause["message"].endswith(
        "pod level request for cpu is insufficient to cover the aggregated container and node-allocatable DRA requests"
    )


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        ({"name": "main", "image": "i"}, 'spec.ephemeralContainers[0].name: Duplicate value: "main"'),
        ({"name": "e"}, "spec.ephemeralContainers[0].image: Required value"),
        (
            {"name": "e", "image": "i", "ports": [{"containerPort": 1}]},
            "spec.ephemeralContainers[0].ports: Forbidden: cannot be set for an Ephemeral Container",
        ),
        (
            {"name": "e", "image": "i", "targetContainerName": "none"},
            'spec.ephemeralContainers[0].targetContainerName: Not found: "none"',
        ),
    ],
)
async def test_containers_for_a_look(server: Client, container: dict[str, Any], expected: str) -> None:
    await created_pod(server)
    body = {"spec": {"ephemeralContainers": [container]}}
    refused = await server.patch(f"{PODS}/p/ephemeralcontainers", body, "strategic-merge")
    assert refused.status == 422
    assert refused.body["message"] == f'Pod "p" is invalid: {expected}'


@pytest.mark.parametrize(
    ("claimed", "said", "status"), [(True, "Guaranteed", 200), (True, "Burstable", 422), (False, "Guaranteed", 422)]
)
async def test_a_node_may_say_which_class_claims_have_raised_a_pod_to(
    server: Client, claimed: bool, said: str, status: int
) -> None:
    made = await created_pod(server, containers=[{"name": "main", "image": "i"}])
    assert made["status"]["qosClass"] == "BestEffort"
    mapping = [{"name": "cpu", "quantity": "1"}, {"name": "memory", "quantity": "1Gi"}]
    entry = {"resourceClaimName": "c", "containers": ["main"], "mapping": mapping}
    claims = [{"name": "gpu", "resourceClaimName": "c"}]
    change = {"resourceClaimStatuses": claims, "nodeAllocatableResourceClaimStatuses": [entry]} if claimed else {}
    answer = await server.patch(f"{PODS}/p/status", {"status": {**change, "qosClass": said}})
    assert answer.status == status, answer.body
    if status == 200:
        assert answer.body["status"]["qosClass"] == said
    else:
        assert "status.qosClass: Invalid value" in answer.body["message"]
