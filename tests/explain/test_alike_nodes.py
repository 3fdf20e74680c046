"""Nodes that are alike share a verdict; it is the same that each of them would get alone."""

from __future__ import annotations

import pytest

from dray.explain import alike_nodes, what_if
from dray.explain.cluster_objects import ClusterObjects
from dray.explain.dump import Dump, add_document
from dray.sim.pod_explanation import explain_pod
from tests.explain.manifests import Cluster, gpu, gpu_claim, gpu_node, gpu_slice, held
from tests.explain.test_agrees_with_scheduler import random_world, settled
from tests.explain.test_layout import many_nodes


def world_of(cluster: Cluster) -> ClusterObjects:
    dump = Dump()
    for document in cluster.documents():
        assert add_document(dump, document, None) == ""
    return dump.world()


def documents(world: ClusterObjects) -> list[object]:
    waiting = [pod.metadata for pod in world.pods if not pod.spec.node_name]
    return [explain_pod(world, pod.namespace, pod.name).document() for pod in waiting]


@pytest.mark.parametrize("seed", range(4000, 4008))
def test_the_same_as_alone(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    _, world = settled(random_world(seed))
    shared = documents(world)
    monkeypatch.setattr(alike_nodes, "report_key", lambda allocator, pools: None)
    assert documents(world) == shared


def test_the_names_are_those_of_the_node() -> None:
    cluster = Cluster()
    cluster.slice["spec"]["devices"] = [gpu("gpu-0")]
    cluster.add(held(gpu_claim("claim-1"), "gpu-0", node="node-1"))
    for number in range(2, 9):
        node = f"node-{number}"
        cluster.add(gpu_node(node), gpu_slice(node, [gpu("gpu-0")]))
        cluster.add(held(gpu_claim(f"claim-{number}"), "gpu-0", node=node))
    rows = explain_pod(world_of(cluster), "default", "train").nodes
    assert len(rows) == 8
    for row in rows:
        assert row.devices is not None
        assert row.devices.nearest is not None
        assert row.devices.nearest.device_id.pool == row.node
        claim = row.node.replace("node", "claim")
        assert [holder.claim for holder in row.devices.nearest.holders] == [f"default/{claim}"]


def looked_at(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], list[str]]:
    """The nodes whose devices were judged, and those of them on which it was tried what would help."""
    shallow: list[str] = []
    in_depth: list[str] = []
    original = alike_nodes.device_verdict

    def counted(allocator, question, node, holders, conditions):  # type: ignore[no-untyped-def]
        (shallow if conditions is None else in_depth).append(node.metadata.name)
        return original(allocator, question, node, holders, conditions)

    monkeypatch.setattr(alike_nodes, "device_verdict", counted)
    assert explain_pod(world_of(cluster), "default", "train").helps
    return shallow, in_depth


def test_the_devices_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    shallow, in_depth = looked_at(many_nodes(), monkeypatch)
    assert len(shallow) == 2
    assert len(in_depth) == 1


def test_nodes_whose_devices_are_held_are_each_looked_at_in_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    cluster.slice["spec"]["devices"] = [gpu("gpu-0")]
    cluster.add(held(gpu_claim("claim-1"), "gpu-0", node="node-1"))
    for number in range(2, 4):
        cluster.add(gpu_node(f"node-{number}"), gpu_slice(f"node-{number}", [gpu("gpu-0")]))
        cluster.add(held(gpu_claim(f"claim-{number}"), "gpu-0", node=f"node-{number}"))
    shallow, in_depth = looked_at(cluster, monkeypatch)
    assert len(shallow) == 1
    assert len(in_depth) == 3


def test_numbers_of_devices_are_tried_only_where_one_device_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []
    original = what_if._Trial._fits

    def counted(trial, claims, holding=None):  # type: ignore[no-untyped-def]
        tried.append(claims[0].spec.devices.requests[0].exactly.count)
        return original(trial, claims, holding)

    monkeypatch.setattr(what_if._Trial, "_fits", counted)
    cluster = Cluster()
    cluster.request.update({"count": 30, "selectors": [{"cel": {"expression": "device.driver == 'none'"}}]})
    explain_pod(world_of(cluster), "default", "train")
    assert [count for count in tried if count < 30] == [1]
    tried.clear()
    cluster.request.update({"count": 5, "selectors": []})
    texts = [remedy.text for remedy in explain_pod(world_of(cluster), "default", "train").helps]
    assert any("ask for 2 instead of 5" in text for text in texts)
    assert [count for count in tried if count < 5] == [1, 4, 3, 2]
