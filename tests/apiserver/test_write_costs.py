"""Work that writes are spared must not show in what comes out."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from dray.api.codec import shape_document
from dray.api.scheme import by_kind
from dray.apiserver.request.request_info import LOOPBACK, Attributes
from dray.apiserver.write import managed_fields
from dray.apiserver.write.admission.chain import CREATE, Admission, AdmissionPlugin, PluginChain
from dray.apiserver.write.decoding import shaped_or_fail
from dray.apiserver.write.managed_fields import Manager, managed_kind

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
    assert quick == careful
    if all(patched.values()):
        assert list(quick.document) == list(careful.document)
    if "spec" not in patched:
        quick.document["spec"]["nodeName"] = "admission writes here"
    assert before == POD


def test_each_owner_loses_what_another_changed_also_when_they_speak_one_version() -> None:
    row = by_kind("Pod")
    old = {**POD, "metadata": {**POD["metadata"], "annotations": {"a": "1", "b": "1"}}}
    new = {**POD, "metadata": {**POD["metadata"], "annotations": {"a": "2", "b": "1"}}}
    both = {"f:metadata": {"f:annotations": {"f:a": {}, "f:b": {}}}}
    managers = [Manager(name, managed_fields.UPDATE, "v1") for name in ("one", "two")]
    owners = {m.identity(): managed_fields.ManagerFields(m, both, "then") for m in managers}
    author = Manager("author", managed_fields.UPDATE, "v1")
    after = managed_fields.after_update(owners, old, new, author, managed_kind(row, ""), "now")
    assert after[author.identity()].fields == {"f:metadata": {"f:annotations": {"f:a": {}}}}
    for manager in managers:
        left = after[manager.identity()]
        assert left.fields == {"f:metadata": {"f:annotations": {"f:b": {}}}}
        assert left.time == "then"
    assert both == {"f:metadata": {"f:annotations": {"f:a": {}, "f:b": {}}}}


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
