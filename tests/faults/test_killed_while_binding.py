"""`kill -9` of `dray up` while its scheduler binds pods: a pod has its node if and only if its claim has its device."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from dray.apiserver.watch.stored_object import document_of, resource_prefix
from dray.client import DEVICE_CLASSES, NODES, PODS, SERVICE_ACCOUNTS, SLICES, TEMPLATES, ApiError, ServerUnreachable
from dray.client.connect import connect
from dray.store.sqlite import SqliteStore
from tests.builders.manifests import a_class, a_node, a_pod, a_slice, a_template
from tests.waiting import eventually

PODS_MADE = 120
AMOUNTS = {"cpu": "100", "memory": "100Gi", "pods": "200"}


class Up:
    """`dray up` with two processes, on one data directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self):
        """A client with the administrator's certificate, once everything works."""
        ready, kubeconfig = self._directory / "ready", self._directory / "kubeconfig"
        ready.unlink(missing_ok=True)
        self._spawn(kubeconfig, ready)
        await eventually(ready.exists, lambda: (self._directory / "log").read_text(), within_s=90)
        return connect(kubeconfig)

    def _spawn(self, kubeconfig: Path, ready: Path) -> None:
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "dray", "up", "--nodes", "0", "--listen", "127.0.0.1:0", "--processes", "2"),
                *("--data", str(self._directory / "data"), "--kubeconfig", str(kubeconfig), "--ready-file", str(ready)),
            ],
            stdout=subprocess.DEVNULL,
            stderr=(self._directory / "log").open("ab"),
        )

    def kill(self) -> None:
        """The process of controllers and scheduler ends when this one is gone."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()

    async def stored(self, group: str, plural: str):
        store = SqliteStore(self._directory / "data" / "dray.db")
        try:
            return [document_of(entry) for entry in (await store.list(resource_prefix(group, plural))).entries]
        finally:
            await store.close()


async def a_cluster(client):
    await eventually(lambda: client.find(SERVICE_ACCOUNTS, "default", "default"), "the default service account")
    await client.create(DEVICE_CLASSES, a_class())
    await client.create(TEMPLATES, a_template("one"))
    for name in ("n1", "n2"):
        await client.create(NODES, a_node(name, AMOUNTS))
        await client.patch(NODES, name, {"spec": {"taints": None}})
        await client.create(SLICES, a_slice(name, *(f"gpu-{at}" for at in range(PODS_MADE // 2)), node=name))


async def create_pods(client, numbers):
    for number in numbers:
        with contextlib.suppress(ApiError, ServerUnreachable):
            await client.create(PODS, a_pod(f"p{number}", templates={"gpu": "one"}))


async def bound(client):
    return sum(bool(pod.spec.node_name) for pod in (await client.list(PODS, "default")).items)


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_pod_has_its_node_if_and_only_if_its_claim_has_its_device(tmp_path, seed):
    up, random = Up(tmp_path), Random(seed)
    client = await up.start()
    try:
        await a_cluster(client)
        least = random.randrange(10, PODS_MADE // 2)
        creating = asyncio.create_task(create_pods(client, range(PODS_MADE)))

        async def enough():
            return await bound(client) >= least

        await eventually(enough, "some pods to be bound", within_s=60, pause_s=0.001)
    finally:
        up.kill()
    await creating
    await client.close()
    await agrees(up)
    client = await up.start()
    try:
        known = {pod.metadata.name for pod in (await client.list(PODS, "default")).items}
        await create_pods(client, (number for number in range(PODS_MADE) if f"p{number}" not in known))

        async def all_bound():
            return await bound(client) == PODS_MADE

        await eventually(all_bound, "all pods to be bound", within_s=90)
    finally:
        up.kill()
    await client.close()
    assert len(await agrees(up)) == PODS_MADE


async def agrees(up):
    """The devices that are taken: each by one claim, whose one user is a pod that has a node."""
    pods = {pod["metadata"]["uid"]: pod for pod in await up.stored("", "pods")}
    claims = [claim for claim in await up.stored("resource.k8s.io", "resourceclaims") if claim.get("status")]
    with_device = [claim for claim in claims if claim["status"].get("allocation")]
    users = [user["uid"] for claim in with_device for user in claim["status"]["reservedFor"]]
    assert sorted(users) == sorted(uid for uid, pod in pods.items() if pod["spec"].get("nodeName"))
    results = [result for claim in with_device for result in claim["status"]["allocation"]["devices"]["results"]]
    devices = {(result["pool"], result["device"]) for result in results}
    assert len(devices) == len(results) == len(with_device)
    for claim in with_device:
        pool = claim["status"]["allocation"]["devices"]["results"][0]["pool"]
        assert pods[claim["status"]["reservedFor"][0]["uid"]]["spec"]["nodeName"] == pool
        assert claim["metadata"]["finalizers"]
    return devices
