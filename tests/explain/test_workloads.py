"""`dray explain` of a workload says why it has no pods, and why those that it has wait."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dray.cli.explain import explain
from tests.explain.manifests import Cluster, Document

FORBIDDEN = 'Error creating: pods "web-1-x" is forbidden: '


def event(kind: str, name: str, message: str, reason: str = "FailedCreate", at: str = "00:07:00") -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.{reason.lower()}", "namespace": "default"},
        "involvedObject": {"kind": kind, "namespace": "default", "name": name, "uid": f"uid-{name}"},
        "type": "Warning",
        "reason": reason,
        "message": message,
        "count": 3,
        "lastTimestamp": f"2024-01-01T{at}Z",
    }


def asked(cluster: Cluster, path: Path, *arguments: str) -> Result:
    file = path / "cluster.json"
    file.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": cluster.documents()}))
    result = CliRunner().invoke(explain, [*arguments, "-f", str(file)])
    assert result.exit_code in (0, 1), result.output
    return result


REFUSALS = [
    (
        "exceeded quota: few, requested: pods=1, used: pods=2, limited: pods=2",
        "exceeded quota: few",
        "kubectl edit resourcequota/few -n default",
    ),
    (
        'violates PodSecurity "restricted:latest": runAsNonRoot != true',
        "runAsNonRoot != true",
        "change the pod template as it says",
    ),
    (
        'error looking up service account default/ghost: serviceaccount "ghost" not found',
        'serviceaccount "ghost" not found',
        "kubectl create serviceaccount ghost -n default",
    ),
    (
        "maximum cpu usage per Container is 1, but limit is 2",
        "maximum cpu usage per Container is 1",
        "kubectl describe limitrange -n default",
    ),
    (
        "no PriorityClass with name urgent was found",
        "no PriorityClass with name urgent",
        "create priority class urgent",
    ),
    ("by the weather", "by the weather", "do what its message says"),
]


@pytest.mark.parametrize(("said", "wrong", "remedy"), REFUSALS)
@pytest.mark.parametrize(
    ("named", "kind", "name"),
    [("job/web", "Job", "web"), ("deploy/web", "ReplicaSet", "web-5d4f"), ("ds/web", "DaemonSet", "web")],
)
def test_a_workload_without_pods(
    tmp_path: Path, said: str, wrong: str, remedy: str, named: str, kind: str, name: str
) -> None:
    cluster = Cluster()
    cluster.add(event(kind, name, FORBIDDEN + said), event("ReplicaSet", "web-two-5d4f", FORBIDDEN + "other"))
    result = asked(cluster, tmp_path, *named.split("/"))
    assert result.exit_code == 1
    first, second = result.output.splitlines()[:2]
    assert "default/web has no pods: pods " in first
    assert wrong in first
    assert remedy in second


def owned(cluster: Cluster, kind: str, name: str) -> None:
    owner: dict[str, Any] = {
        "apiVersion": "apps/v1",
        "kind": kind,
        "name": name,
        "uid": f"uid-{name}",
        "controller": True,
    }
    cluster.pod["metadata"]["ownerReferences"] = [owner]


def test_pods_that_wait_are_explained(tmp_path: Path) -> None:
    cluster = Cluster()
    owned(cluster, "ReplicaSet", "web-5d4f")
    cluster.request["count"] = 3
    result = asked(cluster, tmp_path, "deployment/web")
    assert result.exit_code == 1
    assert result.output.startswith("default/train waits: request gpu of claim default/train-gpu wants 3")


def test_a_workload_that_has_some_of_its_pods(tmp_path: Path) -> None:
    cluster = Cluster()
    owned(cluster, "Job", "web")
    cluster.add(event("Job", "web", FORBIDDEN + "exceeded quota: few, requested: pods=1"))
    lines = asked(cluster, tmp_path, "job/web").output.splitlines()
    assert lines[0].startswith("job default/web has 1 pod and cannot get another: ")
    assert any(line.startswith("default/train fits") for line in lines)


def test_a_workload_that_could_create_a_pod_since_then(tmp_path: Path) -> None:
    cluster = Cluster()
    owned(cluster, "Job", "web")
    cluster.pod["spec"]["nodeName"] = "node-1"
    cluster.pod["status"] = {"phase": "Running"}
    cluster.add(event("Job", "web", FORBIDDEN + "exceeded quota: few"))
    cluster.add(event("Job", "web", "Created pod: train", "SuccessfulCreate", "00:08:00"))
    result = asked(cluster, tmp_path, "job/web")
    assert result.exit_code == 0
    assert result.output.startswith("job default/web has 1 pod, and nothing keeps it from getting more")


def test_a_workload_that_nobody_knows(tmp_path: Path) -> None:
    result = asked(Cluster(), tmp_path, "job/web")
    assert result.exit_code == 1
    first, second = result.output.splitlines()[:2]
    assert first == "job default/web has no pods, and no event says why"
    assert "kubectl describe job/web -n default" in second
