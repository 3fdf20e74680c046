"""Hundreds of simulated nodes: what they publish is what the drivers would, with little work."""

import asyncio
from pathlib import Path

import pytest

from dray.api.caching import LruSet, digest_of
from dray.client import LEASES, NODES, SLICES, STRATEGIC_PATCH
from dray.clock import SimulatedClock, rfc3339_micro
from dray.driver import Device, Driver, Pool
from dray.driver.example import DRIVERS
from dray.driver.slices import Publisher, desired_specs, same_spec
from dray.features import FeatureGates
from dray.kubelet.node import is_ready
from dray.kubelet.simulated_kubelets import RENEW_ALL_S
from dray.sim.control_plane import ControlPlane, ControlPlaneOptions
from dray.sim.node_pools import NodePool
from dray.sim.nodes import NodesOptions, PoolTemplate, SimulatedNodes


@pytest.fixture
async def plane(tmp_path):
    plane = ControlPlane(ControlPlaneOptions(tmp_path / "data", with_controllers=False, with_scheduler=False))
    await plane.start()
    yield plane
    await plane.stop()


async def started(plane, tmp_path, count=12, drivers=("gpu", "nic")):
    options = NodesOptions(NodePool(count=count, devices=drivers), Path(tmp_path) / "n", FeatureGates.default())
    nodes = SimulatedNodes(plane.client("test"), options)
    await nodes.start()
    return nodes


async def test_every_node_publishes_what_its_drivers_describe(plane, tmp_path):
    nodes = await started(plane, tmp_path)
    stored = (await plane.client("test").list(SLICES)).items
    for name in ("gpu", "nic"):
        driver = DRIVERS[name]()
        for node in ("node-1", "node-12"):
            (pool,) = driver.pools(node)
            wanted = desired_specs(Publisher(driver.name, node), pool, 1)
            mine = [each for each in stored if each.spec.driver == driver.name and each.spec.node_name == node]
            mine.sort(key=lambda each: each.metadata.name)
            assert len(mine) == len(wanted)
            assert all(same_spec(a, b.spec) for a, b in zip(wanted, mine, strict=True))
            assert mine[0].metadata.owner_references[0].name == node
            assert mine[0].metadata.owner_references[0].uid
    await nodes.stop()


async def test_a_second_start_finds_its_slices_and_writes_none(plane, tmp_path):
    await (await started(plane, tmp_path)).stop()
    before = {
        each.metadata.name: each.metadata.resource_version for each in (await plane.client("t").list(SLICES)).items
    }
    await (await started(plane, tmp_path)).stop()
    after = {
        each.metadata.name: each.metadata.resource_version for each in (await plane.client("t").list(SLICES)).items
    }
    assert after == before


async def test_a_second_start_compares_each_distinct_list_once(plane, tmp_path, monkeypatch):
    await (await started(plane, tmp_path)).stop()
    planned = []
    monkeypatch.setattr("dray.sim.nodes.SimulatedNodes._publish", lambda *arguments: planned.append(arguments))
    templates = []
    make = PoolTemplate.of
    monkeypatch.setattr(PoolTemplate, "of", lambda *arguments: templates.append(make(*arguments)) or templates[-1])
    await (await started(plane, tmp_path)).stop()
    assert planned == []
    assert [len(each.compared) for each in templates] == [len(each.specs) for each in templates]


@pytest.mark.parametrize("spoil", ["deleted", "another device", "another generation"])
async def test_a_second_start_repairs_what_differs(plane, tmp_path, spoil):
    await (await started(plane, tmp_path, drivers=("nic",))).stop()
    client = plane.client("t")
    victim = next(each for each in (await client.list(SLICES)).items if each.spec.node_name == "node-5")
    if spoil == "deleted":
        await client.delete(SLICES, victim.metadata.name)
    elif spoil == "another device":
        await client.patch(SLICES, victim.metadata.name, {"spec": {"devices": [{"name": "odd"}]}})
    else:
        await client.patch(SLICES, victim.metadata.name, {"spec": {"pool": {"resourceSliceCount": 2}}})
    await (await started(plane, tmp_path, drivers=("nic",))).stop()
    driver = DRIVERS["nic"]()
    (pool,) = driver.pools("node-5")
    (mine,) = [each for each in (await client.list(SLICES)).items if each.spec.node_name == "node-5"]
    (wanted,) = desired_specs(Publisher(driver.name, "node-5"), pool, mine.spec.pool.generation)
    assert same_spec(wanted, mine.spec)


WRITES_PER_NODE = 7
"""The node, five slices of a GPU driver, and the taint that the node lifecycle controller takes away."""
WRITES_FOR_NAMESPACES = 4 * 2
"""Each of the first four gets a service account and the root certificate."""


async def test_a_node_costs_its_objects_and_one_taint(tmp_path):
    plane = ControlPlane(ControlPlaneOptions(tmp_path / "data"))
    await plane.start()
    client = plane.client("test")
    before = int((await client.list(NODES)).revision)
    nodes = await started(plane, tmp_path, count=20, drivers=("gpu",))
    await untainted(client)
    # Every write is one revision. Leases follow one after the other, the first ones while this was waiting.
    leases = await client.list(LEASES, "kube-node-lease")
    writes = int(leases.revision) - before - len(leases.items)
    await nodes.stop()
    await plane.stop()
    assert writes <= 20 * WRITES_PER_NODE + WRITES_FOR_NAMESPACES


class Particular(Driver):
    name = "particular.example.com"

    def pools(self, node_name):
        return [Pool(node_name, (Device(name=f"on-{node_name}"),))]


def test_a_driver_whose_devices_differ_by_node_is_asked_for_each():
    assert PoolTemplate.of(Particular(), "node-1") is None


def test_the_least_recently_used_member_goes_first():
    members = LruSet(2)
    members.add("a")
    members.add("b")
    assert "a" in members
    members.add("c")
    assert ("a" in members, "b" in members, "c" in members) == (True, False, True)


def test_digests_tell_trees_apart():
    assert digest_of([{"a": 1}]) == digest_of([{"a": 1}])
    assert len({digest_of(tree) for tree in ([1], [1.0], [True], ["1"], [None], [{}])}) == 6
    assert digest_of([object()]) is None


async def untainted(client):
    """The revision of every node, once the taint that it starts with is gone."""
    async with asyncio.timeout(60), client.watch(NODES, initial_events=True) as events:
        tainted = {node.metadata.name for node in (await client.list(NODES)).items if node.spec.taints}
        async for event in events:
            if not event.object.spec.taints:
                tainted.discard(event.object.metadata.name)
            if not tainted:
                break
    return {node.metadata.name: node.metadata.resource_version for node in (await client.list(NODES)).items}


async def test_simulated_nodes_stay_ready_for_as_long_as_they_renew(tmp_path):
    clock = SimulatedClock()
    plane = ControlPlane(ControlPlaneOptions(tmp_path / "data", with_scheduler=False), clock)
    await plane.start()
    client = plane.client("test")
    nodes = await started(plane, tmp_path, count=12, drivers=())
    before = await untainted(client)
    async with client.watch(LEASES, "kube-node-lease", initial_events=True) as renewals:
        for _ in range(36):
            await clock.advance(RENEW_ALL_S / 12)
            now = rfc3339_micro(clock.now())
            async with asyncio.timeout(60):
                async for each in renewals:
                    if each.object.spec and each.object.spec.renew_time == now:
                        break
    assert await untainted(client) == before
    await nodes.stop()
    await plane.stop()


async def test_a_node_that_was_taken_for_dead_is_reported_ready_again(plane, tmp_path):
    nodes = await started(plane, tmp_path, drivers=())
    client = plane.client("test")
    unknown = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
    await client.patch(NODES, "node-3", unknown, subresource="status", patch_type=STRATEGIC_PATCH)
    async with asyncio.timeout(60), client.watch(NODES, initial_events=True) as events:
        async for event in events:
            if event.object.metadata.name == "node-3" and is_ready(event.object):
                break
    await nodes.stop()
