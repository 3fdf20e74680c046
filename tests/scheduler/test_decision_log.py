"""What the scheduler logs about its decisions at -v 4 to -v 7."""

import logging

import pytest
from tests.builders.objects import a_claim, a_class, a_node, a_pod, a_request, a_slice
from tests.scheduler.world import World, a_world

from dray.api.quantity import Quantity
from dray.api.resource import Device, DeviceCapacity
from dray.telemetry import level_of

SHARED = Device(
    name="shared", capacity={"memory": DeviceCapacity(value=Quantity.parse("8Gi"))}, allow_multiple_allocations=True
)


async def attempts(caplog: pytest.LogCaptureFixture, verbosity: int) -> str:
    """One pod that fits and one that asks for more than the device has left."""
    caplog.set_level(level_of(verbosity), "dray")
    world = World(a_node(), a_class(), a_slice(devices=(SHARED,)))
    for name, amount in (("small", "6Gi"), ("large", "4Gi")):
        world.apply(a_claim(name, a_request(capacity={"memory": amount})), a_pod(name, name))
        await world.settle()
    assert (world.node_of("small"), world.node_of("large")) == ("node-1", "")
    return "\n".join(record.getMessage() for record in caplog.records)


@pytest.mark.parametrize(
    ("verbosity", "line"),
    [
        (4, 'Attempting to schedule pod pod="default/small" attempt=1'),
        (4, 'Successfully bound pod to node pod="default/small" node="node-1"'),
        (4, 'Unable to schedule pod pod="default/large" plugins=["DynamicResources"] err="0/1 nodes are available'),
        (5, 'Pod resource claims pod="default/small" claims=["default/small"]'),
        (5, 'Reserved claim for pod pod="default/small" claim="default/small" is_new=true'),
        (5, 'Cannot allocate all claims pod="default/large" node="node-1"'),
        (
            6,
            'Allocating one device claim="default/small" request="req" device="gpu.example.com/node-1/shared" '
            'capacities=["memory=6Gi"]',
        ),
        (
            7,
            'Device capacity not enough device="gpu.example.com/node-1/shared" pod="default/large" node="node-1" '
            'claim="default/large" request="req" reason="capacity memory: 4Gi asked, 2Gi of 8Gi left"',
        ),
    ],
)
async def test_decisions_are_logged_from_their_verbosity_on(caplog, verbosity, line):
    assert line in await attempts(caplog, verbosity)
    caplog.clear()
    assert line not in await attempts(caplog, verbosity - 1)


async def test_nothing_is_logged_by_default(caplog):
    assert await attempts(caplog, 0) == ""


async def test_a_pod_without_its_claim_is_logged(caplog):
    caplog.set_level(logging.DEBUG, "dray")
    world = a_world()
    world.apply(a_pod("pod", "claim"))
    await world.settle()
    assert 'PreEnqueue plugin pod="default/pod" plugin="DynamicResources" status="could not find' in caplog.text
