"""Limits of capacities, which drivers enforce: they come with the devices of a claim."""

from msgspec.structs import replace
from tests.driver.test_server import DRIVER, allocated_claim, result

from dray.api.quantity import Quantity
from dray.api.resource import CapacityRequirements, DeviceRequest, DeviceSubRequest, ExactDeviceRequest
from dray.driver import ClaimReference
from dray.driver.prepare import claim_to_prepare


def test_a_device_comes_with_the_limits_of_its_request():
    """Of the alternative that was chosen, too."""
    limits = {"memory": Quantity.parse("8Gi")}
    capacity = CapacityRequirements(requests={"memory": Quantity.parse("2Gi")}, limits=limits)
    requests = (
        DeviceRequest(name="plain", exactly=ExactDeviceRequest(device_class_name="gpu", capacity=capacity)),
        DeviceRequest(
            name="list",
            first_available=(
                DeviceSubRequest(name="big", device_class_name="gpu"),
                DeviceSubRequest(name="small", device_class_name="gpu", capacity=capacity),
            ),
        ),
    )
    names = ("plain", "list/small", "list/big")
    claim = allocated_claim("c", "u1", *(result(f"gpu-{i}", name) for i, name in enumerate(names)))
    claim = replace(claim, spec=replace(claim.spec, devices=replace(claim.spec.devices, requests=requests)))
    prepared = claim_to_prepare(ClaimReference("ns", "c", "u1"), claim, DRIVER)
    assert [device.capacity_limits for device in prepared.devices] == [limits, limits, {}]
