"""The cause named first is the true one, in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.explain.manifests import DRIVER, Cluster, gpu, gpu_claim, gpu_node, gpu_pod, gpu_request, gpu_slice, held
from tests.explain.test_not_misled import explained

ATTRIBUTES = f'device.attributes["{DRIVER}"]'


def competing(in_use: str) -> Cluster:
    """Two requests want three devices; two are free, and one of the model `in_use` is taken."""
    cluster = Cluster()
    cluster.claim["spec"]["devices"]["requests"] = [gpu_request("a", count=2), gpu_request("b")]
    other = gpu("gpu-9")
    other["attributes"]["model"] = {"string": in_use}
    cluster.devices.append(other)
    cluster.device_class["spec"]["selectors"][0]["cel"]["expression"] = f'{ATTRIBUTES}.model == "a100"'
    cluster.add(held(gpu_claim("taken"), "gpu-9"))
    return cluster


def test_a_device_that_is_in_use_and_would_not_do_is_not_the_cause(tmp_path: Path) -> None:
    verdict = explained(competing("toy"), tmp_path)
    assert verdict["code"] == "chosen-already"
    assert "requests a, b together want 3 devices, and there are 2" in verdict["message"]


def test_a_device_that_is_in_use_and_would_do_is_the_cause(tmp_path: Path) -> None:
    verdict = explained(competing("a100"), tmp_path)
    assert verdict["code"] == "in-use"
    assert "requests a, b together want 3 devices: 3 match, 2 of them free" in verdict["message"]


def test_a_selector_that_excludes_the_node_where_the_claim_is(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.pod["spec"]["nodeSelector"] = {"zone": "b"}
    other = gpu_node("node-2")
    other["metadata"]["labels"]["zone"] = "b"
    cluster.add(other, gpu_slice("node-2"))
    held(cluster.claim, "gpu-0")
    assert (
        "node selector wants zone=b, the node has zone=a; but claim default/train-gpu is already allocated on this node"
        in explained(cluster, tmp_path)["message"]
    )


def constrained(**constraint: str) -> Cluster:
    cluster = Cluster()
    devices = [gpu(f"gpu-{number}") for number in range(8)]
    for number, device in enumerate(devices):
        device["attributes"]["pcieRoot"] = {"string": f"pci{number // 2}"}
    cluster.slice["spec"]["devices"] = devices
    cluster.request["count"] = 5
    cluster.claim["spec"]["devices"]["constraints"] = [constraint]
    return cluster


def test_how_many_devices_share_a_value(tmp_path: Path) -> None:
    verdict = explained(constrained(matchAttribute=f"{DRIVER}/pcieRoot"), tmp_path)
    assert verdict["code"] == "constraint"
    said = f"request gpu wants 5 devices with the same {DRIVER}/pcieRoot: 8 could serve, at most 2 share a pcieRoot"
    assert said in verdict["message"]


def test_how_many_values_there_are(tmp_path: Path) -> None:
    verdict = explained(constrained(distinctAttribute=f"{DRIVER}/pcieRoot"), tmp_path)
    assert verdict["code"] == "constraint"
    said = (
        f"request gpu wants 5 devices with different {DRIVER}/pcieRoot: 8 could serve, they have 4 different pcieRoot"
    )
    assert said in verdict["message"]


@pytest.mark.parametrize(
    ("selector", "said"),
    [
        pytest.param(
            f'{ATTRIBUTES}.numa == "3"',
            f'{ATTRIBUTES}.numa is the number 0, compared with the string "3"; did you mean `{ATTRIBUTES}.numa == 3`?',
            id="equal",
        ),
        pytest.param(
            f"{ATTRIBUTES}.model > 3",
            f'{ATTRIBUTES}.model is the string "a100", compared with the number 3; '
            f'did you mean `{ATTRIBUTES}.model > "3"`?',
            id="order",
        ),
        pytest.param(
            'device.attributes["gpu.exampel.com"].model == "a100"',
            'device.attributes["gpu.exampel.com"] is not published; did you mean "gpu.example.com"?',
            id="domain",
        ),
        pytest.param(
            f'has({ATTRIBUTES}.modell) && {ATTRIBUTES}.modell == "a100"',
            f"{ATTRIBUTES}.modell is not published; did you mean `model`?",
            id="guarded",
        ),
    ],
)
def test_the_first_line_asks_what_was_meant(tmp_path: Path, selector: str, said: str) -> None:
    cluster = Cluster()
    cluster.select(selector)
    assert said in explained(cluster, tmp_path)["message"]


def test_devices_of_another_sort_are_neither_near_nor_misspelt(tmp_path: Path) -> None:
    """A node with a few network cards is farther off than one that lacks a single card, and publishes other names."""
    cluster = Cluster()
    selector = f'device.driver == "{DRIVER}" && {ATTRIBUTES}.model == "a100"'
    cluster.device_class["spec"]["selectors"][0]["cel"]["expression"] = selector
    cluster.request["count"] = 3
    cards = gpu_slice("net-1", [gpu("nic-0"), gpu("nic-1")], driver="nic.example.com")
    both = gpu_slice("node-1", [gpu(f"nic-{number}") for number in range(4)], driver="nic.example.com")
    both["metadata"]["name"] = "node-1-nics"
    cluster.add(gpu_node("net-1"), cards, both)
    verdict = explained(cluster, tmp_path)
    assert verdict["code"] == "class-selector"
    assert "wants 3: 6 exist, 2 match the class gpu (node node-1; 0 of 2 nodes fit)" in verdict["message"]
    assert [row["code"] for row in verdict["nodes"]] == ["class-selector", "class-selector"]


def test_the_attribute_of_a_constraint_is_misspelt(tmp_path: Path) -> None:
    cluster = constrained(matchAttribute="example.org/pcieRoot")
    assert (
        f"none of them publishes example.org/pcieRoot; did you mean {DRIVER}/pcieRoot?"
        in explained(cluster, tmp_path)["message"]
    )


def test_the_taint_is_in_the_first_line(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.slice["spec"]["devices"] = [gpu("gpu-0", taints=[{"key": "maintenance", "effect": "NoSchedule"}])]
    assert (
        "none are tolerated; taint maintenance:NoSchedule is not tolerated" in explained(cluster, tmp_path)["message"]
    )


def test_of_nodes_where_requests_compete_the_one_with_more_devices_is_nearer(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.claim["spec"]["devices"]["requests"] = [gpu_request("a", count=2), gpu_request("b", count=2)]
    cluster.add(gpu_node("node-2"), gpu_slice("node-2", [gpu("gpu-0"), gpu("gpu-1"), gpu("gpu-2")]))
    verdict = explained(cluster, tmp_path)
    assert "together want 4 devices, and there are 3 that they could share out (node node-2;" in verdict["message"]
    assert verdict["helps"][0]["text"] == "ask for 1 instead of 2 in request a (then node-2 fits)"


def test_devices_of_others_are_not_near_an_incomplete_pool(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.slice["spec"]["pool"]["resourceSliceCount"] = 2
    cluster.add(gpu_slice("other", [gpu("nic-0")], driver="nic.example.com", nodeName="node-1"))
    verdict = explained(cluster, tmp_path)
    assert verdict["code"] == "incomplete-pool"
    assert verdict["nodes"][0]["nearest"] is None


def test_pods_on_a_node_that_is_too_small_are_not_the_cause(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "10"
    cluster.add(gpu_pod("small", "", cpu="1", nodeName="node-1"))
    message = explained(cluster, tmp_path)["message"]
    assert "cpu: 10 asked, 7 of 8 free, so the node is too small even when it is empty" in message
    assert "small (" not in message


@pytest.mark.parametrize("mode", ["ExactCount", "All"])
def test_an_incomplete_pool_names_its_driver(tmp_path: Path, mode: str) -> None:
    cluster = Cluster()
    cluster.slice["spec"]["pool"]["resourceSliceCount"] = 2
    cluster.request["allocationMode"] = mode
    assert f"driver {DRIVER} has to publish the rest" in explained(cluster, tmp_path)["message"]


def beside_a_pod(**affinity: object) -> Cluster:
    cluster = Cluster()
    term = {"labelSelector": {"matchLabels": {"app": "big"}}, "topologyKey": "kubernetes.io/hostname"}
    for kind in affinity:
        required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        cluster.pod["spec"]["affinity"] = {kind: required}
    return cluster


def test_the_pod_that_anti_affinity_keeps_away_from_is_named(tmp_path: Path) -> None:
    cluster = beside_a_pod(podAntiAffinity=True)
    cluster.add(gpu_pod("big", "", nodeName="node-1"))
    verdict = explained(cluster, tmp_path)
    assert verdict["code"] == "pod-affinity"
    assert "keeps the pod away from pod default/big, which is in the same kubernetes.io/hostname" in verdict["message"]


def test_the_pod_that_affinity_wants_is_named(tmp_path: Path) -> None:
    cluster = beside_a_pod(podAffinity=True)
    verdict = explained(cluster, tmp_path)
    assert "wants a pod in the same kubernetes.io/hostname as this node that matches app=big" in verdict["message"]


def test_anti_affinity_of_another_pod(tmp_path: Path) -> None:
    cluster = Cluster()
    other = gpu_pod("big", "", nodeName="node-1")
    term = {"labelSelector": {"matchLabels": {"app": "train"}}, "topologyKey": "kubernetes.io/hostname"}
    other["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    cluster.add(other)
    message = explained(cluster, tmp_path)["message"]
    assert "anti-affinity of pod default/big keeps the pod out of its kubernetes.io/hostname" in message


def test_what_usually_helps_is_told_for_all_that_is_in_the_way(tmp_path: Path) -> None:
    cluster = beside_a_pod(podAntiAffinity=True)
    cluster.add(gpu_pod("big", "", nodeName="node-1"))
    cluster.node["spec"]["unschedulable"] = True
    verdict = explained(cluster, tmp_path)
    assert verdict["helps"] == []
    assert verdict["remedy"] == "uncordon the node; and see the affinity terms"


def test_preemption_that_is_under_way(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.request["count"] = 3
    cluster.pod["status"] = {"nominatedNodeName": "node-1"}
    assert explained(cluster, tmp_path)["notes"] == ["the scheduler is freeing node node-1 for the pod by preemption"]


def test_room_that_is_kept_for_a_nominated_pod(tmp_path: Path) -> None:
    """A pod of higher priority waits for a victim to leave; the scheduler does not give its room to others meanwhile."""
    cluster = Cluster()
    victim = gpu_pod("victim", "", cpu="4", nodeName="node-1", priority=0)
    victim["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    urgent = gpu_pod("urgent", "", cpu="8", priority=1000)
    urgent["status"] = {"phase": "Pending", "nominatedNodeName": "node-1"}
    cluster.add(victim, urgent)
    verdict = explained(cluster, tmp_path)
    assert verdict["code"] == "node-resources"
    assert "most is taken by default/urgent (8)" in verdict["message"]
    assert "room is kept for pod default/urgent, nominated for this node" in verdict["message"]
    assert verdict["fix"].startswith("wait until pod default/urgent is placed")
    assert verdict["helps"] == []


def test_what_makes_no_room_beside_a_nominated_pod_is_no_help(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.node["spec"]["unschedulable"] = True
    urgent = gpu_pod("urgent", "", cpu="8", priority=1000)
    urgent["status"] = {"phase": "Pending", "nominatedNodeName": "node-1"}
    cluster.add(urgent)
    verdict = explained(cluster, tmp_path)
    assert verdict["code"] == "node-unschedulable"
    assert verdict["helps"] == []


def test_two_claims_that_are_allocated_on_different_nodes(tmp_path: Path) -> None:
    cluster = Cluster()
    held(cluster.claim, "gpu-0")
    second = held(gpu_claim("second"), "gpu-0", node="node-2")
    cluster.add(gpu_node("node-2"), gpu_slice("node-2"), second)
    cluster.pod["spec"]["resourceClaims"].append({"name": "second", "resourceClaimName": "second"})
    message = explained(cluster, tmp_path)["message"]
    assert "claim default/second is allocated (gpu.example.com/node-2/gpu-0; used by other)" in message
    assert "usable on node-2 only; but claim default/train-gpu is already allocated on this node" in message


def test_a_claim_that_is_allocated_on_a_node_that_is_gone(tmp_path: Path) -> None:
    cluster = Cluster()
    held(cluster.claim, "gpu-0", node="node-9")
    assert "usable on node-9 only, and there is no such node" in explained(cluster, tmp_path)["message"]


@pytest.mark.parametrize(
    ("holder", "said"),
    [
        ({}, "release claim default/other, which pod default/other uses"),
        (
            {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}},
            "reserved for pod default/other, which is being deleted; wait for it",
        ),
        ({"status": {"phase": "Succeeded"}}, "reserved for pod default/other, which has ended; see that the claim"),
        (None, "reserved for pod default/other, which is gone; see that the claim controller runs"),
    ],
)
def test_what_became_of_the_pod_that_holds_the_device(
    holder: dict[str, dict[str, str]] | None, said: str, tmp_path: Path
) -> None:
    cluster = Cluster()
    cluster.slice["spec"]["devices"] = [gpu("gpu-0")]
    cluster.add(held(gpu_claim("other"), "gpu-0"), gpu_pod("third", "", nodeName="node-1"))
    if holder is not None:
        pod = gpu_pod("other", "other", nodeName="node-1")
        for part, fields in holder.items():
            pod.setdefault(part, {}).update(fields)
        cluster.add(pod)
    assert said in explained(cluster, tmp_path)["helps"][0]["text"]


def test_a_group_of_pods_that_holds_the_device_is_not_called_gone(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.slice["spec"]["devices"] = [gpu("gpu-0")]
    other = held(gpu_claim("other"), "gpu-0")
    other["status"]["reservedFor"][0] |= {"apiGroup": "scheduling.k8s.io", "resource": "podgroups"}
    cluster.add(other, gpu_pod("third", "", nodeName="node-1"))
    assert "gone" not in explained(cluster, tmp_path)["helps"][0]["text"]


def test_a_dump_may_lack_the_pods_of_a_namespace(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.slice["spec"]["devices"] = [gpu("gpu-0")]
    cluster.add(held(gpu_claim("other"), "gpu-0"))
    assert "which pod default/other uses" in explained(cluster, tmp_path)["helps"][0]["text"]
