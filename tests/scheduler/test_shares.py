"""Devices that several claims share: what a share takes, what is left, and what happens when the driver publishes anew."""

import re

import pytest
from msgspec.structs import replace
from tests.builders.objects import a_claim, a_class, a_pod, a_request, a_slice, alternatives, an_alternative
from tests.scheduler.world import a_world

from dray.api.core import Pod
from dray.api.quantity import Quantity
from dray.api.resource import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceConstraint,
)
from dray.features import FeatureGates

SHARED = "device.allowMultipleAllocations == true"
DOMAIN = "gpu.example.com"


def amount(text):
    return Quantity.parse(text) if text else None


def in_range(default, least="", most="", step=""):
    limits = CapacityRequestPolicyRange(min=amount(least), max=amount(most), step=amount(step))
    return CapacityRequestPolicy(default=amount(default), valid_range=limits)


def one_of(*values):
    return CapacityRequestPolicy(default=amount(values[0]), valid_values=tuple(map(amount, values)))


def nic(name="nic-0", bandwidth="10", policy=None, is_shared=True, **attributes):
    capacity = {"bandwidth": DeviceCapacity(value=amount(bandwidth), request_policy=policy)} if bandwidth else {}
    return Device(
        name=name,
        allow_multiple_allocations=is_shared or None,
        capacity=capacity,
        attributes={key: DeviceAttribute(string=value) for key, value in attributes.items()},
    )


def world_of_devices(*devices, expression="", **options):
    return a_world(devices=devices, device_class=a_class(expression=expression), **options)


def asks(bandwidth="", name="req", **request):
    return a_request(name, capacity={"bandwidth": bandwidth} if bandwidth else None, **request)


async def wants(world, name, *requests, **claim):
    """A pod of this name with a claim of its own; True if it got a node."""
    world.apply(a_claim(name, *requests, **claim), a_pod(name, name))
    await world.settle()
    return bool(world.node_of(name))


async def leaves(world, name):
    world.cluster.delete(world.pod(name))
    world.cluster.delete(world.claim(name))
    await world.settle(12)


def shares(world, name):
    return world.claim(name).status.allocation.devices.results


def taken(world, name):
    (share,) = shares(world, name)
    return {key: str(value) for key, value in (share.consumed_capacity or {}).items()}


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        pytest.param(nic(), {"bandwidth": "10"}, id="all-of-it-without-a-policy"),
        pytest.param(nic(policy=one_of("4", "8")), {"bandwidth": "4"}, id="the-default-of-the-policy"),
        pytest.param(nic(bandwidth=""), {}, id="nothing-of-a-device-without-capacity"),
    ],
)
async def test_who_asks_for_no_capacity(device, expected):
    world = world_of_devices(device)
    assert await wants(world, "a", asks())
    assert taken(world, "a") == expected


async def test_who_asks_for_no_capacity_waits_while_part_of_it_is_taken():
    world = world_of_devices(nic())
    assert await wants(world, "some", asks("6"))
    assert not await wants(world, "all", asks())
    assert "cannot allocate all claims" in world.message("all")
    await leaves(world, "some")
    assert world.node_of("all")


async def test_shares_add_up_and_the_rest_is_given_until_it_is_too_little():
    world = world_of_devices(nic())
    assert [await wants(world, name, asks("4")) for name in ("a", "b", "c")] == [True, True, False]
    assert await wants(world, "small", asks("2"))
    await leaves(world, "a")
    assert world.node_of("c")


@pytest.mark.parametrize(
    ("policy", "asked", "expected"),
    [
        pytest.param(in_range("1Mi", "1Mi", step="8"), "3000000001", "3000000008", id="to-the-next-step"),
        pytest.param(in_range("2G", "1G", "4G"), "500M", "1G", id="to-the-least"),
        pytest.param(in_range("2G", "1G", "4G"), "3G", "3G", id="as-asked-for"),
        pytest.param(in_range("2G", "1G", "4G"), "", "2G", id="the-default"),
        pytest.param(in_range("2G", "1G", "4G"), "5G", None, id="more-than-the-most"),
        pytest.param(one_of("1G", "2G", "4G"), "3G", "4G", id="to-the-next-value"),
        pytest.param(one_of("1G", "2G", "4G"), "5G", None, id="more-than-any-value"),
    ],
)
async def test_an_amount_is_rounded_up_to_what_the_policy_allows(policy, asked, expected):
    world = world_of_devices(nic(bandwidth="10G", policy=policy))
    assert await wants(world, "a", asks(asked)) == (expected is not None)
    if expected:
        assert taken(world, "a") == {"bandwidth": expected}
        assert world.claim("a").spec.devices.requests == (asks(asked),), "the request stays as it was written"


async def test_a_class_may_select_shared_devices_only():
    world = world_of_devices(nic("alone", is_shared=False), nic("together"), expression=SHARED)
    assert await wants(world, "a", asks("1"))
    assert await wants(world, "b", asks("1"))
    assert world.devices_of("a") == world.devices_of("b") == ["node-1/together"]


@pytest.mark.parametrize(("names", "is_bound"), [(("eth0", "eth1"), True), (("eth0", "eth0"), False)])
async def test_two_interfaces_of_different_names(names, is_bound):
    world = world_of_devices(*(nic(f"nic-{index}", interfaceName=name) for index, name in enumerate(names)))
    apart = DeviceConstraint(distinct_attribute=f"{DOMAIN}/interfaceName")
    assert await wants(world, "a", asks("1", "first"), asks("1", "second"), constraints=(apart,)) == is_bound
    assert world.devices_of("a") == (["node-1/nic-0", "node-1/nic-1"] if is_bound else [])


async def test_two_requests_of_one_claim_are_two_shares_of_a_device():
    world = world_of_devices(nic())
    assert await wants(world, "a", asks("3", "first"), asks("4", "second"))
    first, second = shares(world, "a")
    assert (first.device, second.device) == ("nic-0", "nic-0")
    assert first.share_id != second.share_id
    uid = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    assert all(re.fullmatch(uid, share.share_id) for share in (first, second))
    assert [str(share.consumed_capacity["bandwidth"]) for share in (first, second)] == ["3", "4"]


@pytest.mark.parametrize("devices", [1, 2])
async def test_a_count_is_a_number_of_devices_and_not_of_shares(devices):
    world = world_of_devices(*(nic(f"nic-{index}") for index in range(devices)))
    assert await wants(world, "a", asks("1", count=2)) == (devices == 2)


async def test_an_alternative_asks_for_capacity_of_its_own():
    world = world_of_devices(nic())
    much, little = (
        an_alternative("much", "gpu", capacity={"bandwidth": "20"}),
        an_alternative("little", "gpu", capacity={"bandwidth": "5"}),
    )
    assert await wants(world, "a", alternatives("req", much, little))
    assert taken(world, "a") == {"bandwidth": "5"}
    assert [share.request for share in shares(world, "a")] == ["req/little"]


@pytest.mark.parametrize(
    ("device", "consumed"),
    [
        pytest.param(nic(policy=one_of("0")), {"bandwidth": "0"}, id="shares-that-take-nothing"),
        pytest.param(nic(bandwidth=""), {}, id="no-capacity"),
    ],
)
async def test_a_device_that_nobody_can_use_up(device, consumed):
    world = world_of_devices(device)
    for name in ("a", "b", "c"):
        assert await wants(world, name, asks())
        assert taken(world, name) == consumed
    assert len({shares(world, name)[0].share_id for name in ("a", "b", "c")}) == 3


@pytest.mark.parametrize("beside", [(), (nic("shared"),)], ids=["alone", "beside-a-shared-one"])
async def test_a_device_that_is_not_shared_has_no_share_and_no_consumed_capacity(beside):
    world = world_of_devices(nic(is_shared=False), *beside, expression="!device.allowMultipleAllocations")
    assert await wants(world, "a", asks("1"))
    (result,) = shares(world, "a")
    assert (result.share_id, result.consumed_capacity or None) == (None, None)
    assert not await wants(world, "b", asks("1"))


async def test_a_device_that_becomes_shared_stays_with_its_claim_until_that_is_over():
    world = world_of_devices(nic(is_shared=False))
    assert await wants(world, "before", asks("1"))
    world.apply(a_slice(devices=(nic(),), generation=2))
    assert not await wants(world, "after", asks("1"))
    await leaves(world, "before")
    assert world.node_of("after")
    assert taken(world, "after") == {"bandwidth": "1"}


async def test_a_device_that_is_no_longer_shared_is_given_to_nobody_until_all_shares_are_over():
    world = world_of_devices(nic())
    assert await wants(world, "a", asks("1"))
    assert await wants(world, "b", asks("1"))
    before = {name: shares(world, name) for name in ("a", "b")}
    world.apply(a_slice(devices=(nic(is_shared=False),), generation=2))
    assert not await wants(world, "alone", asks("1"))
    assert {name: shares(world, name) for name in ("a", "b")} == before
    await leaves(world, "a")
    assert not world.node_of("alone")
    await leaves(world, "b")
    assert world.node_of("alone")
    assert shares(world, "alone")[0].share_id is None


async def test_a_new_policy_is_for_new_shares():
    world = world_of_devices(nic(policy=in_range("2", "1")))
    assert await wants(world, "before", asks())
    world.apply(a_slice(devices=(nic(policy=in_range("5", "5")),), generation=2))
    assert taken(world, "before") == {"bandwidth": "2"}
    assert await wants(world, "after", asks("1"))
    assert taken(world, "after") == {"bandwidth": "5"}
    assert not await wants(world, "too-much", asks("1")), "3 of 10 are left"


async def test_a_scheduler_that_does_not_know_shares_says_so():
    gates = FeatureGates.default().without("DRAConsumableCapacity")
    world = world_of_devices(nic(), gates=gates)
    assert not await wants(world, "a", asks("1"))
    text = "has capacity requests, but the DRAConsumableCapacity feature is disabled"
    assert text in world.message("a")
    assert text in world.events("FailedScheduling")[0].message
    subrequest = alternatives("req", an_alternative("one", "gpu", capacity={"bandwidth": "1"}))
    assert not await wants(world, "b", subrequest)
    assert text in world.message("b")
    assert await wants(world, "c", asks()), "who asks for no capacity gets devices"


async def test_more_is_taken_than_there_is_once_a_device_shrinks():
    """Nobody gets more of it, nothing breaks, and what is left counts again as soon as there is some."""
    world = world_of_devices(nic())
    assert await wants(world, "a", asks("6"))
    assert await wants(world, "b", asks("2"))
    world.apply(a_slice(devices=(nic(bandwidth="5"),), generation=2))
    assert not await wants(world, "c", asks("1"))
    assert (taken(world, "a"), taken(world, "b")) == ({"bandwidth": "6"}, {"bandwidth": "2"})
    await leaves(world, "a")
    assert world.node_of("c")


async def test_more_devices_are_taken_than_there_are_once_one_is_gone():
    world = world_of_devices(nic("x", is_shared=False), nic("y", is_shared=False))
    assert await wants(world, "a", asks())
    world.apply(a_slice(devices=(nic("y", is_shared=False),), generation=2))
    assert await wants(world, "b", asks())
    assert (world.devices_of("a"), world.devices_of("b")) == (["node-1/x"], ["node-1/y"])
    assert not await wants(world, "c", asks())
    await leaves(world, "a")
    assert not world.node_of("c"), "the device that was given back is not there"
    await leaves(world, "b")
    assert world.node_of("c")


async def test_claims_of_several_namespaces_share_a_device():
    world = world_of_devices(nic())
    for namespace, bandwidth in (("one", "6"), ("two", "4"), ("three", "1")):
        claim, pod = a_claim("c", asks(bandwidth)), a_pod(namespace, "c")
        moved = (replace(each, metadata=replace(each.metadata, namespace=namespace)) for each in (claim, pod))
        world.apply(*moved)
        await world.settle()
    nodes = {name: world.cluster.get(Pod, name, name).spec.node_name for name in ("one", "two", "three")}
    assert nodes == {"one": "node-1", "two": "node-1", "three": ""}
