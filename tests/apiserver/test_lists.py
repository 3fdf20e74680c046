"""Lists: pages that belong together, moments of the past, selectors."""

from __future__ import annotations

import base64
import json

import pytest
from tests.apiserver.conftest import CLAIMS, Client, gold_claim
from tests.builders.manifests import a_slice


async def fill(server: Client, count: int = 7) -> None:
    for number in range(count):
        labels = {"odd": str(number % 2), "n": str(number)}
        answer = await server.post(CLAIMS, gold_claim(f"c{number}", labels=labels))
        assert answer.status == 201


def names(answer: object) -> list[str]:
    return [item["metadata"]["name"] for item in answer.body["items"]]  # type: ignore[attr-defined]


async def test_pages_show_one_moment(server: Client) -> None:
    await fill(server)
    first = await server.get(f"{CLAIMS}?limit=3")
    assert (names(first), first.body["metadata"]["remainingItemCount"]) == (["c0", "c1", "c2"], 4)
    await server.send("DELETE", f"{CLAIMS}/c4")
    await server.post(CLAIMS, gold_claim("c35"))
    second = await server.get(f"{CLAIMS}?limit=3&continue={first.body['metadata']['continue']}")
    third = await server.get(f"{CLAIMS}?limit=3&continue={second.body['metadata']['continue']}")
    assert names(second) + names(third) == ["c3", "c4", "c5", "c6"]
    assert second.body["metadata"]["resourceVersion"] == first.body["metadata"]["resourceVersion"]
    assert "continue" not in third.body["metadata"]


async def test_pages_with_a_selector_say_no_remaining_count(server: Client) -> None:
    await fill(server)
    first = await server.get(f"{CLAIMS}?limit=2&labelSelector=odd=0")
    assert names(first) == ["c0", "c2"]
    assert "remainingItemCount" not in first.body["metadata"]
    await server.post(CLAIMS, gold_claim("zz"))
    second = await server.get(f"{CLAIMS}?limit=2&labelSelector=odd=0&continue={first.body['metadata']['continue']}")
    assert names(second) == ["c4", "c6"]


async def test_a_token_that_expired_comes_with_one_that_works(server: Client) -> None:
    await fill(server)
    first = await server.get(f"{CLAIMS}?limit=3")
    await server.send("DELETE", f"{CLAIMS}/c4")
    await server.store.compact(await server.store.current_revision())
    expired = await server.get(f"{CLAIMS}?limit=3&continue={first.body['metadata']['continue']}")
    assert (expired.status, expired.body["reason"]) == (410, "Expired")
    rest = await server.get(f"{CLAIMS}?continue={expired.body['metadata']['continue']}")
    assert names(rest) == ["c3", "c5", "c6"]


async def test_a_token_expires_also_where_nothing_has_changed(server: Client) -> None:
    await fill(server)
    first = await server.get(f"{CLAIMS}?limit=3")
    server.running.server.core.forget_history(int(first.body["metadata"]["resourceVersion"]) + 1)
    expired = await server.get(f"{CLAIMS}?limit=3&continue={first.body['metadata']['continue']}")
    assert (expired.status, expired.body["reason"]) == (410, "Expired")
    rest = await server.get(f"{CLAIMS}?limit=3&continue={expired.body['metadata']['continue']}")
    assert (names(rest), rest.body["metadata"]["remainingItemCount"]) == (["c3", "c4", "c5"], 1)


async def test_exact_moments(server: Client) -> None:
    await fill(server, 2)
    then = (await server.get(CLAIMS)).body["metadata"]["resourceVersion"]
    await server.send("DELETE", f"{CLAIMS}/c0")
    exact = await server.get(f"{CLAIMS}?resourceVersion={then}&resourceVersionMatch=Exact")
    assert names(exact) == ["c0", "c1"]
    newer = await server.get(f"{CLAIMS}?resourceVersion={then}&resourceVersionMatch=NotOlderThan")
    assert names(newer) == ["c1"]


async def test_a_moment_that_is_forgotten(server: Client) -> None:
    await fill(server, 2)
    then = (await server.get(CLAIMS)).body["metadata"]["resourceVersion"]
    await server.send("DELETE", f"{CLAIMS}/c0")
    await server.store.compact(await server.store.current_revision())
    gone = await server.get(f"{CLAIMS}?resourceVersion={then}&resourceVersionMatch=Exact")
    assert (gone.status, gone.body["reason"]) == (410, "Expired")


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("odd=1", ["c1", "c3", "c5"]),
        ("odd==1,n!=3", ["c1", "c5"]),
        ("n in (0,6)", ["c0", "c6"]),
        ("n notin (0,1,2,3)", ["c4", "c5", "c6"]),
        ("missing", []),
        ("!missing,n>4", ["c5", "c6"]),
        ("n<2", ["c0", "c1"]),
    ],
)
async def test_label_selectors(server: Client, selector: str, expected: list[str]) -> None:
    await fill(server)
    assert names(await server.get(f"{CLAIMS}?labelSelector={selector.replace(' ', '%20')}")) == expected


async def test_a_continue_token_cannot_leave_its_list(server: Client) -> None:
    await fill(server, 1)
    body = json.dumps({"v": "meta.k8s.io/v1", "rv": 1, "start": "../../secrets/\0"}).encode()
    token = base64.urlsafe_b64encode(body).decode().rstrip("=")
    assert (await server.get(f"{CLAIMS}?continue={token}&limit=1")).status == 400


async def test_what_was_acknowledged_is_listed(server: Client) -> None:
    """A list without a revision is never older than the last answered write."""
    for number in range(50):
        await server.post(CLAIMS, gold_claim(f"c{number}"))
        assert len(names(await server.get(CLAIMS))) == number + 1


SLICES = "/apis/resource.k8s.io/v1/resourceslices"


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("spec.nodeName=n1", ["gpu-n1", "nic-n1"]),
        ("spec.driver=gpu.example.com", ["gpu-everywhere", "gpu-n1", "gpu-n2"]),
        ("spec.nodeName=n1,spec.driver=gpu.example.com", ["gpu-n1"]),
        ("spec.nodeName!=n1,spec.driver=gpu.example.com", ["gpu-everywhere", "gpu-n2"]),
        ("spec.nodeName=", ["gpu-everywhere"]),
        ("spec.nodeName=n3", []),
    ],
)
async def test_slices_by_node_and_driver(server: Client, selector: str, expected: list[str]) -> None:
    for driver, node in (("gpu", "n1"), ("gpu", "n2"), ("nic", "n1"), ("gpu", None)):
        made = a_slice(f"{driver}-{node or 'everywhere'}", "d0", node=node, driver=f"{driver}.example.com")
        assert (await server.post(SLICES, made)).status == 201
    assert names(await server.get(f"{SLICES}?fieldSelector={selector}")) == expected
    watch = await server.watch(f"{SLICES}?watch=true&resourceVersion=0&fieldSelector={selector}")
    assert [name for _, name in await watch.take(len(expected))] == expected
    await watch.close()
    assert (await server.send("DELETE", f"{SLICES}?fieldSelector={selector}")).status == 200
    assert len(names(await server.get(SLICES))) == 4 - len(expected)


async def test_slices_have_no_other_fields_to_select_by(server: Client) -> None:
    answer = await server.get(f"{SLICES}?fieldSelector=spec.allNodes=true")
    assert (answer.status, answer.body["reason"]) == (400, "BadRequest")
    assert answer.body["message"].endswith("Kind=ResourceSlice: spec.allNodes")


KIND_PATHS = {
    "pods": "/api/v1/pods",
    "nodes": "/api/v1/nodes",
    "namespaces": "/api/v1/namespaces",
    "replicasets": "/apis/apps/v1/replicasets",
    "replicationcontrollers": "/api/v1/replicationcontrollers",
    "jobs": "/apis/batch/v1/jobs",
    "events": "/api/v1/events",
    "new-events": "/apis/events.k8s.io/v1/events",
    "signing": "/apis/certificates.k8s.io/v1/certificatesigningrequests",
    "pod-certificates": "/apis/certificates.k8s.io/v1/podcertificaterequests",
}
ONLY_META = '"{}" is not a known field selector: only "metadata.name", "metadata.namespace"'


@pytest.mark.parametrize(
    ("kind", "field", "message"),
    [
        ("pods", "spec.hostname", "field label not supported: {}"),
        ("nodes", "metadata.namespace", "field label not supported: {}"),
        ("namespaces", "name", "field label not supported: {}"),
        ("replicasets", "status.replicas", ONLY_META),
        ("replicationcontrollers", "spec.replicas", "field label not supported: {}"),
        ("jobs", "status.failed", 'field label "{}" not supported for Job'),
        ("new-events", "involvedObject.name", "field label not supported: {}"),
        ("new-events", "source", "field label not supported: {}"),
        ("signing", "metadata.namespace", "field label not supported: {}"),
        ("pod-certificates", "metadata.namespace", "field label not supported: {}"),
    ],
)
async def test_fields_that_a_kind_cannot_be_selected_by(server: Client, kind: str, field: str, message: str) -> None:
    for watch in ("", "watch=true&"):
        answer = await server.get(f"{KIND_PATHS[kind]}?{watch}fieldSelector={field}%3Dx")
        assert (answer.status, answer.body["message"]) == (400, message.format(field))


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ("pods", "spec.host"),
        ("namespaces", "status.phase"),
        ("replicasets", "metadata.namespace"),
        ("replicationcontrollers", "status.replicas"),
        ("jobs", "status.successful"),
        ("events", "involvedObject.name"),
        ("new-events", "regarding.name"),
        ("new-events", "reportingController"),
        ("pod-certificates", "spec.podName"),
    ],
)
async def test_fields_that_a_kind_can_be_selected_by(server: Client, kind: str, field: str) -> None:
    answer = await server.get(f"{KIND_PATHS[kind]}?fieldSelector={field}%3Dx")
    assert (answer.status, answer.body["items"]) == (200, [])
