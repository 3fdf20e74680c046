"""Patches as pure functions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.api.schemas import TypeRef, schema_for
from dray.apiserver.write.patching import json_patch
from dray.apiserver.write.patching.json_patch import apply_merge
from dray.apiserver.write.patching.schema_patches import merge_applied, remove_fields
from dray.apiserver.write.patching.strategic_merge import BadPatch, ListOfLists, restore_problem, strategic_merge

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


EMPTY_DIRS = {"spec": {"volumes": [{"name": "v", "emptyDir": {}}], "containers": [{"name": "a", "image": "1"}]}}
NO_KEY = "map: map[{}] does not contain declared merge key: name"


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ({"containers": [{"image": "x", "tty": True}]}, NO_KEY.format("image:x tty:true")),
        ({"containers": [{"$patch": "delete"}]}, NO_KEY.format("$patch:delete")),
        ({"containers": [{"$patch": "replace"}, {"image": "z"}]}, NO_KEY.format("image:z")),
        ({"containers": [{"name": "a", "$patch": "merge"}]}, "merging lists cannot yet be specified in the patch"),
        ({"containers": [{"name": "a", "$patch": "x"}]}, "unknown patch type: x in map: map[$patch:x name:a]"),
        ({"$patch": "merge"}, "unknown patch type: merge in map: map[$patch:merge]"),
        (
            {"containers": ["x"]},
            "list element types are not identical: [[map[image:1 name:a]] [x]]",
        ),
        ({"$setElementOrder/containers": "x"}, "expected a []interface {}, but received a string"),
        ({"$setElementOrder/nope": []}, 'unable to find api field in struct PodSpec for the json field "nope"'),
        (
            {"$setElementOrder/containers": [{"x": "d"}], "containers": [{"name": "a"}]},
            NO_KEY.format("x:d"),
        ),
        (
            {"$setElementOrder/containers": [{"name": "d"}], "containers": [{"name": "a", "image": "q"}]},
            "The order in patch list:\n[map[image:q name:a]]\n doesn't match $setElementOrder list:\n[map[name:d]]\n",
        ),
        ({"$setElementOrdercontainers": []}, "invalid patch format of setElementOrder list"),
        ({"$deleteFromPrimitiveListx": []}, "invalid patch format of primitive list"),
        ({"$retainKeys": "containers"}, "invalid patch format of retainKeys"),
        ({"$retainKeys": ["containers"], "volumes": []}, "invalid patch format of retainKeys"),
    ],
)
def test_strategic_patches_that_contradict_themselves(patch: Any, message: str) -> None:
    with pytest.raises(BadPatch) as bad:
        strategic_merge(EMPTY_DIRS, {"spec": patch}, POD)
    assert str(bad.value) == message


def test_a_list_of_lists_is_not_merged() -> None:
    with pytest.raises(ListOfLists):
        strategic_merge({"spec": {"containers": []}}, {"spec": {"containers": [["x"]]}}, POD)


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        # There is nothing to merge with, and so no key is asked for; validation says what is missing.
        ({"tolerations": [{"key": "k"}], "hostAliases": [{"hostnames": ["h"]}]}, None),
        ({"hostAliases": [{"$patch": "delete"}, {"ip": "1"}]}, {"hostAliases": [{"ip": "1"}]}),
        ({"nodeSelector": {"$patch": "replace", "a": "b"}}, {}),
        ({"affinity": {"nodeAffinity": {"$patch": "replace"}, "podAffinity": {}}}, {"affinity": {"podAffinity": {}}}),
    ],
)
def test_strategic_values_where_there_were_none(patch: Any, expected: Any) -> None:
    before: dict[str, Any] = {"spec": {}}
    assert strategic_merge(before, {"spec": patch}, POD)["spec"] == (patch if expected is None else expected)


def test_a_selector_is_merged_though_apply_owns_it_as_a_whole() -> None:
    deployment = schema_for("apps/v1", "Deployment")
    assert deployment is not None
    before = {"spec": {"selector": {"matchLabels": {"a": "b"}}}}
    merged = strategic_merge(before, {"spec": {"selector": {"matchLabels": {"x": "y"}}}}, deployment)
    assert merged["spec"]["selector"] == {"matchLabels": {"a": "b", "x": "y"}}


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"containers": "x"}, "cannot restore slice from string"),
        ({"nodeSelector": ["a"]}, "cannot restore map from slice"),
        ({"nodeSelector": {"a": 1}}, "cannot convert int64 to string"),
        ({"nodeSelector": {"a": [1]}}, "unrecognized type: string"),
        ({"containers": [{"ports": [{"containerPort": "a"}]}]}, "unrecognized type: int32"),
        ({"priority": 1.5}, "cannot convert float64 to int32"),
        ({"hostNetwork": 1}, "unrecognized type: bool"),
        ({"affinity": True}, "cannot restore struct from: bool"),
        ({"containers": [{"name": None}], "hostNetwork": True, "priority": 1.0}, None),
    ],
)
def test_values_of_another_type_than_their_field(spec: Any, problem: str | None) -> None:
    assert restore_problem({"spec": spec}, TypeRef("struct", POD.name)) == problem


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
