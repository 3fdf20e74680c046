"""Which pods to move to make room or to empty nodes; every plan is scheduled to prove it."""

from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as changed

from dray.api.core import Pod
from dray.api.meta import OwnerReference
from dray.explain.cluster_objects import ClusterObjects
from dray.sim.defragmentation import Defragmentation, MovePlan, defragmentation_document, defragmentation_text
from dray.sim.simulation import Simulation
from tests.builders.objects import a_class, a_node, a_request, a_slice, template_pod


def nodes(count: int, devices: int = 4) -> list[Any]:
    return [x for number in range(count) for x in (a_node(f"node-{number}"), a_slice(f"node-{number}", devices))]


def running(pods: dict[str, str], cluster: list[Any]) -> list[Any]:
    """Each pod with one device on the node that is named for it; the devices are those that the scheduler gives it there."""
    made: list[Any] = []
    for name, node in pods.items():
        pod, claim = template_pod(name, a_request(), node_selector={"kubernetes.io/hostname": node})
        made += [pod, claim]
    simulation = Simulation(ClusterObjects.of([*cluster, *made]))
    simulation.run()
    placed = [changed(pod, spec=changed(pod.spec, node_selector={})) for pod in simulation.cluster.all(Pod)]
    assert {pod.metadata.name: pod.spec.node_name for pod in placed} == pods
    return [*replace(simulation.world(), pods=tuple(placed)).objects()]


def planner(*objects: Any) -> Defragmentation:
    ended = Simulation(ClusterObjects.of(objects))
    ended.run()
    return Defragmentation(ended, Simulation)


def moves(plan: MovePlan) -> dict[str, tuple[str, str]]:
    return {move.pod.metadata.name: (move.pod.spec.node_name, move.target) for move in plan.moves}


def test_the_fewest_pods_move_to_make_room() -> None:
    held = {"a": "node-0", "b": "node-0", "c": "node-1"}
    world = running(held, [*nodes(2), a_class()])
    [plan] = planner(*world, *template_pod("big", a_request(count=4))).room_plans()
    assert plan.waiting is not None
    assert (plan.waiting.metadata.name, plan.node) == ("big", "node-1")
    assert moves(plan) == {"c": ("node-1", "node-0")}


def test_two_pods_move_where_one_is_not_enough() -> None:
    held = {"a": "node-0", "b": "node-0", "c": "node-1", "d": "node-1"}
    world = running(held, [*nodes(2), a_class()])
    [plan] = planner(*world, *template_pod("big", a_request(count=4))).room_plans()
    assert len(plan.moves) == 2
    assert {source for source, _ in moves(plan).values()} == {plan.node}
    assert plan.node not in {target for _, target in moves(plan).values()}


def test_no_plan_where_the_moved_pods_find_no_other_place() -> None:
    held = {name: f"node-{index // 3}" for index, name in enumerate("abcdef")}
    world = running(held, [*nodes(2), a_class()])
    assert planner(*world, *template_pod("big", a_request(count=4))).room_plans() == []


def test_a_pod_of_a_daemon_set_stays_on_its_node() -> None:
    world = running({"a": "node-0", "c": "node-1"}, [*nodes(2), a_class()])
    owner = OwnerReference(api_version="apps/v1", kind="DaemonSet", name="daemon", uid="daemon", controller=True)
    bound = [
        changed(obj, metadata=changed(obj.metadata, owner_references=(owner,))) if isinstance(obj, Pod) else obj
        for obj in world
    ]
    assert planner(*bound, *template_pod("big", a_request(count=4))).room_plans() == []


def test_nodes_with_the_fewest_pods_are_emptied_first() -> None:
    held = {"a": "node-0", "b": "node-0", "c": "node-0", "d": "node-1", "e": "node-2", "f": "node-2"}
    plans = planner(*running(held, [*nodes(3), a_class()])).empty_plans()
    assert [plan.node for plan in plans] == ["node-1"]
    assert set(moves(plans[0])) == {"d"}
    assert moves(plans[0])["d"][1] in ("node-0", "node-2")


def test_a_node_that_was_emptied_takes_no_pod_that_moves_later() -> None:
    held = {"a": "node-0", "b": "node-1", "c": "node-2"}
    plans = planner(*running(held, [*nodes(3), a_class()])).empty_plans()
    emptied = [plan.node for plan in plans]
    assert len(emptied) == 2
    last = moves(plans[-1])
    assert {target for _, target in last.values()}.isdisjoint(emptied)


@pytest.mark.parametrize(
    ("room", "says"),
    [
        pytest.param(True, "1. move pod", id="a-plan"),
        pytest.param(False, "No moves help", id="no-plan"),
    ],
)
def test_the_text_numbers_the_moves(room: bool, says: str) -> None:
    world = running({"a": "node-0", "c": "node-1"}, [*nodes(2), a_class()])
    plans = planner(*world, *template_pod("big", a_request(count=4))).room_plans() if room else []
    assert says in defragmentation_text(defragmentation_document(plans, []))
