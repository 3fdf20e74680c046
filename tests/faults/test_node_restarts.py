"""A node agent that is restarted while pods run: they keep their place, and nobody hears that they stopped."""

import asyncio
import tempfile
from pathlib import Path

import pytest

from dray.api.quantity import Quantity
from dray.client import PODS, SERVICE_ACCOUNTS
from dray.kubelet.node import NodeDescription
from dray.kubelet.runtime.none import NoRuntime
from dray.kubelet.server import Kubelet, KubeletOptions
from dray.proof import Follower, History, Seen
from dray.sim.control_plane import ControlPlane, ControlPlaneOptions


class Rig:
    def __init__(self, plane: ControlPlane, root: Path) -> None:
        self.plane = plane
        self.root = root
        self.client = plane.client("test")
        self.agent: Kubelet | None = None

    async def start_agent(self) -> None:
        capacity = {"cpu": Quantity.parse("4"), "memory": Quantity.parse("4Gi"), "pods": Quantity.parse("10")}
        options = KubeletOptions(NodeDescription("n1", capacity), self.root / "n", (self.root / "cdi",))
        client = self.plane.client("kubelet")
        self.agent = Kubelet(client, options, NoRuntime(client.clock))
        await self.agent.start()

    async def stop_agent(self) -> None:
        assert self.agent is not None
        await self.agent.stop()

    async def bind(self, name: str, cpu: str) -> None:
        container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": cpu}}}
        spec = {"nodeName": "n1", "containers": [container, {"name": "second", "image": "x"}]}
        await self.client.create(PODS, {"metadata": {"name": name}, "spec": spec}, "default")

    async def until(self, name: str, phase: str) -> None:
        for _ in range(200):
            if (await self.client.get(PODS, name, "default")).status.phase == phase:
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"{name}: {(await self.client.get(PODS, name, 'default')).status}")


@pytest.fixture
async def rig():
    with tempfile.TemporaryDirectory(prefix="dray-r") as folder:
        plane = ControlPlane(ControlPlaneOptions(Path(folder) / "data", with_controllers=False, with_scheduler=False))
        await plane.start()
        rig = Rig(plane, Path(folder))
        await rig.client.create(SERVICE_ACCOUNTS, {"metadata": {"name": "default"}}, "default")
        await rig.start_agent()
        yield rig
        await rig.stop_agent()
        await plane.stop()


async def test_running_pods_come_before_new_ones(rig):
    """Two schedulers may both bind to the last cpu. It is the newcomer that has to go, whatever its name."""
    await rig.bind("old", "3")
    await rig.until("old", "Running")
    await rig.stop_agent()
    await rig.bind("a-newcomer", "3")
    await rig.start_agent()
    await rig.until("a-newcomer", "Failed")
    assert (await rig.client.get(PODS, "a-newcomer", "default")).status.reason == "OutOfcpu"
    await rig.until("old", "Running")


async def test_a_running_pod_never_looks_as_if_it_had_not_started(rig):
    await rig.bind("steady", "1")
    await rig.until("steady", "Running")
    history = History()
    follower = Follower(rig.plane.client("follower"), history, "a", (PODS,))
    await follower.start()
    await rig.stop_agent()
    await rig.start_agent()
    await rig.bind("later", "1")
    await rig.until("later", "Running")
    await asyncio.sleep(0.5)
    await follower.stop()
    seen = [each for each in history.records if isinstance(each, Seen) and each.key.name == "steady"]
    phases = {each.document["status"]["phase"] for each in seen}
    assert phases <= {"Running"}
