"""Field sets as sets, and server-side apply from the outside."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.apiserver.conftest import CLAIMS, Client, gold_claim

from dray.apiserver.write import field_sets

paths = st.lists(st.lists(st.sampled_from(["f:a", "f:b", "f:c"]), min_size=1, max_size=3).map(tuple), max_size=8)


def a_set(found: list[tuple[str, ...]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for path in found:
        one: dict[str, Any] = {}
        for element in reversed(path):
            one = {element: one}
        made = field_sets.union(made, one)
    return made


@given(paths)
def test_a_set_holds_what_was_put_in(found: list[tuple[str, ...]]) -> None:
    assert set(field_sets.paths(a_set(found))) == set(found)


@given(paths, paths)
def test_union_difference_intersection(one: list[tuple[str, ...]], other: list[tuple[str, ...]]) -> None:
    left, right = a_set(one), a_set(other)
    assert set(field_sets.paths(field_sets.union(left, right))) == set(one) | set(other)
    assert set(field_sets.paths(field_sets.difference(left, right))) == set(one) - set(other)
    assert set(field_sets.paths(field_sets.intersection(left, right))) == set(one) & set(other)


def config(**labels: str) -> dict[str, Any]:
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c", "labels": labels}}


async def test_two_appliers(server: Client) -> None:
    made = await server.patch(f"{CLAIMS}/c?fieldManager=one", {**gold_claim("c"), **config(a="1", b="1")}, "apply")
    assert made.status == 201
    refused = await server.patch(f"{CLAIMS}/c?fieldManager=two", config(a="2"), "apply")
    assert (refused.status, refused.body["details"]["causes"][0]["field"]) == (409, ".metadata.labels.a")
    shared = await server.patch(f"{CLAIMS}/c?fieldManager=two", config(a="1"), "apply")
    assert shared.status == 200
    taken = await server.patch(f"{CLAIMS}/c?fieldManager=two&force=true", config(a="2"), "apply")
    assert taken.body["metadata"]["labels"] == {"a": "2", "b": "1"}
    # `one` no longer owns a: leaving it out does not remove it
    left = await server.patch(f"{CLAIMS}/c?fieldManager=one", {**gold_claim("c"), **config(b="1")}, "apply")
    assert left.body["metadata"]["labels"] == {"a": "2", "b": "1"}
    gone = await server.patch(f"{CLAIMS}/c?fieldManager=two", config(), "apply")
    assert gone.body["metadata"]["labels"] == {"b": "1"}


async def test_several_conflicts_are_listed_by_owner(server: Client) -> None:
    await server.post(f"{CLAIMS}?fieldManager=maker", gold_claim("c", labels={"a": "1", "b": "1"}))
    refused = await server.patch(f"{CLAIMS}/c?fieldManager=m", config(a="2", b="2"), "apply")
    assert refused.body["message"] == (
        'Apply failed with 2 conflicts: conflicts with "maker" using resource.k8s.io/v1:\n'
        "- .metadata.labels.a\n- .metadata.labels.b"
    )


async def test_unknown_fields_cannot_be_applied(server: Client) -> None:
    refused = await server.patch(f"{CLAIMS}/c?fieldManager=m", {**config(), "extra": 1}, "apply")
    assert refused.status == 400
    assert ".extra: field not declared in schema" in refused.body["message"]


async def test_managed_fields_cannot_be_applied(server: Client) -> None:
    body = config()
    body["metadata"]["managedFields"] = [{"manager": "x"}]
    refused = await server.patch(f"{CLAIMS}/c?fieldManager=m", body, "apply")
    assert (refused.status, refused.body["message"]) == (400, "metadata.managedFields must be nil")


async def test_updates_take_ownership_of_what_they_change(server: Client) -> None:
    await server.post(f"{CLAIMS}?fieldManager=one", gold_claim("c", labels={"a": "1", "b": "1"}))
    answer = await server.patch(f"{CLAIMS}/c?fieldManager=two", {"metadata": {"labels": {"a": "2"}}})
    owned = {
        entry["manager"]: entry["fieldsV1"].get("f:metadata") for entry in answer.body["metadata"]["managedFields"]
    }
    assert owned == {"one": {"f:labels": {".": {}, "f:b": {}}}, "two": {"f:labels": {"f:a": {}}}}


async def test_objects_nobody_tracked(server: Client) -> None:
    made = (await server.post(CLAIMS, gold_claim("c", labels={"a": "1"}))).body
    made["metadata"]["managedFields"] = [{}]
    await server.send("PUT", f"{CLAIMS}/c", made)
    refused = await server.patch(f"{CLAIMS}/c?fieldManager=m", config(a="2"), "apply")
    assert 'conflict with "before-first-apply" using resource.k8s.io/v1' in refused.body["message"]


async def test_an_entry_that_nobody_applies_any_more_takes_its_defaults_along(server: Client) -> None:
    """The server fills in `conditions` of a device's status, which nobody owns."""
    await server.post(CLAIMS, gold_claim("c"))
    claim = (await server.get(f"{CLAIMS}/c")).body
    [request] = claim["spec"]["devices"]["requests"]
    results = [{"request": request["name"], "driver": "gpu.example.com", "pool": "n", "device": "d"}]
    claim["status"] = {"allocation": {"devices": {"results": results}}}
    assert (await server.send("PUT", f"{CLAIMS}/c/status", claim)).status == 200
    for devices in ([{"driver": "gpu.example.com", "pool": "n", "device": "d"}], []):
        applied = {**config(), "status": {"devices": devices}}
        answer = await server.patch(f"{CLAIMS}/c/status?fieldManager=gpu.example.com", applied, "apply")
        assert answer.status == 200, answer.body
        assert len(answer.body["status"].get("devices") or []) == len(devices)
