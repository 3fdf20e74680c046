"""What a driver reports of prepared devices reaches `status.devices` of their claims."""

import asyncio

import pytest
from tests.waiting import eventually

from dray.api.resource import AllocatedDeviceStatus, NetworkDeviceData
from dray.client import CLAIMS
from dray.driver import ClaimReference, Device, Driver, DriverPaths, Pool, RunningDriver


class PortDriver(Driver):
    name = "port.example.com"

    def pools(self, node_name):
        return [Pool(node_name, (Device(name="p0"),))]


@pytest.fixture
async def driver(plane, tmp_path):
    running = RunningDriver(
        PortDriver(), plane.client("port"), "n1", DriverPaths(tmp_path / "kubelet", tmp_path / "cdi")
    )
    await running.start()
    yield running.driver
    await running.stop()


async def an_allocated_claim(client):
    requests = [{"name": "r", "exactly": {"deviceClassName": "any"}}]
    spec = {"devices": {"requests": requests}}
    claim = await client.create(CLAIMS, {"metadata": {"name": "c", "namespace": "default"}, "spec": spec}, "default")
    results = [
        {"request": "r", "driver": driver, "pool": "n1", "device": "p0"}
        for driver in (PortDriver.name, "b.example.com")
    ]
    document = await client.get_document(CLAIMS, "c", "default")
    document["status"] = {"allocation": {"devices": {"results": results}}}
    document["status"]["devices"] = [{"driver": "b.example.com", "pool": "n1", "device": "p0"}]
    await client.update_status(CLAIMS, document)
    return ClaimReference("default", "c", claim.metadata.uid)


async def statuses(client):
    claim = await client.get(CLAIMS, "c", "default")
    return {each.driver: each.network_data for each in claim.status.devices}


async def test_a_report_is_written_replaced_and_removed(plane, driver):
    client = plane.client("test")
    claim = await an_allocated_claim(client)
    seen = NetworkDeviceData(interface_name="eth1", ips=("10.0.0.2/24",), hardware_address="02:00:00:00:00:01")
    for data in (seen, NetworkDeviceData(interface_name="eth2")):
        report = AllocatedDeviceStatus(pool="n1", device="p0", network_data=data)
        await asyncio.to_thread(driver.report_status, claim, [report])
        expected = {"b.example.com": None, PortDriver.name: data}
        await eventually(lambda expected=expected: _equals(client, expected))
    driver.report_status(claim, [])
    await eventually(lambda: _equals(client, {"b.example.com": None}))


async def test_a_report_about_a_claim_that_was_replaced_changes_nothing(plane, driver):
    client = plane.client("test")
    claim = await an_allocated_claim(client)
    driver.report_status(ClaimReference("default", "c", "another-uid"), [AllocatedDeviceStatus(pool="n1", device="p0")])
    driver.report_status(ClaimReference("default", "gone", "uid"), [AllocatedDeviceStatus(pool="n1", device="p0")])
    driver.report_status(claim, [AllocatedDeviceStatus(pool="n1", device="p0")])
    await eventually(lambda: _equals(client, {"b.example.com": None, PortDriver.name: None}))


async def _equals(client, expected):
    return await statuses(client) == expected
