"""explain, devices, doctor, top and simulate against a running cluster, over HTTPS."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from tests.builders.manifests import a_class
from tests.explain.manifests import gpu_request

from dray.cli.main import cli
from dray.testing import Cluster, cluster


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    with cluster(nodes=1, devices=("nic",)) as started:
        yield started


@pytest.fixture
def asks(running: Cluster, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("KUBECONFIG", str(running.kubeconfig))

    def ask(*arguments: str) -> Result:
        return CliRunner().invoke(cli, list(arguments))

    return ask


def a_pod_for_nics(name: str, count: int) -> list[dict[str, Any]]:
    expression = 'device.driver == "nic.example.com"'
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"spec": {"devices": {"requests": [gpu_request("nic", deviceClassName="wire", count=count)]}}},
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "containers": [{"name": "main", "image": "x", "resources": {"claims": [{"name": "nic"}]}}],
            "resourceClaims": [{"name": "nic", "resourceClaimTemplateName": name}],
        },
    }
    return [a_class("wire", expression), template, pod]


def test_a_waiting_pod_is_explained_live(running: Cluster, asks: Any) -> None:
    for document in a_pod_for_nics("greedy", 20):
        running.apply(document)
    running.wait_until_unschedulable("greedy")
    result = asks("explain", "pod/greedy", "-o", "json")
    assert result.exit_code == 1
    verdict = json.loads(result.stdout)
    assert verdict["code"] == "too-few-devices", verdict["message"]
    assert verdict["nodes"][0]["requests"][0]["wanted"] == 20


def test_a_manifest_is_tried_before_it_is_applied(asks: Any, tmp_path: Path) -> None:
    file = tmp_path / "modest.yaml"
    file.write_text(yaml.safe_dump_all(a_pod_for_nics("modest", 1)))
    result = asks("explain", "-f", str(file))
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("default/modest fits 1 of 1 nodes")


def test_the_others_look_at_the_same_cluster(asks: Any) -> None:
    shown = asks("devices", "--driver", "nic.example.com", "-o", "json")
    assert shown.exit_code == 0, shown.output
    assert json.loads(shown.stdout)["summary"]["free"] >= 1
    assert "nic.example.com" in asks("top", "--once").stdout
    checked = asks("doctor", "-o", "json")
    assert {row["code"] for row in json.loads(checked.stdout)["findings"]} <= {"pod-waits"}, checked.output
    assert asks("ledger").exit_code == 0


SECRETS = {
    "command": ["sh", "-c", "login --password=hunter2"],
    "args": ["hunter2"],
    "env": [{"name": "PASSWORD", "value": "hunter2"}],
}


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_a_dump_answers_as_the_cluster_does(running: Cluster, asks: Any, tmp_path: Path, form: str) -> None:
    for document in a_pod_for_nics("hoarder", 20):
        if document["kind"] == "Pod":
            document["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": "hunter2"}
            document["spec"]["containers"][0].update(SECRETS)
        running.apply(document)
    running.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": "hunter2"}})
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"pods": "50"}}}
    running.apply(quota)
    running.wait_until_unschedulable("hoarder")
    dumped = asks("dump", "-o", form)
    assert dumped.exit_code == 0, dumped.output
    assert "hunter2" not in dumped.stdout
    assert "managedFields" not in dumped.stdout
    kinds = {item["kind"] for item in yaml.safe_load(dumped.stdout)["items"]}
    assert kinds >= {"Node", "Pod", "ResourceSlice", "DeviceClass", "ResourceClaimTemplate", "ResourceQuota", "Event"}
    file = tmp_path / f"dump.{form}"
    file.write_text(dumped.stdout)
    for question in (
        ["explain", "pod/hoarder", "-n", "default", "-o", "json"],
        ["devices", "-o", "json"],
        ["ledger", "-o", "json"],
        ["cel", 'device.driver == "nic.example.com"', "-o", "json"],
    ):
        live, offline = asks(*question), asks(*question, "-f", str(file))
        assert (offline.exit_code, json.loads(offline.stdout)) == (live.exit_code, json.loads(live.stdout)), question
    for question in (["doctor"], ["simulate"], ["top"], ["explain", "--all"], ["lint"]):
        assert asks(*question, "-f", str(file)).exit_code in (0, 1), question


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        pytest.param("dray explain pod/gr", "pod/greedy", id="pod"),
        pytest.param("dray explain gr", "greedy", id="bare-pod"),
        pytest.param("dray explain -n kube-sys", "kube-system", id="namespace"),
        pytest.param("dray devices --node no", "node-1", id="node"),
        pytest.param("dray cel --class wi", "wire", id="class"),
        pytest.param("dray cel --context nowhere --class wi", "", id="no-such-cluster"),
    ],
)
def test_names_of_the_cluster_are_completed(running: Cluster, asks: Any, words: str, offered: str) -> None:
    for document in a_pod_for_nics("greedy", 20):
        running.apply(document)
    count = str(len(words.split()) - 1)
    environment = {"_DRAY_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": count}
    result = CliRunner().invoke(cli, prog_name="dray", env=environment)
    assert [line.partition(",")[2] for line in result.output.split()] == ([offered] if offered else [])


def test_a_class_is_evaluated_by_name(running: Cluster, asks: Any) -> None:
    for document in a_pod_for_nics("greedy", 20):
        running.apply(document)
    result = asks("cel", "--class", "wire", "-o", "json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["expression"] == 'device.driver == "nic.example.com"'
    assert "no device class named wires" in asks("cel", "--class", "wires").output
    assert asks("cel").exit_code == 2
    assert asks("cel", "true", "--class", "wire").exit_code == 2
