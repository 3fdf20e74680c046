"""Slices of equal nodes share their list of devices inside the server, and nobody who writes or reads them can tell."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.apiserver.conftest import Client

from dray.api.scheme import by_kind
from dray.api.slice_text import device_trees
from dray.apiserver.watch.stored_object import SharedStored
from dray.client.kinds import SHARED_DEVICES_LIST, decode_page
from dray.client.kinds import SLICES as SLICE_KIND

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
OLD_SLICES = "/apis/resource.k8s.io/v1beta1/resourceslices"
GROUP = "admissionregistration.k8s.io"
Document = dict[str, Any]


# As programs send JSON; only such a list is looked up before it is read.
compact = msgspec.json.encode


def devices(count: int = 12, **more: Any) -> list[Document]:
    return [{"name": f"d{n}", "attributes": {"model": {"string": "m" * 60}}, **more} for n in range(count)]


def slice_with(name: str, listed: list[Document]) -> Document:
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "d.example.com", "nodeName": name, "pool": pool, "devices": listed}
    return {"kind": "ResourceSlice", "apiVersion": "resource.k8s.io/v1", "metadata": {"name": name}, "spec": spec}


async def create(server: Client, name: str, listed: list[Document]) -> Document:
    made = await server.post(SLICES, compact(slice_with(name, listed)))
    assert made.status == 201, made.body
    document: Document = made.body
    return document


def tree_and_text(server: Client, name: str) -> tuple[SharedStored, bytes]:
    stored = server.running.server.core.cache(by_kind("ResourceSlice")).get("", name)
    assert isinstance(stored, SharedStored)
    return stored, stored._parts.devices


async def test_equal_lists_are_stored_once_and_read_as_they_were_sent(server: Client) -> None:
    events = await server.watch(f"{SLICES}?watch=true")
    for name in ("a", "b"):
        made = await create(server, name, devices())
        seen = await events.next()
        read = (await server.get(f"{SLICES}/{name}")).body
        assert seen is not None
        assert made == seen["object"] == read
        assert read["spec"] == slice_with(name, devices())["spec"]
        assert read["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:devices"] == {}
    (one, text), (other, same) = (tree_and_text(server, name) for name in ("a", "b"))
    assert text is same
    assert one.size < 1000 < len(one.value)
    assert msgspec.json.decode(other.value)["spec"]["devices"] == devices()
    listed = (await server.get(SLICES)).body["items"]
    assert [item["spec"]["devices"] for item in listed] == [devices(), devices()]
    by_node = (await server.get(f"{SLICES}?fieldSelector=spec.nodeName=b")).body["items"]
    assert [item["metadata"]["name"] for item in by_node] == ["b"]


async def test_a_client_that_knows_it_gets_equal_lists_once_and_reads_the_same(server: Client) -> None:
    few = devices(2)
    for name, listed in (("a", devices(16)), ("b", devices(16)), ("c", devices(17)), ("d", few)):
        await create(server, name, listed)
    plain = await server.get(SLICES)
    short = await server.get(SLICES, accept=SHARED_DEVICES_LIST)
    assert [item["spec"]["devices"] for item in short.body["items"]] == [0, 0, 1, few]
    assert short.body["deviceLists"] == [devices(16), devices(17)]
    whole, shared = (decode_page(SLICE_KIND, compact(answer.body)) for answer in (plain, short))
    assert whole == shared
    assert shared.items is not None
    assert shared.items[0].spec.devices is shared.items[1].spec.devices


@pytest.mark.parametrize("path", [f"{SLICES}/a", OLD_SLICES, "/api/v1/nodes"])
async def test_whoever_asks_for_it_elsewhere_gets_whole_objects(server: Client, path: str) -> None:
    await create(server, "a", devices(16))
    assert (await server.get(path, accept=SHARED_DEVICES_LIST)).body == (await server.get(path)).body


@pytest.mark.parametrize("known", [False, True])
async def test_what_is_wrong_beside_a_known_list_is_still_refused(server: Client, known: bool) -> None:
    listed = devices(13)
    if known:
        await create(server, "first", listed)
    wrong = slice_with("Wrong_Name", listed)
    assert (await server.post(SLICES, compact(wrong))).status == 422
    unknown = slice_with("b", listed)
    unknown["spec"]["pool"]["colour"] = "red"
    answer = await server.post(f"{SLICES}?fieldValidation=Strict", compact(unknown))
    assert (answer.status, "colour" in answer.body["message"]) == (400, True)
    other_driver = slice_with("c", devices(13, taints=[{"key": "k", "effect": "NoSchedule"}]))
    made = (await server.post(SLICES, compact(other_driver))).body
    assert all(device["taints"][0]["timeAdded"] for device in made["spec"]["devices"])


async def test_an_update_a_patch_and_another_version_leave_the_shared_list_alone(server: Client) -> None:
    listed = devices(14)
    await create(server, "a", listed)
    made = await create(server, "b", listed)
    _, text = tree_and_text(server, "a")
    before = msgspec.json.encode(device_trees.read(text))
    made["spec"]["devices"][0]["name"] = "renamed"
    made["spec"]["pool"]["generation"] = 2
    assert (await server.send("PUT", f"{SLICES}/b", compact(made))).status == 200
    patch = [{"op": "replace", "path": "/spec/devices/1/name", "value": "patched"}]
    assert (await server.patch(f"{SLICES}/b", patch, "json")).status == 200
    old = {**slice_with("c", [{"name": d["name"], "basic": {"attributes": d["attributes"]}} for d in listed])}
    old["apiVersion"] = "resource.k8s.io/v1beta1"
    for name in ("c", "d"):
        old["metadata"] = {"name": name}
        assert (await server.post(OLD_SLICES, compact(old))).status == 201
        assert (await server.get(f"{SLICES}/{name}")).body["spec"]["devices"] == listed
    names = [device["name"] for device in (await server.get(f"{SLICES}/b")).body["spec"]["devices"]]
    assert names[:3] == ["renamed", "patched", "d2"]
    assert (await server.get(f"{SLICES}/a")).body["spec"]["devices"] == listed
    assert msgspec.json.encode(device_trees.read(text)) == before == text


async def test_a_policy_that_changes_one_slice_leaves_the_shared_list_alone(server: Client) -> None:
    listed = devices(15)
    await create(server, "a", listed)
    rule = {"apiGroups": ["resource.k8s.io"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["resourceslices"]}  # fmt: skip
    change = '[JSONPatch{op: "replace", path: "/spec/devices/0/name", value: "by-policy"}]'
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": change}}],
        "reinvocationPolicy": "Never",
    }
    policies, bindings = (f"/apis/{GROUP}/v1/mutatingadmissionpolic{end}" for end in ("ies", "ybindings"))
    assert (await server.post(policies, {"metadata": {"name": "p"}, "spec": spec})).status == 201
    assert (await server.post(bindings, {"metadata": {"name": "b"}, "spec": {"policyName": "p"}})).status == 201
    made = await create(server, "b", listed)
    assert made["spec"]["devices"][0]["name"] == "by-policy"
    assert (await server.get(f"{SLICES}/a")).body["spec"]["devices"] == listed
    assert tree_and_text(server, "a")[1] == msgspec.json.encode(listed)
