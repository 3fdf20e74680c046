"""What is said to help does: random pods that wait are explained, and what the lines say is done to the cluster."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from itertools import count, islice

import pytest
from msgspec.structs import replace as changed

from dray.api.core import Node, Pod, Taint
from dray.explain.cluster_objects import ClusterObjects
from dray.sim.pod_explanation import explain_pod
from dray.sim.simulation import Simulation
from tests.explain.applied_helps import HelpApplier, alone, cordoned, with_trouble
from tests.explain.test_agrees_with_scheduler import random_world, settled


def troubled(world: ClusterObjects, seed: int) -> ClusterObjects:
    """Cordoned and tainted nodes beside what random clusters have."""
    chance = random.Random(seed)

    def change(node: Node) -> Node:
        if chance.random() < 0.3:
            node = cordoned(node)
        if chance.random() < 0.2:
            taints = (Taint(key="dedicated", value="infra", effect="NoSchedule"),)
            node = changed(node, spec=changed(node.spec, taints=taints))
        return node

    return with_trouble(world, change) if chance.random() < 0.5 else world


def waiting_pods(first_seed: int) -> Iterator[tuple[ClusterObjects, Pod]]:
    for seed in count(first_seed):
        _, world = settled(troubled(random_world(seed), seed))
        for pod in world.pods:
            if not pod.spec.node_name:
                yield world, pod


def is_placed(world: ClusterObjects, pod: Pod) -> bool:
    simulation = Simulation(alone(world, pod))
    simulation.run()
    found: Pod | None = simulation.cluster.get(Pod, pod.metadata.name, pod.metadata.namespace)
    return found is not None and bool(found.spec.node_name)


def first_helps(first_seed: int, pods: int) -> Counter[str]:
    """Explains so many waiting pods; each first help is applied, and the scheduler then places the pod."""
    codes: Counter[str] = Counter()
    for world, pod in islice(waiting_pods(first_seed), pods):
        helps = explain_pod(world, pod.metadata.namespace, pod.metadata.name).helps
        if not helps:
            codes["none"] += 1
            continue
        after = HelpApplier(world, pod).applied(helps[0].code, helps[0].text)
        assert is_placed(after, pod), f"{pod.metadata.name} of seed {first_seed}: {helps[0].text}"
        codes[helps[0].code] += 1
    return codes


def test_the_first_help_lets_the_pod_in() -> None:
    codes = first_helps(2000, 40)
    assert len(codes) >= 5
    assert codes["none"] <= 12


@pytest.mark.torture
def test_the_first_help_lets_each_of_500_pods_in() -> None:
    codes = first_helps(5000, 500)
    print(dict(codes))
    assert len(codes) >= 8


def test_all_the_others_help_as_well() -> None:
    tried = 0
    for world, pod in islice(waiting_pods(3000), 24):
        for help_ in explain_pod(world, pod.metadata.namespace, pod.metadata.name).helps[1:]:
            after = HelpApplier(world, pod).applied(help_.code, help_.text)
            assert is_placed(after, pod), f"{pod.metadata.name}: {help_.text}"
            tried += 1
    assert tried >= 10
