"""Pods and claims that have not changed for a while: the server keeps little of each, and nobody who reads them can tell."""

from __future__ import annotations

import json
import random
import tracemalloc
import uuid
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.apiserver.in_process_api import InProcessApi

from dray.accounting import SCHEDULING
from dray.api.scheme import by_kind
from dray.apiserver.assembly import ServerOptions, start_server
from dray.apiserver.guard.binding_guard import NodeRoom
from dray.apiserver.read.selectors import fields_of, parse_fields
from dray.apiserver.request.authorization.authorizer import POD_PREFIX, NodeGraph
from dray.apiserver.request.request_info import LOOPBACK, Request
from dray.apiserver.watch import kind_cache as caches
from dray.apiserver.watch import packed_objects
from dray.apiserver.watch.kind_cache import KindCache
from dray.apiserver.watch.packed_objects import MOST_TO_PACK, MOST_UNLIKE, Packed
from dray.apiserver.watch.stored_object import Stored, to_value
from dray.apiserver.watch.watchers import Selection
from dray.store.interface import Change
from dray.store.sqlite import SqliteStore

YOUNG = 4
PODS = "/api/v1/namespaces/default/pods"
# Bytes for a pod with one claim and one event, whose texts alone have 1,700.
MOST_FOR_A_POD = 2600


def pod(number: int, node: str = "", **changes: Any) -> dict[str, Any]:
    """As stored: with its claim, its node and what the server fills in."""
    volume = f"kube-api-access-{number:05}"
    sources = [{"serviceAccountToken": {"path": "token"}}, {"configMap": {"name": "kube-root-ca.crt"}}]
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": f"pod-{number}", "namespace": "default", "uid": uid(number), "labels": {"app": "web"}},
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": "registry.example.com/team/app:1",
                    "resources": {"claims": [{"name": "gpu"}], "requests": {"cpu": "1"}},
                    "terminationMessagePath": "/dev/termination-log",
                    "volumeMounts": [{"name": volume, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}],
                }
            ],
            "nodeName": node or f"node-{number // 7}",
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "template-1"}],
            "serviceAccountName": "default",
            "volumes": [{"name": volume, "projected": {"defaultMode": 420, "sources": sources}}],
        },
        "status": {
            "phase": "Running",
            "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": f"pod-{number}-gpu-{number:05}"}],
        },
    } | changes


def claim(number: int) -> dict[str, Any]:
    result = {"request": "gpu", "driver": "gpu.example.com", "pool": f"node-{number // 7}", "device": "device-0"}
    owner = {"name": f"pod-{number}", "uid": uid(number)}
    return {
        "kind": "ResourceClaim",
        "apiVersion": "resource.k8s.io/v1",
        "metadata": {
            "name": f"pod-{number}-gpu-{number:05}",
            "namespace": "default",
            "uid": uid(number + 10**6),
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "controller": True, **owner}],
        },
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]}},
        "status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": [{"resource": "pods", **owner}]},
    }


def event(number: int) -> dict[str, Any]:
    return {
        "kind": "Event",
        "apiVersion": "v1",
        "metadata": {"name": f"pod-{number}.18e8", "namespace": "default", "uid": uid(number + 2 * 10**6)},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": f"pod-{number}", "uid": uid(number)},
        "reason": "Scheduled",
        "message": f"Successfully assigned default/pod-{number} to node-{number // 7}",
    }


def uid(number: int) -> str:
    return str(uuid.UUID(int=random.Random(number).getrandbits(128)))


class Kind:
    """The cache of one kind, fed like the follower of the store feeds it."""

    revision = 0

    def __init__(self, name: str) -> None:
        self.cache = KindCache(by_kind(name))

    def put(self, document: dict[str, Any]) -> Change:
        Kind.revision += 1
        metadata = document["metadata"]
        key = self.cache.key(metadata.get("namespace", ""), metadata["name"])
        change = Change(key, Kind.revision, to_value(document), None, 0, Kind.revision)
        self.cache.apply(change)
        return change

    def stored(self) -> list[Stored]:
        return list(self.cache.list())

    def unpacked(self) -> int:
        return sum(not isinstance(each, Packed) for each in self.stored())


@pytest.fixture(autouse=True)
def few_new_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "KEPT_EVENTS", YOUNG)
    monkeypatch.setattr(Packed, "MANY", 0)


def test_what_the_server_keeps_for_a_pod() -> None:
    """In its caches, its guard and its node authorizer."""
    pods, claims, events, nodes = Kind("Pod"), Kind("ResourceClaim"), Kind("Event"), Kind("Node")
    room, graph = NodeRoom(nodes.cache, pods.cache, SCHEDULING), NodeGraph()

    def bind(number: int) -> None:
        change = pods.put(pod(number))
        assert change.value is not None
        room.apply(change)
        graph.apply_pod(change.key, change.value)
        claims.put(claim(number))
        events.put(event(number))
        binding = room.binding(change.key, change.value)
        assert binding is not None
        room.shortages(binding)

    for number in range(100):
        bind(number)
    tracemalloc.start()
    try:
        for number in range(100, 1100):
            bind(number)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept / 1000 < MOST_FOR_A_POD
    assert pods.unpacked() + claims.unpacked() + events.unpacked() == 3 * YOUNG
    assert len(pods.stored()[0].value) + len(claims.stored()[0].value) > 1400, "else there is nothing to save"


def test_pods_that_are_not_many_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Packed, "MANY", 10)
    pods, events = Kind("Pod"), Kind("Event")
    for number in range(20):
        pods.put(pod(number))
        events.put(event(number))
    # The tenth pod makes them many; those that had left the newest changes before it are not packed.
    assert pods.unpacked() == 9
    assert events.unpacked() == YOUNG


def test_kinds_that_are_written_all_the_time_are_not_packed() -> None:
    leases = Kind("Lease")
    for number in range(20):
        metadata = {"name": f"node-{number}", "namespace": "kube-node-lease"}
        leases.put({"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "metadata": metadata, "spec": {}})
    assert leases.unpacked() == 20


def test_objects_unlike_the_sample_get_another() -> None:
    pods = Kind("Pod")
    chance = random.Random(0)
    pods.put(pod(0))
    odd = {f"key-{place}": chance.randbytes(20).hex() for place in range(60)}
    documents = []
    for number in range(1, 3 * MOST_UNLIKE):
        document = pod(number)
        document["metadata"]["annotations"] = odd
        documents.append(document)
        pods.put(document)
    packed = [each for each in pods.stored() if isinstance(each, Packed)]
    sizes = [each.packed_size for each in sorted(packed, key=lambda each: each.revision)]
    assert sizes[MOST_UNLIKE // 2] > 5 * sizes[-1]
    found = {each.name: each.document()["metadata"]["annotations"] for each in pods.stored() if each.name != "pod-0"}
    assert found == {document["metadata"]["name"]: odd for document in documents}


@pytest.mark.parametrize("size", [3_000, 20_000, MOST_TO_PACK - 2_000, MOST_TO_PACK])
def test_objects_of_any_size_are_what_they_were(size: int) -> None:
    pods = Kind("Pod")
    texts = []
    for number in range(YOUNG + 3):
        text = random.Random(number).randbytes(size // 2).hex()
        document = pod(number)
        document["metadata"]["annotations"] = {"long": text}
        pods.put(document)
        texts.append(text)
    assert [each.document()["metadata"]["annotations"]["long"] for each in pods.stored()] == texts
    assert pods.unpacked() == (len(texts) if size == MOST_TO_PACK else YOUNG)


def test_many_namespaces_share_some_samples() -> None:
    packing = packed_objects.packing_of(by_kind("Pod"))
    assert packing is not None
    made = [Stored(f"/registry/core/pods/n{n}/p", f"n{n}", to_value(pod(n)), n, n, 10) for n in range(200)]
    packed = [packing.pack(each) for each in made]
    assert [each.value for each in packed] == [each.value for each in made]
    assert [each.namespace for each in packed] == [each.namespace for each in made]
    assert len(packing._samples) == packed_objects.MOST_SAMPLES


def test_who_selects_by_node_unpacks_the_pods_of_that_node(monkeypatch: pytest.MonkeyPatch) -> None:
    pods = Kind("Pod")
    for number in range(70 + YOUNG):
        pods.put(pod(number))
    unpacked = 0
    decompress = zlib.decompressobj

    def counting(*arguments: Any, **named: Any) -> Any:
        nonlocal unpacked
        unpacked += 1
        return decompress(*arguments, **named)

    monkeypatch.setattr(zlib, "decompressobj", counting)
    selection = Selection(fields=parse_fields("spec.nodeName=node-3"), fields_of=fields_of(by_kind("Pod")))
    names = [each.name for each in selection.of(pods.stored())]
    assert names == [f"pod-{number}" for number in range(21, 28)]
    assert unpacked == 7


@pytest.mark.parametrize(
    ("selector", "count"),
    [
        ("spec.nodeName=node-1", 7),
        ("spec.nodeName!=node-1", 13),
        ("spec.nodeName=node-1,spec.nodeName=node-2", 0),
        ("spec.nodeName=", 0),
        ("status.phase=Running", 20),
        ("status.phase=Running,spec.nodeName=node-0", 7),
        ("status.phase!=Running", 0),
    ],
)
def test_selectors_find_packed_pods(selector: str, count: int) -> None:
    pods = Kind("Pod")
    for number in range(20):
        pods.put(pod(number))
    selection = Selection(fields=parse_fields(selector), fields_of=fields_of(by_kind("Pod")))
    assert len(selection.of(pods.stored())) == count
    assert len(selection.of(pods.stored())) == count, "the second time from memory"


# --- what nodes may see


@pytest.mark.parametrize("seed", range(4))
def test_node_graph_is_a_plain_count(seed: int) -> None:
    chance, graph = random.Random(seed), NodeGraph()
    there: dict[str, dict[str, Any]] = {}
    for _ in range(300):
        number = chance.randrange(12)
        key = f"{POD_PREFIX}default/pod-{number}"
        if chance.random() < 0.3:
            there.pop(key, None)
            graph.apply_pod(key, None)
            continue
        there[key] = pod(number, chance.choice(("n1", "n2")))
        there[key]["spec"]["serviceAccountName"] = chance.choice(("robot", "default"))
        graph.apply_pod(key, to_value(there[key]))
        for node in ("n1", "n2", "n3"):
            mine = [each for each in there.values() if each["spec"]["nodeName"] == node]
            accounts = {each["spec"]["serviceAccountName"] for each in mine}
            names = {each["metadata"]["name"] for each in mine}
            for account in ("robot", "default"):
                assert graph.refers(node, "serviceaccounts", "default", account) == (account in accounts)
            assert graph.refers(node, "configmaps", "default", "kube-root-ca.crt") == bool(mine)
            for other in range(12):
                assert graph.refers(node, "pods", "default", f"pod-{other}") == (f"pod-{other}" in names)
                claimed = f"pod-{other}-gpu-{other:05}"
                assert graph.refers(node, "resourceclaims", "default", claimed) == (f"pod-{other}" in names)
    for key in there:
        graph.apply_pod(key, None)
    assert not graph._references_by_node
    assert not graph._by_pod


# --- through the server


class Api(InProcessApi):
    async def create(self, number: int) -> None:
        spec = {"containers": [{"name": "main", "image": "app:1"}], "nodeName": f"node-{number % 2}"}
        metadata = {"name": f"pod-{number}", "labels": {"parity": str(number % 2)}}
        await self.ask("POST", PODS, body={"metadata": metadata, "spec": spec})

    def packed(self) -> int:
        return sum(isinstance(each, Packed) for each in self.running.server.core.cache(by_kind("Pod")).list())

    async def watched(self, revision: str, count: int) -> list[tuple[str, str]]:
        watch = Request("GET", PODS, f"watch=true&resourceVersion={revision}", {}, b"", LOOPBACK)
        answer = await self.running.server.handle(watch)
        lines: list[bytes] = []
        assert answer.stream is not None
        async for chunk in answer.stream:
            lines += chunk.splitlines()
            if len(lines) >= count:
                break
        told = [json.loads(each) for each in lines]
        return [(each["type"], each["object"]["metadata"]["name"]) for each in told]


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    store = SqliteStore(tmp_path / "dray.db")
    running = await start_server(store, ServerOptions(tmp_path))
    api = Api(running)
    await api.ask("POST", "/api/v1/namespaces/default/serviceaccounts", body={"metadata": {"name": "default"}})
    yield api
    await running.stop()
    await store.close()


async def test_whoever_reads_them_cannot_tell(api: Api) -> None:
    await api.create(0)
    ways: list[tuple[str, str, dict[str, str]]] = [
        (f"{PODS}/pod-0", "", {}),
        (f"{PODS}/pod-0", "", {"accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}),
        (f"{PODS}/pod-0", "", {"accept": "application/vnd.kubernetes.protobuf"}),
    ]
    before = [await api.ask("GET", path, query, **headers) for path, query, headers in ways]
    for number in range(1, 12):
        await api.create(number)
    assert api.packed() == 12 - YOUNG
    assert [await api.ask("GET", path, query, **headers) for path, query, headers in ways] == before
    for query in ("labelSelector=parity%3D1", "fieldSelector=spec.nodeName%3Dnode-1"):
        items = json.loads(await api.ask("GET", PODS, query))["items"]
        assert {each["metadata"]["name"] for each in items} == {f"pod-{number}" for number in range(1, 12, 2)}


async def test_they_are_changed_deleted_and_watched_as_ever(api: Api) -> None:
    for number in range(12):
        await api.create(number)
    listed = json.loads(await api.ask("GET", PODS))
    revision = listed["metadata"]["resourceVersion"]
    patch = {"content-type": "application/merge-patch+json"}
    metadata = {"annotations": {"touched": "yes"}}
    changed = json.loads(await api.ask("PATCH", f"{PODS}/pod-0", body={"metadata": metadata}, **patch))
    assert changed["metadata"]["annotations"] == {"touched": "yes"}
    assert changed["spec"] == next(each for each in listed["items"] if each["metadata"]["name"] == "pod-0")["spec"]
    await api.ask("DELETE", f"{PODS}/pod-1", "gracePeriodSeconds=0")
    assert await api.watched(revision, 2) == [("MODIFIED", "pod-0"), ("DELETED", "pod-1")]
    # The newest events no longer reach back to the first pod; the store's history does.
    first = str(int(listed["items"][0]["metadata"]["resourceVersion"]) - 1)
    expected = [("ADDED", f"pod-{number}") for number in range(12)] + [("MODIFIED", "pod-0"), ("DELETED", "pod-1")]
    assert await api.watched(first, 14) == expected


async def test_they_are_packed_when_they_are_loaded(api: Api) -> None:
    for number in range(6):
        await api.create(number)
    before = json.loads(await api.ask("GET", PODS))["items"]
    cache = api.running.server.core.cache(by_kind("Pod"))
    load = cache.loading()
    load.add(cache.entries())
    load.finish(await api.running.server.core.fresh())
    assert api.packed() == 6
    assert json.loads(await api.ask("GET", PODS))["items"] == before
