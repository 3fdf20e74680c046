"""What a node agent serves on its machine, with real drivers behind it: pod resources, metrics, health of devices."""

import asyncio
import stat

import aiohttp
import grpc
import pytest

from dray.api.core import Container, ContainerResourceClaim, Pod, PodResourceClaim, PodSpec, ResourceRequirements
from dray.api.meta import ObjectMeta
from dray.clock import SimulatedClock
from dray.kubelet.claims import CheckpointedDevice, ClaimCache
from dray.kubelet.device_health import MAX_DEVICES, DeviceHealthCache
from dray.kubelet.health_server import HealthServer
from dray.kubelet.metrics import KubeletMetrics
from dray.kubelet.pod_resources import PodResourcesServer
from dray.proto import dra_health_v1_pb2 as health_messages
from dray.proto import podresources_v1_pb2 as messages
from dray.proto import podresources_v1_pb2_grpc
from dray.telemetry import Registry
from tests.kubelet.drivers_rig import DriversRig
from tests.kubelet.scripted_driver import ScriptedDriver
from tests.kubelet.test_claims import allocated_claim
from tests.waiting import eventually

DRIVER = "gpu.example.com"


def pod_with_claim(request=""):
    use = ContainerResourceClaim(name="entry", request=request)
    container = Container(name="main", image="i", resources=ResourceRequirements(claims=(use,)))
    spec = PodSpec(
        containers=(container, Container(name="other", image="i")),
        resource_claims=(PodResourceClaim(name="entry", resource_claim_name="c"),),
    )
    return Pod(metadata=ObjectMeta(name="p", namespace="ns", uid="pod-1"), spec=spec)


def prepared_cache():
    cache = ClaimCache()
    cache.enter(allocated_claim("c", "uid-c", (DRIVER,), ("pod-1",)), "pod-1")
    cache.store_devices(
        "ns/c",
        DRIVER,
        [
            CheckpointedDevice("pool", "d0", ("a",), ("v/c=0",)),
            CheckpointedDevice("pool", "d1", ("b",), ("v/c=1",), "share"),
        ],
    )
    return cache


@pytest.fixture
async def listed(tmp_path):
    server = PodResourcesServer(tmp_path, lambda: [pod_with_claim("b")], prepared_cache())
    await server.start()
    channel = grpc.aio.insecure_channel(f"unix:{tmp_path}/pod-resources/kubelet.sock")
    yield podresources_v1_pb2_grpc.PodResourcesListerStub(channel)
    await channel.close()
    await server.stop()
    assert not server.socket.exists()


async def test_the_socket_of_pod_resources_is_private_and_survives_a_crash(tmp_path):
    """What another life of the agent left is in nobody's way. Others of this machine get neither at the folder nor at the socket."""
    server = PodResourcesServer(tmp_path, list, prepared_cache())
    server.socket.parent.mkdir(mode=0o777)
    server.socket.parent.chmod(0o777)
    server.socket.touch()
    await server.start()
    assert stat.S_IMODE(server.socket.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(server.socket.stat().st_mode) == 0o600
    async with grpc.aio.insecure_channel(f"unix:{server.socket}") as channel:
        lister = podresources_v1_pb2_grpc.PodResourcesListerStub(channel)
        assert not (await lister.List(messages.ListPodResourcesRequest())).pod_resources
    await server.stop()


async def test_a_socket_path_that_is_too_long_is_named(tmp_path):
    server = PodResourcesServer(tmp_path / ("x" * 100), list, prepared_cache())
    with pytest.raises(OSError, match="is longer than 107 characters"):
        await server.start()
    await server.stop()


async def test_pod_resources_show_the_devices_of_each_container(listed):
    (pod,) = (await listed.List(messages.ListPodResourcesRequest())).pod_resources
    assert (pod.name, pod.namespace) == ("p", "ns")
    main, other = pod.containers
    (claim,) = main.dynamic_resources
    assert (claim.claim_name, claim.claim_namespace) == ("c", "ns")
    (device,) = claim.claim_resources
    assert (device.driver_name, device.pool_name, device.device_name) == (DRIVER, "pool", "d1")
    assert ([each.name for each in device.cdi_devices], device.share_id) == (["v/c=1"], "share")
    assert list(other.dynamic_resources) == []


async def test_pod_resources_of_one_pod(listed):
    found = await listed.Get(messages.GetPodResourcesRequest(pod_name="p", pod_namespace="ns"))
    assert found.pod_resources.name == "p"
    with pytest.raises(grpc.aio.AioRpcError, match="pod x in namespace ns not found"):
        await listed.Get(messages.GetPodResourcesRequest(pod_name="x", pod_namespace="ns"))


async def test_metrics_and_health_over_http():
    metrics, problem = KubeletMetrics(Registry()), []
    metrics.observe_call(DRIVER, "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources", "OK", 0.01)
    metrics.observe_operation("PrepareResources", False, 0.02)
    metrics.count_skip(DRIVER, "NodePrepareResources")
    metrics.count_rejection("OutOfexample.com/gpu")
    metrics.count_start_error("container", "CreateContainerConfigError")
    metrics.claims_in_use = lambda: {"<any>": 1, DRIVER: 1}
    metrics.plugins = lambda: [("/r/x.sock", "actual")]
    port = HealthServer(metrics.registry.text, lambda: " ".join(problem))
    await port.start()
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port.port}") as session:
        text = await (await session.get("/metrics")).text()
        healthy = (await session.get("/healthz")).status
        problem.append("checkpoint: disk full")
        sick = await session.get("/healthz")
        assert (healthy, sick.status, await sick.text()) == (200, 500, "checkpoint: disk full")
    await port.stop()
    for line in (
        'dra_operations_duration_seconds_count{operation_name="PrepareResources",is_error="false"} 1',
        f'dra_grpc_operations_duration_seconds_count{{driver_name="{DRIVER}",'
        'method_name="/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources",grpc_status_code="OK"} 1',
        f'dra_operations_seconds_count{{driver_name="{DRIVER}",'
        'method_name="/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources",grpc_status_code="OK"} 1',
        'dra_resource_claims_in_use{driver_name="<any>"} 1',
        f'dra_node_prepare_skips_total{{driver_name="{DRIVER}"}} 1',
        'plugin_manager_total_plugins{socket_path="/r/x.sock",state="actual"} 1',
        'kubelet_admission_rejections_total{reason="OutOfExtendedResources"} 1',
        'kubelet_started_containers_errors_total{container_type="container",code="CreateContainerConfigError"} 1',
    ):
        assert line in text


# --- health of devices


def report(device, health, timeout_s=0, message=""):
    return health_messages.DeviceHealth(
        device=health_messages.DeviceIdentifier(pool_name="pool", device_name=device),
        health=health,
        health_check_timeout_seconds=timeout_s,
        message=message,
    )


@pytest.fixture
def health():
    changes = []
    clock = SimulatedClock()
    found = DeviceHealthCache(clock, changes.append)
    found.changes, found.clock = changes, clock
    return found


async def test_a_device_is_unknown_after_its_lease(health):
    health._take(DRIVER, [report("d0", 1, 10), report("d1", 2, -5, "hot")])
    assert health.of((DRIVER, "pool", "d0")).health == "Healthy"
    await health.clock.advance(11)
    assert health.of((DRIVER, "pool", "d0")).health == "Unknown"
    assert (health.of((DRIVER, "pool", "d1")).health, health.of((DRIVER, "pool", "d1")).message) == ("Unhealthy", "hot")
    health.expire()
    assert health.changes[-1] == {(DRIVER, "pool", "d0")}
    await health.clock.advance(20)
    health.expire()
    assert health.changes[-1] == {(DRIVER, "pool", "d1")}
    health.expire()
    assert len(health.changes) == 3


def test_only_changes_are_told_and_long_messages_are_cut(health):
    health._take(DRIVER, [report("d0", 1)])
    health._take(DRIVER, [report("d0", 1)])
    assert len(health.changes) == 1
    health._take(DRIVER, [report("d0", 2, message="x" * 2000)])
    message = health.of((DRIVER, "pool", "d0")).message
    assert (len(message), message[-3:]) == (1024, "...")


def test_invented_devices_have_a_limit_and_known_ones_are_still_heard(health):
    health._take(DRIVER, [report(f"d{i}", 1) for i in range(MAX_DEVICES)])
    health._take(DRIVER, [report("one-more", 1), report("d0", 2)])
    assert health.of((DRIVER, "pool", "one-more")).health == "Unknown"
    assert health.of((DRIVER, "pool", "d0")).health == "Unhealthy"
    health._take("other.example.com", [report("d0", 1)])
    assert health.of(("other.example.com", "pool", "d0")).health == "Healthy"


def test_the_status_of_a_container_names_its_devices(health):
    health._take(DRIVER, [report("d1", 2, message="hot")])
    pod = pod_with_claim("b")
    assert health.statuses(pod, pod.spec.containers[0], prepared_cache()) == [
        {"name": "claim:entry/b", "resources": [{"resourceID": "v/c=1", "health": "Unhealthy", "message": "hot"}]}
    ]
    pod = pod_with_claim()
    (entry,) = health.statuses(pod, pod.spec.containers[0], prepared_cache())
    assert [each["health"] for each in entry["resources"]] == ["Unknown", "Unhealthy"]


# --- drivers in trouble


async def test_a_silent_plugin_keeps_nobody_waiting(tmp_path):
    rig = DriversRig(tmp_path)
    silent = await asyncio.start_unix_server(
        lambda reader, writer: asyncio.Event().wait(), _socket(tmp_path, "aaa-reg.sock")
    )
    driver = ScriptedDriver(tmp_path)
    await driver.start()
    await asyncio.wait_for(rig.drivers.look(), 5)
    assert rig.drivers.names() == [DRIVER]
    silent.close()
    await driver.stop()
    await rig.drivers.close()


def _socket(root, name):
    (root / "plugins_registry").mkdir(exist_ok=True)
    return str(root / "plugins_registry" / name)


@pytest.mark.parametrize("name", ["../../etc", "a b", "x" * 64, "-x", "a/b", "ü.example.com"])
async def test_bad_names_are_refused(tmp_path, name):
    rig = DriversRig(tmp_path)
    driver = ScriptedDriver(tmp_path, "good.example.com")
    driver.name = name
    await driver.start()
    await rig.drivers.look()
    assert driver.statuses[0][0] is False
    assert "plugin validation failed" in driver.statuses[0][1]
    assert rig.drivers.names() == []
    await driver.stop()
    await rig.drivers.close()


async def test_a_registration_that_fails_at_first_is_tried_again(tmp_path):
    rig = DriversRig(tmp_path)
    driver = ScriptedDriver(tmp_path)
    driver.fail_get_info = 1
    await driver.start()
    await rig.drivers.look()
    assert rig.drivers.names() == []

    async def is_registered():
        await rig.drivers.look()
        return rig.drivers.names()

    await eventually(is_registered, "the second attempt")
    assert rig.drivers.names() == [DRIVER]
    await driver.stop()
    await rig.drivers.close()
