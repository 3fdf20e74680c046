"""`dray simulate` as a user runs it: contract of the JSON, order, what-if, and bad input."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from tests.builders.manifests import a_class, a_template
from tests.explain.manifests import DRIVER, gpu, gpu_claim, gpu_node, gpu_pod, gpu_request, gpu_slice, held

from dray.cli.simulate import simulate
from dray.explain.reason_codes import CODES
from dray.sim.reports.plots import distribution

Document = dict[str, Any]


def gpu_template(name: str = "one-gpu", *requests: Document) -> Document:
    return a_template(name, *(requests or [gpu_request()]))


def a_waiting_pod(name: str, *, created: str = "", priority: int | None = None, template: str = "one-gpu") -> Document:
    pod = gpu_pod(name, "")
    del pod["metadata"]["uid"]
    pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": template}]
    if created:
        pod["metadata"]["creationTimestamp"] = created
    if priority is not None:
        pod["spec"]["priority"] = priority
    return pod


def run(path: Path, documents: list[Document], *options: str) -> Result:
    file = path / "dump.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}))
    return CliRunner().invoke(simulate, ["-f", str(file), *options])


def simulated(path: Path, documents: list[Document], *options: str) -> Document:
    result = run(path, documents, "-o", "json", *options)
    assert result.exit_code in (0, 1), result.output
    found: Document = json.loads(result.stdout)
    return found


def where(document: Document) -> dict[str, str]:
    return {row["name"]: row["node"] for row in document["pods"]}


BASE = [gpu_node(), gpu_slice(), a_class(), gpu_template()]


def test_the_contract_of_the_document(tmp_path: Path) -> None:
    document = simulated(tmp_path, [*BASE, a_waiting_pod("train")])
    assert set(document) == {"pods", "nodes", "summary"}
    [pod] = document["pods"]
    assert {"namespace", "name", "outcome", "node", "message", "demand", "claims"} <= set(pod)
    assert (pod["outcome"], pod["node"], pod["message"], pod["demand"]) == ("scheduled", "node-1", "", {"cpu": "1"})
    [claim] = pod["claims"]
    assert claim["name"].startswith("train-gpu-")
    assert [row["device"] for row in claim["allocation"]["devices"]["results"]] == ["gpu-0"]
    [node] = document["nodes"]
    assert set(node) == {"name", "allocatable", "requested", "claimStates"}
    assert (node["allocatable"]["cpu"], node["requested"]["cpu"]) == ("8", "1")
    assert document["summary"]["scheduled"] == 1
    counts = {"all": 2, "used": 1, "partlyUsed": 0, "free": 1, "blocked": 0, "tainted": 0}
    assert document["summary"]["devices"] == counts


def test_same_input_same_answer(tmp_path: Path) -> None:
    documents = [*BASE, *(a_waiting_pod(f"pod-{number}") for number in range(3))]
    assert simulated(tmp_path, documents) == simulated(tmp_path, documents)


def test_queue_order_is_priority_then_age_then_place_in_the_files(tmp_path: Path) -> None:
    document = simulated(
        tmp_path,
        [
            *BASE,
            a_waiting_pod("last", created="2024-01-02T00:00:00Z"),
            a_waiting_pod("second", created="2024-01-01T00:00:00Z"),
            a_waiting_pod("third", created="2024-01-01T00:00:00Z"),
            a_waiting_pod("first", created="2024-01-03T00:00:00Z", priority=10),
        ],
    )
    assert [row["name"] for row in document["pods"]] == ["first", "second", "third", "last"]
    assert [row["outcome"] for row in document["pods"]] == ["scheduled", "scheduled", "unschedulable", "unschedulable"]


def test_priority_classes_and_preemption(tmp_path: Path) -> None:
    important = a_waiting_pod("important")
    important["spec"]["priorityClassName"] = "urgent"
    urgent = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 9}
    victim = gpu_pod("victim", "taken", nodeName="node-1")
    both = held(gpu_claim("taken", gpu_request(count=2)), "gpu-0", "gpu-1", pod="victim")
    document = simulated(tmp_path, [*BASE, urgent, both, victim, important])
    assert where(document) == {"important": "node-1"}
    assert document["summary"]["preempted"] == ["default/victim"]


def test_a_missing_template_is_the_message(tmp_path: Path) -> None:
    [pod] = simulated(tmp_path, [*BASE[:3], a_waiting_pod("train")])["pods"]
    assert pod["outcome"] == "unschedulable"
    assert 'resource claim template "one-gpu"' in pod["message"]


def test_codes_say_why(tmp_path: Path) -> None:
    document = simulated(tmp_path, [*BASE, *(a_waiting_pod(f"pod-{number}") for number in range(3))])
    assert [pod["code"] for pod in document["pods"]] == ["scheduled", "scheduled", "in-use"]
    assert document["summary"]["unschedulable"] == 1
    assert document["summary"]["waitingByReason"] == {"in-use": 1}


def test_one_code_for_each_pod_that_never_got_to_the_scheduler(tmp_path: Path) -> None:
    gated, elsewhere, unmade = (
        a_waiting_pod("gated"),
        a_waiting_pod("elsewhere"),
        a_waiting_pod("unmade", template="no"),
    )
    gated["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    elsewhere["spec"]["schedulerName"] = "other"
    document = simulated(tmp_path, [*BASE, gated, elsewhere, unmade])
    codes = {pod["name"]: pod["code"] for pod in document["pods"]}
    assert codes == {"gated": "scheduling-gates", "elsewhere": "other-scheduler", "unmade": "template-missing"}
    assert set(codes.values()) <= set(CODES)
    assert document["summary"]["waitingByReason"] == dict.fromkeys(codes.values(), 1)


def test_claims_that_take_cpu_appear_in_demand_and_ledger(tmp_path: Path) -> None:
    devices = [gpu("gpu-0", nodeAllocatableResourceMappings={"cpu": {"allocationMultiplier": "2"}})]
    document = simulated(tmp_path, [gpu_node(), gpu_slice(devices=devices), *BASE[2:], a_waiting_pod("train")])
    assert document["pods"][0]["demand"] == {"cpu": "3"}
    assert document["nodes"][0]["requested"]["cpu"] == "3"


# --- what if


def test_more_nodes_like_one_of_the_dump(tmp_path: Path) -> None:
    documents = [*BASE, *(a_waiting_pod(f"pod-{number}") for number in range(4))]
    document = simulated(tmp_path, documents, "--add-nodes", "node-1=1")
    assert set(where(document).values()) == {"node-1", "node-1-new-1"}
    assert (document["summary"]["devices"]["used"], document["summary"]["devices"]["all"]) == (4, 4)


def test_more_nodes_from_a_file(tmp_path: Path) -> None:
    template = tmp_path / "big.yaml"
    big = gpu_slice("big", devices=[gpu(f"gpu-{number}") for number in range(8)])
    template.write_text(yaml.safe_dump_all([gpu_node("big"), big]))
    documents = [a_class(), gpu_template(), *(a_waiting_pod(f"pod-{number}") for number in range(7))]
    document = simulated(tmp_path, documents, "--add-nodes", f"{template}=1")
    assert set(where(document).values()) == {"big-new-1"}


def test_autoscaling_finds_the_smallest_number(tmp_path: Path) -> None:
    documents = [*BASE, *(a_waiting_pod(f"pod-{number}") for number in range(9))]
    document = simulated(tmp_path, documents, "--autoscale")
    assert document["summary"]["addedNodes"] == [{"template": "node-1", "count": 4}]
    assert document["summary"]["unschedulable"] == 0


def test_autoscaling_with_two_templates_takes_what_each_kind_of_pod_needs(tmp_path: Path) -> None:
    cpu_node = gpu_node("cpu-node")
    cpu_node["metadata"]["labels"]["kind"] = "cpu"
    node_with_gpus = gpu_node("gpu-node")
    workers = []
    for number in range(5):
        worker = gpu_pod(f"worker-{number}", "", cpu="6", nodeSelector={"kind": "cpu"})
        del worker["metadata"]["uid"]
        workers.append(worker)
    documents = [
        *(cpu_node, node_with_gpus, gpu_slice("gpu-node"), a_class(), gpu_template()),
        *(a_waiting_pod(f"pod-{number}") for number in range(5)),
        *workers,
    ]
    document = simulated(tmp_path, documents, "--autoscale")
    added = {row["template"]: row["count"] for row in document["summary"]["addedNodes"]}
    assert added == {"cpu-node": 4, "gpu-node": 2}
    assert document["summary"]["scheduled"] == 10


SMALL_AND_BIG = [
    gpu_node("small"),
    gpu_slice("small", [gpu("gpu-0")]),
    gpu_node("big"),
    gpu_slice("big", [gpu(f"gpu-{number}") for number in range(4)]),
]


def added_nodes(document: Document) -> dict[str, int]:
    return {row["template"]: row["count"] for row in document["summary"]["addedNodes"]}


@pytest.mark.parametrize(
    ("prices", "added", "price"),
    [
        pytest.param((), {"big": 2}, None, id="fewest-nodes"),
        pytest.param(("small=1", "big=5"), {"small": 6}, 6.0, id="the-small-ones-are-cheaper"),
        pytest.param(("small=1", "big=1.5"), {"big": 2}, 3.0, id="the-big-ones-are-cheaper"),
        pytest.param(("small=1", "big=3"), {"big": 1, "small": 2}, 5.0, id="some-of-each"),
    ],
)
def test_shapes_with_prices(
    prices: tuple[str, ...], added: dict[str, int], price: float | None, tmp_path: Path
) -> None:
    pods = [a_waiting_pod(f"pod-{number}") for number in range(11)]
    options = [option for text in prices for option in ("--price", text)]
    document = simulated(tmp_path, [*SMALL_AND_BIG, a_class(), gpu_template(), *pods], "--autoscale", *options)
    assert added_nodes(document) == added
    assert document["summary"]["autoscale"].get("price") == price
    assert document["summary"]["autoscale"]["lowerBound"] <= (price or sum(added.values()))
    assert document["summary"]["unschedulable"] == 0


def test_limits_and_prices_go_together(tmp_path: Path) -> None:
    pods = [a_waiting_pod(f"pod-{number}") for number in range(9)]
    limits = ["--add-nodes", "small=1", "--add-nodes", "big=9"]
    prices = ["--price", "small=1", "--price", "big=5"]
    document = simulated(tmp_path, [*SMALL_AND_BIG, a_class(), gpu_template(), *pods], "--autoscale", *limits, *prices)
    assert added_nodes(document) == {"big": 1}
    assert document["summary"]["autoscale"]["price"] == 5.0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--price", "node-1=2"], "--price is for --autoscale"),
        (["--autoscale", "--price", "node-1"], "expected TEMPLATE=AMOUNT"),
        (["--autoscale", "--price", "node-1=free"], "expected an amount above zero"),
        (["--autoscale", "--price", "node-1=-1"], "expected an amount above zero"),
        (["--autoscale", "--add-nodes", "node-1=2", "--price", "other=1"], "there is no price for node-1"),
        (["--diff", "leest-fragmentation"], "there is no such file, and the policies are default, least-fragmentation"),
    ],
)
def test_prices_and_differences_that_cannot_be(options: list[str], said: str, tmp_path: Path) -> None:
    result = run(tmp_path, [*BASE, a_waiting_pod("train")], *options)
    assert result.exit_code == 2
    assert said in result.output


# Cards with 8 slots, and pods that want 3, 3, 3, 5, 5 and 5 of them: well packed three cards do.
def cards_and_parts() -> list[Document]:
    drawn = [(size, {"counterSet": "card", "counters": {"slots": {"value": str(size)}}}) for size in (3, 5)]
    parts = [
        gpu(f"part-{size}-{copy}", attributes={"size": {"int": size}}, consumesCounters=[draw])
        for size, draw in drawn
        for copy in range(8 // size)
    ]
    sets = gpu_slice(
        "node-1", devices=[], slices=2, sharedCounters=[{"name": "card", "counters": {"slots": {"value": "8"}}}]
    )
    sets["metadata"]["name"] = "counters"
    del sets["spec"]["devices"]
    small = [{"cel": {"expression": f"device.attributes['{DRIVER}'].size == 3"}}]
    large = [{"cel": {"expression": f"device.attributes['{DRIVER}'].size == 5"}}]
    templates = [
        gpu_template("small", gpu_request(selectors=small)),
        gpu_template("large", gpu_request(selectors=large)),
    ]
    pods = [a_waiting_pod(f"small-{number}", template="small") for number in range(3)]
    pods += [a_waiting_pod(f"large-{number}", template="large") for number in range(3)]
    return [gpu_node(), sets, gpu_slice(devices=parts, slices=2), a_class(), *templates, *pods]


def test_the_lower_bound_counts_parts_of_cards(tmp_path: Path) -> None:
    """24 slots are asked for and a card has 8, so two more are the least; with its order of arrival, no policy finds that."""
    found = simulated(tmp_path, cards_and_parts(), "--autoscale")["summary"]["autoscale"]
    assert (found["nodes"], found["lowerBound"]) == (3, 2)


def ones_and_fours() -> list[Document]:
    """Two nodes with four devices; four pods want one each, then two pods want four. Who spreads the first needs two more nodes."""
    four = [gpu(f"gpu-{number}") for number in range(4)]
    nodes = [each for number in range(2) for each in (gpu_node(f"node-{number}"), gpu_slice(f"node-{number}", four))]
    pods = [a_waiting_pod(f"one-{number}", created="2026-01-01T00:00:00Z") for number in range(4)]
    pods += [a_waiting_pod(f"four-{number}", created="2026-01-02T00:00:00Z", template="four") for number in range(2)]
    return [*nodes, a_class(), gpu_template(), gpu_template("four", gpu_request(count=4)), *pods]


def test_autoscaling_takes_the_best_policy_and_names_it(tmp_path: Path) -> None:
    document = simulated(tmp_path, ones_and_fours(), "--autoscale")
    found = document["summary"]["autoscale"]
    assert [(row["policy"], row["nodes"]) for row in found["tried"]] == [("default", 2), ("least-fragmentation", 1)]
    assert (found["policy"], found["nodes"], found["lowerBound"]) == ("least-fragmentation", 1, 1)
    assert added_nodes(document) == {"node-0": 1}
    text = run(tmp_path, ones_and_fours(), "--autoscale").stdout
    assert "by policy least-fragmentation: 1 more node; default needs 2; no policy can do with less than 1" in text


def test_autoscaling_with_a_named_policy_tries_no_other(tmp_path: Path) -> None:
    document = simulated(tmp_path, cards_and_parts(), "--autoscale", "--policy", "default")
    assert [row["policy"] for row in document["summary"]["autoscale"]["tried"]] == ["default"]


def test_autoscaling_counts_on_pods_that_found_a_node_before_it_began(tmp_path: Path) -> None:
    """Half of the pods want 4 cpu and a device. So the last one leaves the new small node to such a pod, although it is fuller."""
    kinds = {"old": "4", "small": "5", "large": "16"}
    nodes = {name: gpu_node(name) for name in kinds}
    for name, cpu in kinds.items():
        nodes[name]["status"]["allocatable"]["cpu"] = cpu
        nodes[name]["metadata"]["labels"]["kind"] = name
    templates = []
    for name in ("small", "large"):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump_all([nodes[name], gpu_slice(name)]))
        templates += ["--add-nodes", f"{tmp_path / name}.yaml=1"]
    first = a_waiting_pod("first", created="2026-01-01T00:00:00Z")
    first["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "4"
    others = [
        gpu_pod("one", "", cpu="1", nodeSelector={"kind": "small"}),
        gpu_pod("two", "", cpu="8"),
        gpu_pod("last", "", cpu="2"),
    ]
    for number, pod in enumerate(others):
        pod["metadata"]["creationTimestamp"] = f"2026-01-01T00:01:0{number}Z"
    documents = [nodes["old"], gpu_slice("old"), a_class(), gpu_template(), first, *others]
    options = ("--autoscale", *templates, "--policy", "least-fragmentation")
    found = where(simulated(tmp_path, documents, *options))
    assert found == {"first": "old", "one": "small-new-1", "two": "large-new-1", "last": "large-new-1"}


def test_autoscaling_gives_up_on_pods_that_fit_nowhere(tmp_path: Path) -> None:
    documents = [*BASE[:3], gpu_template("nine", gpu_request(count=9)), a_waiting_pod("huge", template="nine")]
    document = simulated(tmp_path, documents, "--autoscale")
    assert document["summary"]["addedNodes"] == []
    assert document["summary"]["unschedulable"] == 1


def test_daemons_come_along_with_a_new_node(tmp_path: Path) -> None:
    daemon = gpu_pod("daemon", "", cpu="7", nodeName="node-1")
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": True}
    daemon["metadata"]["ownerReferences"] = [owner]
    big = a_waiting_pod("big")
    big["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "4"
    document = simulated(tmp_path, [*BASE, daemon, big], "--add-nodes", "node-1=2")
    assert where(document) == {"big": ""}


def test_difference_between_policies(tmp_path: Path) -> None:
    nodes = [gpu_node(f"node-{number}") for number in range(2)]
    slices = [gpu_slice(f"node-{number}") for number in range(2)]
    documents = [*nodes, *slices, a_class(), gpu_template(), a_waiting_pod("a"), a_waiting_pod("b")]
    diff = simulated(tmp_path, documents, "--diff", "least-fragmentation")["diff"]
    assert diff["to"]["name"] == "least-fragmentation"
    [row] = diff["pods"]
    assert row["from"]["node"] != row["to"]["node"]
    assert (diff["from"]["scheduled"], diff["to"]["scheduled"]) == (2, 2)
    # The default spreads: no node is left untouched.
    assert (diff["from"]["fragmentation"]["untouchedNodes"], diff["to"]["fragmentation"]["untouchedNodes"]) == (0, 1)
    lines = run(tmp_path, documents, "--diff", "least-fragmentation").stdout.splitlines()
    [head] = [number for number, line in enumerate(lines) if line.startswith("COMPARED")]
    assert lines[head].split() == ["COMPARED", "DEFAULT", "LEAST-FRAGMENTATION"]
    totals = {line.rsplit(None, 2)[0]: line.rsplit(None, 2)[1:] for line in lines[head + 1 : lines.index("", head)]}
    assert totals["pods that get a node"] == ["2", "2"]
    assert totals["most free on one node"] == ["1", "2"]
    assert totals["nodes with nothing taken"] == ["0", "1"]


def test_defragmentation_is_in_the_document_when_asked_for(tmp_path: Path) -> None:
    documents = [gpu_node("node-0"), gpu_slice("node-0"), a_class(), gpu_template(), a_waiting_pod("a")]
    assert "defragmentation" not in simulated(tmp_path, documents)
    assert simulated(tmp_path, documents, "--defragment")["defragmentation"] == {"room": [], "empty": []}


def test_the_mix_may_come_from_a_file(tmp_path: Path) -> None:
    documents = [gpu_node("node-0"), gpu_slice("node-0"), a_class(), gpu_template(), a_waiting_pod("a")]
    expected = tmp_path / "expected.yaml"
    expected.write_text(yaml.safe_dump_all([gpu_template(), a_waiting_pod("b"), a_waiting_pod("c")]))
    document = simulated(tmp_path, documents, "--policy", "least-fragmentation", "--mix", str(expected))
    assert where(document) == {"a": "node-0"}


def test_difference_between_dumps(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "dump.yaml").write_text(
        yaml.safe_dump_all([gpu_node(), a_class(), gpu_template(), a_waiting_pod("train")])
    )
    diff = simulated(tmp_path, [*BASE, a_waiting_pod("train")], "--diff", str(other))["diff"]
    assert diff["pods"][0]["from"]["outcome"] == "scheduled"
    assert diff["pods"][0]["to"]["outcome"] == "unschedulable"
    assert (diff["from"]["devices"]["all"], diff["to"]["devices"]["all"]) == (2, 0)
    assert diff["to"]["waitingByReason"] == {"no-devices": 1}
    assert diff["to"]["name"] == str(other)


def test_the_report_is_one_file_without_links(tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    pods = [a_waiting_pod(f"pod-{number}") for number in range(3)]
    run(tmp_path, [*BASE, *pods], "--report", str(report))
    text = report.read_text()
    assert text.count("<svg") >= 2
    assert text.count('class="bars"') >= 3
    for section in ("Device use", "Fragmentation", "Ledger by node", "Pods that keep waiting"):
        assert section in text
    # The question, what was read, the policy, the date and the waiting pods come before any plot.
    body = text[text.index("<body>") :]
    start = body[: body.index("Device use")]
    for words in (
        "Which waiting pods get a node?",
        "dump.json",
        "default",
        " UTC",
        "waiting pods",
        "default/pod-2",
        "in-use",
    ):
        assert words in start
    assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", start)
    assert "http://" not in text
    assert "https://" not in text
    assert "<script" not in text


def test_devices_that_others_block_are_not_called_free(tmp_path: Path) -> None:
    counters = {"memory": {"value": "40Gi"}}
    devices = [
        gpu(name, consumesCounters=[{"counterSet": "card", "counters": {"memory": {"value": amount}}}])
        for name, amount in (("gpu-0", "40Gi"), ("part-0", "20Gi"), ("part-1", "20Gi"))
    ]
    sets = gpu_slice(devices=[], slices=2, sharedCounters=[{"name": "card", "counters": counters}])
    sets["metadata"]["name"] = "counters"
    del sets["spec"]["devices"]
    documents = [
        gpu_node(),
        a_class(),
        gpu_template(),
        sets,
        gpu_slice(devices=devices, slices=2),
        a_waiting_pod("train"),
    ]
    report = tmp_path / "report.html"
    run(tmp_path, documents, "--report", str(report))
    text = report.read_text()
    assert "1 device: 1 used, 0 free" in text
    assert "0 devices are free on 0 nodes, at most 0 on one" in text


@pytest.mark.parametrize(
    ("amounts", "columns"),
    [
        ({}, [("0", 0)]),
        ({0: 2, 2: 1}, [("0", 2), ("1", 0), ("2", 1)]),
        ({208: 3, 0: 1}, [("0–17", 1), *[(f"{low}–{low + 17}", 0) for low in range(18, 198, 18)], ("198–215", 3)]),
    ],
)
def test_many_different_numbers_share_columns(amounts: dict[int, int], columns: list[tuple[str, int]]) -> None:
    assert distribution(amounts) == columns


def test_names_in_the_report_are_escaped(tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    pod = a_waiting_pod("train")
    pod["spec"]["schedulerName"] = "<script>alert(1)</script>"
    run(tmp_path, [*BASE, pod], "--report", str(report), "--keep-going")
    assert "<script" not in report.read_text()


# --- bad input


def test_kinds_may_be_missing(tmp_path: Path) -> None:
    for left_out in range(len(BASE)):
        documents = [each for index, each in enumerate(BASE) if index != left_out]
        [pod] = simulated(tmp_path, [*documents, a_waiting_pod("train")])["pods"]
        assert pod["outcome"] == "unschedulable"
        assert pod["message"]
    assert simulated(tmp_path, [])["summary"]["pods"] == 0


def test_versions_may_be_mixed(tmp_path: Path) -> None:
    old = {
        "apiVersion": "resource.k8s.io/v1beta1",
        "kind": "ResourceSlice",
        "metadata": {"name": "old"},
        "spec": {
            "driver": "gpu.example.com",
            "nodeName": "node-1",
            "pool": {"name": "node-1", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0", "basic": {"capacity": {"memory": {"value": "1Gi"}}}}],
        },
    }
    template = gpu_template()
    template["apiVersion"] = "resource.k8s.io/v1beta1"
    template["spec"]["spec"]["devices"]["requests"] = [{"name": "gpu", "deviceClassName": "gpu"}]
    device_class = a_class()
    device_class["apiVersion"] = "resource.k8s.io/v1beta2"
    document = simulated(tmp_path, [gpu_node(), old, template, device_class, a_waiting_pod("train")])
    assert where(document) == {"train": "node-1"}


def test_an_invalid_object_is_named_with_its_file(tmp_path: Path) -> None:
    bad = gpu_claim("bad", gpu_request(count=-1))
    result = run(tmp_path, [*BASE, bad, a_waiting_pod("train")])
    assert result.exit_code == 1
    assert "dump.json: ResourceClaim default/bad: spec.devices.requests[0].exactly.count" in result.output
    assert "Traceback" not in result.output


def test_keep_going_leaves_it_out(tmp_path: Path) -> None:
    bad = gpu_claim("bad", gpu_request(count=-1))
    document = simulated(tmp_path, [*BASE, bad, a_waiting_pod("train")], "--keep-going")
    assert where(document) == {"train": "node-1"}
    assert len(document["summary"]["leftOut"]) == 1


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("a: [1, 2", 2, "dump.yaml"),
        ("- 1\n- 2\n", 2, "expected an object"),
        ("kind: Pod\nmetadata: 5\n", 1, "dump.yaml"),
        ("kind: Pod\nmetadata: {name: x}\nspec: []\n", 1, "Pod"),
        ("metadata: {name: x}\n", 1, "has no kind"),
        ("apiVersion: v1\nkind: Pod\nspec: {}\n", 1, "dump.yaml: Pod"),
        ("apiVersion: resource.k8s.io/v9\nkind: ResourceClaim\nmetadata: {name: x}\n", 1, "ResourceClaim"),
        ("{", 2, "dump.yaml"),
        ("\x00\x01", 2, "dump.yaml"),
    ],
)
def test_files_that_cannot_be_read(text: str, code: int, said: str, tmp_path: Path) -> None:
    file = tmp_path / "dump.yaml"
    file.write_text(text)
    result = CliRunner().invoke(simulate, ["-f", str(file)])
    assert result.exit_code == code, result.output
    assert said in result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    going_on = CliRunner().invoke(simulate, ["-f", str(file), "--keep-going"])
    assert going_on.exit_code == 1
    assert "left out" in going_on.output


def test_wrong_usage(tmp_path: Path) -> None:
    cases = [
        (["-f", str(tmp_path / "nowhere.yaml")], "No such file"),
        ([], "Missing option"),
    ]
    for options, said in cases:
        result = CliRunner().invoke(simulate, options)
        assert (result.exit_code, said in result.output) == (2, True), result.output
    assert run(tmp_path, BASE, "--report", str(tmp_path / "nowhere" / "report.html")).exit_code == 2
    for option in ("node-1", "node-1=x", "=3", "nowhere=3"):
        result = run(tmp_path, BASE, "--add-nodes", option)
        assert result.exit_code == 2, result.output


def test_large_lists_are_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As kubectl prints them: `items:` and `kind: List` around the items, in any order, and several documents."""
    monkeypatch.setattr("dray.explain.dump.WORTH_CUTTING", 1)
    body = yaml.safe_dump({"apiVersion": "v1", "items": BASE, "kind": "List", "metadata": {"resourceVersion": ""}})
    pods = yaml.safe_dump({"apiVersion": "v1", "kind": "PodList", "items": [a_waiting_pod("train")]}, sort_keys=False)
    file = tmp_path / "dump.yaml"
    file.write_text(f"---\n{body}---\n# nothing here\n---\n{pods}")
    result = CliRunner().invoke(simulate, ["-f", str(file), "-o", "json"])
    assert where(json.loads(result.stdout)) == {"train": "node-1"}


def test_anchors_may_reach_from_one_item_to_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dray.explain.dump.WORTH_CUTTING", 1)
    labels: Document = {"shared": "yes"}
    nodes = [gpu_node("node-1"), gpu_node("node-2")]
    for node in nodes:
        node["metadata"]["labels"] = labels
    text = yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [*nodes, *BASE[1:], a_waiting_pod("train")]})
    assert "&id001" in text
    file = tmp_path / "dump.yaml"
    file.write_text(text)
    result = CliRunner().invoke(simulate, ["-f", str(file), "-o", "json"])
    assert [row["name"] for row in json.loads(result.stdout)["nodes"]] == ["node-1", "node-2"]


def test_standard_input(tmp_path: Path) -> None:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": [*BASE, a_waiting_pod("train")]})
    result = CliRunner().invoke(simulate, ["-f", "-", "-o", "json"], input=text)
    assert where(json.loads(result.stdout)) == {"train": "node-1"}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
def test_a_full_disk_is_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "dump.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": BASE}))
    with open("/dev/full", "wb") as full:
        command = [sys.executable, "-m", "dray", "simulate", "-f", str(file), "-o", "json"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr.decode()) == (3, "Error: No space left on device\n")


@pytest.mark.parametrize(
    ("addition", "said"),
    [
        ("node-1=99999999", "100000 nodes at most"),
        ("node-9=3", "node-9 is neither a node of the dump nor a file"),
    ],
)
def test_nodes_that_cannot_be_added(addition: str, said: str, tmp_path: Path) -> None:
    result = run(tmp_path, BASE, "--add-nodes", addition)
    assert result.exit_code == 2
    assert said in result.output
