"""One small cluster for all of these tests, with everything served, and kubectl on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dray.testing import Cluster, cluster
from tests.kubectl import KUBECTL, Kubectl


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
