"""Preparing and giving back claims, with drivers that answer, fail, hang and lie."""

import asyncio

import pytest

from dray.kubelet.checkpoint import CheckpointFile
from dray.kubelet.claims import ClaimRefused
from dray.kubelet.drivers import DriverClient
from dray.kubelet.errors import DriverError
from dray.proto import dra_v1_pb2
from dray.telemetry import level_of
from tests.kubelet.drivers_rig import DRIVER, DriversRig, pod_with_claims
from tests.kubelet.scripted_driver import ScriptedDriver
from tests.waiting import eventually

RIG = DriversRig


@pytest.fixture
async def driver(rig, tmp_path):
    driver = ScriptedDriver(tmp_path)
    await driver.start()
    await rig.drivers.look()
    yield driver
    await driver.stop()


async def test_a_driver_is_told_which_claims_and_nothing_about_them(rig, driver):
    """It reads their allocation from the API server itself."""
    rig.has("a", "b")
    told = []

    def answer(request):
        told.extend(request.claims)
        return driver.honest_prepare(request)

    driver.answer_prepare = answer
    await rig.claims.prepare(pod_with_claims("a", "b"))
    assert [(each.namespace, each.name, each.uid) for each in told] == [("ns", "a", "uid-a"), ("ns", "b", "uid-b")]
    assert {field.name for field in dra_v1_pb2.Claim.DESCRIPTOR.fields} == {"namespace", "name", "uid"}


async def test_calls_of_drivers_are_logged_from_verbosity_4_on(rig, driver, caplog):
    rig.has("a")
    rig.has("b", pods=("pod-2",))
    caplog.set_level(level_of(3), "dray")
    await rig.claims.prepare(pod_with_claims("a"))
    assert " rpc" not in caplog.text
    caplog.set_level(level_of(4), "dray")
    await rig.claims.prepare(pod_with_claims("b", uid="pod-2"))
    told = [record.getMessage() for record in caplog.records if " rpc" in record.getMessage()]
    assert told == [
        f'Calling NodePrepareResources rpc driver="{DRIVER}" claims=["b"]',
        f'Done calling NodePrepareResources rpc driver="{DRIVER}" code="OK"',
    ]


async def test_claims_of_one_driver_go_in_one_call(rig, driver):
    rig.has("a", "b")
    await rig.claims.prepare(pod_with_claims("a", "b"))
    assert driver.prepared == ["a", "b"]
    assert [state.is_prepared for state in rig.claims.cache] == [True, True]


async def test_a_prepared_claim_is_not_prepared_again_for_the_next_pod(rig, driver):
    rig.has("a", pods=("pod-1", "pod-2"))
    await rig.claims.prepare(pod_with_claims("a"))
    await rig.claims.prepare(pod_with_claims("a", uid="pod-2"))
    assert driver.prepared == ["a"]
    await rig.claims.unprepare("pod-1")
    assert driver.unprepared == []
    await rig.claims.unprepare("pod-2")
    assert driver.unprepared == ["a"]
    assert list(rig.claims.cache) == []


async def test_the_checkpoint_is_written_before_the_driver_is_called(rig, driver):
    rig.has("a")
    seen = []
    driver.answer_prepare = lambda request: (
        seen.extend(CheckpointFile(rig.root).read()),
        driver.honest_prepare(request),
    )[1]
    await rig.claims.prepare(pod_with_claims("a"))
    assert [state.pod_uids for state in seen] == [{"pod-1"}]


async def test_after_a_restart_claims_are_known_and_prepared_again_when_needed(rig, driver):
    rig.has("a")
    await rig.claims.prepare(pod_with_claims("a"))
    rig.restart_claims()
    assert rig.claims.has_claims("pod-1")
    await rig.claims.prepare(pod_with_claims("a"))
    assert driver.prepared == ["a", "a"]
    rig.restart_claims()
    rig.api.by_name.clear()
    await rig.claims.unprepare("pod-1")
    assert driver.unprepared == ["a"]
    assert CheckpointFile(rig.root).read() == []


@pytest.mark.parametrize(("is_on", "kept"), [(True, "share-1"), (False, None)])
async def test_share_ids_are_kept_only_with_consumable_capacity(rig, driver, is_on, kept):
    """KubeletOptions turn DRAConsumableCapacity into `keeps_share_ids`."""
    rig.has("a")
    rig.keeps_share_ids = is_on
    rig.restart_claims()
    device = dra_v1_pb2.Device(request_names=["r"], pool_name="p", device_name="d", share_id="share-1")
    driver.answer_prepare = lambda request: dra_v1_pb2.NodePrepareResourcesResponse(
        claims={"uid-a": dra_v1_pb2.NodePrepareResourceResponse(devices=[device])}
    )
    await rig.claims.prepare(pod_with_claims("a"))
    [state] = CheckpointFile(rig.root).read()
    assert [each.share_id for each in state.drivers[DRIVER].devices] == [kept]


@pytest.mark.parametrize(
    ("arrange", "text"),
    [
        (lambda rig: None, 'fetch ResourceClaim a: resourceclaims.resource.k8s.io "a" not found'),
        (lambda rig: rig.has("a", pods=("other",)), "is not allowed to use ResourceClaim a"),
    ],
)
async def test_a_claim_that_must_not_be_used_leaves_no_trace(rig, driver, arrange, text):
    arrange(rig)
    with pytest.raises(ClaimRefused, match=text):
        await rig.claims.prepare(pod_with_claims("a"))
    assert driver.prepared == []
    assert list(rig.claims.cache) == []
    assert CheckpointFile(rig.root).read() == []


async def test_a_driver_that_is_not_there_leaves_no_trace(rig, driver):
    rig.has("a", drivers=(DRIVER, "nic.example.com"))
    with pytest.raises(DriverError, match=r"DRA driver nic\.example\.com is not registered"):
        await rig.claims.prepare(pod_with_claims("a"))
    assert driver.prepared == []
    assert list(rig.claims.cache) == []


def unknown_uid(request):
    response = dra_v1_pb2.NodePrepareResourcesResponse()
    response.claims["somebody-else"].error = ""
    return response


def refusal(request):
    response = dra_v1_pb2.NodePrepareResourcesResponse()
    response.claims[request.claims[0].uid].error = "too hot"
    return response


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        pytest.param(unknown_uid, "returned result for unknown claim UID somebody-else", id="unknown-claim"),
        pytest.param(refusal, "NodePrepareResources failed for ResourceClaim a: too hot", id="refusal"),
        pytest.param(
            lambda request: dra_v1_pb2.NodePrepareResourcesResponse(), "skipped 1 ResourceClaims", id="missing-claim"
        ),
        pytest.param(lambda request: 1 / 0, "NodePrepareResources: rpc error", id="crash"),
        pytest.param(lambda request: None, "NodePrepareResources: rpc error", id="no-answer"),
    ],
)
async def test_drivers_that_fail_or_lie_are_told_apart_and_a_retry_heals(rig, driver, answer, text):
    rig.has("a")
    driver.answer_prepare = answer
    with pytest.raises(DriverError, match=text):
        await rig.claims.prepare(pod_with_claims("a"))
    assert not rig.claims.cache.get("ns/a").is_prepared
    driver.answer_prepare = driver.honest_prepare
    await rig.claims.prepare(pod_with_claims("a"))
    assert len(rig.claims.cache.get("ns/a").drivers[DRIVER].devices) == 1


async def test_what_was_prepared_beside_a_failure_survives_a_restart(rig, driver):
    """The driver has handed out devices of one claim, so the agent must not forget them, whatever became of the other."""
    rig.has("a", "b")

    def one_of_two(request):
        response = driver.honest_prepare(request)
        response.claims[request.claims[1].uid].error = "too hot"
        return response

    driver.answer_prepare = one_of_two
    with pytest.raises(DriverError, match="failed for ResourceClaim b: too hot"):
        await rig.claims.prepare(pod_with_claims("a", "b"))
    devices = {state.name: len(state.drivers[DRIVER].devices) for state in CheckpointFile(rig.root).read()}
    assert devices == {"a": 1, "b": 0}


async def test_a_driver_that_hangs_is_given_up_on_in_time(rig, driver):
    rig.has("a")
    driver.delay_s = 30
    with pytest.raises(DriverError, match="DeadlineExceeded"):
        await asyncio.wait_for(rig.claims.prepare(pod_with_claims("a")), 30)


async def test_a_driver_that_is_deregistered_while_it_is_asked_is_an_answer_and_no_cancellation(rig, driver):
    rig.has("a")
    driver.delay_s = 30
    asking = asyncio.create_task(rig.claims.prepare(pod_with_claims("a")))
    await eventually(lambda: driver.prepared, "the driver to be asked")
    assert driver.prepared == ["a"]
    await rig.drivers.close()
    with pytest.raises(DriverError, match="NodePrepareResources: rpc error"):
        await asking


async def test_a_failed_unprepare_keeps_the_claim_closed_until_it_worked(rig, driver):
    rig.has("a", pods=("pod-1", "pod-2"))
    await rig.claims.prepare(pod_with_claims("a"))
    driver.answer_unprepare = lambda request: dra_v1_pb2.NodeUnprepareResourcesResponse()
    with pytest.raises(DriverError, match="NodeUnprepareResources skipped 1 ResourceClaims"):
        await rig.claims.unprepare("pod-1")
    with pytest.raises(ClaimRefused, match="ResourceClaim a is being unprepared"):
        await rig.claims.prepare(pod_with_claims("a", uid="pod-2"))
    driver.answer_unprepare = driver.honest_unprepare
    await rig.claims.unprepare("pod-1")
    await rig.claims.prepare(pod_with_claims("a", uid="pod-2"))
    assert driver.prepared == ["a", "a"]


async def test_a_pod_that_never_prepared_has_nothing_to_give_back(rig, driver):
    await rig.claims.unprepare("stranger")
    assert driver.unprepared == []


async def test_many_pods_at_once(rig, driver):
    names = [f"claim-{i}" for i in range(30)]
    rig.has(*names, pods=tuple(f"pod-{i}" for i in range(30)))
    pods = [pod_with_claims(name, uid=f"pod-{i}") for i, name in enumerate(names)]
    await asyncio.gather(*(rig.claims.prepare(pod) for pod in pods))
    assert sorted(driver.prepared) == sorted(names)
    assert len(CheckpointFile(rig.root).read()) == 30
    await asyncio.gather(*(rig.claims.unprepare(pod.metadata.uid) for pod in pods))
    assert sorted(driver.unprepared) == sorted(names)
    assert CheckpointFile(rig.root).read() == []


async def test_a_corrupt_checkpoint_is_put_aside_and_claims_are_prepared_again(rig, driver):
    rig.has("a")
    await rig.claims.prepare(pod_with_claims("a"))
    path = CheckpointFile(rig.root).path
    path.write_text("{}")
    rig.restart_claims()
    assert path.with_suffix(".corrupt").exists()
    await rig.claims.prepare(pod_with_claims("a"))
    assert driver.prepared == ["a", "a"]


async def test_a_checkpoint_that_cannot_be_written_stops_before_the_driver_is_called(rig, driver):
    rig.has("a")
    (rig.root / "in-the-way").touch()
    rig.claims._checkpoint.path = rig.root / "in-the-way" / "state"
    with pytest.raises(DriverError, match="checkpoint"):
        await rig.claims.prepare(pod_with_claims("a"))
    assert driver.prepared == []
    assert "checkpoint" in rig.claims.problem


# --- registration


async def test_a_driver_is_registered_called_and_forgotten_with_its_socket(rig, driver):
    assert driver.statuses == [(True, "")]
    assert rig.drivers.names() == [DRIVER]
    await driver.stop()
    await rig.drivers.look()
    with pytest.raises(DriverError, match="not registered"):
        rig.drivers.endpoint(DRIVER)


async def test_a_driver_that_comes_back_is_registered_again(rig, driver):
    await driver.stop()
    await driver.start()
    await rig.drivers.look()
    await rig.drivers.look()
    assert rig.drivers.names() == [DRIVER]
    assert driver.statuses[-1] == (True, "")


async def test_two_instances_serve_side_by_side_and_the_newest_is_asked(rig, driver, tmp_path):
    second = ScriptedDriver(tmp_path, instance="-2")
    await second.start()
    await rig.drivers.look()
    rig.has("a")
    await rig.claims.prepare(pod_with_claims("a"))
    assert (driver.prepared, second.prepared) == ([], ["a"])
    await second.stop()
    await rig.drivers.look()
    await rig.claims.unprepare("pod-1")
    assert driver.unprepared == ["a"]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"services": ()}, "empty list of supported gRPC services"),
        ({"services": ("v9.DRAPlugin",)}, "none of services supported by the plugin"),
    ],
)
async def test_drivers_without_a_common_version_are_told_so(rig, tmp_path, change, text):
    driver = ScriptedDriver(tmp_path, **change)
    await driver.start()
    await rig.drivers.look()
    assert driver.statuses[0][0] is False
    assert text in driver.statuses[0][1]
    assert rig.drivers.names() == []
    await driver.stop()


async def test_other_plugins_are_refused_by_type(rig, tmp_path):
    driver = ScriptedDriver(tmp_path)
    driver.type = "CSIPlugin"
    await driver.start()
    await rig.drivers.look()
    assert "no handler registered for plugin type: CSIPlugin" in driver.statuses[0][1]
    await driver.stop()


async def test_the_same_endpoint_twice_is_refused(rig, driver, tmp_path):
    copy = ScriptedDriver(tmp_path, instance="-2")
    copy.service_socket = driver.service_socket
    copy.registration_socket.parent.mkdir(exist_ok=True)
    await copy.start()
    await rig.drivers.look()
    assert "already registered for DRA driver plugin" in copy.statuses[0][1]
    await copy.stop()


async def test_other_files_in_the_registry_do_no_harm(rig, tmp_path):
    registry = tmp_path / "plugins_registry"
    registry.mkdir(exist_ok=True)
    (registry / "readme.txt").write_text("x")
    (registry / ".hidden-reg.sock").touch()
    await rig.drivers.look()
    assert rig.drivers.names() == []


async def test_an_answer_at_the_moment_of_a_cancellation_does_not_undo_it(tmp_path):
    """A pod that is deleted while its driver answers: its worker must end, not go on and start containers."""
    answer = asyncio.get_running_loop().create_future()
    endpoint = DriverClient(DRIVER, str(tmp_path / "dra.sock"), "v1.DRAPlugin", None, lambda *_: None)
    endpoint._stub.NodePrepareResources = lambda request, timeout: answer
    asking = asyncio.create_task(endpoint.prepare([]))
    await asyncio.sleep(0)
    answer.set_result(dra_v1_pb2.NodePrepareResourcesResponse())
    asking.cancel()
    await asyncio.wait({asking})
    assert asking.cancelled()
    await endpoint.close()
