"""`dray explain`, `dray devices` and `dray top` as people run them: text, formats, sources, bad input."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result
from tests.explain.manifests import DRIVER, Cluster, gpu, gpu_claim, gpu_node, gpu_pod, gpu_request, gpu_slice, held

from dray.cli.devices import devices
from dray.cli.explain import explain
from dray.cli.ledger import ledger
from dray.cli.main import cli
from dray.cli.top import top


@pytest.fixture(autouse=True)
def nobody_is_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "no-kubeconfig"))


def written(cluster: Cluster, path: Path) -> str:
    file = path / "cluster.json"
    file.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": cluster.documents()}))
    return str(file)


def busy() -> Cluster:
    cluster = Cluster()
    taken = held(gpu_claim("taken", gpu_request(count=2)), "gpu-0", "gpu-1")
    cluster.add(taken, gpu_pod("other", "taken", nodeName="node-1"))
    return cluster


def asked(*arguments: str) -> Result:
    return CliRunner().invoke(explain, list(arguments))


# --- explain


def test_the_first_line_is_the_answer(tmp_path: Path) -> None:
    result = asked("pod/train", "-f", written(busy(), tmp_path))
    assert result.exit_code == 1
    first, *rest = result.stdout.splitlines()
    assert first == (
        "default/train waits: request gpu of claim default/train-gpu wants 1: 2 exist, none are free "
        "(node node-1; 0 of 1 nodes fit)"
    )
    assert f"  nearest: {DRIVER}/node-1/gpu-0: is held by claim default/taken (pod default/other)" in rest
    assert "  helps:   release claim default/taken, which pod default/other uses (then node-1 fits)" in rest


def test_a_pod_that_fits(tmp_path: Path) -> None:
    result = asked("train", "-f", written(Cluster(), tmp_path))
    assert result.exit_code == 0
    assert result.stdout.startswith(f"default/train fits 1 of 1 nodes, node-1 with {DRIVER}/node-1/gpu-0")


def test_a_pod_that_has_a_node(tmp_path: Path) -> None:
    cluster = busy()
    cluster.add(gpu_node("node-2"))
    result = asked("pod/other", "-f", written(cluster, tmp_path))
    assert result.exit_code == 0
    assert result.stdout.startswith("default/other is on node node-1")
    assert f"claim taken, request gpu: {DRIVER}/node-1/gpu-0" in result.stdout
    assert "node-2   no-devices" in result.stdout


def test_a_pod_that_is_not_created_yet(tmp_path: Path) -> None:
    cluster = busy()
    dump = written(cluster, tmp_path)
    manifest = tmp_path / "new.yaml"
    pod = gpu_pod("new", "")
    del pod["metadata"]["uid"]
    pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "fresh"}]
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "fresh"},
        "spec": {"spec": {"devices": {"requests": [gpu_request("gpu")]}}},
    }
    manifest.write_text(yaml.safe_dump_all([pod, template]))
    result = asked("pod/new", "-f", dump, "-f", str(manifest), "-o", "json")
    verdict = json.loads(result.stdout)
    assert verdict["code"] == "in-use"
    assert verdict["nodes"][0]["requests"][0]["claim"].startswith("default/new-gpu-")


def test_documents_have_the_promised_fields(tmp_path: Path) -> None:
    verdict = json.loads(asked("pod/train", "-f", written(busy(), tmp_path), "-o", "json").stdout)
    wanted = {"pod", "code", "message", "meaning", "remedy", "node", "helps", "nodes", "nodesByCode"}
    assert wanted <= set(verdict)
    [node] = verdict["nodes"]
    assert node["requests"][0]["counts"] == {
        "exist": 2,
        "matchClass": 2,
        "matchSelectors": 2,
        "free": 0,
        "tolerated": 0,
        "fit": 0,
        "satisfy": 0,
    }
    assert node["requests"][0]["shortAt"] == "free"
    assert node["nearest"]["holders"][0]["claim"] == "default/taken"
    assert [row["code"] for row in verdict["helps"]] == ["release-claim"]
    as_yaml = yaml.safe_load(asked("pod/train", "-f", written(busy(), tmp_path), "-o", "yaml").stdout)
    assert as_yaml == verdict


def test_one_node_in_depth(tmp_path: Path) -> None:
    cluster = busy()
    cluster.add(gpu_node("node-2"), gpu_slice("node-2", [gpu("gpu-0", taints=[{"key": "x", "effect": "NoSchedule"}])]))
    result = asked("pod/train", "-f", written(cluster, tmp_path), "--node", "node-2", "-o", "json")
    verdict = json.loads(result.stdout)
    assert [(row["node"], row["code"]) for row in verdict["nodes"]] == [("node-2", "taint")]
    assert asked("pod/train", "-f", written(cluster, tmp_path), "--node", "node-9").exit_code == 2


def test_many_nodes_are_cut_short(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.request["deviceClassName"] = "gpu"
    cluster.without.add("ResourceSlice")
    for number in range(40):
        taint = {"key": f"team-{number}", "effect": "NoSchedule"}
        cluster.add(gpu_node(f"worker-{number}", taints=[taint]))
    result = asked("pod/train", "-f", written(cluster, tmp_path))
    assert "... and 33 more nodes; -o wide shows them" in result.stdout
    wide = asked("pod/train", "-f", written(cluster, tmp_path), "-o", "wide")
    assert "worker-39" in wide.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["pod/nobody"], 1, "pod default/nobody not found"),
        (["pod/trian"], 1, "pod default/trian not found; did you mean train?"),
        (
            ["pod/train", "-n", "ml"],
            1,
            "pod ml/train not found; a pod of that name is in namespace default: use -n default",
        ),
        (["pod/"], 2, "which pod?"),
        (["node/node-1"], 2, "only pods can be explained"),
        (["pod/train", "--emulate", "1.2"], 2, "1.2"),
        (["pod/train", "--feature-gates", "Nonsense=true"], 2, "Nonsense"),
    ],
)
def test_wrong_questions(arguments: list[str], code: int, said: str, tmp_path: Path) -> None:
    result = asked(*arguments, "-f", written(Cluster(), tmp_path))
    assert result.exit_code == code
    assert said in result.output


@pytest.mark.parametrize("arguments", [["--all"], ["pod/train"]])
def test_an_empty_dump_is_not_answered_from_another_cluster(arguments: list[str], tmp_path: Path) -> None:
    dump = tmp_path / "dump.yaml"
    dump.write_text("apiVersion: v1\nkind: List\nitems: []\n")
    result = asked(*arguments, "-f", str(dump))
    assert result.exit_code == 2
    assert f"{dump}: no objects in it that explain could use" in result.output


def test_a_server_that_is_down(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "config"
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        server = f"https://127.0.0.1:{unused.getsockname()[1]}"
        parts = {
            "clusters": [{"name": "a", "cluster": {"server": server}}],
            "users": [{"name": "a", "user": {}}],
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        }
        kubeconfig.write_text(yaml.safe_dump({**parts, "current-context": "a"}))
        result = CliRunner().invoke(devices, ["--kubeconfig", str(kubeconfig)])
    assert result.exit_code == 3
    assert result.output.startswith(f"Error: {server}: connection refused")


def test_without_a_cluster(tmp_path: Path) -> None:
    for command, arguments in ((explain, ["pod/x"]), (devices, []), (top, ["--once"])):
        result = CliRunner().invoke(command, arguments)
        assert result.exit_code == 3, result.output
        assert len(result.output.strip().splitlines()) == 1
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(
        yaml.safe_dump({key: value for key, value in gpu_pod().items() if key != "status"}).replace(
            "uid: uid-train", ""
        )
    )
    assert asked("-f", str(manifest)).exit_code == 3


# --- devices


def test_devices_with_holders(tmp_path: Path) -> None:
    cluster = busy()
    cluster.devices.append(gpu("gpu-2", taints=[{"key": "hot", "effect": "NoSchedule"}]))
    file = written(cluster, tmp_path)
    result = CliRunner().invoke(devices, ["-f", file])
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[1].split() == [
        DRIVER,
        "node-1",
        "gpu-0",
        "node-1",
        "used",
        "memory",
        "40Gi",
        "default/taken",
        "default/other",
    ]
    assert lines[-1] == "3 devices: 2 used, 0 free, 1 tainted"
    wide = CliRunner().invoke(devices, ["-f", file, "-o", "wide", "--free"])
    assert "hot:NoSchedule" in wide.stdout
    assert "gpu-0" not in wide.stdout
    document = json.loads(CliRunner().invoke(devices, ["-f", file, "-o", "json", "--taken"]).stdout)
    assert document["summary"] == {"all": 3, "used": 2, "partlyUsed": 0, "free": 0, "blocked": 0, "tainted": 1}
    assert [row["state"] for row in document["devices"]] == ["used", "used"]
    assert document["devices"][0]["attributes"]["model"] == "a100"


def test_many_devices_that_are_alike_share_a_row(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.slice["spec"]["devices"] = [gpu(f"gpu-{number}") for number in range(9)]
    cluster.devices[8]["taints"] = [{"key": "example.com/hot", "effect": "NoSchedule"}]
    cluster.add(held(gpu_claim("taken"), "gpu-3"))
    file = written(cluster, tmp_path)
    lines = CliRunner().invoke(devices, ["-f", file]).stdout.splitlines()
    assert [" ".join(line.split()[2:6]) for line in lines[1:4]] == [
        "gpu-0 and 6 more",
        "gpu-3 node-1 used memory",
        "gpu-8 node-1 tainted memory",
    ]
    assert lines[-1] == "9 devices: 1 used, 7 free, 1 tainted"
    assert len(CliRunner().invoke(devices, ["-f", file, "-o", "wide"]).stdout.splitlines()) == 11
    assert len(json.loads(CliRunner().invoke(devices, ["-f", file, "-o", "json"]).stdout)["devices"]) == 9


def test_shares_and_devices_that_are_gone(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.slice["spec"]["devices"] = [gpu("gpu-0", allowMultipleAllocations=True)]
    share = {"shareID": "11111111-1111-4111-8111-111111111111", "consumedCapacity": {"memory": "30Gi"}}
    cluster.add(held(gpu_claim("share"), "gpu-0", **share), held(gpu_claim("lost"), "gpu-9"))
    result = CliRunner().invoke(devices, ["-f", written(cluster, tmp_path)])
    assert "memory 30Gi of 40Gi" in result.stdout
    assert result.stdout.splitlines()[-1] == "1 device: 0 used, 1 partly used, 0 free, 1 gone"


def test_no_devices(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.without.add("ResourceSlice")
    assert "no devices" in CliRunner().invoke(devices, ["-f", written(cluster, tmp_path)]).stdout


def test_a_misspelt_node_is_no_node_without_devices(tmp_path: Path) -> None:
    result = CliRunner().invoke(devices, ["-f", written(Cluster(), tmp_path), "--node", "node-11"])
    assert result.exit_code == 2
    assert "no node named node-11" in result.output


def test_a_driver_without_slices_is_told_with_those_that_publish(tmp_path: Path) -> None:
    result = CliRunner().invoke(devices, ["-f", written(Cluster(), tmp_path), "--driver", "gpu.example.org"])
    assert result.exit_code == 0
    assert "no slices of driver gpu.example.org; drivers that publish some: gpu.example.com" in result.stderr


@pytest.mark.parametrize(
    ("resource", "said"),
    [
        ("cpuu", "no node has a resource cpuu; there are: cpu, memory"),
        ("memory", "nobody takes any memory"),
    ],
)
def test_an_empty_ledger_says_why_it_is_empty(resource: str, said: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(ledger, ["-f", written(Cluster(), tmp_path), "--why", resource])
    assert result.exit_code == 0
    assert said in result.stderr


@pytest.mark.parametrize(("name", "said"), [("expalin", "Did you mean 'explain'?"), ("qqq", "No such command 'qqq'.")])
def test_an_unknown_command(name: str, said: str) -> None:
    result = CliRunner().invoke(cli, [name, "pod/train"])
    assert result.exit_code == 2
    assert said in result.output


# --- top


def test_one_look(tmp_path: Path) -> None:
    cluster = busy()
    cluster.pod["status"] = {
        "conditions": [{"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available: 1 busy."}]
    }
    result = CliRunner().invoke(top, ["-f", written(cluster, tmp_path)])
    assert result.exit_code == 0
    assert result.stdout.startswith("1 node, 1 pod placed, 1 waiting; 2 devices: 2 used, 0 free")
    assert "0/1 nodes are available: 1 busy." in result.stdout
    assert "\x1b" not in result.stdout


def test_one_look_for_programs(tmp_path: Path) -> None:
    cluster = busy()
    why = "0/1 nodes are available: 1 busy. preemption: 0/1 nodes are available: 1 No preemption victims found."
    cluster.pod["status"] = {"conditions": [{"type": "PodScheduled", "status": "False", "message": why}]}
    file = written(cluster, tmp_path)
    found = json.loads(CliRunner().invoke(top, ["-f", file, "-o", "json"]).stdout)
    assert yaml.safe_load(CliRunner().invoke(top, ["-f", file, "-o", "yaml"]).stdout) == found
    assert found["pods"] == {"placed": 1, "waiting": 1}
    counts = {"all": 2, "used": 2, "partlyUsed": 0, "free": 0, "blocked": 0, "tainted": 0}
    assert found["devices"] == {**counts, "gone": 0}
    assert found["drivers"] == [{"name": "gpu.example.com", "devices": counts}]
    (node,) = found["nodes"]
    assert (node["devices"], node["pods"]["requested"]) == (counts, 1)
    assert node["cpu"].keys() == node["memory"].keys() == node["pods"].keys() == {"requested", "allocatable"}
    assert [row["message"] for row in found["waiting"]] == [why]
    wide = CliRunner().invoke(top, ["-f", file, "-o", "wide"]).stdout
    assert why in wide
    assert "BLOCKED" in wide
    assert "preemption" not in CliRunner().invoke(top, ["-f", file]).stdout


def test_a_tiny_terminal_gets_what_fits(tmp_path: Path) -> None:
    from dray.cli.cluster_source import read_dump
    from dray.explain.overview import (
        overview_of,
        text_of,
    )

    cluster = busy()
    cluster.add(*(gpu_node(f"worker-{number}") for number in range(50)))
    view = overview_of(read_dump([written(cluster, tmp_path)]).world())
    for lines in (1, 3, 10, 24):
        assert len(text_of(view, lines).splitlines()) <= lines
    assert "... 44 more" in text_of(view, 24)


def test_attributes_keep_their_types_in_json(tmp_path: Path) -> None:
    cluster = Cluster()
    attributes = {
        "smtEnabled": {"bool": False},
        "index": {"int": 3},
        "model": {"string": "3"},
        "driverVersion": {"version": "1.2.3"},
        "sizes": {"ints": [1, 2]},
    }
    cluster.slice["spec"]["devices"] = [gpu("gpu-0", attributes=attributes)]
    file = written(cluster, tmp_path)
    (row,) = json.loads(CliRunner().invoke(devices, ["-f", file, "-o", "json"]).stdout)["devices"]
    expected = {"smtEnabled": False, "index": 3, "model": "3", "driverVersion": "1.2.3", "sizes": [1, 2]}
    assert {name: value for name, value in row["attributes"].items() if name in expected} == expected
    assert "smtEnabled=false" in CliRunner().invoke(devices, ["-f", file, "-o", "wide"]).stdout
