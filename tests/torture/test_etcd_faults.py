"""The faults of the rig's etcd hurt what they say, and go away again."""

import asyncio
import os
import subprocess
import time

import pytest

from tests.torture.etcd_cluster import EtcdCluster
from tests.torture.member_disk import SlowDisk
from tests.waiting import eventually, eventually_blocking

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount and make network namespaces")


@pytest.fixture
async def etcd(tmp_path, request):
    etcd = EtcdCluster(tmp_path / "etcd", getattr(request, "param", 1))
    await etcd.make_partitions_possible()
    etcd.use_small_disks()
    await asyncio.to_thread(etcd.start)
    yield etcd
    await etcd.close()


def put(etcd, size=10):
    return etcd.control("put", "a", "x" * size, "--command-timeout", "2s")


async def test_an_etcd_without_space_takes_no_write_until_the_alarm_is_off(etcd):
    (member,) = etcd.members
    member.kill()
    member.start("--quota-backend-bytes", "1")
    await eventually(lambda: "space exceeded" in put(etcd).stderr, "etcd to refuse")
    member.kill()
    member.start()
    await eventually(lambda: "space exceeded" in put(etcd).stderr, "etcd to refuse still")
    await etcd.heal()
    assert put(etcd).returncode == 0


@pytest.mark.skipif(not SlowDisk.is_possible(), reason="strace is missing")
async def test_a_slow_disk_keeps_etcd_waiting(etcd):
    (member,) = etcd.members
    member.slow_disk.begin(member.pid, 0.5)

    async def is_slow():
        began = time.monotonic()
        done = await asyncio.to_thread(put, etcd)
        return done.returncode == 0 and time.monotonic() - began >= 0.5

    await eventually(is_slow, "a write to take long")
    assert member.slow_disk.end()
    assert put(etcd).returncode == 0


@pytest.mark.skipif(not SlowDisk.is_possible(), reason="strace is missing")
def test_a_disk_that_cannot_be_slowed_down_is_not_called_slow():
    gone = subprocess.Popen(["true"])
    gone.wait()
    disk = SlowDisk()
    assert not disk.end()
    disk.begin(gone.pid, 0.5)
    eventually_blocking(lambda: disk.has_ended, "strace to find nobody")
    assert not disk.end()


@pytest.mark.torture
@needs_root
async def test_a_member_ends_on_a_full_disk_and_comes_back_when_there_is_room(etcd):
    (member,) = etcd.members
    assert put(etcd).returncode == 0
    member.small_disk.fill()

    async def has_ended():
        await asyncio.to_thread(put, etcd, 100_000)
        return member.pid is None

    await eventually(has_ended, "etcd to have no room", within_s=60)
    await etcd.heal()
    assert etcd.control("get", "a").stdout


@pytest.mark.torture
@needs_root
@pytest.mark.parametrize("etcd", [3], indirect=True)
async def test_members_lose_each_other_and_the_servers(etcd):
    assert etcd.network is not None
    etcd.cut_off_servers(0)
    assert not etcd.is_healthy()
    etcd.heal_network()
    await eventually(etcd.is_healthy, "the servers to reach it")
    for other in (1, 2):
        etcd.cut(0, other)
        etcd.cut(other, 0)
    await eventually(lambda: not etcd.is_healthy(), "one member alone to be without a leader")
    await eventually(lambda: put(etcd).returncode == 0, "the other two to go on")
    await etcd.heal()
    assert put(etcd).returncode == 0
