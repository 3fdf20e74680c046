"""Several writes of the server's own program in one commit: all of them or none, and each as strictly judged as alone."""

from __future__ import annotations

import asyncio
import json
import ssl
from typing import Any

import pytest
from tests.apiserver.conftest import Answer, Client
from tests.apiserver.test_binding_guard import PODS, ROOMY, add_node, add_pod
from tests.builders.manifests import a_claim, a_device, a_result, a_slice

from dray.api.joint_writes import PATH
from dray.apiserver.request.request_info import LOOPBACK, Request, User
from dray.store.errors import Conflict, StoreUnavailable

Document = dict[str, Any]
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
FINALIZER = "resource.kubernetes.io/delete-protection"
RESULT = a_result("gpu-0")


async def prepare(server: Client, *claims: str) -> None:
    await add_node(server, **ROOMY)
    for name in claims or ("c",):
        assert (await server.post(CLAIMS, a_claim(name, namespace=""))).status == 201
    await add_pod(server, "p", cpu="1", claim=claims[0] if claims else "c")


async def jointly(server: Client, *writes: tuple[str, str, Document], user: User | None = LOOPBACK) -> Answer:
    return await server.send("POST", PATH, [[list(write) for write in writes]], user=user)


async def protection(server: Client, claim: str = "c") -> tuple[str, str, Document]:
    body = (await server.get(f"{CLAIMS}/{claim}")).body
    body["metadata"]["finalizers"] = [FINALIZER]
    return "PUT", f"{CLAIMS}/{claim}", body


async def allocation(
    server: Client, claim: str = "c", *, result: Document = RESULT, pod: str = "p"
) -> tuple[str, str, Document]:
    body = (await server.get(f"{CLAIMS}/{claim}")).body
    uid = (await server.get(f"{PODS}/{pod}")).body["metadata"]["uid"]
    user = {"resource": "pods", "name": pod, "uid": uid}
    body["status"] = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [user]}
    return "PUT", f"{CLAIMS}/{claim}/status", body


def binding(pod: str = "p", node: str = "n1") -> tuple[str, str, Document]:
    target = {"kind": "Node", "name": node}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": target}
    return "POST", f"{PODS}/{pod}/binding", body


async def everything(server: Client, claim: str = "c", pod: str = "p") -> list[tuple[str, str, Document]]:
    return [await protection(server, claim), await allocation(server, claim, pod=pod), binding(pod)]


async def state(server: Client, pod: str = "p", claim: str = "c") -> tuple[Document, Document]:
    return (await server.get(f"{PODS}/{pod}")).body, (await server.get(f"{CLAIMS}/{claim}")).body


async def test_all_is_stored_at_one_revision(server: Client) -> None:
    await prepare(server)
    answer = await jointly(server, *await everything(server))
    assert answer.status == 200, answer.body
    revision, shown = answer.body
    pod, claim = await state(server)
    assert pod["metadata"]["resourceVersion"] == claim["metadata"]["resourceVersion"] == str(revision)
    assert pod["spec"]["nodeName"] == "n1"
    assert claim["metadata"]["finalizers"] == [FINALIZER]
    assert claim["status"]["allocation"]["devices"]["results"][0]["device"] == "gpu-0"
    shown[1]["metadata"]["resourceVersion"] = str(revision)
    assert shown[1] == claim


async def test_what_is_stored_is_what_single_writes_store(server: Client) -> None:
    await prepare(server)
    await jointly(server, *await everything(server))
    assert (await server.post(CLAIMS, a_claim("d", namespace=""))).status == 201
    await add_pod(server, "q", cpu="1", claim="d")
    assert (await server.send(*await protection(server, "d"))).status == 200
    assert (await server.send(*await allocation(server, "d", result=a_result("gpu-1"), pod="q"))).status == 200
    owners = [owners_without_uid(*await state(server, *names)) for names in (("p", "c"), ("q", "d"))]
    assert owners[0] == owners[1]


def owners_without_uid(pod: Document, claim: Document) -> str:
    for owner in claim["metadata"]["managedFields"]:
        del owner["time"]
    return json.dumps(claim["metadata"]["managedFields"]).replace(pod["metadata"]["uid"], "UID")


async def test_watchers_see_each_object_once(server: Client) -> None:
    await prepare(server)
    pods = await server.watch(f"{PODS}?watch=true&resourceVersion=0")
    claims = await server.watch(f"{CLAIMS}?watch=true&resourceVersion=0")
    await pods.take(1)
    await claims.take(1)
    await jointly(server, *await everything(server))
    assert (await server.patch(f"{CLAIMS}/c", {"metadata": {"labels": {"later": "yes"}}})).status == 200
    assert (await server.patch(f"{PODS}/p", {"metadata": {"labels": {"later": "yes"}}})).status == 200
    first, second = await claims.next(), await claims.next()
    assert first is not None
    assert second is not None
    assert "later" not in first["object"]["metadata"].get("labels", {})
    assert first["object"]["metadata"]["finalizers"]
    assert first["object"]["status"]["reservedFor"]
    assert second["object"]["metadata"]["labels"] == {"later": "yes"}
    bound = await pods.next()
    assert bound is not None
    assert bound["object"]["metadata"]["resourceVersion"] == first["object"]["metadata"]["resourceVersion"]
    await pods.close()
    await claims.close()


async def changed_claim(server: Client) -> None:
    await server.patch(f"{CLAIMS}/c", {"metadata": {"labels": {"somebody": "else"}}})


async def bound_pod(server: Client) -> None:
    await server.send(*binding())


async def held_device(server: Client) -> None:
    await server.post(CLAIMS, a_claim("rival", namespace=""))
    assert (await server.send(*await allocation(server, "rival"))).status == 200


async def full_node(server: Client) -> None:
    await add_pod(server, "large", cpu="4")
    await server.send(*binding("large"))


async def policy(server: Client) -> None:
    meta = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "no-bindings"}}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/binding"], "operations": ["CREATE"]}
    spec = {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "false"}]}
    base = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    assert (await server.post(base, {**meta, "kind": "ValidatingAdmissionPolicy", "spec": spec})).status == 201
    bound = {"policyName": "no-bindings", "validationActions": ["Deny"]}
    body = {**meta, "kind": "ValidatingAdmissionPolicyBinding", "spec": bound}
    assert (await server.post(f"{base[: -len('policies')]}policybindings", body)).status == 201


@pytest.mark.parametrize("trouble", [changed_claim, bound_pod, held_device, full_node, policy])
async def test_if_one_is_refused_nothing_is_stored(server: Client, trouble: Any) -> None:
    await prepare(server)
    writes = await everything(server)
    await trouble(server)
    before = await state(server)
    answer = await jointly(server, *writes)
    assert answer.status in (409, 422), answer.body
    assert await state(server) == before
    kept = (await server.store.list("/guard/devices/")).entries
    assert [b"rival" in entry.value for entry in kept] == ([True] if trouble is held_device else [])


async def test_a_refused_binding_gives_its_room_back(server: Client) -> None:
    await prepare(server)
    writes = await everything(server)
    await changed_claim(server)
    assert (await jointly(server, *writes)).status == 409
    await add_pod(server, "large", cpu="4")
    assert (await server.send(*binding("large"))).status == 201


async def test_an_object_that_changes_between_its_write_and_the_commit_is_a_conflict(
    server: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await prepare(server)
    writes, commit = await everything(server), server.core.commit

    async def late(*arguments: Any) -> int:
        monkeypatch.setattr(server.core, "commit", commit)
        await changed_claim(server)
        return await commit(*arguments)

    monkeypatch.setattr(server.core, "commit", late)
    answer = await jointly(server, *writes)
    assert answer.status == 409
    assert answer.body["message"].startswith('Operation cannot be fulfilled on resourceclaims.resource.k8s.io "c"')
    assert "nodeName" not in (await state(server))[0]["spec"]


async def test_a_store_that_fails_stores_nothing(server: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    await prepare(server)
    writes, before = await everything(server), await state(server)

    async def broken(*arguments: Any) -> int:
        raise StoreUnavailable("the disk is full")

    monkeypatch.setattr(server.core, "commit", broken)
    assert (await jointly(server, *writes)).status == 503
    assert await state(server) == before


async def test_commits_that_meet_at_a_counter_are_tried_again(server: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    draws = [{"counterSet": "memory", "counters": {"gib": {"value": "1"}}}]
    devices = [a_device(f"gpu-{number}", consumesCounters=draws) for number in range(2)]
    for body in (
        a_slice("sets", counters={"memory": {"gib": "8"}}, slices=2),
        a_slice("devices", *devices, slices=2),
    ):
        answer = await server.post("/apis/resource.k8s.io/v1/resourceslices", body)
        assert answer.status == 201, answer.body
    await prepare(server, "c", "d")
    await add_pod(server, "q", cpu="1", claim="d")
    first = await everything(server)
    second = [
        await protection(server, "d"),
        await allocation(server, "d", result=a_result("gpu-1"), pod="q"),
        binding("q"),
    ]
    met: list[str] = []
    commit = server.store.commit

    async def noted(*arguments: Any) -> int:
        try:
            return await commit(*arguments)
        except Conflict as conflict:
            met.extend(conflict.keys)
            raise

    monkeypatch.setattr(server.store, "commit", noted)
    answers = await asyncio.gather(jointly(server, *first), jointly(server, *second))
    assert [answer.status for answer in answers] == [200, 200], [answer.body for answer in answers]
    assert all("/guard/" in key for key in met)
    assert met, "the two did not meet"


async def test_only_the_server_s_own_program_may_ask(server: Client) -> None:
    await prepare(server)
    writes = await everything(server)
    # From the network, with all permissions.
    admin = server.running.credentials.client_pair("admin", ["system:masters"])
    certificate = ssl.PEM_cert_to_DER_cert(admin.certificate_pem.decode())
    request = Request("POST", PATH, body=json.dumps([writes]).encode(), client_certificate=certificate)
    assert (await server.running.server.handle(request)).status == 404
    assert "nodeName" not in (await state(server))[0]["spec"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", CLAIMS),
        ("DELETE", f"{CLAIMS}/c"),
        ("PATCH", f"{CLAIMS}/c"),
        ("PUT", f"{PODS}/p"),
        ("GET", f"{CLAIMS}/c"),
        ("POST", f"{PODS}/p/eviction"),
        ("POST", PATH),
    ],
)
async def test_writes_that_would_be_stored_at_once_are_refused(server: Client, method: str, path: str) -> None:
    await prepare(server)
    before = await state(server)
    answer = await jointly(server, (method, path, a_claim("new", namespace="")))
    assert answer.status == 400
    assert answer.body["message"] == f"{method} {path} cannot share its commit with other writes"
    assert await state(server) == before


async def test_two_objects_of_one_kind_are_refused(server: Client) -> None:
    """A watch that breaks between two events with one revision would miss the second."""
    await prepare(server, "c", "d")
    answer = await jointly(server, await protection(server, "c"), await protection(server, "d"), binding())
    assert answer.status == 400
    assert answer.body["message"] == "one commit may change one object of resourceclaims.resource.k8s.io"
