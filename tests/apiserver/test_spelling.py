"""Opaque values are kept as they were sent: a new spelling is a change, in a spec even a new generation."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.apiserver import manifests
from tests.apiserver.conftest import CLAIMS, Client
from tests.builders.manifests import a_class

from dray.apiserver.write.decoding import RawValues, raw_values_of, with_raw_values

CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
PARAMETERS = {"kind": "K", "apiVersion": "x/v1", "size": 1.50, "list": [1, 2]}


def class_with_parameters(**metadata: Any) -> dict[str, Any]:
    config = [{"opaque": {"driver": "d.example.com", "parameters": PARAMETERS}}]
    return a_class("c", config=config, **metadata)


def state(body: dict[str, Any]) -> tuple[int, str]:
    return body["metadata"]["generation"], body["metadata"]["resourceVersion"]


def plainly(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


async def test_a_patch_leaves_the_plain_spelling_behind(server: Client) -> None:
    made = (await server.post(CLASSES, class_with_parameters())).body
    same = (await server.send("PUT", f"{CLASSES}/c", class_with_parameters())).body
    assert state(same) == state(made)
    patched = (await server.patch(f"{CLASSES}/c", {"metadata": {"labels": {"a": "b"}}})).body
    assert patched["metadata"]["generation"] == 2
    again = (await server.patch(f"{CLASSES}/c", {"metadata": {"labels": {"a": "c"}}})).body
    assert again["metadata"]["generation"] == 2
    assert again["spec"] == made["spec"]


async def test_putting_the_same_in_other_words_is_a_change(server: Client) -> None:
    made = (await server.send("POST", CLASSES, plainly(class_with_parameters()))).body
    assert state((await server.send("PUT", f"{CLASSES}/c", plainly(class_with_parameters()))).body) == state(made)
    spaced = (await server.send("PUT", f"{CLASSES}/c", class_with_parameters())).body
    assert spaced["metadata"]["generation"] == 2
    assert state((await server.send("PUT", f"{CLASSES}/c", class_with_parameters())).body) == state(spaced)


@pytest.mark.parametrize(("kind", "generation"), [("json", 1), ("merge", 1), ("strategic-merge", 2), ("apply", 2)])
async def test_some_patches_put_members_in_order(server: Client, kind: str, generation: int) -> None:
    made = (await server.send("POST", CLASSES, plainly(class_with_parameters()))).body
    assert list(made["spec"]["config"][0]["opaque"]["parameters"]) == list(PARAMETERS)
    patch: Any = {"metadata": {"labels": {"a": "b"}}}
    if kind == "json":
        patch = [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]
    elif kind == "apply":
        patch = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": "c", **patch["metadata"]},
        }
    query = "?fieldManager=f" if kind == "apply" else ""
    patched = (await server.patch(f"{CLASSES}/c{query}", patch, kind)).body
    assert patched["metadata"]["generation"] == generation
    names = list(patched["spec"]["config"][0]["opaque"]["parameters"])
    assert names == (list(PARAMETERS) if generation == 1 else sorted(PARAMETERS))


async def test_what_may_not_change_is_judged_by_its_meaning(server: Client) -> None:
    claim = manifests.claim("c")
    claim["spec"]["devices"]["config"] = [{"opaque": {"driver": "d.example.com", "parameters": PARAMETERS}}]
    assert (await server.post(CLAIMS, claim)).status == 201
    assert (await server.send("PUT", f"{CLAIMS}/c", plainly(claim))).status == 200
    labelled = await server.patch(f"{CLAIMS}/c", {"metadata": {"labels": {"a": "b"}}})
    assert labelled.status == 200, labelled.body


async def test_a_watch_sends_one_line_however_a_value_was_sent(server: Client) -> None:
    body = json.dumps(class_with_parameters(), indent="\t").encode()
    made = await server.send("POST", CLASSES, body)
    assert made.status == 201
    watch = await server.watch(f"{CLASSES}?watch=true")
    event = await watch.next()
    assert event is not None
    assert event["object"]["spec"]["config"][0]["opaque"]["parameters"] == PARAMETERS
    await watch.close()


@pytest.mark.parametrize(
    "data", [b"", b"[]", b'{"spec": 5}', b'{"spec": {"config": {}}}', b'{"spec": {"config": [7]}}']
)
def test_what_is_no_object_has_no_spelling(data: bytes) -> None:
    assert raw_values_of(data) == RawValues()


def test_a_spelling_that_does_not_fit_is_left_out() -> None:
    document = {**class_with_parameters(), "kind": "DeviceClass", "apiVersion": "resource.k8s.io/v1"}
    plain = with_raw_values(document, RawValues())
    assert with_raw_values(document, RawValues((b"1", b"2"))) == plain
    assert with_raw_values(document, RawValues((b'{"a": 1}',))) != plain
