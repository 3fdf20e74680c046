"""Publishing while calls fail, watches lag, others write and features are missing."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from msgspec import structs
from tests.driver.publisher_rig import NODE, PublisherRig, devices
from tests.waiting import eventually

from dray.api import codec
from dray.api.resource import Device
from dray.client import NODES, SLICES, Client, ServerUnreachable
from dray.driver.plugin import Pool
from dray.driver.slices import PoolError


class Hooked:
    """Lets a test act before a call is sent, and hold back what watches bring."""

    def __init__(self, inner):
        self._inner = inner
        self.before = {}
        self.calls = []
        self.flows = asyncio.Event()
        self.flows.set()

    async def request(self, call):
        if "resourceslices" in call.path:
            self.calls.append(call.method)
            hook = self.before.get(call.method)
            if hook is not None:
                await hook()
        return await self._inner.request(call)

    @asynccontextmanager
    async def stream(self, call):
        async with self._inner.stream(call) as frames:
            yield self._held(frames)

    async def _held(self, frames):
        async for frame in frames:
            await self.flows.wait()
            yield frame

    async def close(self):
        pass


class HookedRig(PublisherRig):
    def __init__(self, root, gates=None):
        super().__init__(root, gates)
        self.transport = None

    def _driver_client(self):
        self.transport = self.transport or Hooked(self.plane.client("driver").transport)
        return Client(self.transport, clock=self.clock, user_agent="driver")


RIG = HookedRig


async def test_a_driver_that_dies_while_it_publishes_is_seen_as_incomplete_and_completes_later(rig):
    await rig.publish(Pool(NODE, devices(100)))

    async def lost_on_the_second_create():
        if rig.transport.calls.count("POST") > 2:
            raise ServerUnreachable("the driver was killed")

    rig.transport.before["POST"] = lost_on_the_second_create
    rig.publisher.publish([Pool(NODE, devices(384))])
    await eventually(lambda: rig.transport.calls.count("POST") > 2, "the second create")
    newest = max(each.spec.pool.generation for each in await rig.slices())
    current = [each for each in await rig.slices() if each.spec.pool.generation == newest]
    assert newest == 2
    assert {each.spec.pool.resource_slice_count for each in current} == {3}
    assert len(current) < 3, "whoever reads this sees that the pool is not whole"
    rig.transport.before.clear()
    await rig.restart()
    await rig.publish(Pool(NODE, devices(384)))
    found = await rig.slices()
    assert len(found) == 3
    assert len({each.spec.pool.generation for each in found}) == 1
    assert sum(len(each.spec.devices) for each in found) == 384


async def test_an_invalid_device_does_not_keep_obsolete_slices(rig):
    await rig.publish(Pool(NODE, devices(200)))
    assert len(await rig.slices()) == 2
    rig.publisher.publish([Pool(NODE, (Device(name="Not A Name"),))])
    with pytest.raises(PoolError, match=r"spec\.devices\[0\]\.name"):
        await asyncio.wait_for(rig.publisher.settled(), 20)
    assert len(await rig.slices()) == 1, "the second slice is not wanted any more, whatever is wrong with the first"
    assert len(rig.errors) == 1


async def test_an_invalid_pool_does_not_keep_another_one_from_being_removed(rig):
    await rig.publish(Pool("old", devices(1)), Pool("bad", devices(1)))
    rig.publisher.publish([Pool("bad", (Device(name="Not A Name"),))])

    async def only_bad_is_left():
        return [each.spec.pool.name for each in await rig.slices()] == ["bad"]

    await eventually(only_bad_is_left, "the old pool to go")
    assert [each.spec.pool.name for each in await rig.slices()] == ["bad"]


async def test_a_watch_that_lags_causes_no_second_slice(rig):
    rig.transport.flows.clear()
    await rig.publish(Pool(NODE, devices(3)))
    for _ in range(3):
        await rig.publish(Pool(NODE, devices(3)))
        await rig.pass_time(10)
    assert rig.transport.calls.count("POST") == 1
    rig.transport.flows.set()
    await rig.pass_time(120)
    assert rig.transport.calls.count("POST") == 1
    assert len(await rig.slices()) == 1


async def test_a_slice_that_was_replaced_while_it_is_deleted_is_looked_at_again(rig):
    """The name is the same, the object is not: the delete misses it on purpose, and the next look decides."""
    await rig.publish(Pool(NODE, devices(200)))
    last = (await rig.slices())[-1]
    replaced = []

    async def replace_once():
        if not replaced:
            replaced.append(True)
            await rig.client.delete(SLICES, last.metadata.name)
            metadata = structs.replace(last.metadata, uid="", resource_version="", generate_name="")
            await rig.client.create(SLICES, structs.replace(last, metadata=metadata))

    rig.transport.before["DELETE"] = replace_once
    rig.publisher.publish([Pool(NODE, devices(100))])
    settled = asyncio.create_task(rig.publisher.settled())
    for _ in range(500):
        if settled.done():
            break
        await rig.pass_time(1)
    await settled
    assert rig.transport.calls.count("DELETE") == 2
    (left,) = await rig.slices()
    assert [device.name for device in left.spec.devices] == [f"gpu-{i}" for i in range(100)]


async def test_a_server_that_is_away_is_asked_again_ever_more_slowly(rig):
    async def away():
        raise ServerUnreachable("connection refused")

    rig.transport.before["POST"] = away
    rig.publisher.publish([Pool(NODE, devices(1))])
    await rig.pass_time(0.1)
    early = rig.transport.calls.count("POST")
    assert 1 <= early < 10
    for _ in range(20):
        await rig.pass_time(30)
    late = rig.transport.calls.count("POST") - early
    assert late < 25, "no busy loop"
    rig.transport.before.clear()
    settled = asyncio.create_task(rig.publisher.settled())
    for _ in range(100):
        if settled.done():
            break
        await rig.pass_time(60)
    await settled
    assert len(await rig.slices()) == 1


async def test_devices_that_take_cpu_are_published_whatever_their_node_declares(rig):
    """The scheduler counts them in any case; a node that does not would only see less than there is."""
    await rig.client.create(NODES, {"metadata": {"name": NODE}})
    mapping = {"cpu": {"mapping": {"deviceMultiplier": "1"}}}
    document = {"name": "cpu-0", "nodeAllocatableResources": mapping}
    await rig.publish(Pool(NODE, (codec.to_object(document, Device),)))
    (stored,) = await rig.slices()
    assert codec.to_document(stored)["spec"]["devices"][0]["nodeAllocatableResources"] == mapping
    assert rig.errors == []
