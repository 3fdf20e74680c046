"""Every help line names an edit that was rehearsed, with the largest amount that works."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.explain.manifests import (
    DRIVER,
    Cluster,
    Document,
    gpu,
    gpu_claim,
    gpu_node,
    gpu_pod,
    gpu_request,
    gpu_slice,
    held,
)
from tests.explain.test_not_misled import explained, texts

ATTRIBUTES = f'device.attributes["{DRIVER}"]'


def shared_card(cluster: Cluster, capacity: Document, taken: Document, asked: Document) -> None:
    cluster.slice["spec"]["devices"] = [gpu("gpu-0", allowMultipleAllocations=True, capacity=capacity)]
    cluster.request["capacity"] = {"requests": asked}
    share = {"shareID": "11111111-1111-4111-8111-111111111111", "consumedCapacity": taken}
    cluster.add(held(gpu_claim("taken", gpu_request(capacity={"requests": taken})), "gpu-0", **share))


def less_capacity(cluster: Cluster, path: Path) -> str:
    rows = [row["text"] for row in explained(cluster, path)["helps"] if row["code"] == "less-capacity"]
    return rows[0] if rows else ""


def test_two_capacities_of_a_shared_card(tmp_path: Path) -> None:
    cluster = Cluster()
    sizes = {"default": "140Gi", "validRange": {"min": "1Gi", "max": "140Gi", "step": "1Gi"}}
    cores = {"default": "0", "validRange": {"min": "0", "step": "1"}}
    shared_card(
        cluster,
        {
            "memory": {"value": "143771Mi", "requestPolicy": sizes},
            "multiprocessors": {"value": "132", "requestPolicy": cores},
        },
        {"memory": "120Gi", "multiprocessors": "120"},
        {"memory": "40Gi", "multiprocessors": "40"},
    )
    assert less_capacity(cluster, tmp_path) == (
        "ask for at most 20Gi memory instead of 40Gi, at most 12 multiprocessors instead of 40 in request gpu "
        "(then node-1 fits)"
    )


@pytest.mark.parametrize(
    ("policy", "taken", "asked", "most"),
    [
        pytest.param(None, "30Gi", "20Gi", "10Gi", id="no-policy"),
        pytest.param({"default": "5Gi", "validValues": ["5Gi", "8Gi", "20Gi"]}, "30Gi", "20Gi", "8Gi", id="values"),
        pytest.param(
            {"default": "1Gi", "validRange": {"min": "1Gi", "step": "4Gi"}}, "30Gi", "20Gi", "9Gi", id="steps"
        ),
        pytest.param({"default": "1Gi", "validRange": {"min": "1Gi", "max": "8Gi"}}, "1Gi", "20Gi", "8Gi", id="max"),
        pytest.param({"default": "30Gi", "validRange": {"min": "30Gi"}}, "30Gi", "35Gi", "", id="nothing-works"),
    ],
)
def test_the_largest_amount_that_works(
    tmp_path: Path, policy: Document | None, taken: str, asked: str, most: str
) -> None:
    cluster = Cluster()
    memory: dict[str, Any] = {"value": "40Gi", **({"requestPolicy": policy} if policy else {})}
    shared_card(cluster, {"memory": memory}, {"memory": taken}, {"memory": asked})
    said = f"ask for at most {most} memory instead of {asked} in request gpu (then node-1 fits)" if most else ""
    assert less_capacity(cluster, tmp_path) == said


def test_the_largest_of_several_devices(tmp_path: Path) -> None:
    cluster = Cluster()
    sizes = ("40G", "100G", "60G")
    cluster.slice["spec"]["devices"] = [gpu(f"gpu-{i}", capacity={"memory": size}) for i, size in enumerate(sizes)]
    cluster.request["capacity"] = {"requests": {"memory": "250G"}}
    assert less_capacity(cluster, tmp_path).startswith("ask for at most 100G memory instead of 250G")


def test_an_amount_that_would_be_rounded_up_is_not_suggested(tmp_path: Path) -> None:
    cluster = Cluster()
    cores = {"value": "8", "requestPolicy": {"default": "1", "validRange": {"min": "1", "step": "1"}}}
    shared_card(cluster, {"cores": cores}, {"cores": "7500m"}, {"cores": "2"})
    assert less_capacity(cluster, tmp_path) == ""


def test_one_device_serves_two_shares_of_half_the_size(tmp_path: Path) -> None:
    cluster = Cluster()
    memory = {"value": "40Gi", "requestPolicy": {"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi"}}}
    shared_card(cluster, {"memory": memory}, {"memory": "29Gi"}, {"memory": "8Gi"})
    more = gpu_request("second", capacity={"requests": {"memory": "8Gi"}})
    cluster.claim["spec"]["devices"]["requests"].append(more)
    assert less_capacity(cluster, tmp_path) == (
        "ask for at most 3Gi memory instead of 8Gi in request gpu (then node-1 fits)"
    )


# --- devices and claims


def test_all_claims_that_have_to_go_are_named(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.request["count"] = 2
    cluster.add(held(gpu_claim("one"), "gpu-0"), held(gpu_claim("two"), "gpu-1", pod="third"))
    assert texts(explained(cluster, tmp_path))[0] == (
        "release claims default/one (pod default/other), default/two (pod default/third) (then node-1 fits)"
    )


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        pytest.param(f'{ATTRIBUTES}.modell == "a100"', f'{ATTRIBUTES}.model == "a100"', id="name"),
        pytest.param(
            'device.attributes["gpu.exampel.com"].model == "a100"', f'{ATTRIBUTES}.model == "a100"', id="domain"
        ),
        pytest.param(f'{ATTRIBUTES}.numa == "1"', f"{ATTRIBUTES}.numa == 1", id="type"),
        pytest.param(
            f'device.capacity["{DRIVER}"].memory.compareTo(quantity("80Gi")) >= 0',
            f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0',
            id="amount",
        ),
        pytest.param(
            f'{ATTRIBUTES}.numa >= 0 && {ATTRIBUTES}.model == "h100"',
            f'{ATTRIBUTES}.numa >= 0 && {ATTRIBUTES}.model == "a100"',
            id="value",
        ),
        pytest.param(
            f'{ATTRIBUTES}.driverVersion.isGreaterThan(semver("2.0.0")) && {ATTRIBUTES}.numa >= 0',
            f"{ATTRIBUTES}.numa >= 0",
            id="condition-left-out",
        ),
    ],
)
def test_a_selector_is_corrected(tmp_path: Path, wrong: str, right: str) -> None:
    cluster = Cluster()
    cluster.select(wrong)
    assert texts(explained(cluster, tmp_path)) == [
        f"write `{right}` instead of `{wrong}` in request gpu (then node-1 fits)"
    ]


def test_a_selector_that_cannot_be_corrected_is_left_out(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.select("false")
    assert texts(explained(cluster, tmp_path)) == ["leave out the selector `false` of request gpu (then node-1 fits)"]


# --- nodes


def test_all_nodes_that_fit_are_counted(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.request["count"] = 3
    for number in range(2, 41):
        cluster.add(gpu_node(f"node-{number}"), gpu_slice(f"node-{number}"))
    (help_,) = texts(explained(cluster, tmp_path))
    assert help_ == "ask for 2 instead of 3 in request gpu (then node-1, node-2, node-3 and 37 more fit)"


def test_one_of_many_cordoned_nodes(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.node["spec"]["unschedulable"] = True
    for number in range(2, 9):
        cluster.add(gpu_node(f"node-{number}", unschedulable=True), gpu_slice(f"node-{number}"))
    assert texts(explained(cluster, tmp_path)) == [
        "kubectl uncordon node-1 (then node-1 fits; the same helps on node-2, node-3, node-4 and 4 more)"
    ]


CORDON_TAINT = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def test_the_taint_of_a_cordoned_node_needs_no_toleration(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.node["spec"] |= {"unschedulable": True, "taints": [CORDON_TAINT]}
    verdict = explained(cluster, tmp_path)
    assert texts(verdict) == ["kubectl uncordon node-1 (then node-1 fits)"]
    assert [row["code"] for row in verdict["nodes"][0]["refusals"]] == ["node-unschedulable"]
    assert "taint" not in verdict["message"]


def test_a_cordoned_node_with_another_taint_needs_a_toleration_of_that_one_only(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.node["spec"] |= {
        "unschedulable": True,
        "taints": [{"key": "dedicated", "effect": "NoSchedule"}, CORDON_TAINT],
    }
    assert texts(explained(cluster, tmp_path)) == [
        "kubectl uncordon node-1; and add {key: dedicated, operator: Exists, effect: NoSchedule} to the pod's tolerations "
        "(then node-1 fits)"
    ]


def test_the_taint_alone_is_tolerated(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.node["spec"]["taints"] = [CORDON_TAINT]
    assert [row["code"] for row in explained(cluster, tmp_path)["helps"]] == ["tolerate-node-taint"]


def test_one_step_that_removes_two_obstacles_is_enough(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.pod["spec"]["nodeSelector"] = {"rack": "r1"}
    spread = {"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}
    cluster.pod["spec"]["topologySpreadConstraints"] = [spread]
    verdict = explained(cluster, tmp_path)
    assert [row["code"] for row in verdict["nodes"][0]["refusals"]] == ["node-affinity", "topology-spread"]
    assert texts(verdict) == ["kubectl label node node-1 rack=r1 (then node-1 fits)"]


def test_a_node_selector_that_may_go(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.pod["spec"]["nodeSelector"] = {"zone": "a", "kubernetes.io/hostname": "node-2"}
    held(cluster.claim, "gpu-0", pod="other")
    assert texts(explained(cluster, tmp_path)) == [
        "remove kubernetes.io/hostname=node-2 from the pod's nodeSelector (then node-1 fits)"
    ]


def test_the_label_command(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.pod["spec"]["nodeSelector"] = {"zone": "b"}
    term = {"matchExpressions": [{"key": "accelerator", "operator": "In", "values": ["gpu", "tpu"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    cluster.pod["spec"]["affinity"] = {"nodeAffinity": required}
    assert texts(explained(cluster, tmp_path)) == [
        "kubectl label node node-1 zone=b accelerator=gpu --overwrite (then node-1 fits)"
    ]


def test_the_toleration_as_it_is_written(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.node["spec"]["taints"] = [{"key": "dedicated", "value": "infra", "effect": "NoSchedule"}]
    assert texts(explained(cluster, tmp_path)) == [
        "add {key: dedicated, value: infra, effect: NoSchedule} to the pod's tolerations (then node-1 fits)"
    ]


@pytest.mark.parametrize(
    ("asked", "taken", "said"),
    [
        pytest.param(
            "6",
            "4",
            [
                "let the pod ask for at most 4 cpu instead of 6 (then node-1 fits)",
                "free 2 cpu on node-1, for example of pod default/big (then node-1 fits)",
            ],
            id="others-take-the-rest",
        ),
        pytest.param(
            "10",
            "4",
            ["let the pod ask for at most 4 cpu instead of 10 (then node-1 fits)"],
            id="freeing-alone-never-suffices",
        ),
        pytest.param(
            "10",
            "8",
            [
                "let the pod ask for at most 8 cpu instead of 10, and free 8 cpu on node-1, for example of pod "
                "default/big (then node-1 fits)"
            ],
            id="nothing-is-free",
        ),
    ],
)
def test_cpu_that_works(tmp_path: Path, asked: str, taken: str, said: list[str]) -> None:
    cluster = Cluster()
    cluster.pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = asked
    cluster.add(gpu_pod("big", "", cpu=taken, nodeName="node-1"))
    assert texts(explained(cluster, tmp_path)) == said


def test_several_things_in_the_way_are_told_as_steps(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.node["spec"] |= {"unschedulable": True, "taints": [{"key": "dedicated", "effect": "NoSchedule"}]}
    cluster.request["count"] = 3
    verdict = explained(cluster, tmp_path)
    assert [row["code"] for row in verdict["helps"]] == ["uncordon+tolerate-node-taint+fewer-devices"]
    assert texts(verdict) == [
        "kubectl uncordon node-1; and add {key: dedicated, operator: Exists, effect: NoSchedule} to the pod's tolerations; "
        "and ask for 2 instead of 3 in request gpu (then node-1 fits)"
    ]


def test_a_node_with_more_left_is_nearer(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "7"
    cluster.add(gpu_pod("big-1", "", cpu="6", nodeName="node-1"))
    for number, cpu in ((2, "5"), (3, "7"), (4, "7"), (5, "2")):
        node = f"node-{number}"
        cluster.add(gpu_node(node), gpu_slice(node), gpu_pod(f"big-{number}", "", cpu=cpu, nodeName=node))
    verdict = explained(cluster, tmp_path)
    assert [row["node"] for row in verdict["nodes"]][:2] == ["node-5", "node-2"]
    assert texts(verdict)[0] == "let the pod ask for at most 6 cpu instead of 7 (then node-5 fits)"


def test_who_is_told_to_change_a_claim_is_told_that_it_cannot_be_changed_in_place(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.request["count"] = 3
    note = "a claim cannot be changed: delete the pod and the claim, and create both again as the advice says"
    assert explained(cluster, tmp_path)["notes"] == [note]
    del cluster.pod["metadata"]["uid"]
    assert note not in explained(cluster, tmp_path)["notes"]


def test_advice_about_the_pod_alone_says_nothing_of_claims(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.node["spec"]["unschedulable"] = True
    assert explained(cluster, tmp_path)["notes"] == []
