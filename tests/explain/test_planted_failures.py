"""One thing is broken in each cluster; the explanation names it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dray.cli.explain import explain
from tests.explain.manifests import (
    DRIVER,
    RESOURCE,
    Cluster,
    gpu,
    gpu_claim,
    gpu_node,
    gpu_pod,
    gpu_request,
    gpu_slice,
    held,
)

ATTRIBUTES = f'device.attributes["{DRIVER}"]'


def explained(cluster: Cluster, path: Path, *options: str) -> dict[str, Any]:
    file = path / "cluster.json"
    file.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": cluster.documents()}))
    result = CliRunner().invoke(explain, ["pod/train", "-f", str(file), "-o", "json", *options])
    assert result.exit_code in (0, 1), result.output
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def test_nothing_is_broken(tmp_path: Path) -> None:
    verdict = explained(Cluster(), tmp_path)
    assert verdict["code"] == "fits"
    assert verdict["nodes"][0]["devices"] == [f"{DRIVER}/node-1/gpu-0"]


def test_room_is_not_kept_for_a_pod_of_lower_priority(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.pod["spec"]["priority"] = 1000
    later = gpu_pod("later", "", cpu="8")
    later["status"] = {"phase": "Pending", "nominatedNodeName": "node-1"}
    cluster.add(later)
    assert explained(cluster, tmp_path)["code"] == "fits"


# --- claims and classes


def wrong_class_name(c: Cluster) -> None:
    c.request["deviceClassName"] = "gpus"


def missing_claim(c: Cluster) -> None:
    c.without.add("ResourceClaim")


def claim_being_deleted(c: Cluster) -> None:
    c.claim["metadata"] |= {"deletionTimestamp": "2024-01-01T00:00:00Z", "finalizers": ["example.com/slow"]}


def with_template(c: Cluster) -> None:
    c.pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]


def not_the_owner(c: Cluster) -> None:
    with_template(c)
    c.pod["status"] = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "train-gpu"}]}


def claim_not_made(c: Cluster) -> None:
    with_template(c)
    spec = c.claim["spec"]
    c.add(
        {
            "apiVersion": RESOURCE,
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": "one-gpu", "namespace": "default"},
            "spec": {"spec": spec},
        }
    )


def too_many_devices(c: Cluster) -> None:
    c.claim["spec"]["devices"]["requests"] = [gpu_request("a", count=20), gpu_request("b", count=20)]


# --- selectors


def typo_in_attribute(c: Cluster) -> None:
    c.select(f'{ATTRIBUTES}.modell == "a100"')


def wrong_domain(c: Cluster) -> None:
    c.select('device.attributes["gpu.exampel.com"].model == "a100"')


def guarded_typo(c: Cluster) -> None:
    c.select(f'"modell" in {ATTRIBUTES} && {ATTRIBUTES}.modell == "a100"')


def wrong_type(c: Cluster) -> None:
    c.select(f"{ATTRIBUTES}.model == 100")


def other_model(c: Cluster) -> None:
    c.select(f'{ATTRIBUTES}.numa >= 0 && {ATTRIBUTES}.model == "h100"')


def newer_version(c: Cluster) -> None:
    c.select(f'{ATTRIBUTES}.driverVersion.isGreaterThan(semver("2.0.0"))')


def more_memory(c: Cluster) -> None:
    c.select(f'device.capacity["{DRIVER}"].memory.compareTo(quantity("80Gi")) >= 0')


def class_matches_nothing(c: Cluster) -> None:
    c.device_class["spec"]["selectors"][0]["cel"]["expression"] = 'device.driver == "gpu.exmaple.com"'


# --- devices in use, tainted, too small


def in_use(c: Cluster) -> None:
    c.add(held(gpu_claim("taken", gpu_request(count=2)), "gpu-0", "gpu-1"), gpu_pod("other", "taken"))


def one_free_two_wanted(c: Cluster) -> None:
    c.request["count"] = 2
    c.add(held(gpu_claim("taken"), "gpu-0"))


def more_than_published(c: Cluster) -> None:
    c.request["count"] = 3


def no_driver(c: Cluster) -> None:
    c.without.add("ResourceSlice")


def device_taint(c: Cluster) -> None:
    for device in c.devices:
        device["taints"] = [{"key": "example.com/broken", "effect": "NoSchedule"}]


def taint_rule(c: Cluster) -> None:
    c.add(
        {
            "apiVersion": RESOURCE,
            "kind": "DeviceTaintRule",
            "metadata": {"name": "maintenance"},
            "spec": {
                "deviceSelector": {"driver": DRIVER},
                "taint": {"key": "example.com/maintenance", "effect": "NoExecute"},
            },
        }
    )


def with_counters(c: Cluster) -> None:
    drawn = [{"counterSet": "card", "counters": {"memory": {"value": "40Gi"}}}]
    c.slice["spec"]["devices"] = [gpu(f"gpu-{i}", consumesCounters=drawn) for i in range(2)]
    counters = gpu_slice(devices=[], sharedCounters=[{"name": "card", "counters": {"memory": {"value": "40Gi"}}}])
    counters["metadata"]["name"] = "node-1-counters"
    del counters["spec"]["devices"]
    for each in (c.slice, counters):
        each["spec"]["pool"]["resourceSliceCount"] = 2
    c.add(counters)


def counters_used_up(c: Cluster) -> None:
    with_counters(c)
    c.add(held(gpu_claim("taken"), "gpu-0"))


def capacity_too_small(c: Cluster) -> None:
    c.request["capacity"] = {"requests": {"memory": "80Gi"}}


def shareable(c: Cluster, policy: dict[str, Any] | None = None) -> None:
    memory: dict[str, Any] = {"value": "40Gi", **({"requestPolicy": policy} if policy else {})}
    c.slice["spec"]["devices"] = [gpu("gpu-0", allowMultipleAllocations=True, capacity={"memory": memory})]


def share_taken(c: Cluster) -> None:
    shareable(c)
    c.request["capacity"] = {"requests": {"memory": "20Gi"}}
    share = {"shareID": "11111111-1111-4111-8111-111111111111", "consumedCapacity": {"memory": "30Gi"}}
    c.add(held(gpu_claim("taken", gpu_request(capacity={"requests": {"memory": "30Gi"}})), "gpu-0", **share))


def above_policy(c: Cluster) -> None:
    shareable(c, {"default": "10Gi", "validRange": {"min": "10Gi", "max": "20Gi"}})
    c.request["capacity"] = {"requests": {"memory": "30Gi"}}


def rounded_past_the_rest(c: Cluster) -> None:
    shareable(c, {"default": "10Gi", "validRange": {"min": "10Gi", "max": "40Gi", "step": "10Gi"}})
    c.request["capacity"] = {"requests": {"memory": "11Gi"}}
    share = {"shareID": "11111111-1111-4111-8111-111111111111", "consumedCapacity": {"memory": "30Gi"}}
    c.add(held(gpu_claim("taken", gpu_request(capacity={"requests": {"memory": "30Gi"}})), "gpu-0", **share))


def unknown_capacity(c: Cluster) -> None:
    c.request["capacity"] = {"requests": {"bandwidth": "1Gi"}}


# --- constraints


def constrained(c: Cluster, **constraint: str) -> None:
    c.request["count"] = 2
    c.claim["spec"]["devices"]["constraints"] = [constraint]


def match_impossible(c: Cluster) -> None:
    constrained(c, matchAttribute=f"{DRIVER}/numa")


def match_missing(c: Cluster) -> None:
    constrained(c, matchAttribute=f"{DRIVER}/rack")


def distinct_impossible(c: Cluster) -> None:
    constrained(c, distinctAttribute=f"{DRIVER}/model")


def requests_compete(c: Cluster) -> None:
    c.claim["spec"]["devices"]["requests"] = [gpu_request("a", count=2), gpu_request("b")]


# --- pools


def incomplete_pool(c: Cluster) -> None:
    c.slice["spec"]["pool"]["resourceSliceCount"] = 2


def all_of_incomplete_pool(c: Cluster) -> None:
    c.request["allocationMode"] = "All"
    other = gpu_slice(devices=[gpu("nic-0")])
    other["metadata"]["name"] = "node-1-more"
    other["spec"]["pool"] = {"name": "more", "generation": 1, "resourceSliceCount": 2}
    c.add(other)


def all_with_one_in_use(c: Cluster) -> None:
    c.request["allocationMode"] = "All"
    c.add(held(gpu_claim("taken"), "gpu-0"))


def twice_the_same_name(c: Cluster) -> None:
    second = gpu_slice(devices=[gpu("gpu-0")])
    second["metadata"]["name"] = "node-1-second"
    for each in (c.slice, second):
        each["spec"]["pool"]["resourceSliceCount"] = 2
    c.add(second)


def devices_of_another_node(c: Cluster) -> None:
    c.node["metadata"]["name"] = "node-2"


# --- the node


def allocated_elsewhere(c: Cluster) -> None:
    held(c.claim, "gpu-0", pod="", node="node-9")


def cpu_taken_by_a_pod(c: Cluster) -> None:
    c.add(gpu_pod("big", "", cpu="7500m", nodeName="node-1"))


def memory_too_small(c: Cluster) -> None:
    c.pod["spec"]["containers"][0]["resources"]["requests"]["memory"] = "64Gi"


def takes_cpu(c: Cluster, cpu: str) -> None:
    for device in c.devices:
        device["nodeAllocatableResourceMappings"] = {"cpu": {"allocationMultiplier": cpu}}


def cpu_taken_by_a_claim(c: Cluster) -> None:
    takes_cpu(c, "7500m")
    claim = held(gpu_claim("taken"), "gpu-0")
    other = gpu_pod("other", "taken", nodeName="node-1")
    other["spec"]["containers"][0]["resources"]["requests"] = {}
    other["status"] = {
        "nodeAllocatableResourceClaimStatuses": [
            {"resourceClaimName": "taken", "containers": ["main"], "resources": {"cpu": "7500m"}}
        ]
    }
    c.add(claim, other)


def own_devices_take_too_much(c: Cluster) -> None:
    takes_cpu(c, "7500m")


def over_budget(c: Cluster) -> None:
    takes_cpu(c, "4")
    c.pod["spec"]["resources"] = {"requests": {"cpu": "2"}}


def shared_with_another_pod(c: Cluster) -> None:
    takes_cpu(c, "1")
    held(c.claim, "gpu-0")
    c.add(gpu_pod("other", "train-gpu", nodeName="node-1"))


def node_taint(c: Cluster) -> None:
    c.node["spec"]["taints"] = [{"key": "dedicated", "value": "infra", "effect": "NoSchedule"}]


def cordoned(c: Cluster) -> None:
    c.node["spec"]["unschedulable"] = True


def node_selector(c: Cluster) -> None:
    c.pod["spec"]["nodeSelector"] = {"zone": "b"}


def node_affinity(c: Cluster) -> None:
    term = {"matchExpressions": [{"key": "accelerator", "operator": "Exists"}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    c.pod["spec"]["affinity"] = {"nodeAffinity": required}


def named_node(c: Cluster) -> None:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-7"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    c.pod["spec"]["affinity"] = {"nodeAffinity": required}


def pod_count(c: Cluster) -> None:
    c.node["status"]["allocatable"]["pods"] = "1"
    c.add(gpu_pod("other", "", nodeName="node-1"))


def host_port(c: Cluster) -> None:
    ports = [{"containerPort": 80, "hostPort": 8080}]
    other = gpu_pod("other", "", nodeName="node-1")
    for pod in (c.pod, other):
        pod["spec"]["containers"][0]["ports"] = ports
    c.add(other)


def anti_affinity(c: Cluster) -> None:
    term = {"labelSelector": {"matchLabels": {"app": "other"}}, "topologyKey": "kubernetes.io/hostname"}
    c.pod["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    c.add(gpu_pod("other", "", nodeName="node-1"))


def topology_spread(c: Cluster) -> None:
    c.pod["spec"]["topologySpreadConstraints"] = [
        {
            "maxSkew": 1,
            "topologyKey": "rack",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "train"}},
        }
    ]


def extended_resource(c: Cluster) -> None:
    c.pod["spec"]["containers"][0]["resources"] |= {"limits": {"example.com/fpga": "1"}}


def extended_resource_of_devices(c: Cluster) -> None:
    in_use(c)
    c.device_class["spec"]["extendedResourceName"] = "example.com/gpu"
    c.pod["spec"]["resourceClaims"] = []
    c.pod["spec"]["containers"][0]["resources"] = {"limits": {"example.com/gpu": "1"}}


# --- the pod


def scheduling_gate(c: Cluster) -> None:
    c.pod["spec"]["schedulingGates"] = [{"name": "example.com/quota"}]


def other_scheduler(c: Cluster) -> None:
    c.pod["spec"]["schedulerName"] = "my-scheduler"


def no_nodes(c: Cluster) -> None:
    c.without.add("Node")


def cordoned_beside_nodes_without_devices(c: Cluster) -> None:
    cordoned(c)
    c.add(gpu_node("cpu-1"), gpu_node("cpu-2"))


# --- gates


def alternatives(c: Cluster) -> None:
    c.claim["spec"]["devices"]["requests"] = [
        {
            "name": "gpu",
            "firstAvailable": [
                {"name": "big", "deviceClassName": "gpu", "selectors": [{"cel": {"expression": "false"}}]},
                {"name": "two", "deviceClassName": "gpu", "count": 2},
            ],
        }
    ]
    c.add(held(gpu_claim("taken"), "gpu-0"))


def admin_access(c: Cluster) -> None:
    c.request["adminAccess"] = True
    c.add(
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": "default", "labels": {"resource.kubernetes.io/admin-access": "true"}},
        }
    )


def binding_conditions(c: Cluster) -> None:
    for device in c.devices:
        device["bindingConditions"] = ["example.com/ready"]
        device["bindingFailureConditions"] = ["example.com/failed"]


Plant = Callable[[Cluster], None]

CASES: list[tuple[Plant, str, list[str]]] = [
    (wrong_class_name, "missing-class", ["gpus", "did you mean gpu?"]),
    (missing_claim, "claim-missing", ["default/train-gpu"]),
    (claim_being_deleted, "claim-being-deleted", ["train-gpu"]),
    (with_template, "template-missing", ["one-gpu"]),
    (not_the_owner, "claim-not-owned", ["train-gpu", "not owner"]),
    (claim_not_made, "claim-not-created", ["one-gpu"]),
    (too_many_devices, "too-many-devices", ["40", "32"]),
    (typo_in_attribute, "selector-error", ["modell", "did you mean `model`?"]),
    (wrong_domain, "selector-error", ["gpu.exampel.com", f'did you mean \\"{DRIVER}\\"?']),
    (guarded_typo, "request-selector", ["modell", "did you mean `model`?"]),
    (wrong_type, "request-selector", [".model == 100` is false", "a100"]),
    (other_model, "request-selector", ['.model == \\"h100\\"` is false', '.model is \\"a100\\"']),
    (newer_version, "request-selector", ["isGreaterThan", "1.2.0"]),
    (more_memory, "request-selector", ["compareTo", "40Gi"]),
    (class_matches_nothing, "class-selector", ["gpu.exmaple.com", DRIVER]),
    (in_use, "in-use", ["default/taken", "default/other", "release claim default/taken"]),
    (one_free_two_wanted, "in-use", ["1 is free", "default/taken", "ask for 1 instead of 2"]),
    (more_than_published, "too-few-devices", ["wants 3: 2 exist", "ask for 2 instead of 3"]),
    (no_driver, "no-devices", ["none exist", "no ResourceSlices"]),
    (device_taint, "taint", ["example.com/broken:NoSchedule", "tolerate example.com/broken"]),
    (taint_rule, "taint", ["example.com/maintenance:NoExecute"]),
    (counters_used_up, "counters", ["draws 40Gi of counter memory in set card, 0 left", "default/taken"]),
    (
        capacity_too_small,
        "capacity",
        ["80Gi is more than 40Gi", "ask for at most 40Gi memory instead of 80Gi in request"],
    ),
    (
        share_taken,
        "capacity",
        ["20Gi asked, 10Gi of 40Gi left", "default/taken", "30Gi", "ask for at most 10Gi memory instead of 20Gi"],
    ),
    (
        above_policy,
        "capacity",
        ["30Gi is not allowed by the request policy", "ask for at most 20Gi memory instead of 30Gi"],
    ),
    (
        rounded_past_the_rest,
        "capacity",
        ["20Gi asked, 10Gi of 40Gi left", "default/taken", "ask for at most 10Gi memory instead of 11Gi"],
    ),
    (unknown_capacity, "capacity", ["has no capacity bandwidth"]),
    (match_impossible, "constraint", ["numa", "give up the constraint matchAttribute"]),
    (match_missing, "constraint", [f"has no attribute {DRIVER}/rack"]),
    (distinct_impossible, "constraint", ["model", "give up the constraint distinctAttribute"]),
    (requests_compete, "chosen-already", ["requests a, b together want 3", "ask for 1 instead of 2 in request a"]),
    (incomplete_pool, "incomplete-pool", ["1 of 2 slices"]),
    (all_of_incomplete_pool, "pool-not-ready", ["gpu.example.com/more", "being updated"]),
    (all_with_one_in_use, "in-use", ["wants all: 2 exist, 1 is free", "default/taken"]),
    (twice_the_same_name, "invalid-pools", ["duplicate device name gpu-0"]),
    (devices_of_another_node, "no-devices", ["none exist"]),
    (allocated_elsewhere, "claim-elsewhere", ["default/train-gpu", "node-9/gpu-0", "usable on node-9 only"]),
    (cpu_taken_by_a_pod, "node-resources", ["cpu: 1 asked, 500m of 8 free", "default/big (7500m)"]),
    (memory_too_small, "node-resources", ["memory: 64Gi asked, 32Gi of 32Gi free"]),
    (cpu_taken_by_a_claim, "node-resources", ["500m of 8 free", "through claim taken (7500m)"]),
    (own_devices_take_too_much, "node-resources-of-devices", ["8500m asked (7500m of it through claims)"]),
    (over_budget, "pod-budget", ["pod level request for cpu", "5 taken by containers and claims, 2 allowed"]),
    (shared_with_another_pod, "claim-shared", ["train-gpu", "cannot be shared"]),
    (node_taint, "node-taint", ["dedicated=infra:NoSchedule"]),
    (cordoned, "node-unschedulable", ["cordoned", "uncordon the node"]),
    (node_selector, "node-affinity", ["wants zone=b, the node has zone=a"]),
    (node_affinity, "node-affinity", ["accelerator Exists", "no such label"]),
    (named_node, "not-considered", ["node-7"]),
    (pod_count, "too-many-pods", ["pods: 1 asked, 0 of 1 free"]),
    (host_port, "host-port", ["8080/TCP is taken by pod default/other"]),
    (anti_affinity, "pod-affinity", ["anti-affinity"]),
    (topology_spread, "topology-spread", ["no label rack"]),
    (extended_resource, "node-resources", ["example.com/fpga: 1 asked, 0 of 0 free"]),
    (
        extended_resource_of_devices,
        "in-use",
        ["example.com/gpu of container main wants 1", "default/taken"],
    ),
    (scheduling_gate, "scheduling-gates", ["example.com/quota"]),
    (other_scheduler, "other-scheduler", ["my-scheduler"]),
    (no_nodes, "no-nodes", ["there are no nodes"]),
    (cordoned_beside_nodes_without_devices, "node-unschedulable", ["node-1", "uncordon the node"]),
    (alternatives, "in-use", ["gpu/two", "1 is free", "default/taken"]),
]


@pytest.mark.parametrize(("plant", "code", "said"), CASES, ids=lambda value: getattr(value, "__name__", ""))
def test_the_true_cause_is_named(plant: Plant, code: str, said: list[str], tmp_path: Path) -> None:
    cluster = Cluster()
    plant(cluster)
    verdict = explained(cluster, tmp_path)
    assert verdict["code"] == code, verdict["message"]
    text = json.dumps({key: value for key, value in verdict.items() if key != "nodesByCode"})
    for words in said:
        assert words in text, text


GATED: list[tuple[Plant, str, str, list[str]]] = [
    (alternatives, "DRAPrioritizedList=false", "feature-off", ["DRAPrioritizedList"]),
    (admin_access, "DRAAdminAccess=false", "feature-off", ["admin access"]),
    (
        share_taken,
        "DRAConsumableCapacity=false,DRAFractionalCapacityRange=false",
        "feature-off",
        ["DRAConsumableCapacity"],
    ),
    (binding_conditions, "DRADeviceBindingConditions=false", "binding-conditions", ["switched off"]),
]


@pytest.mark.parametrize(("plant", "gates", "code", "said"), GATED, ids=lambda value: getattr(value, "__name__", ""))
def test_a_feature_that_is_off_is_named(plant: Plant, gates: str, code: str, said: list[str], tmp_path: Path) -> None:
    cluster = Cluster()
    plant(cluster)
    verdict = explained(cluster, tmp_path, "--feature-gates", gates)
    assert verdict["code"] == code, verdict["message"]
    text = json.dumps(verdict)
    for words in said:
        assert words in text, text


def test_every_code_here_is_in_the_table() -> None:
    from dray.explain.reason_codes import CODES

    assert {code for _, code, _ in CASES} | {code for _, _, code, _ in GATED} <= CODES.keys()
    assert len(CASES) + len(GATED) >= 40
