"""One small cluster for all of these tests, with everything served, and kubectl on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dray.testing import Cluster, cluster
from tests.builders.manifests import a_class, a_container, a_pod, a_request, a_template
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


def script_pod(name: str, *script: str, **spec: Any) -> dict[str, Any]:
    container = a_container(command=["sh", "-c", *script]) if script else a_container()
    return a_pod(name, container, namespace="", **{"terminationGracePeriodSeconds": 1, **spec})


def one_request_template(name: str, **exactly: Any) -> dict[str, Any]:
    return a_template(name, a_request(**exactly), namespace="")


def with_claim(template: str) -> dict[str, Any]:
    return {"resourceClaims": [{"name": "claim", "resourceClaimTemplateName": template}]}
