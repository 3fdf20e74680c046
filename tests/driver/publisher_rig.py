"""A publisher of slices against a real API server in the same process, with simulated time."""

import asyncio

from tests.waiting import PAUSE_S, eventually, pass_time

from dray.api.meta import OwnerReference
from dray.api.resource import Device, DeviceAttribute
from dray.client import SLICES
from dray.clock import SimulatedClock
from dray.driver.publisher import SlicePublisher
from dray.features import FeatureGates
from dray.sim.control_plane import ControlPlane, ControlPlaneOptions

DRIVER, NODE = "gpu.example.com", "node-1"
OWNER = OwnerReference(api_version="v1", kind="Node", name=NODE, uid="node-uid", controller=True)


class PublisherRig:
    def __init__(self, root, gates=None):
        self.clock = SimulatedClock()
        options = ControlPlaneOptions(
            root / "data", gates=gates or FeatureGates.default(), with_controllers=False, with_scheduler=False
        )
        self.plane = ControlPlane(options, self.clock)
        self.errors: list[str] = []

    async def __aenter__(self):
        await self.plane.start()
        self.client = self.plane.client("test")
        self.publisher = self._make()
        await self.publisher.start()
        return self

    async def __aexit__(self, *_):
        await self.publisher.stop()
        await self.plane.stop()

    def _make(self):
        return SlicePublisher(self._driver_client(), DRIVER, NODE, OWNER, self.errors.append)

    def _driver_client(self):
        return self.client.named("driver")

    async def publish(self, *pools):
        self.publisher.publish(pools)
        await asyncio.wait_for(self.publisher.settled(), 30)

    async def restart(self):
        await self.publisher.stop()
        self.publisher = self._make()
        await self.publisher.start()

    async def slices(self):
        found = (await self.client.list(SLICES)).items
        return sorted(found, key=lambda each: each.metadata.name)

    async def pass_time(self, seconds):
        """Watches deliver over the real loop, so each step of simulated time gets a moment of real time."""
        await pass_time(self.clock, seconds, steps=4, pause_s=PAUSE_S)

    async def watched(self):
        """Until the publisher's copy holds what the server holds."""

        async def is_current():
            stored = {each.metadata.name: each.metadata.resource_version for each in await self.slices()}
            return {each.metadata.name: each.metadata.resource_version for each in self.publisher._informer} == stored

        await eventually(is_current, "the publisher to see the slices")


def devices(count, **fields):
    return tuple(Device(name=f"gpu-{i}", attributes={"index": DeviceAttribute(int_=i)}, **fields) for i in range(count))
