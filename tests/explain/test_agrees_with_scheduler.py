"""What an explanation says is what the scheduler does, on random clusters."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec.structs import replace as changed

from dray.explain.cluster_objects import ClusterObjects
from dray.explain.dump import (
    Dump,
    add_document,
)
from dray.explain.reason_codes import CODES
from dray.sim.pod_explanation import (
    ExplainOptions,
    explain_pod,
)
from dray.sim.simulation import Simulation
from tests.sim.random_clusters import random_cluster


def random_world(seed: int) -> ClusterObjects:
    dump = Dump()
    for document in random_cluster(seed):
        assert add_document(dump, document, None) == ""
    return dump.world()


def settled(world: ClusterObjects) -> tuple[Simulation, ClusterObjects]:
    simulation = Simulation(world)
    simulation.run()
    return simulation, ClusterObjects.of(simulation.cluster.everything())


@pytest.mark.parametrize("seed", range(1000, 1012))
def test_who_waits_fits_nowhere_and_is_told_why(seed: int) -> None:
    simulation, world = settled(random_world(seed))
    for row in simulation.placed():
        verdict = explain_pod(world, row.pod.metadata.namespace, row.pod.metadata.name)
        assert verdict.code in CODES
        if row.outcome == "scheduled":
            assert (verdict.code, verdict.node) == ("scheduled", row.pod.spec.node_name)
            continue
        assert verdict.code != "fits", verdict.headline
        assert all(refusal.message for node in verdict.nodes for refusal in node.refusals)
        assert {node.code for node in verdict.nodes} <= CODES.keys()


@pytest.mark.parametrize("seed", range(1000, 1010))
def test_the_first_pod_of_the_queue_gets_a_node_that_fits(seed: int) -> None:
    world = random_world(seed)
    simulation = Simulation(world)
    simulation.run()
    first = simulation.placed()[0]
    key = (first.pod.metadata.namespace, first.pod.metadata.name)
    verdict = explain_pod(world, *key, ExplainOptions(new_pods={key}))
    fitting = {node.node for node in verdict.nodes if node.fits}
    if first.outcome == "scheduled":
        assert first.pod.spec.node_name in fitting
    else:
        assert not fitting


@pytest.mark.parametrize("seed", [1016, 1020, 1022, 1026, 1028, 1032])
def test_what_is_said_to_help_does(seed: int) -> None:
    """Releasing the claim that is named lets the pod in."""
    simulation, world = settled(random_world(seed))
    for row in simulation.placed():
        if row.outcome == "scheduled":
            continue
        namespace, name = row.pod.metadata.namespace, row.pod.metadata.name
        for help_ in explain_pod(world, namespace, name).helps:
            if help_.code == "release-claim":
                released = help_.text.removeprefix("release claim ").partition(",")[0]
                assert explain_pod(_without(world, released), namespace, name).code == "fits", help_.text


def _without(world: ClusterObjects, claim: str) -> ClusterObjects:
    claims = tuple(
        changed(each, status=changed(each.status, allocation=None, reserved_for=()))
        if f"{each.metadata.namespace}/{each.metadata.name}" == claim
        else each
        for each in world.claims
    )
    return replace(world, claims=claims)
