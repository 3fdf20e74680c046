"""A node agent that is restarted while pods run: they keep their place, and nobody hears that they stopped."""

import asyncio
from pathlib import Path

from dray.api.quantity import Quantity
from dray.client import PODS, SERVICE_ACCOUNTS, Client
from dray.kubelet.node import NodeDescription
from dray.kubelet.runtime.none import NoRuntime
from dray.kubelet.server import Kubelet, KubeletOptions
from dray.proof import History, SeenEvent, WatchRecorder
from dray.sim.control_plane import ControlPlane, ControlPlaneOptions
from tests.waiting import eventually


class LongWay:
    """Status writes are long on their way, and arrive even if the sender has stopped waiting."""

    def __init__(self, inner):
        self._inner = inner
        self.delay_s = 0.0
        self.under_way = set()

    async def request(self, call):
        if call.method != "PATCH" or not call.path.endswith("/status") or "/pods/" not in call.path:
            return await self._inner.request(call)
        sent = asyncio.ensure_future(self._arrive(call, self.delay_s))
        self.under_way.add(sent)
        sent.add_done_callback(self.under_way.discard)
        return await asyncio.shield(sent)

    async def _arrive(self, call, delay_s):
        await asyncio.sleep(delay_s)
        return await self._inner.request(call)

    def stream(self, call):
        return self._inner.stream(call)

    async def close(self):
        pass


class RestartRig:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.plane = ControlPlane(ControlPlaneOptions(root / "data", with_controllers=False, with_scheduler=False))
        self.agent: Kubelet | None = None

    async def __aenter__(self) -> "RestartRig":
        await self.plane.start()
        self.client = self.plane.client("test")
        await self.client.create(SERVICE_ACCOUNTS, {"metadata": {"name": "default"}}, "default")
        await self.start_agent()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop_agent()
        await self.plane.stop()

    async def start_agent(self) -> None:
        capacity = {"cpu": Quantity.parse("4"), "memory": Quantity.parse("4Gi"), "pods": Quantity.parse("10")}
        options = KubeletOptions(NodeDescription("n1", capacity), self.root / "n", (self.root / "cdi",))
        self.way = LongWay(self.plane.client("kubelet").transport)
        client = Client(self.way)
        self.agent = Kubelet(client, options, NoRuntime(client.clock))
        await self.agent.start()

    async def stop_agent(self) -> None:
        assert self.agent is not None
        await self.agent.stop()

    async def bind(self, name: str, cpu: str, *finalizers: str) -> None:
        container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": cpu}}}
        spec = {"nodeName": "n1", "containers": [container, {"name": "second", "image": "x"}]}
        metadata = {"name": name, "finalizers": list(finalizers)}
        await self.client.create(PODS, {"metadata": metadata, "spec": spec}, "default")

    async def until(self, name: str, phase: str) -> None:
        async def is_so() -> bool:
            return (await self.client.get(PODS, name, "default")).status.phase == phase

        await eventually(is_so, f"{name} to be {phase}")


RIG = RestartRig


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
    follower = WatchRecorder(rig.plane.client("follower"), history, "a", (PODS,))
    await follower.start()
    await rig.stop_agent()
    await rig.start_agent()
    await rig.bind("later", "1")
    await rig.until("later", "Running")
    await follower.finish()
    seen = [each for each in history.records if isinstance(each, SeenEvent) and each.key.name == "steady"]
    phases = {each.document["status"]["phase"] for each in seen}
    assert phases <= {"Running"}


async def test_a_pod_that_ended_never_looks_alive_again(rig):
    """Deleted while its first status is still on its way to the server."""
    history = History()
    follower = WatchRecorder(rig.plane.client("follower"), history, "a", (PODS,))
    await follower.start()
    rig.way.delay_s = 0.5
    await rig.bind("short", "1", "example.com/kept-to-look-at")
    await eventually(lambda: rig.way.under_way, "the first status")
    rig.way.delay_s = 0.0
    await rig.client.delete(PODS, "short", "default", grace_seconds=1)
    await rig.until("short", "Failed")
    await eventually(lambda: not rig.way.under_way, "the late status to arrive")
    await follower.finish()
    phases = [
        each.document["status"]["phase"]
        for each in history.records
        if isinstance(each, SeenEvent) and each.type != "BOOKMARK"
    ]
    ended = next(index for index, phase in enumerate(phases) if phase in ("Failed", "Succeeded"))
    assert set(phases[ended:]) <= {"Failed", "Succeeded"}, phases
