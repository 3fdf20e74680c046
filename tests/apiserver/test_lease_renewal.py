"""A lease is renewed on a short way through the server; the answer, the object and its owners are those of the long way."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.apiserver.conftest import Client

from dray.apiserver.write.object_writer import ObjectWriter

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
Document = dict[str, Any]
compact = msgspec.json.encode
FIRST, NEXT = "2026-01-01T00:00:00.000000Z", "2026-01-01T00:00:10.500000Z"


def lease_document() -> Document:
    spec = {"holderIdentity": "node-1", "leaseDurationSeconds": 40, "renewTime": FIRST}
    metadata = {"name": "node-1", "namespace": "kube-system", "labels": {"a": "b"}}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


async def made(server: Client, **headers: str) -> Document:
    await server.send("DELETE", f"{LEASES}/node-1")
    answer = await server.post(LEASES, compact(lease_document()), **{"user_agent": "kubelet/1", **headers})
    assert answer.status == 201, answer.body
    document: Document = answer.body
    return document


def renewed(lease: Document) -> None:
    lease["spec"]["renewTime"] = NEXT


def changing(path: str, value: Any) -> Callable[[Document], None]:
    def change(lease: Document) -> None:
        renewed(lease)
        *parents, last = path.split(".")
        holder = lease
        for name in parents:
            holder = holder[name]
        if value is None:
            holder.pop(last)
        else:
            holder[last] = value

    return change


RENEWALS = {
    "renewed": renewed,
    "without managedFields": changing("metadata.managedFields", None),
}
OTHERS = {
    "unchanged": lambda lease: None,
    "another holder": changing("spec.holderIdentity", "node-2"),
    "a duration as a float": changing("spec.leaseDurationSeconds", 40.0),
    "a duration of nothing": changing("spec.leaseDurationSeconds", 0),
    "a transition": changing("spec.leaseTransitions", 1),
    "an unknown field": changing("spec.colour", "red"),
    "a time with an offset": changing("spec.renewTime", "2026-01-01T01:00:10.500000+01:00"),
    "a time in seconds": changing("spec.renewTime", "2026-01-01T00:00:10Z"),
    "no such day": changing("spec.renewTime", "2026-02-30T00:00:10.500000Z"),
    "no time": changing("spec.renewTime", 7),
    "no renewal at all": changing("spec.renewTime", None),
    "another label": changing("metadata.labels", {"a": "c"}),
    "no labels": changing("metadata.labels", None),
    "another uid": changing("metadata.uid", "00000000-0000-4000-8000-000000000000"),
    "another name": changing("metadata.name", "node-2"),
    "an old revision": changing("metadata.resourceVersion", "1"),
    "no revision": changing("metadata.resourceVersion", None),
    "owners reset": changing("metadata.managedFields", []),
    "an owner": changing("metadata.ownerReferences", [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}]),
    "another version": changing("apiVersion", "coordination.k8s.io/v2"),
    "another kind": changing("kind", "Pod"),
    "no metadata": changing("metadata", None),
    "no spec": changing("spec", None),
}


def stable(body: Any) -> Any:
    """Without what differs from run to run: uids, revisions and the times of the clock."""
    copied = copy.deepcopy(body)
    if isinstance(copied, dict) and isinstance(copied.get("metadata"), dict):
        for name in ("uid", "resourceVersion", "creationTimestamp"):
            copied["metadata"][name] = bool(copied["metadata"].get(name))
        for entry in copied["metadata"].get("managedFields") or ():
            entry["time"] = bool(entry["time"])
    return copied


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    taken: list[str] = []
    renew = ObjectWriter._renew

    async def noted(self: ObjectWriter, call: Any, *renewal: Any) -> Any:
        taken.append(call.name)
        return await renew(self, call, *renewal)

    monkeypatch.setattr(ObjectWriter, "_renew", noted)
    return taken


async def put(server: Client, change: Callable[[Document], None], **headers: str) -> tuple[int, Any, Any]:
    lease = await made(server)
    events = await server.watch(f"{LEASES}?watch=true&resourceVersion={lease['metadata']['resourceVersion']}")
    uid = lease["metadata"]["uid"]
    change(lease)
    answer = await server.send("PUT", f"{LEASES}/node-1", compact(lease), **{"user_agent": "kubelet/1", **headers})
    read = (await server.get(f"{LEASES}/node-1")).body
    if answer.status == 200:
        assert answer.body == read
        assert read["metadata"]["uid"] == uid
        if read["metadata"]["resourceVersion"] != lease["metadata"].get("resourceVersion"):
            event = await events.next()
            assert event is not None
            assert (event["type"], event["object"]) == ("MODIFIED", read)
    await events.close()
    message = str(answer.body.get("message", "")).replace(uid, "UID")
    return answer.status, message if answer.status != 200 else stable(answer.body), stable(read)


@pytest.mark.parametrize("what", [*RENEWALS, *OTHERS])
async def test_the_short_way_ends_where_the_long_way_does(
    what: str, server: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = {**RENEWALS, **OTHERS}[what]
    taken = counted(monkeypatch)
    short = await put(server, change)
    assert taken == (["node-1"] if what in RENEWALS else [])
    monkeypatch.setattr(ObjectWriter, "_renewal", lambda self, call: None)
    assert short == await put(server, change)


async def test_another_manager_goes_the_long_way_and_becomes_an_owner(
    server: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = counted(monkeypatch)
    _, body, _ = await put(server, renewed, user_agent="other/1")
    assert sorted(entry["manager"] for entry in body["metadata"]["managedFields"]) == ["kubelet", "other"]
    assert taken == []


async def test_of_two_renewals_of_one_state_one_is_refused(server: Client) -> None:
    lease = await made(server)
    renewed(lease)
    first, second = [
        await server.send("PUT", f"{LEASES}/node-1", compact(lease), user_agent="kubelet/1") for _ in range(2)
    ]
    assert (first.status, second.status) == (200, 409)


async def test_a_mutating_policy_sends_renewals_the_long_way(server: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = counted(monkeypatch)
    rule = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": ["leases"]}
    change = "Object{metadata: Object.metadata{annotations: {'touched': 'yes'}}}"
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": change}}],
        "reinvocationPolicy": "Never",
    }
    group = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolic"
    assert (await server.post(f"{group}ies", {"metadata": {"name": "p"}, "spec": spec})).status == 201
    assert (
        await server.post(f"{group}ybindings", {"metadata": {"name": "b"}, "spec": {"policyName": "p"}})
    ).status == 201
    _, body, _ = await put(server, renewed)
    assert (body["metadata"]["annotations"], taken) == ({"touched": "yes"}, [])
