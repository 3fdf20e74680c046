"""The code of a pod that keeps waiting in a simulation is the one that `dray explain` gives it."""

from __future__ import annotations

import pytest

from dray.explain.dump import Dump, add_document
from dray.explain.reason_codes import CODES
from dray.sim.pod_explanation import explain_pod
from dray.sim.reports.simulation_result import result_document, waiting_by_reason
from dray.sim.simulation import Simulation
from dray.sim.waiting_causes import with_causes
from tests.explain.manifests import DRIVER, Cluster
from tests.sim.random_clusters import random_cluster


def ended(seed: int) -> Simulation:
    dump = Dump()
    for document in random_cluster(seed):
        add_document(dump, document, None)
    simulation = Simulation(dump.world())
    simulation.run()
    return simulation


@pytest.mark.parametrize("seed", [1, 6, 12, 18])
def test_one_code_for_each_pod_as_explain_has_it(seed: int) -> None:
    simulation = ended(seed)
    world = simulation.world()
    waiting = [row for row in with_causes(simulation, simulation.placed()) if row.outcome != "scheduled"]
    assert waiting
    for row in waiting:
        verdict = explain_pod(world, row.pod.metadata.namespace, row.pod.metadata.name)
        assert (row.pod.metadata.name, row.code) == (row.pod.metadata.name, verdict.code)


def test_every_code_is_known_and_counted() -> None:
    for seed in range(20):
        simulation = ended(seed)
        placed = list(with_causes(simulation, simulation.placed()))
        assert {row.code for row in placed} <= set(CODES)
        counted = waiting_by_reason(placed)
        assert sum(counted.values()) == sum(row.outcome != "scheduled" for row in placed)
        assert result_document(simulation, (), ())["summary"]["waitingByReason"] == counted


def test_a_selector_that_fails_has_the_code_of_explain() -> None:
    cluster = Cluster()
    cluster.select(f'device.attributes["{DRIVER}"].modell == "a100"')
    dump = Dump()
    for document in cluster.documents():
        add_document(dump, document, None)
    simulation = Simulation(dump.world())
    simulation.run()
    (row,) = with_causes(simulation, simulation.placed())
    assert (row.outcome, row.code) == ("error", "selector-error")
