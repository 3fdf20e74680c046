"""Health of devices: streams that break, drivers without it, old and new services, and the copy on disk."""

import asyncio
from dataclasses import replace

import grpc
import pytest

from dray.clock import SimulatedClock
from dray.kubelet.device_health import (
    REPEATS_SAVED_AFTER_S,
    RESTART_AFTER_S,
    DeviceHealthCache,
    HealthFile,
    StoredHealth,
)
from dray.kubelet.drivers import DriverClient
from dray.proto import (
    dra_health_v1_pb2,
    dra_health_v1_pb2_grpc,
    dra_health_v1alpha1_pb2,
    dra_health_v1alpha1_pb2_grpc,
)
from tests.waiting import PAUSE_S, eventually, pass_time

DRIVER = "gpu.example.com"
D0 = (DRIVER, "pool", "d0")
SERVICES = {
    "v1.DRAResourceHealth": (dra_health_v1_pb2, dra_health_v1_pb2_grpc),
    "v1alpha1.DRAResourceHealth": (dra_health_v1alpha1_pb2, dra_health_v1alpha1_pb2_grpc),
}


class HealthDriver:
    """Streams what a test puts into `reports`; None ends the stream."""

    def __init__(self, service):
        self.messages, stubs = SERVICES[service]
        self.reports = asyncio.Queue()
        self.streams = 0
        self.is_implemented = True
        self.server = grpc.aio.server()
        stubs.add_DRAResourceHealthServicer_to_server(self, self.server)

    async def NodeWatchResources(self, request, context):
        self.streams += 1
        if not self.is_implemented:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "no health here")
        while (health := await self.reports.get()) is not None:
            device = self.messages.DeviceIdentifier(pool_name="pool", device_name="d0")
            entry = self.messages.DeviceHealth(device=device, health=health, message="hot" if health == 2 else "")
            yield self.messages.NodeWatchResourcesResponse(devices=[entry])


class HealthRig:
    def __init__(self, root, service):
        self.clock = SimulatedClock()
        self.changes = []
        self.health = DeviceHealthCache(self.clock, self.changes.append)
        self.driver = HealthDriver(service)
        self.socket = root / "d.sock"
        self.service = service
        self.endpoint = None

    async def start(self):
        self.driver.server.add_insecure_port(f"unix:{self.socket}")
        await self.driver.server.start()
        self.endpoint = DriverClient(DRIVER, str(self.socket), "v1.DRAPlugin", self.service, lambda *_: None)
        self.health.follow(self.endpoint)

    async def until(self, health):
        await eventually(
            lambda: self.health.of(D0).health == health, lambda: f"{health} instead of {self.health.of(D0)}"
        )

    async def until_streams(self, count):
        await eventually(lambda: self.driver.streams == count, f"{count} streams")

    async def stop(self):
        self.health.unfollow(self.endpoint)
        await self.endpoint.close()
        await self.driver.server.stop(None)


@pytest.fixture
async def rig(tmp_path, request):
    rig = HealthRig(tmp_path, getattr(request, "param", "v1.DRAResourceHealth"))
    await rig.start()
    yield rig
    await rig.stop()


@pytest.mark.parametrize("rig", SERVICES, indirect=True)
async def test_both_versions_of_the_service_are_spoken(rig):
    rig.driver.reports.put_nowait(2)
    await rig.until("Unhealthy")
    assert rig.health.of(D0).message == "hot"


async def test_a_stream_that_breaks_makes_health_unknown_until_it_is_back(rig):
    rig.driver.reports.put_nowait(1)
    await rig.until("Healthy")
    rig.driver.reports.put_nowait(None)
    await rig.until("Unknown")
    await rig.clock.advance(RESTART_AFTER_S - 1)
    assert rig.driver.streams == 1, "it is not asked again at once"
    await rig.clock.advance(1.5)
    rig.driver.reports.put_nowait(2)
    await rig.until("Unhealthy")
    assert rig.driver.streams == 2


async def test_a_driver_that_does_not_implement_health_is_not_asked_again(tmp_path):
    rig = HealthRig(tmp_path, "v1.DRAResourceHealth")
    rig.driver.is_implemented = False
    await rig.start()
    await rig.until_streams(1)
    await pass_time(rig.clock, 300, steps=5, pause_s=PAUSE_S)
    assert rig.driver.streams == 1
    await rig.stop()


async def test_after_a_burst_the_last_word_counts(rig):
    for number in range(300):
        rig.driver.reports.put_nowait(1 + number % 2)
    rig.driver.reports.put_nowait(2)
    await eventually(rig.driver.reports.empty, "the driver to send all reports")
    await rig.until("Unhealthy")


# --- on disk


def a_report(health=1, lease_s=30, device="d0"):
    identifier = dra_health_v1_pb2.DeviceIdentifier(pool_name="pool", device_name=device)
    return dra_health_v1_pb2.DeviceHealth(device=identifier, health=health, health_check_timeout_seconds=lease_s)


async def test_health_outlives_a_restart_as_long_as_it_counts(tmp_path):
    clock = SimulatedClock()
    before = DeviceHealthCache(clock, lambda _: None)
    before._take(DRIVER, [a_report(2), a_report(1, 5, "d1")])
    HealthFile(tmp_path).write(before.to_save())
    await clock.advance(10)
    after = DeviceHealthCache(clock, lambda _: None)
    after.restore(HealthFile(tmp_path).read())
    assert after.of(D0).health == "Unhealthy"
    assert after.of((DRIVER, "pool", "d1")).health == "Unknown"
    await clock.advance(21)
    assert after.of(D0).health == "Unknown", "the restart does not make a report younger"


async def test_changes_are_saved_at_once_and_repetitions_now_and_then():
    clock = SimulatedClock()
    health = DeviceHealthCache(clock, lambda _: None)
    assert health.to_save() is None
    health._take(DRIVER, [a_report()])
    assert len(health.to_save()) == 1
    assert health.to_save() is None
    health._take(DRIVER, [a_report()])
    assert health.to_save() is None
    await clock.advance(REPEATS_SAVED_AFTER_S)
    assert len(health.to_save()) == 1
    health._forget(DRIVER)
    assert health.to_save() == []


@pytest.mark.parametrize(
    "content",
    ["", "[]", '{"d": 1}', '{"d": {"Devices": {"p/d": {}}}}', "\x00", '{"d": {"Devices": [1]}}'],
)
def test_a_file_that_cannot_be_read_counts_as_none(tmp_path, content):
    (tmp_path / "dra_health_state").write_text(content)
    assert HealthFile(tmp_path).read() == []


def test_what_is_written_is_read(tmp_path):
    entry = StoredHealth(DRIVER, "pool/with/slashes", "d0", "Healthy", "", 30.0, 1_700_000_000.5)
    other = replace(entry, driver="nic.example.com", device="d1", message="hot")
    HealthFile(tmp_path).write([entry, other])
    assert HealthFile(tmp_path).read() == [entry, other]
