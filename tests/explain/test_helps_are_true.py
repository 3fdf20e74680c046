"""What is said to help with a node does help, also where several things are in the way: on random clusters with cordoned and
tainted nodes."""

from __future__ import annotations

import random
import re
from dataclasses import replace

from msgspec.structs import replace as changed

from dray.api.core import Node, Pod, Taint, Toleration
from dray.explain.cluster_objects import ClusterObjects
from dray.explain.what_if import Remedy
from dray.sim.pod_explanation import explain_pod
from tests.explain.test_agrees_with_scheduler import random_world, settled

SEEDS = range(2000, 2012)


def with_trouble(world: ClusterObjects, seed: int) -> ClusterObjects:
    chance = random.Random(seed)

    def troubled(node: Node) -> Node:
        spec = node.spec
        if chance.random() < 0.5:
            spec = changed(spec, unschedulable=True)
        if chance.random() < 0.4:
            spec = changed(spec, taints=(Taint(key="dedicated", value="infra", effect="NoSchedule"),))
        return changed(node, spec=spec)

    return replace(world, nodes=tuple(map(troubled, world.nodes)))


def nodes_of(help_: Remedy) -> set[str]:
    found = re.search(r"\(then (.*) fits?\)$", help_.text)
    assert found, help_.text
    return set(found[1].split(", "))


def uncordoned(world: ClusterObjects, pod: Pod, names: set[str]) -> ClusterObjects:
    nodes = tuple(
        changed(each, spec=changed(each.spec, unschedulable=False)) if each.metadata.name in names else each
        for each in world.nodes
    )
    return replace(world, nodes=nodes)


def tolerating(world: ClusterObjects, pod: Pod, names: set[str]) -> ClusterObjects:
    spec = changed(pod.spec, tolerations=(*pod.spec.tolerations, Toleration(operator="Exists")))
    return replace(world, pods=tuple(changed(each, spec=spec) if each is pod else each for each in world.pods))


CHANGES = {"uncordon": uncordoned, "tolerate-node-taint": tolerating}


def tried(seed: int) -> int:
    _, world = settled(with_trouble(random_world(seed), seed))
    count = 0
    for pod in world.pods:
        if pod.spec.node_name or pod.status.phase in ("Succeeded", "Failed"):
            continue
        key = (pod.metadata.namespace, pod.metadata.name)
        for help_ in explain_pod(world, *key).helps:
            if help_.code in CHANGES:
                names = nodes_of(help_)
                verdict = explain_pod(CHANGES[help_.code](world, pod, names), *key)
                fitting = {row.node for row in verdict.nodes if row.fits}
                assert names <= fitting, f"{key}: {help_.text}: {verdict.headline}"
                count += 1
    return count


def test_what_is_said_to_help_with_a_node_does() -> None:
    assert sum(map(tried, SEEDS)) >= 10
