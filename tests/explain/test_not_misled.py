"""Something stands beside the cause and looks like it; the explanation is not misled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dray.cli.explain import explain
from dray.explain.cluster_objects import similar_name
from tests.explain.manifests import (
    DRIVER,
    RESOURCE,
    Cluster,
    Document,
    gpu,
    gpu_claim,
    gpu_node,
    gpu_request,
    gpu_slice,
    held,
)


def explained(cluster: Cluster, path: Path) -> dict[str, Any]:
    file = path / "cluster.json"
    file.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": cluster.documents()}))
    result = CliRunner().invoke(explain, ["pod/train", "-f", str(file), "-o", "json"])
    assert result.exit_code == 1, result.output
    verdict: dict[str, Any] = json.loads(result.stdout)
    return verdict


def unfinished(driver: str, devices: list[Document]) -> Document:
    made = gpu_slice(devices=devices, driver=driver, pool="half", slices=2)
    made["metadata"]["name"] = "half"
    return made


def texts(verdict: dict[str, Any]) -> list[str]:
    return [row["text"] for row in verdict["helps"]]


# --- pools


def test_an_incomplete_pool_of_another_driver_is_not_the_cause(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.device_class["spec"]["selectors"][0]["cel"]["expression"] = 'device.driver == "tpu.example.com"'
    cluster.add(unfinished("nic.example.com", [gpu("nic-0")]))
    verdict = explained(cluster, tmp_path)
    assert verdict["code"] == "class-selector"
    assert "incomplete" not in verdict["message"]


def test_an_incomplete_pool_with_devices_that_match_is_the_cause(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.select(f'device.attributes["{DRIVER}"].model == "h100"')
    new = gpu("gpu-7")
    new["attributes"]["model"] = {"string": "h100"}
    cluster.add(unfinished(DRIVER, [new]))
    verdict = explained(cluster, tmp_path)
    assert verdict["code"] == "incomplete-pool"
    assert f"pool {DRIVER}/half is incomplete: 1 of 2 slices are there" in verdict["message"]


def test_an_incomplete_pool_without_devices_that_match_is_not(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.select(f'device.attributes["{DRIVER}"].model == "h100"')
    cluster.add(unfinished(DRIVER, [gpu("gpu-7")]))
    assert explained(cluster, tmp_path)["code"] == "request-selector"


# --- taints


def tainted(device: Document, *keys: str) -> None:
    device["taints"] = [{"key": f"example.com/{key}", "effect": "NoSchedule"} for key in keys]


def test_both_taints_of_a_device_have_to_be_tolerated(tmp_path: Path) -> None:
    cluster = Cluster()
    for device in cluster.devices:
        tainted(device, "broken", "hot")
    verdict = explained(cluster, tmp_path)
    assert verdict["code"] == "taint"
    both = "example.com/broken:NoSchedule, example.com/hot:NoSchedule"
    assert f"taints {both} are not tolerated" in json.dumps(verdict)
    assert texts(verdict) == [f"tolerate {both} in the request (then node-1 fits)"]


def test_the_fewest_taints_are_suggested(tmp_path: Path) -> None:
    cluster = Cluster()
    tainted(cluster.devices[0], "broken", "hot")
    tainted(cluster.devices[1], "hot")
    assert texts(explained(cluster, tmp_path)) == [
        "tolerate example.com/hot:NoSchedule in the request (then node-1 fits)"
    ]


def test_two_devices_may_need_the_taints_of_both(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.request["count"] = 2
    tainted(cluster.devices[0], "broken")
    tainted(cluster.devices[1], "hot")
    assert texts(explained(cluster, tmp_path)) == [
        "tolerate example.com/broken:NoSchedule, example.com/hot:NoSchedule in the request (then node-1 fits)"
    ]


# --- selectors


def test_the_nearest_device_is_of_the_driver_that_was_meant(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.device_class["spec"]["selectors"] = []
    cluster.select('device.attributes["gpu.exampel.com"].model == "a100"')
    other = gpu_slice(driver="cpu.example.com")
    other["metadata"]["name"] = "cpus"
    cluster.add(other)
    nearest = explained(cluster, tmp_path)["nodes"][0]["nearest"]
    assert nearest["device"].startswith(DRIVER)
    assert nearest["hints"] == [
        'device.attributes["gpu.exampel.com"] is not published; did you mean "gpu.example.com"?'
    ]


def test_an_attribute_may_be_meant_as_a_capacity(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.select(f'device.attributes["{DRIVER}"].memory == "40Gi"')
    (hint,) = explained(cluster, tmp_path)["nodes"][0]["nearest"]["hints"]
    assert hint.endswith(f'did you mean device.capacity["{DRIVER}"].memory?')


# --- what is taken


def test_a_request_that_is_short_twice_says_so(tmp_path: Path) -> None:
    """One card is taken as a whole, of another a partition is."""
    cluster = Cluster()
    cluster.request["count"] = 2
    counters = {"memory": {"value": "40Gi"}}
    cards = [f"card-{i}" for i in range(2)]
    sets = gpu_slice(devices=[], sharedCounters=[{"name": card, "counters": counters} for card in cards])
    sets["metadata"]["name"] = "counters"
    del sets["spec"]["devices"]
    for published in (sets, cluster.slice):
        published["spec"]["pool"]["resourceSliceCount"] = 2
    for device, card in zip(cluster.devices, cards, strict=True):
        device["consumesCounters"] = [{"counterSet": card, "counters": counters}]
    part = gpu("part-1", consumesCounters=[{"counterSet": "card-1", "counters": {"memory": {"value": "10Gi"}}}])
    part["attributes"]["model"] = {"string": "partition"}
    cluster.devices.append(part)
    cluster.select(f'device.attributes["{DRIVER}"].model == "a100"')
    cluster.add(sets, held(gpu_claim("whole"), "gpu-0"), held(gpu_claim("piece"), "part-1"))
    verdict = explained(cluster, tmp_path)
    assert verdict["code"] == "in-use"
    assert "3 exist, 2 match the selectors, 1 is free, none fit capacity and counters" in verdict["message"]


def test_a_taint_of_a_rule_is_told_with_the_rule(tmp_path: Path) -> None:
    cluster = Cluster()
    taint = {"key": "example.com/ecc", "effect": "NoSchedule"}
    cluster.add(
        {
            "apiVersion": "resource.k8s.io/v1beta2",
            "kind": "DeviceTaintRule",
            "metadata": {"name": "bad-cards"},
            "spec": {"deviceSelector": {"driver": DRIVER}, "taint": taint},
        }
    )
    detail = explained(cluster, tmp_path)["nodes"][0]["nearest"]["detail"]
    assert detail == "taint example.com/ecc:NoSchedule is not tolerated (set by DeviceTaintRule bad-cards)"


def test_alternatives_are_tried_as_well(tmp_path: Path) -> None:
    cluster = Cluster()
    selector = {"cel": {"expression": "device.driver == 'none'"}}
    options = [
        {"name": "many", "deviceClassName": "gpu", "count": 3},
        {"name": "other", "deviceClassName": "gpu", "selectors": [selector]},
    ]
    cluster.claim["spec"]["devices"]["requests"] = [{"name": "gpu", "firstAvailable": options}]
    assert texts(explained(cluster, tmp_path)) == [
        "ask for 2 instead of 3 in request gpu/many (then node-1 fits)",
        f"write `device.driver == \"{DRIVER}\"` instead of `device.driver == 'none'` in request gpu/other (then node-1 fits)",
    ]


# --- the node


def test_nothing_can_be_freed_where_nothing_is_taken(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "20"
    assert texts(explained(cluster, tmp_path)) == ["let the pod ask for at most 8 cpu instead of 20 (then node-1 fits)"]


def test_two_resources_that_are_short_have_to_change_both(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.pod["spec"]["containers"][0]["resources"]["requests"] |= {"cpu": "20", "memory": "64Gi"}
    assert texts(explained(cluster, tmp_path)) == [
        "let the pod ask for at most 8 cpu instead of 20 and at most 32Gi memory instead of 64Gi (then node-1 fits)"
    ]


def test_a_resource_that_nobody_offers_cannot_be_freed(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.pod["spec"]["containers"][0]["resources"]["limits"] = {"example.com/fpga": "1"}
    (help_,) = texts(explained(cluster, tmp_path))
    assert help_.startswith("offer 1 example.com/fpga on node-1: a device plugin, or devices of a class")


def test_uncordoning_a_node_that_the_pod_does_not_want_is_no_help(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "node-1"}
    cluster.pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "20"
    cluster.add(gpu_node("node-2", unschedulable=True), gpu_slice("node-2"))
    verdict = explained(cluster, tmp_path)
    assert texts(verdict) == ["let the pod ask for at most 8 cpu instead of 20 (then node-1 fits)"]
    codes = {row["node"]: [each["code"] for each in row["refusals"]] for row in verdict["nodes"]}
    assert codes["node-2"][:2] == ["node-unschedulable", "node-affinity"]


def test_a_node_that_affinity_rules_out_is_told_once(tmp_path: Path) -> None:
    cluster = Cluster()
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-7"]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    cluster.pod["spec"]["affinity"] = {"nodeAffinity": required}
    (row,) = explained(cluster, tmp_path)["nodes"]
    assert [each["plugin"] for each in row["refusals"]] == ["NodeAffinity"]


# --- requests together


def test_the_constraint_that_requests_fail_together_is_named(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.slice["spec"]["devices"] = [gpu(f"gpu-{number}") for number in range(4)]
    for device in cluster.devices:
        device["attributes"]["numa"] = {"int": int(device["name"][-1]) % 2}
    requests = [{"name": name, "exactly": {"deviceClassName": "gpu", "count": 2}} for name in ("a", "b")]
    constraint = {"matchAttribute": f"{DRIVER}/numa"}
    cluster.claim["spec"]["devices"] = {"requests": requests, "constraints": [constraint]}
    verdict = explained(cluster, tmp_path)
    assert verdict["code"] == "constraint"
    assert f"requests a, b together want 4 devices with the same {DRIVER}/numa" in verdict["message"]


# --- what was not handed in


def template(name: str) -> Document:
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu", "count": 3}}]}}
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": RESOURCE, "kind": "ResourceClaimTemplate", "metadata": metadata, "spec": {"spec": spec}}


def test_a_dump_without_claims_makes_the_answer_doubtful(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.without.add("ResourceClaim")
    assert explained(cluster, tmp_path)["notes"] == ["the cluster or dump holds no ResourceClaims"]


def test_claims_of_a_pod_that_is_not_created_have_names_that_are_made_up(tmp_path: Path) -> None:
    cluster = Cluster()
    del cluster.pod["metadata"]["uid"]
    cluster.pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "three"}]
    cluster.add(template("three"))
    verdict = explained(cluster, tmp_path)
    assert verdict["code"] == "too-few-devices"
    assert verdict["notes"] == ["the pod is not created yet: names of claims that would be made for it are made up"]


def test_the_nearest_device_misses_what_makes_the_request_short(tmp_path: Path) -> None:
    """Three are asked for and two are of the class: that one of the two is taken is not what keeps the pod waiting."""
    cluster = Cluster()
    cluster.request["count"] = 3
    other = gpu("gpu-9")
    other["attributes"]["model"] = {"string": "toy"}
    cluster.devices.append(other)
    cluster.device_class["spec"]["selectors"][0]["cel"]["expression"] = f'device.attributes["{DRIVER}"].model == "a100"'
    cluster.add(held(gpu_claim("taken"), "gpu-0"))
    verdict = explained(cluster, tmp_path)
    assert verdict["code"] == "class-selector"
    assert "wants 3: 3 exist, 2 match the class gpu, 1 is free" in verdict["message"]
    assert verdict["nodes"][0]["nearest"]["device"] == f"{DRIVER}/node-1/gpu-9"


def test_of_two_nodes_the_one_with_more_devices_left_is_nearer(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.request["count"] = 3
    cluster.add(gpu_node("node-2"), gpu_slice("node-2"), held(gpu_claim("taken"), "gpu-0"))
    verdict = explained(cluster, tmp_path)
    assert [row["node"] for row in verdict["nodes"]] == ["node-2", "node-1"]


# --- pods that have a node


def bound(cluster: Cluster) -> None:
    cluster.pod["spec"]["nodeName"] = "node-1"
    cluster.pod["status"] = {"phase": "Pending"}


def placed(cluster: Cluster, path: Path) -> dict[str, Any]:
    file = path / "cluster.json"
    file.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": cluster.documents()}))
    result = CliRunner().invoke(explain, ["pod/train", "-f", str(file), "-o", "json"])
    found: dict[str, Any] = json.loads(result.stdout)
    assert result.exit_code == (0 if found["code"] == "scheduled" else 1), result.output
    return found


def test_a_pod_that_has_its_devices_and_does_not_start_points_to_the_driver(tmp_path: Path) -> None:
    cluster = Cluster()
    bound(cluster)
    held(cluster.claim, "gpu-0", pod="train")
    verdict = placed(cluster, tmp_path)
    assert verdict["message"] == "default/train is on node node-1 with its devices, and has not started"
    assert verdict["fix"] == f"see what driver {DRIVER} says: kubectl describe pod/train -n default"
    assert verdict["details"] == [f"devices: claim train-gpu, request gpu: {DRIVER}/node-1/gpu-0"]


def test_a_driver_that_is_gone_is_named(tmp_path: Path) -> None:
    cluster = Cluster()
    bound(cluster)
    held(cluster.claim, "gpu-0", pod="train")
    cluster.without.add("ResourceSlice")
    verdict = placed(cluster, tmp_path)
    assert verdict["code"] == "dead-driver"
    assert f"waits on node node-1 for driver {DRIVER}, with nothing published" in verdict["message"]


def test_a_pod_that_was_put_on_a_node_by_hand_has_no_devices(tmp_path: Path) -> None:
    cluster = Cluster()
    bound(cluster)
    verdict = placed(cluster, tmp_path)
    assert verdict["code"] == "pod-without-devices"
    assert "its claim train-gpu has no devices" in verdict["message"]


def test_a_pod_that_runs_is_told_with_its_devices(tmp_path: Path) -> None:
    cluster = Cluster()
    bound(cluster)
    cluster.pod["status"] = {"phase": "Running"}
    held(cluster.claim, "gpu-0", pod="train")
    assert placed(cluster, tmp_path)["details"] == [
        "node: node-1 is the only one of 1 nodes that fits",
        f"devices: claim train-gpu, request gpu: {DRIVER}/node-1/gpu-0 (2 would do; devices are tried in the order in "
        "which they are published)",
    ]


def test_a_node_where_one_request_is_short_is_nearer_than_one_where_two_are(tmp_path: Path) -> None:
    """node-1: its card is held, and the other request's card is tainted, too. node-2: only the taint is in the way."""
    cluster = Cluster()
    tainted = [{"key": "maintenance", "effect": "NoSchedule"}]
    numbers = [f'device.attributes["{DRIVER}"].numa == {number}' for number in (0, 1)]
    cluster.claim["spec"]["devices"]["requests"] = [gpu_request(f"r{n}", text) for n, text in enumerate(numbers)]
    devices = [gpu("gpu-0"), gpu("gpu-1", taints=tainted)]
    cluster.slice["spec"]["devices"] = devices
    cluster.add(gpu_node("node-2"), gpu_slice("node-2", devices))
    cluster.add(held(gpu_claim("other"), "gpu-0"))
    verdict = explained(cluster, tmp_path)
    assert [row["node"] for row in verdict["nodes"]] == ["node-2", "node-1"]
    assert verdict["code"] == "taint"
    assert texts(verdict)[0] == "tolerate maintenance:NoSchedule in the request (then node-2 fits)"


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("onee", ["one", "lonely"], "one"),
        ("none", ["lonely"], ""),
        ("example.com/cards", ["example.com/card"], "example.com/card"),
        ("example.com/nope", ["example.com/gpu"], ""),
        ("exmaple.com/gpu", ["example.com/gpu"], "example.com/gpu"),
        ("gpu", ["", "cpu-of-a-node"], ""),
    ],
)
def test_only_a_name_that_is_much_alike_is_taken_for_the_one_that_was_meant(
    name: str, known: list[str], meant: str
) -> None:
    assert similar_name(name, known) == (f"; did you mean {meant}?" if meant else "")


def test_requests_of_one_name_are_told_with_their_claims(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.slice["spec"]["devices"] = [gpu("gpu-0")]
    cluster.add(gpu_claim("second"))
    cluster.pod["spec"]["resourceClaims"].append({"name": "more", "resourceClaimName": "second"})
    assert explained(cluster, tmp_path)["message"].startswith(
        "default/train waits: requests gpu of claim default/train-gpu, gpu of claim default/second together want 2 devices, "
        "and there is 1 that they could share out"
    )
