"""Device metadata files: written by drivers, read by programs in containers, across versions and drivers."""

import json
import signal
import subprocess
import sys

import pytest
from tests.driver.driver_rig import DRIVER, DriverRig, allocated_claim, result

from dray.api.meta import ObjectMeta
from dray.api.resource import DeviceAttribute, ResourceClaim
from dray.driver.claim_files import DeviceMetadata
from dray.driver.metadata_reader import DeviceEntry, MetadataError, read_metadata, read_request, request_directory
from dray.driver.plugin import AllocatedDevice, ClaimReference, ClaimToPrepare, PreparedDevice


def an_object(version="v1beta1", device="gpu-0", driver=DRIVER, **changes):
    return {
        "apiVersion": f"metadata.resource.k8s.io/{version}",
        "kind": "DeviceMetadata",
        "metadata": {"name": "c", "namespace": "ns", "uid": "u", "generation": 1},
        "requests": [{"name": "r", "devices": [{"driver": driver, "pool": "p", "name": device}]}],
        **changes,
    }


def stream(*objects):
    return "\n".join(each if isinstance(each, str) else json.dumps(each) for each in objects)


def devices_in(text):
    return [each.name for each in read_metadata(text).requests["r"]]


@pytest.mark.parametrize(
    ("objects", "device"),
    [
        ((an_object(),), "gpu-0"),
        ((an_object("v1alpha1", "old"),), "old"),
        ((an_object("v1beta1", "new"), an_object("v1alpha1", "old")), "new"),
        ((an_object("v9", "newest"), an_object("v1beta1", "new")), "new"),
        ((an_object(kind="Other"), an_object()), "gpu-0"),
        ((an_object(), "{ cut off"), "gpu-0"),
        ((an_object("v9", requests=7), an_object()), "gpu-0"),
        ((an_object(some="field of tomorrow"),), "gpu-0"),
    ],
)
def test_the_first_version_that_is_known_is_read(objects, device):
    assert devices_in(stream(*objects)) == [device]


@pytest.mark.parametrize(
    ("objects", "text"),
    [
        ((), "no metadata objects found in stream"),
        ((" \n",), "no metadata objects found in stream"),
        (
            (an_object("v9"), an_object("v8")),
            r"no compatible metadata version found in stream \(unknown versions: v9, v8\)",
        ),
        (("{ cut off", an_object()), "not JSON"),
        (("[]", an_object()), "must be objects"),
        ((an_object(kind=""), an_object()), "without kind"),
        ((an_object(apiVersion=None), an_object()), "without apiVersion"),
        ((an_object(metadata={}), an_object("v1alpha1")), "malformed metadata.resource.k8s.io/v1beta1 DeviceMetadata"),
        ((an_object(requests=[{"devices": []}]),), "malformed"),
    ],
)
def test_what_is_wrong_with_a_file_is_told(objects, text):
    with pytest.raises(MetadataError, match=text):
        read_metadata(stream(*objects))


def a_driver_writes(root, driver, device, cdi_dir, annotations=None):
    """Real files, as a driver writes them for request `r`; the answer is the file that a container would see."""
    attributes = {"model": DeviceAttribute(string="x"), "count": DeviceAttribute(int_=3)}
    metadata = DeviceMetadata(driver, root / driver, cdi_dir, lambda _: attributes)
    allocated = AllocatedDevice("r", "pool", device)
    claim = ResourceClaim(metadata=ObjectMeta(name="c", namespace="ns", uid="u", annotations=annotations or {}))
    to_prepare = ClaimToPrepare(ClaimReference("ns", "c", "u"), (allocated,), claim)
    ((cdi_id,),) = metadata.add(to_prepare, [PreparedDevice(allocated)], [()])
    assert cdi_id == f"{driver}/metadata=u_r"
    spec = json.loads((cdi_dir / f"{driver}_metadata_u_r.json").read_text())
    (mount,) = spec["devices"][0]["containerEdits"]["mounts"]
    return mount


def test_two_drivers_that_serve_one_request_are_read_together(tmp_path):
    container = tmp_path / "container"
    for driver, device in (("gpu.example.com", "gpu-0"), ("nic.example.com", "nic-0")):
        mount = a_driver_writes(tmp_path, driver, device, tmp_path / "cdi")
        seen = container / mount["containerPath"].lstrip("/")
        seen.parent.mkdir(parents=True, exist_ok=True)
        seen.symlink_to(mount["hostPath"])
    directory = container / str(request_directory("c", "r")).lstrip("/")
    assert len(list(directory.iterdir())) == 2
    (directory / "readme.txt").write_text("not ours")
    found = read_request(directory)
    attributes = {"model": {"string": "x"}, "count": {"int": 3}}
    assert found.requests == {
        "r": (
            DeviceEntry("gpu.example.com", "pool", "gpu-0", attributes),
            DeviceEntry("nic.example.com", "pool", "nic-0", attributes),
        )
    }
    assert (found.name, found.namespace, found.uid, found.generation) == ("c", "ns", "u", 1)


def test_a_claim_of_a_template_is_found_under_the_pods_name_for_it(tmp_path):
    annotations = {"resource.kubernetes.io/pod-claim-name": "gpu"}
    mount = a_driver_writes(tmp_path, DRIVER, "gpu-0", tmp_path / "cdi", annotations)
    assert mount["containerPath"] == f"{request_directory('c', 'r', pod_claim='gpu')}/{DRIVER}-metadata.json"
    assert mount["options"] == ["ro", "bind"]


def test_a_directory_without_files_is_told(tmp_path):
    with pytest.raises(MetadataError, match="no metadata files found in"):
        read_request(tmp_path)


RIG = DriverRig


async def test_metadata_that_cannot_be_written_does_not_keep_a_pod_from_starting(rig, caplog):
    (rig.root / "plugins" / DRIVER / "dra-device-metadata").write_text("in the way")
    claim = rig.has(allocated_claim("c", "", result("gpu-0")))
    answer = (await rig.prepare(claim)).claims["uid-c"]
    assert answer.error == ""
    assert [list(each.cdi_device_ids) for each in answer.devices] == [[f"{DRIVER}/claim=uid-c-gpu-0"]]
    assert "device metadata of claim ns/c, request req" in caplog.text
    (rig.root / "plugins" / DRIVER / "dra-device-metadata").unlink()
    assert (await rig.unprepare(claim)).claims["uid-c"].error == ""
    assert list(rig.cdi_dir.iterdir()) == []


PREPARE_AND_DIE = """
import os, sys
from pathlib import Path
from dray.api.meta import ObjectMeta
from dray.api.resource import ResourceClaim
from dray.driver.claim_files import DeviceMetadata
from dray.driver.plugin import AllocatedDevice, ClaimReference, ClaimToPrepare, PreparedDevice

root, cdi_dir, driver = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
finish = os.replace
os.replace = lambda old, new: os.kill(os.getpid(), 9) if Path(new).parent == cdi_dir else finish(old, new)
allocated = AllocatedDevice("r", "pool", "gpu-0")
claim = ResourceClaim(metadata=ObjectMeta(name="c", namespace="ns", uid="u"))
to_prepare = ClaimToPrepare(ClaimReference("ns", "c", "u"), (allocated,), claim)
DeviceMetadata(driver, root, cdi_dir, lambda _: {}).add(to_prepare, [PreparedDevice(allocated)], [()])
"""


def test_unprepare_removes_the_unfinished_file_of_a_driver_that_was_killed(tmp_path):
    root, cdi_dir = tmp_path / "driver", tmp_path / "cdi"
    killed = subprocess.run([sys.executable, "-c", PREPARE_AND_DIE, root, cdi_dir, DRIVER], check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    (unfinished,) = cdi_dir.iterdir()
    assert unfinished.name.startswith(f".{DRIVER}_metadata_u_r.json-")
    of_another_claim = cdi_dir / f".{DRIVER}_metadata_other_r.json-12345678"
    of_another_claim.touch()
    DeviceMetadata(DRIVER, root, cdi_dir, lambda _: {}).remove(ClaimReference("ns", "c", "u"))
    assert list(cdi_dir.iterdir()) == [of_another_claim]
