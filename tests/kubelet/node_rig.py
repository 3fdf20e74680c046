"""A control plane, a node agent that runs processes, and a driver, in one process; agent and driver come and go."""

import asyncio
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

from dray.api.quantity import Quantity
from dray.client import CLAIMS, DEVICE_CLASSES, EVENTS, PODS, SLICES, TEMPLATES, ApiError, Client
from dray.clock import Clock
from dray.driver import (
    ContainerEdits,
    Device,
    DeviceAttribute,
    Driver,
    DriverPaths,
    Pool,
    PreparedDevice,
    RunningDriver,
)
from dray.features import FeatureGates
from dray.kubelet.checkpoint import CheckpointFile
from dray.kubelet.node import NodeDescription
from dray.kubelet.runtime.interface import Runtime
from dray.kubelet.runtime.process import ProcessRuntime
from dray.kubelet.server import Kubelet, KubeletOptions
from dray.sim.control_plane import ControlPlane, ControlPlaneOptions
from tests.waiting import eventually

FAN = "fan.example.com"
NODE = "n1"
CLASS = {"metadata": {"name": "fan"}, "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{FAN}"'}}]}}
TEMPLATE = {
    "metadata": {"name": "fan"},
    "spec": {"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "fan"}}]}}},
}
COLOUR = {"claimName": "fan", "requestName": "r", "attribute": "colour"}


class FanDriver(Driver):
    name = FAN

    def __init__(self) -> None:
        self.colour = "white"
        # The pool of every node instead of one of this node.
        self.is_network_attached = False
        self.prepared: list[str] = []
        self.unprepared: list[str] = []

    def pools(self, node_name):
        colour = DeviceAttribute(string=self.colour)
        devices = tuple(
            Device(name=f"fan-{i}", attributes={"colour": colour, "place": DeviceAttribute(int_=i)}) for i in range(2)
        )
        return [Pool("net", devices, all_nodes=True) if self.is_network_attached else Pool(node_name, devices)]

    def prepare(self, claim):
        self.prepared.append(claim.uid)
        return [PreparedDevice(each, ContainerEdits(env=(f"FAN={each.device}",))) for each in claim.devices]

    def unprepare(self, claim):
        self.unprepared.append(claim.uid)


class NodeRig:
    def __init__(self, root: Path, make_runtime: Callable[[Path, Clock], Runtime] = ProcessRuntime) -> None:
        self.root = root
        self._make_runtime = make_runtime
        self.plane = ControlPlane(ControlPlaneOptions(root / "data"))
        self.fan = FanDriver()
        self.agent: Kubelet | None = None
        self.driver: RunningDriver | None = None
        self.client: Client

    async def __aenter__(self):
        await self.start()
        return self

    async def __aexit__(self, *_):
        await self.stop()

    async def start(self) -> None:
        await self.plane.start()
        self.client = self.plane.client("test")
        await self.client.create(DEVICE_CLASSES, CLASS)
        await self.client.create(TEMPLATES, TEMPLATE, "default")
        await self.start_agent()
        await self.start_driver()

    async def stop(self) -> None:
        await self.stop_driver()
        await self.stop_agent()
        for state in self._states():
            os.killpg(state["pid"], signal.SIGKILL)
        await self.plane.stop()

    async def start_agent(self, client: Client | None = None, gates: FeatureGates | None = None) -> None:
        capacity = {"cpu": Quantity.parse("4"), "memory": Quantity.parse("4Gi"), "pods": Quantity.parse("10")}
        gates = gates or FeatureGates.default()
        options = KubeletOptions(NodeDescription(NODE, capacity), self.root / "n", (self.root / "cdi",), gates)
        client = client or self.plane.client("kubelet")
        self.agent = Kubelet(client, options, self._make_runtime(self.root / "n", client.clock))
        await self.agent.start()

    async def stop_agent(self) -> None:
        if self.agent is not None:
            await self.agent.stop()
            self.agent = None

    async def start_driver(self) -> None:
        paths = DriverPaths(self.root / "n", self.root / "cdi")
        self.driver = RunningDriver(self.fan, self.plane.client("driver"), NODE, paths)
        await self.driver.start()
        await self.driver.published()
        if self.agent is not None:
            await self.until(lambda: FAN in self.agent.drivers.names(), "the driver to be registered")

    async def stop_driver(self) -> None:
        if self.driver is not None:
            await self.driver.stop()
            self.driver = None
        if self.agent is not None:
            await self.until(lambda: FAN not in self.agent.drivers.names(), "the driver to be deregistered")

    # --- pods

    async def create_pod(
        self,
        name: str = "p",
        script: str = "echo fan=$FAN colour=$COLOUR",
        attribute: str = "colour",
        mount_path: str = "",
        **spec_fields: object,
    ) -> None:
        reference = COLOUR | {"attribute": attribute}
        env = [{"name": "COLOUR", "valueFrom": {"resourceSliceAttributeRef": reference}}]
        container = {
            "name": "main",
            "image": "i",
            "command": ["sh", "-c", f"{script}; exec sleep 1000"],
            "env": env,
            "resources": {"claims": [{"name": "fan"}]},
        }
        if mount_path:
            items = [{"path": "colour", "resourceSliceAttributeRef": reference}]
            container["volumeMounts"] = [{"name": "fans", "mountPath": mount_path}]
            spec_fields["volumes"] = [{"name": "fans", "downwardAPI": {"items": items}}]
        spec = {
            "containers": [container],
            "terminationGracePeriodSeconds": 1,
            "resourceClaims": [{"name": "fan", "resourceClaimTemplateName": "fan"}],
            **spec_fields,
        }
        await self.client.create(PODS, {"metadata": {"name": name}, "spec": spec}, "default")

    async def pod(self, name: str = "p"):
        return await self.client.get(PODS, name, "default")

    async def until_phase(self, phase: str, name: str = "p") -> None:
        async def is_so() -> bool:
            return (await self.pod(name)).status.phase == phase

        await self.until(is_so, f"{name} to be {phase}")

    async def until_bound(self, name: str = "p") -> None:
        async def is_so() -> bool:
            return (await self.pod(name)).spec.node_name == NODE

        await self.until(is_so, f"{name} to be bound")

    async def delete_pod(self, name: str = "p", *, force: bool = False) -> None:
        await self.client.delete(PODS, name, "default", grace_seconds=0 if force else 1)
        await self.until_gone(name)

    async def until_gone(self, name: str = "p") -> None:
        async def is_so() -> bool:
            return await self.client.find(PODS, name, "default") is None

        await self.until(is_so, f"{name} to be gone")

    def kill_containers(self) -> None:
        """As if they had crashed: their processes end, the agent has to notice."""
        for state in self._states():
            os.killpg(state["pid"], signal.SIGKILL)

    def _states(self) -> list[dict]:
        found = []
        for path in (self.root / "n").glob("pods/*/containers/*/state.json"):
            state = json.loads(path.read_text())
            if Path(f"/proc/{state['pid']}").exists():
                found.append(state)
        return found

    def output(self, attempt: int, name: str = "p") -> str:
        files = list((self.root / "n" / "logs").glob(f"default_{name}_*/main/{attempt}.log"))
        return files[0].read_text() if files else ""

    async def until_output(self, attempt: int, text: str, name: str = "p") -> None:
        await self.until(lambda: text in self.output(attempt, name), f"{text!r} in attempt {attempt} of {name}")

    async def until_waiting(self, reason: str, name: str = "p") -> None:
        async def is_so() -> bool:
            statuses = (await self.pod(name)).status.container_statuses
            return (
                bool(statuses) and statuses[0].state.waiting is not None and statuses[0].state.waiting.reason == reason
            )

        await self.until(is_so, f"{name} to wait with {reason}")

    # --- what is left

    async def events(self) -> list[tuple[str, str]]:
        return [(each.reason, each.message) for each in (await self.client.list(EVENTS)).items]

    async def slices(self) -> list:
        return (await self.client.list(SLICES)).items

    async def until_clean(self) -> None:
        async def is_so() -> bool:
            claims = (await self.client.list(CLAIMS)).items
            prepared = json.loads((self.root / "n/plugins" / FAN / "prepared.json").read_text())["claims"]
            traces = list((self.root / "n/pods").glob("*")) + list((self.root / "cdi").glob("*"))
            return not (claims or prepared or traces or CheckpointFile(self.root / "n").read())

        await self.until(is_so, "nothing to be left")

    @staticmethod
    async def until(holds, what: str, timeout_s: float = 40.0) -> None:
        async def question():
            try:
                found = holds()
                return await found if asyncio.iscoroutine(found) else found
            except (OSError, ApiError):
                return False

        await eventually(question, what, timeout_s)
