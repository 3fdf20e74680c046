"""Patches as pure functions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.api.schemas import schema_for
from dray.apiserver.write.patching import json_patch
from dray.apiserver.write.patching.json_patch import apply_merge
from dray.apiserver.write.patching.schema_patches import merge_applied, remove_fields, strategic_merge

POD = schema_for("v1", "Pod")
assert POD is not None

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=2), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("document", "operation", "expected"),
    [
        ({"a": 1}, {"op": "add", "path": "/b", "value": 2}, {"a": 1, "b": 2}),
        ({"a": [1, 3]}, {"op": "add", "path": "/a/1", "value": 2}, {"a": [1, 2, 3]}),
        ({"a": [1]}, {"op": "add", "path": "/a/-", "value": 2}, {"a": [1, 2]}),
        ({"a": 1}, {"op": "remove", "path": "/a"}, {}),
        ({"a": [1, 2]}, {"op": "replace", "path": "/a/0", "value": 9}, {"a": [9, 2]}),
        ({"a": 1}, {"op": "move", "from": "/a", "path": "/b"}, {"b": 1}),
        ({"a": [1]}, {"op": "copy", "from": "/a", "path": "/b"}, {"a": [1], "b": [1]}),
        ({"a/b": {"~": 1}}, {"op": "remove", "path": "/a~1b/~0"}, {"a/b": {}}),
        ({"a": 1}, {"op": "test", "path": "/a", "value": 1}, {"a": 1}),
        ({"a": 1}, {"op": "test", "path": "/b", "value": None}, {"a": 1}),
    ],
)
def test_json_patch(document: Any, operation: Any, expected: Any) -> None:
    assert json_patch.apply(document, [operation]) == expected


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/a", "value": True},
        {"op": "remove", "path": "/b"},
        {"op": "replace", "path": "/b", "value": 1},
        {"op": "add", "path": "/a/x", "value": 1},
        {"op": "add", "path": "/l/01", "value": 1},
        {"op": "add", "path": "/l/9", "value": 1},
        {"op": "add", "path": "/l/-1", "value": 1},
        {"op": "remove", "path": ""},
        {"op": "spin", "path": "/a"},
        {"path": "/a"},
        {"op": "add", "path": 7},
        {"op": "move", "path": "/x"},
    ],
)
def test_json_patch_refuses(operation: Any) -> None:
    before = {"a": 1, "l": [1]}
    with pytest.raises(json_patch.PatchFailed):
        json_patch.apply(before, [operation])
    assert before == {"a": 1, "l": [1]}


@given(json_values, json_values)
def test_a_merge_patch_twice_is_a_merge_patch_once(document: Any, patch: Any) -> None:
    once = apply_merge(document, patch)
    assert apply_merge(once, patch) == once


CONTAINERS = {
    "spec": {"containers": [{"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]}, {"name": "b"}]}
}


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        pytest.param([{"name": "b", "image": "2"}], [("a", "1"), ("b", "2")], id="merges-by-name"),
        pytest.param([{"name": "c", "image": "3"}], [("c", "3"), ("a", "1"), ("b", None)], id="new-entries-come-first"),
        pytest.param([{"name": "a", "$patch": "delete"}], [("b", None)], id="deletes"),
        pytest.param([{"$patch": "replace"}, {"name": "z"}], [("z", None)], id="replaces-the-list"),
        pytest.param([{"name": "a", "image": None}], [("a", None), ("b", None)], id="null-removes"),
    ],
)
def test_strategic_lists(patch: Any, expected: Any) -> None:
    result = strategic_merge(CONTAINERS, {"spec": {"containers": patch}}, POD)
    assert [(entry["name"], entry.get("image")) for entry in result["spec"]["containers"]] == expected


def test_strategic_order() -> None:
    patch = {
        "spec": {
            "$setElementOrder/containers": [{"name": "b"}, {"name": "a"}],
            "containers": [{"name": "a", "tty": True}],
        }
    }
    result = strategic_merge(CONTAINERS, patch, POD)
    assert [entry["name"] for entry in result["spec"]["containers"]] == ["b", "a"]


def test_strategic_scalars() -> None:
    before = {"metadata": {"finalizers": ["x/a", "x/b"]}}
    merged = strategic_merge(before, {"metadata": {"finalizers": ["x/c"]}}, POD)
    assert merged["metadata"]["finalizers"] == ["x/c", "x/a", "x/b"]
    patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["x/a"]}}
    assert strategic_merge(before, patch, POD)["metadata"]["finalizers"] == ["x/b"]


def test_retain_keys() -> None:
    before = {"spec": {"resourceClaims": [{"name": "a", "resourceClaimName": "x"}]}}
    patch = {"$retainKeys": ["name", "resourceClaimTemplateName"], "name": "a", "resourceClaimTemplateName": "t"}
    result = strategic_merge(before, {"spec": {"resourceClaims": [patch]}}, POD)
    assert result["spec"]["resourceClaims"] == [{"name": "a", "resourceClaimTemplateName": "t"}]


def test_atomic_lists_are_replaced() -> None:
    before = {"spec": {"containers": [{"name": "a", "command": ["x", "y"]}]}}
    patch = {"spec": {"containers": [{"name": "a", "command": ["z"]}]}}
    assert strategic_merge(before, patch, POD)["spec"]["containers"][0]["command"] == ["z"]


def test_apply_merges_by_key_and_keeps_the_rest() -> None:
    config = {"spec": {"containers": [{"name": "b", "image": "2"}]}}
    merged = merge_applied(CONTAINERS, config, POD)
    assert merged["spec"]["containers"] == [CONTAINERS["spec"]["containers"][0], {"name": "b", "image": "2"}]


def test_removal_leaves_what_others_hold() -> None:
    gone = {"f:spec": {"f:containers": {'k:{"name":"a"}': {"f:env": {'k:{"name":"X"}': {}}}}}}
    left = remove_fields(CONTAINERS, gone, POD)
    assert left["spec"]["containers"][0] == {"name": "a", "image": "1"}
