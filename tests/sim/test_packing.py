"""Policies on a small trace of our own: who places most."""

import importlib.util
import json
import sys
from cProfile import Profile
from pathlib import Path
from pstats import Stats
from typing import Any

import pytest

from dray.explain.cluster_objects import ClusterObjects
from dray.explain.dump import Dump, DumpReader
from dray.features import FeatureGates
from dray.scheduler.config import POLICIES
from dray.sim.admitted_pods import pods_with_claims
from dray.sim.autoscaling import NodeShape, autoscale
from dray.sim.node_templates import template_of
from dray.sim.reports.simulation_result import result_document
from dray.sim.simulation import DEFAULT_POLICY, Simulation, config_of_policy

ROOT = Path(__file__).parent.parent.parent
DATA = Path(__file__).parent / "data" / "packing"


def script() -> Any:
    spec = importlib.util.spec_from_file_location("packing_script", ROOT / "scripts" / "packing.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PACKING = script()
# Reading, deciding, binding and explaining, per pod that arrives; a pod of the trace of 1,213 nodes takes some 3,000.
CALLS_OF_A_POD = 2_200


def simulated(world: dict[str, Any], policy: str) -> dict[str, Any]:
    simulation = Simulation(objects_of(world), config=config_of_policy(policy))
    simulation.run()
    return result_document(simulation, (), [])


def objects_of(world: dict[str, Any]) -> ClusterObjects:
    dump = Dump()
    DumpReader(dump).read("world.json", json.dumps(world).encode())
    return dump.world()


def curve(world: dict[str, Any], policy: str) -> list[tuple[float, float]]:
    return PACKING.curve(world, simulated(world, policy))


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_places_more_than_the_default(policy: str) -> None:
    world = PACKING.world(DATA / "nodes.csv", DATA / "pods.csv", 42, 1.3)
    spread, packed = curve(world, DEFAULT_POLICY), curve(world, policy)
    assert PACKING.at_full(packed) >= PACKING.at_full(spread) + 0.05
    assert packed[-1][1] >= 0.96 > spread[-1][1]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_needs_fewer_new_nodes_than_the_default(policy: str) -> None:
    everything = PACKING.world(DATA / "nodes.csv", DATA / "pods.csv", 42, 0.5)
    names = [item["metadata"]["name"] for item in everything["items"] if item["kind"] == "Node"][:12]
    world = {**everything, "items": [item for item in everything["items"] if is_on(item, names)]}
    needed = {each: new_nodes(world, names[0], each) for each in (DEFAULT_POLICY, policy)}
    assert 0 < needed[policy] < needed[DEFAULT_POLICY]


def is_on(item: dict[str, Any], names: list[str]) -> bool:
    """Nodes of other names, and their slices, are left out."""
    node = item["metadata"]["name"] if item["kind"] == "Node" else item.get("spec", {}).get("nodeName")
    return node is None or node in names


def new_nodes(world: dict[str, Any], template: str, policy: str) -> int:
    objects = objects_of(world)
    config = config_of_policy(policy, pods_with_claims(objects, FeatureGates.default()))
    shapes = [NodeShape(template_of(objects, template))]
    return autoscale(policy, objects, shapes, lambda bigger: Simulation(bigger, config=config)).nodes


def test_work_of_a_pod() -> None:
    """Calls do not depend on how fast the machine is. A number that grows fails here; one that shrinks is written down."""
    world = PACKING.world(DATA / "nodes.csv", DATA / "pods.csv", 42, 1.3)
    simulation = Simulation(objects_of(world), config=config_of_policy("least-fragmentation"))
    profile = Profile()
    profile.enable()
    simulation.run()
    profile.disable()
    assert Stats(profile).total_calls / len(simulation.placed()) < CALLS_OF_A_POD


def test_the_same_input_gives_the_same_answer() -> None:
    world = PACKING.world(DATA / "nodes.csv", DATA / "pods.csv", 1, 0.5)
    assert curve(world, "least-fragmentation") == curve(world, "least-fragmentation")


def test_free_devices_are_counted_by_the_reason_that_keeps_pods_away() -> None:
    world = PACKING.world(DATA / "nodes.csv", DATA / "pods.csv", 42, 1.3)
    result = simulated(world, "least-fragmentation")
    found = PACKING.causes(world, result)
    devices = sum(len(item["spec"]["devices"]) for item in world["items"] if item["kind"] == "ResourceSlice")
    allocated = PACKING.curve(world, result)[-1][1]
    assert sum(found.values()) == pytest.approx(devices * (1 - allocated), abs=1e-3)
    assert found["part too small"] > found["would fit"]


def test_the_plot_has_a_line_for_each_curve() -> None:
    line = [(0.8, 0.8), (1.0, 0.95), (1.3, 0.96)]
    picture = PACKING.svg({"one": line, "two": line})
    assert picture.count("<polyline") == 5 + 2
    assert "one: 96.0 %" in picture
