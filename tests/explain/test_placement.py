"""Why a pod is on its node and has its devices: points of each plugin against the runner-up."""

from __future__ import annotations

import pytest

from dray.explain.verdicts import PodVerdict
from dray.sim.pod_explanation import ExplainedCluster, ExplainOptions, explain_pod
from dray.sim.simulation import Simulation
from tests.explain.manifests import DRIVER, Cluster, gpu_node, gpu_pod, gpu_slice, held
from tests.explain.test_agrees_with_scheduler import random_world
from tests.explain.test_alike_nodes import world_of


def on_node_1(*others: str) -> Cluster:
    """The pod runs on node-1; `others` is the cpu that other pods take on node-2, node-3, ..."""
    cluster = Cluster()
    cluster.pod["spec"]["nodeName"] = "node-1"
    cluster.pod["status"] = {"phase": "Running"}
    held(cluster.claim, "gpu-0", pod="train")
    for number, cpu in enumerate(others, 2):
        node = f"node-{number}"
        cluster.add(gpu_node(node), gpu_slice(node), gpu_pod(f"other-{number}", "", cpu=cpu, nodeName=node))
    return cluster


def explained(cluster: Cluster) -> PodVerdict:
    verdict = explain_pod(world_of(cluster), "default", "train")
    assert verdict.code == "scheduled"
    return verdict


def test_the_winner_against_the_runner_up() -> None:
    node, devices = explained(on_node_1("6", "4")).details
    assert node.startswith("node: node-1 wins with ")
    assert " points over the runner-up node-3 with " in node
    assert ": NodeResourcesFit " in node
    assert devices == (
        f"devices: claim train-gpu, request gpu: {DRIVER}/node-1/gpu-0 (2 would do; devices are tried in the order in which "
        "they are published)"
    )


def test_nodes_that_are_equal() -> None:
    cluster = on_node_1()
    cluster.add(gpu_node("node-2"), gpu_slice("node-2"), gpu_node("node-3"), gpu_slice("node-3"))
    node = explained(cluster).details[0]
    assert "node-1 and 2 others are equal with " in node
    assert "the most of 3 nodes that fit; the scheduler takes equals in turn" in node


def test_another_node_would_win_now() -> None:
    cluster = on_node_1()
    cluster.add(gpu_pod("late", "", cpu="5", nodeName="node-1"), gpu_node("node-2"), gpu_slice("node-2"))
    node = explained(cluster).details[0]
    assert "node: node-1 has " in node
    assert "and node-2 would win with " in node


def test_a_node_that_would_refuse_now() -> None:
    cluster = on_node_1("1")
    cluster.node["spec"]["unschedulable"] = True
    assert (
        explained(cluster).details[0]
        == "node: node-1 would refuse the pod now: the node is cordoned (spec.unschedulable)"
    )


def test_a_claim_that_is_being_deleted_says_nothing_of_nodes() -> None:
    cluster = on_node_1("1")
    cluster.claim["metadata"] |= {
        "deletionTimestamp": "2024-01-01T00:00:00Z",
        "finalizers": ["resource.kubernetes.io/delete-protection"],
    }
    verdict = explained(cluster)
    assert verdict.details[0] == (
        'node: the scheduler would not place the pod now: resourceclaim "train-gpu" is being deleted'
    )
    assert verdict.notes == ()


def test_the_only_node() -> None:
    cluster = on_node_1("1")
    cluster.more = [each for each in cluster.more if each["kind"] != "ResourceSlice"]
    assert explained(cluster).details[0] == "node: node-1 is the only one of 2 nodes that fits"


def test_a_container_that_does_not_start() -> None:
    cluster = on_node_1("1")
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    row = {"name": "main", "image": "x", "imageID": "", "ready": False, "restartCount": 0, "state": waiting}
    cluster.pod["status"] = {"phase": "Running", "containerStatuses": [row]}
    assert explained(cluster).headline == (
        "default/train is on node node-1 (Running, container main: ImagePullBackOff: no such image)"
    )


def test_a_container_that_ends_again_and_again_has_a_log_to_look_at() -> None:
    cluster = on_node_1("1")
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}
    row = {"name": "main", "image": "x", "imageID": "", "ready": False, "restartCount": 1, "state": waiting}
    cluster.pod["status"] = {"phase": "Running", "containerStatuses": [row]}
    assert explained(cluster).fix == "see why: kubectl logs pod/train -n default -c main --previous"


@pytest.mark.parametrize("seed", range(6000, 6010))
def test_the_scheduler_takes_a_node_with_the_most_points(seed: int) -> None:
    world = random_world(seed)
    simulation = Simulation(world)
    simulation.run()
    first = simulation.placed()[0]
    key = (first.pod.metadata.namespace, first.pod.metadata.name)
    fitting = [node for node in explain_pod(world, *key, ExplainOptions(new_pods={key})).nodes if node.fits]
    if first.outcome == "scheduled":
        best = max(node.score for node in fitting)
        assert first.pod.spec.node_name in {node.node for node in fitting if node.score == best}


def test_explaining_a_placed_pod_changes_nothing_for_the_next() -> None:
    cluster = on_node_1("6", "4")
    world = world_of(cluster)
    explains = ExplainedCluster(world)
    assert explains.explain("default", "train") == explains.explain("default", "train")
    assert explains.explain("default", "other-2") == explain_pod(world, "default", "other-2")
