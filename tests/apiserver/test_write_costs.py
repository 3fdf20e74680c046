"""Work that writes are spared must not show in what comes out."""

from __future__ import annotations

import copy
import random
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from tests.apiserver.conftest import Client, gold_claim

from dray.api.codec import shape_document
from dray.api.schemas import schema_for
from dray.api.scheme import by_kind
from dray.apiserver.errors import ApiError
from dray.apiserver.request.request_info import LOOPBACK, Attributes
from dray.apiserver.watch.stored_object import MOST_KEPT_BYTES, RecentDocuments, Stored, to_value
from dray.apiserver.write import field_sets, managed_fields
from dray.apiserver.write.admission.chain import CREATE, Admission, AdmissionPlugin, PluginChain
from dray.apiserver.write.decoding import decode_object, shaped_or_fail
from dray.apiserver.write.managed_fields import Manager, managed_kind
from dray.validation import ValidationContext, validate_create, validate_status_update, validate_update

POD: dict[str, Any] = shape_document(
    {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": "a", "namespace": "default", "labels": {"x": "y"}},
        "spec": {"containers": [{"name": "main", "image": "i", "resources": {"requests": {"cpu": "1"}}}]},
        "status": {"phase": "Pending", "conditions": [{"type": "Ready", "status": "False"}]},
    }
).document


@pytest.mark.parametrize(
    "patched",
    [
        {"status": {"phase": "Running", "podIP": "10.0.0.1"}},
        {"metadata": {"name": "a", "namespace": "default", "labels": None}},
        {"spec": {"containers": [], "nodeName": "n", "hostNetwork": False}},
        {"spec": None},
        {"status": {}},
    ],
)
def test_parts_that_a_patch_leaves_alone_are_taken_as_they_are(patched: dict[str, Any]) -> None:
    tree = {**POD, **patched}
    before = copy.deepcopy(POD)
    quick, careful = shaped_or_fail(tree, "v1", "Pod", (), POD), shaped_or_fail(tree, "v1", "Pod")
    assert (quick.document, quick.problems) == (careful.document, careful.problems)
    assert quick.has_stored_spec == ("spec" not in patched)
    if all(patched.values()):
        assert list(quick.document) == list(careful.document)
    if "spec" not in patched:
        quick.document["spec"]["nodeName"] = "admission writes here"
    if "metadata" not in patched:
        quick.document["metadata"]["generation"] = 1
    assert before == POD


def test_each_owner_loses_what_another_changed_also_when_they_speak_one_version() -> None:
    row = by_kind("Pod")
    old = {**POD, "metadata": {**POD["metadata"], "annotations": {"a": "1", "b": "1"}}}
    new = {**POD, "metadata": {**POD["metadata"], "annotations": {"a": "2", "b": "1"}}}
    both = {"f:metadata": {"f:annotations": {"f:a": {}, "f:b": {}}}}
    managers = [Manager(name, managed_fields.UPDATE, "v1") for name in ("one", "two")]
    owners = {m.identity: managed_fields.ManagerFields(m, both, "then") for m in managers}
    author = Manager("author", managed_fields.UPDATE, "v1")
    after = managed_fields.after_update(owners, old, new, author, managed_kind(row, ""), "now")
    assert after[author.identity].fields == {"f:metadata": {"f:annotations": {"f:a": {}}}}
    for manager in managers:
        left = after[manager.identity]
        assert left.fields == {"f:metadata": {"f:annotations": {"f:b": {}}}}
        assert left.time == "then"
    assert both == {"f:metadata": {"f:annotations": {"f:a": {}, "f:b": {}}}}


def _some_spec(chance: random.Random) -> dict[str, Any]:
    """A spec of a pod: some of the fields, lists with keys, sets, maps and empty values that it may have."""
    container: dict[str, Any] = {"name": f"c{chance.randrange(3)}", "image": "i"}
    if chance.random() < 0.5:
        container["ports"] = [{"containerPort": port} for port in chance.sample(range(1, 9), 2)]
    if chance.random() < 0.5:
        container["env"] = [{"name": name, "value": str(chance.randrange(2))} for name in chance.sample("abcd", 2)]
    if chance.random() < 0.5:
        container["resources"] = {"requests": {"cpu": str(chance.randrange(1, 3))}, "claims": [{"name": "gpu"}]}
    optional: dict[str, Any] = {
        "nodeSelector": {chance.choice("abc"): "x"},
        "tolerations": [{"key": chance.choice("abc"), "operator": "Exists"}],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": chance.choice("st")}],
        "securityContext": chance.choice([{}, {"runAsUser": 1}]),
        "terminationGracePeriodSeconds": chance.choice([0, 30]),
        "volumes": [],
    }
    chosen = chance.sample(sorted(optional), chance.randrange(len(optional)))
    return {"containers": [container], **{name: optional[name] for name in chosen}}


@pytest.mark.parametrize("seed", range(4))
def test_remembered_changes_of_specs_are_those_that_a_comparison_finds(seed: int) -> None:
    """The long way compares field by field; most pairs come again, so that the memory answers."""
    chance, schema = random.Random(seed), schema_for("v1", "Pod")
    assert schema is not None
    fields = field_sets.fields_of_struct(schema)["spec"].struct
    assert fields is not None
    specs: list[dict[str, Any]] = [{}, {"containers": None}, *(_some_spec(chance) for _ in range(10))]
    for _ in range(300):
        old, new = (copy.deepcopy(chance.choice(specs)) for _ in range(2))
        inside = field_sets._compare_fields(old, new, fields.get, "f:")
        if old != new and not any(inside):
            # The same entries in another order, or an empty value in place of another: the spec itself is modified.
            expected: list[dict[str, Any]] = [{"f:spec": {}}, {}]
        else:
            expected = [{"f:spec": each} if each else {} for each in inside]
        assert list(field_sets.compare({"spec": old}, {"spec": new}, schema)) == expected


def test_remembered_changes_fill_a_bounded_part_of_the_memory() -> None:
    schema = schema_for("v1", "Pod")
    assert schema is not None
    field = field_sets.fields_of_struct(schema)["spec"]
    remembered = field_sets.RememberedComparisons(entries=2, most_bytes=100)
    for number in range(5):
        assert remembered({}, {"nodeName": str(number)}, field) == ({"f:nodeName": {}}, {})
    assert remembered({}, {"nodeName": "n" * 200}, field) == ({"f:nodeName": {}}, {})
    assert [text for _, text in remembered._known] == [b'[{},{"nodeName":"3"}]', b'[{},{"nodeName":"4"}]']


class _Noting(AdmissionPlugin):
    def __init__(self, name: str, resources: frozenset[tuple[str, str]] | None, said: list[str]) -> None:
        self.name, self.resources, self._said = name, resources, said

    async def mutate(self, admission: Admission) -> None:
        self._said.append(self.name)


async def test_a_plugin_is_asked_about_its_resources_only() -> None:
    said: list[str] = []
    chain = PluginChain([_Noting("pods", frozenset({("", "pods")}), said), _Noting("all", None, said)])
    for resource in ("pods", "nodes", "pods"):
        await chain.mutate(Admission(Attributes(LOOPBACK, "create", "", "v1", resource), CREATE, "", {}))
    assert said == ["pods", "all", "all", "pods", "all"]


def _some_metadata(chance: random.Random) -> dict[str, Any]:
    """Metadata as a client may send it; mostly valid."""
    some: dict[str, list[Any]] = {
        "name": ["a", "a", "b/c"],
        "labels": [{"x": "y"}, {"x": "not/valid!"}],
        "annotations": [{"a": "b"}, {"not valid": "b"}],
        "finalizers": [["example.com/f"], ["bare"]],
        "ownerReferences": [[{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}], [{"kind": "Pod"}]],
        "managedFields": [[{"manager": "m", "operation": "Update"}], [{"manager": "m", "operation": "Guess"}]],
        "generation": [1, 2],
        "deletionTimestamp": ["2026-01-01T00:00:00Z"],
    }
    chosen = {name: chance.choice(values) for name, values in some.items() if chance.random() < 0.6}
    return {"name": "a", "namespace": "default", "resourceVersion": "1", **chosen}


@pytest.mark.parametrize("seed", range(4))
def test_fields_of_metadata_that_a_put_left_alone_are_taken_as_they_are(seed: int) -> None:
    """Fields that differ, are new, have another type or mean nothing are looked at as in any body."""
    chance, row, shared, told = random.Random(seed), by_kind("ResourceClaim"), 0, 0
    odd: list[tuple[str, Any]] = [
        ("generation", True),
        ("generation", 1.0),
        ("unknown", 1),
        ("labels", None),
        ("finalizers", []),
    ]
    for _ in range(200):
        head = {"kind": "ResourceClaim", "apiVersion": "resource.k8s.io/v1"}
        stored = shape_document({**head, "metadata": _some_metadata(chance), "spec": {}}).document
        before = copy.deepcopy(stored)
        metadata = {**stored["metadata"], **(_some_metadata(chance) if chance.random() < 0.3 else {})}
        metadata |= [chance.choice(odd)] if chance.random() < 0.3 else []
        for name in chance.sample(["finalizers", "managedFields", "labels"], 2):
            metadata.pop(name, None)
        body = msgspec.json.encode({**head, "metadata": metadata, "spec": {}, "status": {}})

        def decoded(known: dict[str, Any] | None, body: bytes = body) -> Any:
            try:
                return decode_object(body, "application/json", row, "v1", before=known)
            except ApiError as error:
                return error.message

        quick, careful = decoded(stored), decoded(None)
        if isinstance(careful, str):
            told += quick == careful
            assert quick == careful
            continue
        found, expected = quick.document["metadata"], careful.document["metadata"]
        assert (found, quick.problems) == (expected, careful.problems)
        shared += any(type(value) is dict and value is stored["metadata"].get(name) for name, value in found.items())
        found["name"] = "admission writes here"
        assert stored == before
    assert shared
    assert told


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("validate", [validate_update, validate_status_update])
def test_metadata_that_an_update_left_alone_needs_no_second_check(seed: int, validate: Any) -> None:
    """Whoever trusts what is stored finds the same errors, wherever the stored object has none."""
    chance, told = random.Random(seed), 0
    for _ in range(600):
        before, after = _some_metadata(chance), _some_metadata(chance)
        old = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": before}
        if validate_create(old, ValidationContext()):
            continue
        kept = {name: value for name, value in before.items() if chance.random() < 0.7}
        new = {**old, "metadata": {**after, **kept}}
        careful = validate(new, old, ValidationContext())
        assert validate(new, old, ValidationContext(trusts_stored=True)) == careful
        told += bool(careful)
    assert told


PODS = "/api/v1/namespaces/default/pods"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
Write = Callable[[Client, dict[str, Any], random.Random], Awaitable[Any]]


async def _put(server: Client, document: dict[str, Any], chance: random.Random) -> None:
    """Some of these are refused: what they brought must not be found in the object that stays."""
    changed = copy.deepcopy(document)
    metadata, part = changed["metadata"], chance.choice(("labels", "finalizers", "spec", "status", "nothing"))
    if part == "labels":
        metadata["labels"] = {"a": chance.choice(("1", "2", "not valid!"))}
    elif part == "finalizers":
        metadata["finalizers"] = chance.choice(([], ["example.com/a"], ["no domain"]))
    elif part == "spec":
        changed["spec"][chance.choice(("devices", "tolerations", "containers"))] = chance.choice(([], {}, None, "text"))
    elif part == "status":
        changed["status"] = {"phase": "Running", "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]}
    metadata.pop("managedFields", None)
    await server.send("PUT", _path(document) + chance.choice(("", "/status")), changed)


async def _patch(server: Client, document: dict[str, Any], chance: random.Random) -> None:
    annotations = {"annotations": {chance.choice("ab"): chance.choice("12")}}
    condition = {"type": chance.choice(("Ready", "Other")), "status": chance.choice(("True", "maybe"))}
    pointer = [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}, {"op": "remove", "path": "/none"}]
    kind, body = chance.choice(
        (
            ("merge", {"metadata": annotations}),
            ("strategic-merge", {"metadata": annotations, "status": {"conditions": [condition]}}),
            ("json", pointer[: chance.randint(1, 2)]),
        )
    )
    await server.patch(_path(document) + chance.choice(("", "/status")), body, kind)


async def _bind_or_delete(server: Client, document: dict[str, Any], chance: random.Random) -> None:
    name, uid = document["metadata"]["name"], chance.choice((document["metadata"]["uid"], "another"))
    if chance.random() < 0.5:
        options = {"gracePeriodSeconds": chance.choice((0, 30)), "preconditions": {"uid": uid}}
        await server.send("DELETE", _path(document), options)
    elif document["kind"] == "Pod":
        body = {"metadata": {"name": name, "uid": uid}, "target": {"name": "n"}}
        await server.post(f"{_path(document)}/binding", body)


def _path(document: dict[str, Any]) -> str:
    return f"{PODS if document['kind'] == 'Pod' else CLAIMS}/{document['metadata']['name']}"


@pytest.mark.parametrize("seed", range(4))
async def test_kept_documents_are_those_that_are_stored(server: Client, seed: int) -> None:
    chance, used = random.Random(seed), 0
    documents = server.core.documents
    plain = msgspec.json.Encoder(order="deterministic").encode
    account = {"metadata": {"name": "default"}}
    assert (await server.post("/api/v1/namespaces/default/serviceaccounts", account)).status == 201
    for number in range(120):
        if number % 20 == 0:
            pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main", "image": "i"}]}}
            await server.post(PODS, pod)
            await server.post(CLAIMS, gold_claim("c"))
        for path in (f"{PODS}/p", f"{CLAIMS}/c"):
            found = await server.get(path)
            if found.status == 200:
                write: Write = chance.choice((_put, _put, _patch, _bind_or_delete))
                await write(server, found.body, chance)
        for stored, document in documents:
            used += 1
            assert plain(document) == plain(stored.document())
    assert used > 100


def test_kept_documents_are_those_written_last_and_bounded() -> None:
    documents = RecentDocuments()
    document = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p"}, "spec": {"text": "x" * 1000}}
    value = to_value(document)
    written = [Stored(f"/{number}", "", value, number, number, 0) for number in range(1, 4000)]
    for stored in written:
        documents.keep(stored, document)
    kept = [stored for stored, _ in documents]
    assert kept == written[-(MOST_KEPT_BYTES // len(value)) :]
    assert documents.of(written[-1]) is documents.of(written[-1])
    assert documents.of(written[0]) == written[0].document()
