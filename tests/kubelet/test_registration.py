"""Registration and connections of drivers that are early, late, broken or being replaced."""

import signal
import subprocess
import sys

import pytest

from dray.clock import SimulatedClock
from dray.kubelet import drivers as drivers_room
from dray.kubelet.drivers import WIPE_DELAY_S
from dray.kubelet.errors import DriverError
from dray.proto import dra_v1_pb2
from tests.kubelet.drivers_rig import DRIVER, DriversRig, pod_with_claims
from tests.kubelet.scripted_driver import ScriptedDriver
from tests.kubelet.test_trouble import REPOSITORY, SERVE
from tests.waiting import eventually


def RIG(root):
    return DriversRig(root, SimulatedClock(), call_timeout_s=20)


@pytest.fixture
async def driver(rig, tmp_path):
    driver = ScriptedDriver(tmp_path)
    await driver.start()
    await rig.drivers.look()
    await rig.connected()
    yield driver
    await driver.stop()


def test_the_wait_before_another_attempt_has_a_bound() -> None:
    waits = [drivers_room.retry_after_s(failures) for failures in (1, 2, 3, 20, 5000)]
    assert waits == [0.5, 1.0, 2.0, 60.0, 60.0]


async def test_a_driver_that_cannot_be_told_of_its_registration_is_registered_later(rig, tmp_path):
    driver = ScriptedDriver(tmp_path)
    driver.fail_notify = 1
    await driver.start()
    await rig.drivers.look()
    assert rig.drivers.names() == []
    with pytest.raises(DriverError, match="not registered"):
        rig.drivers.endpoint(DRIVER)
    await rig.drivers.look()
    assert len(driver.statuses) == 1, "not at once: an error is no reason for haste"
    await rig.pass_time(drivers_room.RETRY_START_S)
    await rig.drivers.look()
    assert rig.drivers.names() == [DRIVER]
    assert driver.statuses == [(True, ""), (True, "")]
    await driver.stop()


async def test_a_service_that_listens_later_than_it_registers_is_called_once_it_does(rig, tmp_path):
    rig.has("a")
    driver = ScriptedDriver(tmp_path)
    await driver.register()
    await rig.drivers.look()
    assert rig.drivers.names() == [DRIVER]
    assert not rig.drivers.endpoint(DRIVER).is_connected
    with pytest.raises(DriverError, match="NodePrepareResources: rpc error: code = Unavailable"):
        await rig.claims.prepare(pod_with_claims("a"))
    await driver.serve()
    await rig.connected()
    await rig.claims.prepare(pod_with_claims("a"))
    assert driver.prepared == ["a"]
    await rig.pass_time(WIPE_DELAY_S + 1)
    assert rig.wiped == []
    await driver.stop()


async def test_slices_of_a_service_that_never_listens_are_removed(rig, tmp_path):
    driver = ScriptedDriver(tmp_path)
    await driver.register()
    await rig.drivers.look()
    await rig.pass_time(WIPE_DELAY_S + 1)
    await rig.until(lambda: rig.wiped == [DRIVER], "slices to be removed")
    await driver.stop()


@pytest.fixture
def driver_process(tmp_path):
    def start():
        return subprocess.Popen([sys.executable, "-c", SERVE, str(tmp_path)], cwd=REPOSITORY)

    started = []

    def start_and_note():
        started.append(start())
        return started[-1]

    yield start_and_note
    for process in started:
        process.kill()
        process.wait()


async def found(rig):
    async def look():
        await rig.pass_time(drivers_room.RETRY_CAP_S)
        await rig.drivers.look()
        return DRIVER in rig.drivers.names()

    await eventually(look, "the driver to register")
    await rig.connected()


async def test_a_driver_that_is_killed_loses_its_slices_after_half_a_minute(rig, driver_process):
    """Its sockets stay behind; the connection tells."""
    process = driver_process()
    await found(rig)
    process.send_signal(signal.SIGKILL)
    process.wait()
    await rig.connected(False)
    assert rig.drivers.names() == [DRIVER], "its socket is still there"
    await rig.pass_time(WIPE_DELAY_S - 1)
    assert rig.wiped == []
    await rig.pass_time(2)
    await rig.until(lambda: rig.wiped == [DRIVER], "slices to be removed")


async def test_a_driver_that_is_back_within_half_a_minute_keeps_its_slices(rig, driver_process):
    process = driver_process()
    await found(rig)
    process.send_signal(signal.SIGKILL)
    process.wait()
    await rig.connected(False)
    await rig.pass_time(WIPE_DELAY_S - 10)
    driver_process()

    async def is_back():
        await rig.drivers.look()
        return DRIVER in rig.drivers.names() and rig.drivers.endpoint(DRIVER).is_connected

    await eventually(is_back, "the driver to be back")
    await rig.pass_time(WIPE_DELAY_S + 10)
    assert rig.wiped == []


async def test_a_second_instance_that_is_killed_leaves_the_calls_to_the_first(rig, driver, driver_process, tmp_path):
    """During an update; the killed one's sockets are still there."""
    rig.has("a")
    second = ScriptedDriver(tmp_path, instance="-2")
    await second.start()
    await rig.drivers.look()
    await rig.until(lambda: rig.drivers.endpoint(DRIVER).path == str(second.service_socket), "the newest to connect")
    await rig.claims.prepare(pod_with_claims("a"))
    assert (driver.prepared, second.prepared) == ([], ["a"])
    await second._servers[0].stop(None)
    await rig.until(lambda: rig.drivers.endpoint(DRIVER).path == str(driver.service_socket), "the old one's turn")
    await rig.claims.unprepare("pod-1")
    assert (driver.unprepared, second.unprepared) == (["a"], [])
    assert rig.wiped == []
    await second.stop()


async def test_a_restarted_agent_finds_all_instances_in_whatever_order(rig, driver, tmp_path):
    second = ScriptedDriver(tmp_path, instance="-2")
    await second.start()
    await rig.restart()
    await rig.drivers.look()
    assert len(rig.drivers._endpoints[DRIVER]) == 2
    rig.has("a")
    await rig.claims.prepare(pod_with_claims("a"))
    assert sorted(driver.prepared + second.prepared) == ["a"]
    for each in (second, driver):
        await each.stop()
        await rig.drivers.look()
    assert rig.drivers.names() == []


async def test_a_connection_that_idled_away_is_made_again(rig, tmp_path):
    """Servers may close connections that nobody uses."""
    driver = ScriptedDriver(tmp_path, server_options=(("grpc.max_connection_idle_ms", 300),))
    await driver.start()
    seen = []
    tell = rig.drivers._connection_changed
    rig.drivers._connection_changed = lambda name: (seen.append(rig.drivers.endpoint(name).is_connected), tell(name))
    await rig.drivers.look()
    await rig.until(lambda: seen[-3:] == [True, False, True], "the connection to idle away and to be made again")
    rig.has("a")
    await rig.claims.prepare(pod_with_claims("a"))
    assert driver.prepared == ["a"]
    await rig.connected()
    assert rig.wiped == []
    await driver.stop()


def answer_with_share(request):
    response = dra_v1_pb2.NodePrepareResourcesResponse()
    for claim in request.claims:
        device = dra_v1_pb2.Device(request_names=["r"], pool_name="pool", device_name="d", share_id="share-1")
        response.claims[claim.uid].devices.append(device)
    return response


@pytest.mark.parametrize(
    ("services", "spoken", "share_id"),
    [
        (("v1.DRAPlugin", "v1beta1.DRAPlugin"), "v1.DRAPlugin", "share-1"),
        (("v1beta1.DRAPlugin", "v1.DRAPlugin"), "v1beta1.DRAPlugin", None),
        (("v1beta1.DRAPlugin",), "v1beta1.DRAPlugin", None),
        (("v9.DRAPlugin", "v1.DRAPlugin"), "v1.DRAPlugin", "share-1"),
    ],
)
async def test_the_first_service_of_the_drivers_own_list_is_spoken(rig, tmp_path, services, spoken, share_id):
    driver = ScriptedDriver(tmp_path, services=services)
    driver.answer_prepare = answer_with_share
    await driver.start()
    await rig.drivers.look()
    assert rig.drivers.endpoint(DRIVER).service == spoken
    rig.has("a")
    await rig.claims.prepare(pod_with_claims("a"))
    (device,) = rig.claims.cache.get("ns/a").drivers[DRIVER].devices
    assert device.share_id == share_id
    await driver.stop()


async def test_calls_to_a_driver_that_was_killed_are_counted_and_its_claims_stay_in_use(rig, driver):
    rig.has("a")
    await rig.claims.prepare(pod_with_claims("a"))
    await driver.die()
    with pytest.raises(DriverError, match="NodeUnprepareResources: rpc error: code = Unavailable"):
        await rig.claims.unprepare("pod-1")
    assert rig.calls == [("NodePrepareResources", "OK"), ("NodeUnprepareResources", "Unavailable")]
    assert rig.claims.claims_in_use() == {"<any>": 1, DRIVER: 1}


async def test_a_driver_that_is_uninstalled_keeps_its_claims_in_use_until_it_is_back(rig, driver, tmp_path):
    rig.has("a")
    await rig.claims.prepare(pod_with_claims("a"))
    await driver.stop()
    await rig.drivers.look()
    with pytest.raises(DriverError, match=f"DRA driver {DRIVER} is not registered"):
        await rig.claims.unprepare("pod-1")
    assert rig.claims.claims_in_use() == {"<any>": 1, DRIVER: 1}
    assert rig.claims.has_claims("pod-1")
    again = ScriptedDriver(tmp_path)
    await again.start()
    await rig.drivers.look()
    await rig.claims.unprepare("pod-1")
    assert again.unprepared == ["a"]
    assert rig.claims.claims_in_use() == {"<any>": 0}
    await again.stop()
