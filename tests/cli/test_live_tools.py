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
    checked = asks("doctor")
    assert (checked.exit_code, checked.stdout.startswith("nothing looks wrong")) == (0, True), checked.output
    assert asks("ledger").exit_code == 0
