"""What an explanation says is what the scheduler does, on random clusters."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec.structs import replace as changed

from dray.cli.dump import Dump, _enter
from dray.explain.codes import CODES
from dray.explain.world import World
from dray.sim.explaining import Circumstances, explain_pod
from dray.sim.rehearsal import Rehearsal
from tests.sim.random_clusters import random_cluster


def a_world(seed: int) -> World:
    dump = Dump()
    for document in random_cluster(seed):
        assert _enter(dump, document, None) == ""
    return dump.world()


def settled(world: World) -> tuple[Rehearsal, World]:
    rehearsal = Rehearsal(world)
    rehearsal.run()
    return rehearsal, World.of(rehearsal.cluster.everything())


@pytest.mark.parametrize("seed", range(1000, 1012))
def test_who_waits_fits_nowhere_and_is_told_why(seed: int) -> None:
    rehearsal, world = settled(a_world(seed))
    for row in rehearsal.placed():
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
    world = a_world(seed)
    rehearsal = Rehearsal(world)
    rehearsal.run()
    first = rehearsal.placed()[0]
    key = (first.pod.metadata.namespace, first.pod.metadata.name)
    verdict = explain_pod(world, *key, Circumstances(is_new=True))
    fitting = {node.node for node in verdict.nodes if node.fits}
    if first.outcome == "scheduled":
        assert first.pod.spec.node_name in fitting
    else:
        assert not fitting


@pytest.mark.parametrize("seed", [1016, 1020, 1022, 1026, 1028, 1032])
def test_what_is_said_to_help_does(seed: int) -> None:
    """Releasing the claim that is named lets the pod in."""
    rehearsal, world = settled(a_world(seed))
    for row in rehearsal.placed():
        if row.outcome == "scheduled":
            continue
        namespace, name = row.pod.metadata.namespace, row.pod.metadata.name
        for help_ in explain_pod(world, namespace, name).helps:
            if help_.code == "release-claim":
                released = help_.text.removeprefix("release claim ").partition(",")[0]
                assert explain_pod(_without(world, released), namespace, name).code == "fits", help_.text


def _without(world: World, claim: str) -> World:
    claims = tuple(
        changed(each, status=changed(each.status, allocation=None, reserved_for=()))
        if f"{each.metadata.namespace}/{each.metadata.name}" == claim
        else each
        for each in world.claims
    )
    return replace(world, claims=claims)
