"""A full disk, a stopped driver, CDI files nobody can use."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dray.kubelet.checkpoint import CheckpointFile
from dray.kubelet.container_specs import CdiDirectories
from dray.kubelet.errors import ContainerError, DriverError
from dray.kubelet.prepare import PodClaims
from tests.kubelet.drivers_rig import DRIVER, DriversRig, pod_with_claims
from tests.kubelet.scripted_driver import ScriptedDriver
from tests.waiting import eventually

RIG = DriversRig

REPOSITORY = Path(__file__).parent.parent.parent
SERVE = """
import asyncio, sys
from pathlib import Path
from tests.kubelet.scripted_driver import ScriptedDriver

async def main():
    await ScriptedDriver(Path(sys.argv[1])).start()
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture
def full_disk(tmp_path):
    """A file system of one page, filled to the brim."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if (
        os.geteuid() != 0
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "x", disk], check=False).returncode
    ):
        pytest.skip("needs root and a tmpfs of its own to fill")
    yield disk
    subprocess.run(["umount", disk], check=True)


def fill(path):
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while file.write(b"x" * 4096):
            pass


async def test_a_full_disk_refuses_before_any_call_and_heals_when_there_is_room(rig, full_disk, tmp_path):
    driver = ScriptedDriver(tmp_path)
    await driver.start()
    await rig.drivers.look()
    rig.has("a")
    claims = PodClaims(rig.api, rig.drivers, CheckpointFile(full_disk), call_timeout_s=2)
    ballast = full_disk / "ballast"
    fill(ballast)
    with pytest.raises(DriverError, match="No space left on device"):
        await claims.prepare(pod_with_claims("a"))
    assert driver.prepared == []
    ballast.unlink()
    await claims.prepare(pod_with_claims("a"))
    assert driver.prepared == ["a"]
    assert len(CheckpointFile(full_disk).read()) == 1
    await driver.stop()


@pytest.fixture
def driver_process(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", SERVE, str(tmp_path)], cwd=REPOSITORY)
    yield process
    process.kill()
    process.wait()


async def test_a_stopped_driver_is_given_up_on_and_heals_when_it_goes_on(rig, driver_process):

    async def is_connected():
        await rig.drivers.look()
        return rig.drivers.names() and rig.drivers.endpoint(DRIVER).is_connected

    await eventually(is_connected, "the driver", within_s=60)
    rig.has("a")
    driver_process.send_signal(signal.SIGSTOP)
    with pytest.raises(DriverError, match="DeadlineExceeded"):
        await asyncio.wait_for(rig.claims.prepare(pod_with_claims("a")), 20)
    assert rig.claims.has_claims("pod-1"), "it may have been prepared all the same, so it has to be given back"
    assert rig.wiped == []
    driver_process.send_signal(signal.SIGCONT)
    rig.claims._call_timeout_s = 20
    await rig.claims.prepare(pod_with_claims("a"))
    await rig.claims.unprepare("pod-1")
    assert list(rig.claims.cache) == []


GOOD = '{"cdiVersion":"0.3.0","kind":"v/c","devices":[{"name":"d","containerEdits":{"env":["A=1"]}}]}'


def edits(folder, *names):
    return CdiDirectories([folder]).edits_for(names)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("half.json", GOOD[:40]),
        ("empty.json", ""),
        ("unknown.json", GOOD.replace('"kind"', '"kinds":1,"kind"').replace("v/c", "v/other")),
        ("deep.json", "[" * 100_000),
        ("deep.yaml", "[" * 2_000),
        ("bytes.yaml", "\x00\x01"),
        ("old.json", '{"cdiVersion":"0.1.0","kind":"v/x","devices":[{"name":"d","containerEdits":{"env":["A=1"]}}]}'),
    ],
)
def test_a_corrupt_cdi_file_harms_nobody_else(tmp_path, name, content):
    (tmp_path / "good.json").write_text(GOOD)
    (tmp_path / name).write_text(content)
    assert edits(tmp_path, "v/c=d").env == ("A=1",)


def test_what_is_no_file_is_left_out(tmp_path):
    (tmp_path / "good.json").write_text(GOOD)
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "nowhere.json").symlink_to(tmp_path / "gone")
    assert edits(tmp_path, "v/c=d").env == ("A=1",)


@pytest.mark.parametrize("name", ["v/c=../../etc/passwd", "v/c=nope", "../c=d", "v/c", "", "v/c=d\x00", "v/c=d/../d"])
def test_cdi_names_with_tricks_or_without_a_file_fail_the_container(tmp_path, name):
    (tmp_path / "good.json").write_text(GOOD)
    with pytest.raises(ContainerError) as caught:
        edits(tmp_path, name)
    assert caught.value.reason == "CreateContainerError"


def test_a_name_in_two_files_is_unusable(tmp_path):
    (tmp_path / "one.json").write_text(GOOD)
    (tmp_path / "two.json").write_text(GOOD)
    with pytest.raises(ContainerError):
        edits(tmp_path, "v/c=d")
