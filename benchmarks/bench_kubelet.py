"""The node: preparing over gRPC, starting many pods, and a thousand nodes in one process."""

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from report import Report

from dray.client import CLAIMS, PODS
from dray.clock import RealClock
from dray.driver import DriverPaths, RunningDriver
from dray.driver.example import DRIVERS
from dray.kubelet.checkpoint import CheckpointFile
from dray.kubelet.drivers import Drivers
from dray.kubelet.node import NodeDescription
from dray.kubelet.prepare import PodClaims
from dray.kubelet.runtime.process import ProcessRuntime
from dray.kubelet.server import Kubelet, KubeletOptions
from dray.sim.control_plane import ControlPlane, ControlPlaneOptions

PODS_ON_A_NODE = 110
CLASS = {"cel": {"expression": 'device.driver == "nic.example.com"'}}


def run(report: Report) -> None:
    asyncio.run(_prepare_and_start(report))
    _thousand_nodes(report)


async def _prepare_and_start(report: Report) -> None:
    with tempfile.TemporaryDirectory(prefix="dray-") as folder:
        root = Path(folder)
        plane = ControlPlane(ControlPlaneOptions(root / "data"))
        await plane.start()
        client = plane.client("bench")
        options = KubeletOptions(NodeDescription.simple("node", "64", "64Gi", 500), root / "n", (root / "cdi",))
        kubelet = Kubelet(plane.client("kubelet"), options, ProcessRuntime(root / "n", RealClock()))
        await kubelet.start()
        driver = RunningDriver(DRIVERS["nic"](), plane.client("nic"), "node", DriverPaths(root / "n", root / "cdi"))
        await driver.start()
        await driver.published()
        await client.raw("POST", "/apis/resource.k8s.io/v1/deviceclasses", body=_class())
        while not kubelet.drivers.names():  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        report.record("prepare of a pod with 2 claims over gRPC", await _prepare(client, root), "ms", 15.0)
        cpu_before = time.process_time()
        report.record(f"{PODS_ON_A_NODE} pods with claims started", await _start(client), "s", 10.0)
        report.record(f"{PODS_ON_A_NODE} pods: cpu of the whole cluster", time.process_time() - cpu_before, "s")
        await driver.stop()
        await kubelet.stop()
        await plane.stop()


def _class() -> bytes:
    document = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "nic"},
        "spec": {"selectors": [CLASS]},
    }
    return json.dumps(document).encode()


async def _make_pod(client: Any, name: str, claims: int) -> None:
    names = [f"{name}-{i}" for i in range(claims)]
    request = {"name": "r", "exactly": {"deviceClassName": "nic", "capacity": {"requests": {"bandwidth": "100M"}}}}
    for each in names:
        document = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": each, "namespace": "default"},
            "spec": {"devices": {"requests": [request]}},
        }
        await client.create(CLAIMS, document)
    spec = {
        "containers": [{"name": "main", "image": "none", "resources": {"claims": [{"name": each} for each in names]}}],
        "resourceClaims": [{"name": each, "resourceClaimName": each} for each in names],
    }
    metadata = {"name": name, "namespace": "default"}
    while True:
        try:
            await client.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
            return
        except Exception as error:  # the default service account takes a moment
            if "serviceaccount" not in str(error):
                raise
            await asyncio.sleep(0.1)


async def _running(client: Any, count: int) -> None:
    while True:
        pods = (await client.list(PODS)).items
        if sum(pod.status.phase == "Running" for pod in pods) >= count:
            return
        await asyncio.sleep(0.05)


async def _prepare(client: Any, root: Path) -> float:
    """As the agent does it, with a checkpoint and a connection of its own; the driver has to answer anew each time."""
    await _make_pod(client, "two", 2)
    await _running(client, 1)
    pod = await client.get(PODS, "two", "default")

    async def leave_slices(driver: str) -> None:
        return None

    drivers = Drivers(root / "n" / "plugins_registry", RealClock(), leave_slices)
    await drivers.look()
    while not drivers.names() or not drivers.endpoint("nic.example.com").is_connected:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    (root / "c").mkdir()
    claims = PodClaims(client, drivers, CheckpointFile(root / "c"))
    times = []
    for _ in range(20):
        await claims.unprepare(pod.metadata.uid)
        started = time.perf_counter()
        await claims.prepare(pod)
        times.append(time.perf_counter() - started)
    await drivers.close()
    return min(times) * 1000


async def _start(client: Any) -> float:
    started = time.perf_counter()
    for i in range(PODS_ON_A_NODE):
        await _make_pod(client, f"pod-{i}", 1)
    await _running(client, PODS_ON_A_NODE + 1)
    return time.perf_counter() - started


_FLEET = """
import asyncio, resource, tempfile
from pathlib import Path
from dray.kubelet.simulated_kubelets import SimulatedKubelets
from dray.kubelet.node import NodeDescription
from dray.sim.control_plane import ControlPlane, ControlPlaneOptions

async def main():
    with tempfile.TemporaryDirectory() as folder:
        plane = ControlPlane(ControlPlaneOptions(Path(folder)))
        await plane.start()
        nodes = [NodeDescription.simple(f"node-{i}", "8", "32Gi") for i in range(1000)]
        kubelets = SimulatedKubelets(plane.client("kubelet"), nodes)
        await kubelets.start()
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        await kubelets.stop()
        await plane.stop()

asyncio.run(main())
"""


def _thousand_nodes(report: Report) -> None:
    """In a process of its own, control plane included, so that its memory is its own."""
    done = subprocess.run([sys.executable, "-c", _FLEET], capture_output=True, text=True, check=True)
    report.record("1,000 nodes with runtime none, control plane included", float(done.stdout), "MB", 400.0)
