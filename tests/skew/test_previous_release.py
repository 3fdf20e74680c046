"""The release before this one: its data is read here and back there, and its parts run together with ours.

Its sources come from the history of this checkout.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable, Coroutine, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from dray.client import PODS, Call, Client, connect
from tests.builders.manifests import a_container, a_pod
from tests.e2e.processes import DRAY, ClusterOfProcesses, Process, wait_until
from tests.torture.etcd_cluster import free_port

ROOT = Path(__file__).parent.parent.parent
# The last commit of the previous release.
PREVIOUS = "b5b30171"
T = TypeVar("T")


@pytest.fixture(scope="session")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of the previous release."""
    packed = subprocess.run(["git", "archive", PREVIOUS, "src"], cwd=ROOT, capture_output=True, check=False)
    if packed.returncode:
        pytest.skip(f"this checkout does not have the previous release {PREVIOUS} in its history")
    folder = tmp_path_factory.mktemp("previous")
    with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"


class MixedCluster(ClusterOfProcesses):
    """Each part is of the previous release or of this one."""

    def __init__(self, folder: Path, previous: Path) -> None:
        super().__init__(folder, free_port(), kubelet_options=("--runtime", "none"))
        self._old = ("env", f"PYTHONPATH={previous}", sys.executable, "-m", "dray")
        for part in self.parts:
            part.program = self._old

    def change(self, *parts: Process, to_new: bool) -> None:
        """Ends these parts and starts them again, of the other release."""
        for part in parts:
            part.stop()
            part.program = DRAY if to_new else self._old
        for part in parts:
            if part is self.apiserver:
                self.start_apiserver()
            else:
                part.start()

    def run(self, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        async def with_client() -> T:
            client = connect(self.kubeconfig, component="test")
            try:
                return await work(client)
            finally:
                await client.close()

        return asyncio.run(with_client())

    def start_pod(self, name: str) -> None:
        """A pod with a claim from the template; it must come to run."""
        container = a_container(resources={"claims": [{"name": "gpu"}]})
        entry = {"name": "gpu", "resourceClaimTemplateName": "one-gpu"}
        pod = a_pod(name, container, namespace="default", resourceClaims=[entry])
        self.run(lambda client: client.create(PODS, pod, "default"))
        self.expect_running(name)

    def expect_running(self, name: str) -> None:
        path = f"/api/v1/namespaces/default/pods/{name}"
        wait_until(lambda: self.ask(path).get("status", {}).get("phase") == "Running", f"{name} to run", self, 90)

    def documents(self) -> dict[str, dict[str, Any]]:
        """Everything that people wrote, as the server shows it."""
        found: dict[str, dict[str, Any]] = {}
        for path in (*WRITTEN, "/api/v1/namespaces/default/pods", "/apis/resource.k8s.io/v1/resourceclaims"):
            answer = self.ask(path)
            assert answer, f"{path}\n{self.logs()}"
            for item in answer["items"]:
                found[f"{path}/{item['metadata']['name']}"] = item
        return found


@pytest.fixture
def mixed(previous: Path) -> Iterator[MixedCluster]:
    # Sockets have short names.
    folder = Path(os.environ.get("TMPDIR", "/tmp")) / f"dray-mix-{os.getpid()}"
    folder.mkdir()
    cluster = MixedCluster(folder, previous)
    try:
        cluster.start()
        cluster.run(fill)
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        wait_until(lambda: cluster.ask(account), "the service account", cluster)
        yield cluster
    finally:
        cluster.stop()
        subprocess.run(["rm", "-rf", str(folder)], check=False)


WRITTEN = {
    "/apis/resource.k8s.io/v1/deviceclasses": {
        "metadata": {"name": "gpu"},
        "spec": {"selectors": [{"cel": {"expression": 'device.driver == "gpu.example.com"'}}]},
    },
    "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates": {
        "metadata": {"name": "one-gpu"},
        "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}},
    },
    "/api/v1/namespaces/default/configmaps": {"metadata": {"name": "words"}, "data": {"a": "b"}},
    "/api/v1/namespaces/default/secrets": {"metadata": {"name": "key"}, "stringData": {"password": "x"}},
    "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles": {
        "metadata": {"name": "reader"},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
    },
    "/apis/apps/v1/namespaces/default/deployments": {
        "metadata": {"name": "idle"},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": "idle"}},
            "template": {
                "metadata": {"labels": {"app": "idle"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        },
    },
}


async def fill(client: Client) -> None:
    for path, document in WRITTEN.items():
        answer = await client.transport.request(Call("POST", path, body=msgspec.json.encode(document)))
        assert answer.status == 201, answer.body


def all_parts(cluster: MixedCluster) -> list[list[Process]]:
    """The order of an upgrade: the server, the loops, the nodes."""
    return [[cluster.apiserver], [cluster.controllers, cluster.scheduler], [cluster.kubelet, *cluster.drivers.values()]]


def test_rolling_upgrade_and_the_way_back(mixed: MixedCluster) -> None:
    mixed.start_pod("first")
    number = 0
    for to_new in (True, False):
        steps = all_parts(mixed)
        for parts in steps if to_new else reversed(steps):
            before = mixed.documents()
            mixed.change(*parts, to_new=to_new)
            if mixed.apiserver in parts:
                assert mixed.documents() == before, "what one release wrote reads the same in the other"
            mixed.expect_running("first")
            number += 1
            mixed.start_pod(f"step-{number}")
    claims = mixed.ask("/apis/resource.k8s.io/v1/resourceclaims")["items"]
    results = [result for claim in claims for result in claim["status"]["allocation"]["devices"]["results"]]
    assert len(results) == len({(result["pool"], result["device"]) for result in results}) == number + 1
