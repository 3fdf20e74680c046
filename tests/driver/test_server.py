"""The driver's sockets, spoken to as a kubelet does: real gRPC over unix sockets."""

import asyncio
from pathlib import Path

import grpc
import msgspec
import pytest
from tests.driver.driver_rig import DRIVER, DriverRig, RecordingDriver, allocated_claim, result

from dray.api.cdi import decode_spec
from dray.api.resource import (
    DeviceAllocationConfiguration,
    OpaqueDeviceConfiguration,
    ResourceClaimStatus,
)
from dray.driver import (
    ClaimReference,
    DriverPaths,
    RunningDriver,
)
from dray.driver.claim_files import CdiFiles, Checkpoint
from dray.driver.prepare import ClaimPreparer
from dray.proto import (
    dra_health_v1_pb2,
    dra_health_v1_pb2_grpc,
    dra_v1beta1_pb2,
    dra_v1beta1_pb2_grpc,
    pluginregistration_pb2,
    pluginregistration_pb2_grpc,
)

RIG = DriverRig


def environment_of(rig: DriverRig, cdi_id: str) -> tuple[str, ...]:
    for path in rig.cdi_dir.glob("*.json"):
        spec = decode_spec(path.read_bytes())
        for device in spec.devices:
            if f"{spec.kind}={device.name}" == cdi_id:
                return device.container_edits.env
    raise AssertionError(f"no CDI file has {cdi_id}")


async def test_registration_names_the_driver_its_socket_and_its_services(rig):
    async with grpc.aio.insecure_channel(f"unix://{rig.registration_socket}") as channel:
        stub = pluginregistration_pb2_grpc.RegistrationStub(channel)
        info = await stub.GetInfo(pluginregistration_pb2.InfoRequest())
        assert (info.type, info.name, info.endpoint) == ("DRAPlugin", DRIVER, str(rig.service_socket))
        assert list(info.supported_versions) == [
            "v1.DRAPlugin",
            "v1beta1.DRAPlugin",
            "v1.DRAResourceHealth",
            "v1alpha1.DRAResourceHealth",
        ]
        await stub.NotifyRegistrationStatus(pluginregistration_pb2.RegistrationStatus(plugin_registered=True))
        assert rig.server.is_registered
        with pytest.raises(grpc.aio.AioRpcError, match="failed registration process: too old"):
            await stub.NotifyRegistrationStatus(pluginregistration_pb2.RegistrationStatus(error="too old"))


async def test_prepare_answers_with_devices_and_writes_what_containers_get(rig):
    parameters = DeviceAllocationConfiguration(
        source="FromClass",
        requests=("req",),
        opaque=OpaqueDeviceConfiguration(driver=DRIVER, parameters=msgspec.Raw(b'{"MODE":"fast"}')),
    )
    other = DeviceAllocationConfiguration(
        source="FromClaim", opaque=OpaqueDeviceConfiguration(driver="other", parameters=msgspec.Raw(b'{"MODE":"no"}'))
    )
    claim = rig.has(
        allocated_claim(
            "c",
            "u1",
            result("gpu-0", "req/big"),
            result("x", driver="other"),
            result("gpu-1", "second"),
            config=(parameters, other),
        )
    )
    answer = (await rig.prepare(claim)).claims["u1"]
    assert [(list(d.request_names), d.pool_name, d.device_name) for d in answer.devices] == [
        (["req"], "node-1", "gpu-0"),
        (["second"], "node-1", "gpu-1"),
    ]
    assert environment_of(rig, answer.devices[0].cdi_device_ids[0]) == ("GPU=gpu-0", "MODE=fast")
    assert environment_of(rig, answer.devices[1].cdi_device_ids[0]) == ("GPU=gpu-1",)


async def test_prepare_is_idempotent_also_after_a_restart(rig):
    claim = rig.has(allocated_claim())
    first = await rig.prepare(claim)
    assert await rig.prepare(claim) == first
    await rig.server.stop()
    await rig.start()
    assert await rig.prepare(claim) == first
    assert rig.driver.calls == ["prepare c"]


async def test_unprepare_removes_the_traces_and_an_unknown_claim_is_fine(rig):
    claim = rig.has(allocated_claim())
    await rig.prepare(claim)
    unknown = allocated_claim("never")
    answer = await rig.unprepare(claim, unknown)
    assert {uid: entry.error for uid, entry in answer.claims.items()} == {"uid-c": "", "uid-never": ""}
    assert list(rig.cdi_dir.glob("*.json")) == []
    assert not list((rig.root / "plugins" / DRIVER / "dra-device-metadata").iterdir())


async def test_a_refusal_concerns_its_claim_only(rig):
    good, bad, bug = (
        rig.has(allocated_claim(name, "", result(f"gpu-{i}"))) for i, name in enumerate(("good", "bad", "bug"))
    )
    claims = (await rig.prepare(good, bad, bug)).claims
    assert claims["uid-good"].error == ""
    assert claims["uid-bad"].error == "fan is broken"
    assert "ZeroDivisionError" in claims["uid-bug"].error


async def test_a_device_is_not_prepared_for_two_claims(rig):
    await rig.prepare(rig.has(allocated_claim("first")))
    answer = (await rig.prepare(rig.has(allocated_claim("second")))).claims["uid-second"]
    assert "already prepared for claim ns/first" in answer.error
    shared = rig.has(allocated_claim("third", "", result(share_id="s-1")))
    assert (await rig.prepare(shared)).claims["uid-third"].devices[0].share_id == "s-1"


@pytest.mark.parametrize(
    ("stored", "text"),
    [
        (lambda: allocated_claim("c", "other-uid"), "claim ns/c got replaced"),
        (lambda: msgspec.structs.replace(allocated_claim(), status=ResourceClaimStatus()), "claim ns/c not allocated"),
        (None, "retrieve claim ns/c"),
    ],
)
async def test_a_claim_that_does_not_stand_fails_the_whole_call(rig, stored, text):
    if stored:
        rig.has(stored())
    with pytest.raises(grpc.aio.AioRpcError, match=f"get resource claims: .*{text}"):
        await rig.prepare(allocated_claim())
    assert rig.driver.calls == []


async def test_a_claim_that_is_not_there_is_not_found(rig):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await rig.prepare(allocated_claim())
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_a_device_that_the_driver_does_not_publish_is_not_prepared(rig):
    rig.missing_devices = {"gpu-0"}
    answer = (await rig.prepare(rig.has(allocated_claim()))).claims["uid-c"]
    assert "gpu-0 of request" in answer.error
    assert "is not among the devices that driver gpu.example.com publishes" in answer.error
    assert rig.driver.calls == []


async def test_v1beta1_is_served_too_without_share_ids(rig):
    claim = rig.has(allocated_claim("c", "", result(share_id="s-1")))
    answer = await rig.prepare(claim, messages=dra_v1beta1_pb2, stubs=dra_v1beta1_pb2_grpc)
    assert answer.claims["uid-c"].devices[0].device_name == "gpu-0"


async def test_health_is_streamed(rig):
    async with grpc.aio.insecure_channel(f"unix://{rig.service_socket}") as channel:
        stream = dra_health_v1_pb2_grpc.DRAResourceHealthStub(channel).NodeWatchResources(
            dra_health_v1_pb2.NodeWatchResourcesRequest()
        )
        report = (await stream.read()).devices[0]
        stream.cancel()
    assert (report.device.device_name, report.health, report.message) == ("gpu-0", 2, "hot")
    assert report.health_check_timeout_seconds == 30


async def test_a_corrupt_checkpoint_is_put_aside(rig):
    await rig.server.stop()
    checkpoint = rig.root / "plugins" / DRIVER / "prepared.json"
    checkpoint.write_text("{not json")
    await rig.start()
    assert (await rig.prepare(rig.has(allocated_claim()))).claims["uid-c"].error == ""
    assert checkpoint.with_suffix(".corrupt").read_text() == "{not json"


async def test_metadata_files_are_mounted_where_containers_look_for_them(rig):
    claim = rig.has(allocated_claim(annotations={"resource.kubernetes.io/pod-claim-name": "gpus"}))
    device = (await rig.prepare(claim)).claims["uid-c"].devices[0]
    assert device.cdi_device_ids[-1] == f"{DRIVER}/metadata=uid-c_req"
    spec = decode_spec((rig.cdi_dir / f"{DRIVER}_metadata_uid-c_req.json").read_bytes())
    mount = spec.devices[0].container_edits.mounts[0]
    root = "/var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates"
    assert mount.container_path == f"{root}/gpus/req/{DRIVER}-metadata.json"
    versions = [msgspec.json.decode(line)["apiVersion"] for line in Path(mount.host_path).read_bytes().splitlines()]
    assert versions == ["metadata.resource.k8s.io/v1beta1", "metadata.resource.k8s.io/v1alpha1"]


async def test_sockets_disappear_on_stop(rig):
    await rig.server.stop()
    assert not rig.service_socket.exists()
    assert not rig.registration_socket.exists()
    await rig.start()


async def test_cdi_files_that_a_reboot_took_are_written_again(rig):
    claim = rig.has(allocated_claim())
    first = await rig.prepare(claim)
    for path in rig.cdi_dir.glob("*.json"):
        path.unlink()
    second = await rig.prepare(claim)
    assert second == first
    assert environment_of(rig, second.claims["uid-c"].devices[0].cdi_device_ids[0]) == ("GPU=gpu-0",)
    assert rig.driver.calls == ["prepare c", "prepare c"]


@pytest.mark.parametrize("parameters", [b"{not json", b'["a list"]', b'"text"'])
async def test_parameters_that_nobody_can_read_fail_their_claim_alone(rig, parameters):
    config = DeviceAllocationConfiguration(
        source="FromClaim", opaque=OpaqueDeviceConfiguration(driver=DRIVER, parameters=msgspec.Raw(parameters))
    )
    broken = rig.has(allocated_claim("broken", "", result("gpu-1"), config=(config,)))
    answer = await rig.prepare(broken, rig.has(allocated_claim()))
    assert "opaque parameters of request req" in answer.claims["uid-broken"].error
    assert answer.claims["uid-c"].devices[0].device_name == "gpu-0"


async def test_claims_that_went_away_meanwhile_are_given_back(rig):
    stays, goes = rig.has(allocated_claim()), rig.has(allocated_claim("gone", "", result("gpu-1")))
    await rig.prepare(stays, goes)
    preparer = ClaimPreparer(
        rig.driver,
        rig.fetch,
        Checkpoint(rig.root / "plugins" / DRIVER / "prepared.json"),
        CdiFiles(rig.cdi_dir, DRIVER),
    )

    async def is_gone(reference):
        return reference.name == "gone"

    await preparer.give_back_leftovers(is_gone)
    assert rig.driver.calls[-1] == "unprepare gone"
    assert list(Checkpoint(rig.root / "plugins" / DRIVER / "prepared.json").claims()) == ["uid-c"]


async def test_a_cdi_file_that_cannot_be_removed_keeps_the_device_reserved(rig, monkeypatch):
    claim = rig.has(allocated_claim())
    await rig.prepare(claim)

    def refuse(self, claim_uid):
        raise PermissionError("read-only file system")

    monkeypatch.setattr(CdiFiles, "remove", refuse)
    answer = await rig.unprepare(claim)
    assert "read-only file system" in answer.claims["uid-c"].error
    other = rig.has(allocated_claim("other"))
    assert "already prepared for claim ns/c" in (await rig.prepare(other)).claims["uid-other"].error


def instance(rig, uid):
    data = rig.root / "plugins" / DRIVER
    return ClaimPreparer(
        rig.driver,
        rig.fetch,
        Checkpoint(data / "prepared.json"),
        CdiFiles(rig.cdi_dir, DRIVER),
        lock_file=data / "serialize.lock",
    )


async def test_two_instances_of_an_updated_driver_share_what_is_on_disk(rig):
    old, new = instance(rig, "old"), instance(rig, "new")
    claims = [rig.has(allocated_claim(f"c{i}", "", result(f"gpu-{i}"))) for i in range(6)]
    references = [ClaimReference("ns", c.metadata.name, c.metadata.uid) for c in claims]
    await asyncio.gather(*((old, new)[i % 2].prepare([each]) for i, each in enumerate(references)))
    assert len(Checkpoint(rig.root / "plugins" / DRIVER / "prepared.json").claims()) == 6
    await asyncio.gather(*((new, old)[i % 2].unprepare([each]) for i, each in enumerate(references)))
    assert Checkpoint(rig.root / "plugins" / DRIVER / "prepared.json").claims() == {}


@pytest.mark.parametrize("uid", ["../../etc/passwd", "/etc/passwd", "a/b", "..", "a\x00b"])
async def test_uids_with_path_tricks_stay_in_the_cdi_directory(rig, uid, tmp_path):
    before = set(Path("/etc").glob("*.json"))
    reference = ClaimReference("ns", "c", uid)
    assert await instance(rig, "x").unprepare([reference]) == {uid: ""}
    CdiFiles(rig.cdi_dir, DRIVER)._path(uid).relative_to(rig.cdi_dir)
    assert "/" not in CdiFiles(rig.cdi_dir, DRIVER)._path(uid).name
    assert set(Path("/etc").glob("*.json")) == before


def test_names_that_no_driver_may_have_are_refused(tmp_path):
    for name in ("", "Not A Name", "../up", "a" * 64):
        driver = RecordingDriver()
        driver.name = name
        with pytest.raises(ValueError, match="driver name"):
            RunningDriver(driver, None, "n", DriverPaths(tmp_path, tmp_path / "cdi"))
