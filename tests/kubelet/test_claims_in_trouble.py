"""Claims whose drivers disagree, whose objects are replaced, whose pods race, and whose records are lost."""

import asyncio
import json
import zlib
from functools import partial

import pytest

from dray.api.core import Container, Pod, PodResourceClaim, PodSpec
from dray.api.meta import ObjectMeta
from dray.client import ServerUnreachable
from dray.kubelet.checkpoint import CheckpointFile
from dray.kubelet.claims import ClaimRefused
from dray.kubelet.errors import DriverError
from dray.proto import dra_v1_pb2
from tests.kubelet.drivers_rig import DRIVER, DriversRig, pod_with_claims
from tests.kubelet.scripted_driver import ScriptedDriver
from tests.kubelet.test_claims import allocated_claim

RIG = partial(DriversRig, call_timeout_s=20)

NIC = "nic.example.com"


@pytest.fixture
async def driver(rig, tmp_path):
    driver = ScriptedDriver(tmp_path)
    await driver.start()
    await rig.drivers.look()
    yield driver
    await driver.stop()


@pytest.fixture
async def nic(rig, tmp_path):
    nic = ScriptedDriver(tmp_path, NIC)
    await nic.start()
    await rig.drivers.look()
    yield nic
    await nic.stop()


def refusing(request):
    response = dra_v1_pb2.NodePrepareResourcesResponse()
    for claim in request.claims:
        response.claims[claim.uid].error = "link is down"
    return response


async def test_one_of_two_drivers_fails_and_both_are_asked_again(rig, driver, nic):
    rig.has("a", drivers=(DRIVER, NIC))
    nic.answer_prepare = refusing
    for _ in range(2):
        with pytest.raises(DriverError, match="NodePrepareResources failed for ResourceClaim a: link is down"):
            await rig.claims.prepare(pod_with_claims("a"))
    state = rig.claims.cache.get("ns/a")
    assert [len(each.devices) for each in state.drivers.values()] == [1, 0], "what the good one said is kept, once"
    assert not state.is_prepared
    nic.answer_prepare = nic.honest_prepare
    await rig.claims.prepare(pod_with_claims("a"))
    assert (driver.prepared, nic.prepared) == (["a"] * 3, ["a"] * 3)
    (stored,) = CheckpointFile(rig.root).read()
    assert [len(each.devices) for each in stored.drivers.values()] == [1, 1]


async def test_an_answer_without_devices_is_a_success(rig, driver):
    def nothing(request):
        response = dra_v1_pb2.NodePrepareResourcesResponse()
        response.claims[request.claims[0].uid].SetInParent()
        return response

    rig.has("a")
    driver.answer_prepare = nothing
    await rig.claims.prepare(pod_with_claims("a"))
    assert rig.claims.cache.get("ns/a").is_prepared


async def test_a_new_claim_of_the_same_name_waits_until_the_old_one_was_given_back(rig, driver):
    rig.has("a", uid="old")
    await rig.claims.prepare(pod_with_claims("a"))
    rig.has("a", uid="new", pods=("pod-2",))
    with pytest.raises(ClaimRefused, match="old ResourceClaim with same name a and different UID old still exists"):
        await rig.claims.prepare(pod_with_claims("a", uid="pod-2"))
    assert rig.claims.cache.get("ns/a").pod_uids == {"pod-1"}
    assert driver.prepared == ["a"]
    await rig.claims.unprepare("pod-1")
    await rig.claims.prepare(pod_with_claims("a", uid="pod-2"))
    assert rig.claims.cache.get("ns/a").uid == "new"


async def test_two_pods_of_one_claim_start_together(rig, driver):
    rig.has("a", pods=("pod-1", "pod-2"))
    driver.delay_s = 0.05
    await asyncio.gather(
        rig.claims.prepare(pod_with_claims("a")), rig.claims.prepare(pod_with_claims("a", uid="pod-2"))
    )
    assert driver.prepared in (["a"], ["a", "a"]), "at most one call more, which changes nothing"
    (stored,) = CheckpointFile(rig.root).read()
    assert stored.pod_uids == {"pod-1", "pod-2"}
    assert len(stored.drivers[DRIVER].devices) == 1
    await asyncio.gather(rig.claims.unprepare("pod-1"), rig.claims.unprepare("pod-2"))
    assert driver.unprepared == ["a"]
    assert CheckpointFile(rig.root).read() == []


async def test_a_claim_that_no_container_uses_is_prepared_and_given_back(rig, driver):
    rig.has("a")
    pod = Pod(
        metadata=ObjectMeta(name="p", namespace="ns", uid="pod-1"),
        spec=PodSpec(
            containers=(Container(name="main", image="i"),),
            resource_claims=(PodResourceClaim(name="unused", resource_claim_name="a"),),
        ),
    )
    await rig.claims.prepare(pod)
    await rig.claims.unprepare("pod-1")
    assert (driver.prepared, driver.unprepared) == (["a"], ["a"])


async def test_without_an_api_server_new_pods_wait(rig, driver):
    async def away(kind, name, namespace):
        raise ServerUnreachable("connection refused")

    rig.api.get = away
    with pytest.raises(ClaimRefused, match="fetch ResourceClaim a: connection refused"):
        await rig.claims.prepare(pod_with_claims("a"))
    assert (driver.prepared, list(rig.claims.cache)) == ([], [])


async def test_a_pod_whose_status_lost_its_claims_gives_them_back_all_the_same(rig, driver):
    """Names come from what was written down here, not from the pod."""
    rig.api.by_name["p-gpu-x7f2"] = allocated_claim("p-gpu-x7f2", "uid-1", (DRIVER,), ("pod-1",))
    await rig.claims.prepare(pod_with_claims("p-gpu-x7f2"))
    entry = PodResourceClaim(name="gpu", resource_claim_template_name="t")
    without = Pod(metadata=ObjectMeta(name="p", namespace="ns", uid="pod-1"), spec=PodSpec(resource_claims=(entry,)))
    assert not rig.claims.knows_claims_of(without)
    rig.restart_claims()
    await rig.claims.unprepare(without.metadata.uid)
    assert driver.unprepared == ["p-gpu-x7f2"]
    assert CheckpointFile(rig.root).read() == []


async def test_without_its_checkpoint_an_agent_starts_empty(rig, driver):
    """Pods that go on are prepared again; those that end are the drivers' to find out about."""
    rig.has("a", "b")
    await rig.claims.prepare(pod_with_claims("a", "b"))
    CheckpointFile(rig.root).path.unlink()
    rig.restart_claims()
    assert list(rig.claims.cache) == []
    await rig.claims.unprepare("pod-1")
    assert driver.unprepared == []
    await rig.claims.prepare(pod_with_claims("a"))
    assert driver.prepared == ["a", "b", "a"]


async def test_a_checkpoint_of_a_newer_kubelet_is_read(rig, driver):
    rig.has("a")
    await rig.claims.prepare(pod_with_claims("a"))
    path = CheckpointFile(rig.root).path
    data = json.loads(json.loads(path.read_text())["Data"])
    data |= {"apiVersion": "checkpoint.dra.kubelet.k8s.io/v9", "more": {"than": "we know"}}
    data["ClaimInfoStateList"][0]["colour"] = "blue"
    text = json.dumps(data)
    path.write_text(json.dumps({"Data": text, "Checksum": zlib.crc32(text.encode()), "extra": 1}))
    rig.restart_claims()
    await rig.claims.unprepare("pod-1")
    assert driver.unprepared == ["a"]
