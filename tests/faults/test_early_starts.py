"""Parts that start before the API server is there, or while it is away."""

import asyncio
import tempfile
from pathlib import Path

from dray.api.quantity import Quantity
from dray.client import NODES, Answer, Call, Client, ServerUnreachable
from dray.clock import RealClock
from dray.kubelet.node import NodeDescription
from dray.kubelet.runtime.none import NoRuntime
from dray.kubelet.server import Kubelet, KubeletOptions
from dray.sim.control_plane import ControlPlane, ControlPlaneOptions


class Away:
    """No server answers for the first `calls` calls."""

    def __init__(self, inner, calls):
        self._inner = inner
        self.left = calls

    async def request(self, call: Call) -> Answer:
        if self.left:
            self.left -= 1
            raise ServerUnreachable("nobody is there")
        return await self._inner.request(call)

    def stream(self, call):
        return self._inner.stream(call)

    async def close(self):
        pass


class ImpatientClock(RealClock):
    async def sleep(self, seconds: float) -> None:
        await super().sleep(min(seconds, 0.01))


async def test_a_node_agent_waits_for_the_api_server():
    with tempfile.TemporaryDirectory(prefix="dray-e") as folder:
        plane = ControlPlane(ControlPlaneOptions(Path(folder) / "data", with_controllers=False, with_scheduler=False))
        await plane.start()
        try:
            transport = Away(plane.client("kubelet").transport, 3)
            client = Client(transport, clock=ImpatientClock())
            capacity = {"cpu": Quantity.parse("1"), "pods": Quantity.parse("10")}
            options = KubeletOptions(NodeDescription("early", capacity), Path(folder) / "n", (Path(folder) / "cdi",))
            agent = Kubelet(client, options, NoRuntime(client.clock))
            await asyncio.wait_for(agent.start(), 20)
            assert transport.left == 0
            assert (await plane.client("test").get(NODES, "early")).metadata.name == "early"
            await agent.stop()
        finally:
            await plane.stop()
