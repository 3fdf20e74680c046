"""Nodes that are alike share a verdict; it is the same that each of them would get alone."""

from __future__ import annotations

import pytest

from dray.explain import alike_nodes
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


def test_the_devices_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[str] = []
    original = alike_nodes.device_verdict

    def counted(allocator, question, node, *others):  # type: ignore[no-untyped-def]
        looked_at.append(node.metadata.name)
        return original(allocator, question, node, *others)

    monkeypatch.setattr(alike_nodes, "device_verdict", counted)
    assert len(explain_pod(world_of(many_nodes()), "default", "train").nodes) == 41
    assert len(looked_at) <= 2
