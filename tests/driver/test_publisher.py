"""Publishing against a real API server in the same process, with simulated time."""

import asyncio

import pytest
from msgspec import structs
from tests.driver.publisher_rig import DRIVER, NODE, OWNER, PublisherRig, devices
from tests.effort import counted_calls
from tests.waiting import eventually

from dray.api.quantity import Quantity
from dray.api.resource import (
    Counter,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceCounterConsumption,
    DeviceTaint,
    NodeAllocatableMapping,
    NodeAllocatableResource,
    NodeAllocatableResourceMapping,
)
from dray.client import SLICES
from dray.driver.plugin import Pool, PoolSlice
from dray.driver.slices import PoolError
from dray.features import FeatureGates

RIG = PublisherRig


async def test_the_first_publication_ends_with_generation_one(rig):
    await rig.publish(Pool(NODE, devices(3)))
    (stored,) = await rig.slices()
    assert stored.metadata.name.startswith(f"00000-{DRIVER}-{NODE}-")
    assert stored.metadata.owner_references == (OWNER,)
    assert stored.spec.pool.generation == 1
    assert stored.spec.pool.resource_slice_count == 1
    assert [device.name for device in stored.spec.devices] == ["gpu-0", "gpu-1", "gpu-2"]
    assert rig.publisher.writes == 1


async def test_nothing_is_written_when_nothing_changed(rig):
    await rig.publish(Pool(NODE, devices(300)))
    assert rig.publisher.writes == 3
    await rig.publish(Pool(NODE, devices(300)))
    await rig.pass_time(120)
    assert rig.publisher.writes == 3
    await rig.restart()
    await rig.publish(Pool(NODE, devices(300)))
    await rig.pass_time(120)
    assert rig.publisher.writes == 0


async def test_one_changed_slice_is_one_update_in_the_same_generation(rig):
    await rig.publish(Pool(NODE, devices(300)))
    changed = list(devices(300))
    changed[200] = structs.replace(changed[200], attributes={"index": DeviceAttribute(int_=7)})
    await rig.publish(Pool(NODE, tuple(changed)))
    assert rig.publisher.writes == 4
    assert {each.spec.pool.generation for each in await rig.slices()} == {1}


async def test_two_changed_slices_are_a_new_generation_of_all(rig):
    await rig.publish(Pool(NODE, devices(300)))
    changed = list(devices(300))
    for i in (0, 200):
        changed[i] = structs.replace(changed[i], attributes={"index": DeviceAttribute(int_=7)})
    await rig.publish(Pool(NODE, tuple(changed)))
    assert rig.publisher.writes == 6
    assert {each.spec.pool.generation for each in await rig.slices()} == {2}


async def test_a_smaller_pool_loses_its_obsolete_slices(rig):
    await rig.publish(Pool(NODE, devices(300)))
    await rig.publish(Pool(NODE, devices(100)))
    (stored,) = await rig.slices()
    assert stored.spec.pool.resource_slice_count == 1
    assert len(stored.spec.devices) == 100


async def test_a_pool_that_is_gone_loses_all_its_slices(rig):
    await rig.publish(Pool("a", devices(200)), Pool("b", devices(2)))
    await rig.publish(Pool("b", devices(2)))
    assert [each.spec.pool.name for each in await rig.slices()] == ["b"]
    await rig.restart()
    await rig.publish()
    assert await rig.slices() == []


async def test_an_empty_pool_shows_that_the_driver_is_up(rig):
    await rig.publish(Pool(NODE))
    (stored,) = await rig.slices()
    assert stored.spec.devices == ()


async def test_what_others_delete_comes_back_after_half_a_minute(rig):
    await rig.publish(Pool(NODE, devices(3)))
    await rig.watched()
    (stored,) = await rig.slices()
    await rig.client.delete(SLICES, stored.metadata.name)
    await rig.watched()
    await rig.pass_time(20)
    assert await rig.slices() == []
    await rig.pass_time(15)
    await eventually(rig.slices, "the slice to be back")
    (again,) = await rig.slices()
    assert again.spec.devices == stored.spec.devices


async def test_slices_that_a_starting_kubelet_removed_are_put_back_at_once(rig):
    await rig.publish(Pool(NODE, devices(3)))
    await rig.watched()
    (stored,) = await rig.slices()
    await rig.client.delete(SLICES, stored.metadata.name)
    await rig.watched()
    rig.publisher.kubelet_came()
    await rig.pass_time(1)
    assert len(await rig.slices()) == 1


async def test_what_others_change_is_put_right_after_half_a_minute(rig):
    await rig.publish(Pool(NODE, devices(3)))
    await rig.watched()
    (stored,) = await rig.slices()
    await rig.client.update(SLICES, structs.replace(stored, spec=structs.replace(stored.spec, devices=devices(1))))
    await rig.watched()
    await rig.pass_time(35)
    (again,) = await rig.slices()
    assert len(again.spec.devices) == 3


async def test_the_time_of_a_taint_stays_while_the_taint_stays(rig):
    taint = DeviceTaint(key="broken", value="", effect="NoSchedule")
    await rig.publish(Pool(NODE, devices(2, taints=(taint,))))
    (stored,) = await rig.slices()
    assert stored.spec.devices[0].taints[0].time_added is not None
    await rig.pass_time(90)
    await rig.restart()
    await rig.publish(Pool(NODE, devices(2, taints=(taint,))))
    assert rig.publisher.writes == 0


async def test_dropped_fields_are_reported_once_and_cause_no_loop(tmp_path):
    gates = FeatureGates.default().with_overrides({"DRADeviceTaintRules": False, "DRADeviceTaints": False})
    async with PublisherRig(tmp_path, gates) as rig:
        taint = DeviceTaint(key="broken", value="", effect="NoSchedule")
        await rig.publish(Pool(NODE, devices(2, taints=(taint,))))
        await rig.pass_time(120)
        assert rig.errors == [
            f'pool "{NODE}", slice #0: some fields were dropped by the apiserver, '
            "probably because these features are disabled: DRADeviceTaints"
        ]
        assert rig.publisher.writes == 1
        await rig.publish(Pool(NODE, devices(2, taints=(taint,))))
        assert len(rig.errors) == 2, "publishing again tries the full set again"


def without_mappings(obj):
    """As Kubernetes stores a slice: it does not know the KEP's own fields."""
    devices = tuple(structs.replace(each, node_allocatable_resource_mappings={}) for each in obj.spec.devices)
    return structs.replace(obj, spec=structs.replace(obj.spec, devices=devices))


async def test_a_server_that_knows_kubernetes_spelling_only_gets_that(tmp_path, monkeypatch):
    async with PublisherRig(tmp_path) as rig:
        client = rig.publisher._client
        create, update = client.create, client.update
        monkeypatch.setattr(client, "create", lambda kind, obj: create(kind, without_mappings(obj)))
        monkeypatch.setattr(client, "update", lambda kind, obj: update(kind, without_mappings(obj)))
        per_device = NodeAllocatableResourceMapping(allocation_multiplier=Quantity.parse(2))
        by_capacity = NodeAllocatableResourceMapping(capacity_key="slots")
        capacity = {"slots": DeviceCapacity(value=Quantity.parse(4))}
        mapped = Device(
            name="d",
            capacity=capacity,
            node_allocatable_resource_mappings={"cpu": per_device, "memory": by_capacity},
        )
        await rig.publish(Pool(NODE, (mapped,)))
        [stored] = await rig.slices()
        assert stored.spec.devices[0].node_allocatable_resources == {
            "cpu": NodeAllocatableResource(mapping=NodeAllocatableMapping(device_multiplier=Quantity.parse(2))),
            "memory": NodeAllocatableResource(
                mapping=NodeAllocatableMapping(capacity_key="slots", capacity_multiplier=Quantity.parse(1))
            ),
        }
        assert rig.errors == []
        await rig.pass_time(120)
        assert rig.publisher.writes == 2, "nothing is written again and again"


async def test_a_server_without_node_resources_is_told_of_once(tmp_path):
    gates = FeatureGates.default().with_overrides({"DRANodeAllocatableResources": False})
    async with PublisherRig(tmp_path, gates) as rig:
        mapping = NodeAllocatableResourceMapping(allocation_multiplier=Quantity.parse(1))
        await rig.publish(Pool(NODE, devices(1, node_allocatable_resource_mappings={"cpu": mapping})))
        assert [text.rpartition(": ")[2] for text in rig.errors] == ["DRANodeAllocatableResources"]


COUNTERS = CounterSet(name="s", counters={"c": Counter(value=Quantity.parse(1))})


def draws_from(counter_set, counter):
    one = DeviceCounterConsumption(counter_set=counter_set, counters={counter: Counter(value=Quantity.parse(1))})
    return Device(name="d", consumes_counters=(one,))


@pytest.mark.parametrize(
    ("pool", "text"),
    [
        pytest.param(Pool(NODE, (Device(name="d"), Device(name="d"))), "device d is there twice", id="device-twice"),
        pytest.param(
            Pool(NODE, slices=(PoolSlice(devices=(Device(name="d"),)), PoolSlice(devices=(Device(name="d"),)))),
            "device d is there twice",
            id="device-in-two-slices",
        ),
        pytest.param(Pool(NODE, (), (COUNTERS, COUNTERS)), "counter set s is there twice", id="counter-set-twice"),
        pytest.param(
            Pool(NODE, (draws_from("t", "c"),), (COUNTERS,)), "counter set t does not exist", id="unknown-set"
        ),
        pytest.param(
            Pool(NODE, (draws_from("s", "d"),), (COUNTERS,)), "counter d does not exist", id="unknown-counter"
        ),
    ],
)
async def test_a_pool_that_contradicts_itself_is_refused_whole(rig, pool, text):
    await rig.publish(Pool(NODE, devices(1)))
    with pytest.raises(PoolError, match=text):
        rig.publisher.publish([pool])
    assert rig.publisher.writes == 1
    assert len(await rig.slices()) == 1


async def test_what_the_server_refuses_is_reported_and_not_asked_for_again(rig):
    rig.publisher.publish([Pool(NODE, (Device(name="Not A Name"),))])
    with pytest.raises(PoolError, match=r"spec\.devices"):
        await asyncio.wait_for(rig.publisher.settled(), 30)
    await rig.pass_time(100)
    assert len(rig.errors) == 1
    await rig.publish(Pool(NODE, devices(1)))
    assert len(await rig.slices()) == 1


async def test_slices_with_names_of_others_are_replaced_once(rig):
    await rig.publish(Pool(NODE, devices(2)))
    (stored,) = await rig.slices()
    foreign = structs.replace(
        stored, metadata=structs.replace(stored.metadata, name="random-x7f", uid="", resource_version="")
    )
    await rig.client.delete(SLICES, stored.metadata.name)
    await rig.client.create(SLICES, foreign)
    await rig.restart()
    await rig.publish(Pool(NODE, devices(2)))
    (replaced,) = await rig.slices()
    assert replaced.metadata.name.startswith("00000-")
    assert replaced.spec.pool.generation == 2


async def test_a_thousand_devices_are_published_with_few_writes_and_little_work(rig):
    pool = Pool(NODE, devices(1000))
    with counted_calls() as effort:
        await rig.publish(pool)
    assert rig.publisher.writes == 8
    assert effort.calls < 250_000
    await rig.publish(pool)
    assert rig.publisher.writes == 8
