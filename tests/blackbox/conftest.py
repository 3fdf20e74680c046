"""One small cluster for all of these tests, with everything served, and kubectl on it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dray.testing import Cluster, cluster

KUBECTL = shutil.which("kubectl")
TIMEOUT_S = 60


class Kubectl:
    def __init__(self, kubeconfig: Path, home: Path) -> None:
        self._env = {**os.environ, "KUBECONFIG": str(kubeconfig), "HOME": str(home)}

    def run(self, *words: str, fails: bool = False, stdin: str = "") -> str:
        assert KUBECTL is not None
        done = subprocess.run(
            [KUBECTL, *words], env=self._env, input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S
        )
        assert (done.returncode != 0) == fails, f"kubectl {' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def apply(self, *documents: dict[str, Any]) -> str:
        items = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(documents)})
        return self.run("apply", "-f", "-", stdin=items)

    def json(self, *words: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run("get", *words, "-o", "json"))
        return found

    def until(self, wanted: str, *words: str) -> str:
        """Ask again until the answer has the wanted text."""
        end = time.monotonic() + TIMEOUT_S / 2
        while wanted not in (seen := self.run(*words)):
            assert time.monotonic() < end, f"no {wanted!r} in the answer to kubectl {' '.join(words)}: {seen}"
            time.sleep(0.2)
        return seen


@pytest.fixture(scope="session")
def running_cluster() -> Iterator[Cluster]:
    if KUBECTL is None:
        pytest.skip("kubectl is not installed")
    with cluster(nodes=2, devices=("gpu",), runtime_config="api/all=true") as running:
        yield running


@pytest.fixture(scope="session")
def kubectl(running_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    tool = Kubectl(Path(running_cluster.kubeconfig), tmp_path_factory.mktemp("home"))
    tool.apply(a_class("gpu"))
    return tool


def a_class(name: str, expression: str = 'device.driver == "gpu.example.com"', **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": expression}}], **spec},
    }


def a_pod(name: str, *script: str, **spec: Any) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "main", "image": "image"}
    if script:
        container["command"] = ["sh", "-c", *script]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 1, **spec},
    }


def a_template(name: str, **exactly: Any) -> dict[str, Any]:
    request = {"name": "r", "exactly": {"deviceClassName": "gpu", **exactly}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }


def with_claim(template: str) -> dict[str, Any]:
    return {"resourceClaims": [{"name": "claim", "resourceClaimTemplateName": template}]}
