"""What the kernel tells about CPUs and memory, on made-up machines and on this one."""

import os
from pathlib import Path

import pytest
from tests.driver.cpu.machines import BIG_AND_LITTLE, HYBRID, PARTLY_OFFLINE, TWO_SOCKETS, make_sysfs

from dray.driver.cpu.topology import HugePages, MemoryNode, read_cpus, read_memory, read_pcie_roots


def test_two_sockets(tmp_path):
    cpus = read_cpus(make_sysfs(tmp_path, TWO_SOCKETS))
    assert [(cpu.id, cpu.core, cpu.socket, cpu.numa_node, cpu.cache_l3) for cpu in cpus][3:10] == [
        (3, 3, 0, 0, 1),
        (4, 0, 1, 1, 2),
        (5, 1, 1, 1, 2),
        (6, 2, 1, 1, 3),
        (7, 3, 1, 1, 3),
        (8, 0, 0, 0, 0),
        (9, 1, 0, 0, 0),
    ]
    assert cpus[4].threads == {4, 12}, "core 0 of the other socket is another core"
    assert {cpu.core_type for cpu in cpus} == {"standard"}


def test_hybrid_machines_have_cores_of_two_types(tmp_path):
    cpus = read_cpus(make_sysfs(tmp_path, HYBRID))
    assert [cpu.core_type for cpu in cpus] == ["p-core"] * 4 + ["e-core"] * 4
    assert [len(cpu.threads) for cpu in cpus] == [2] * 4 + [1] * 4
    arm = read_cpus(make_sysfs(tmp_path / "arm", BIG_AND_LITTLE))
    assert [cpu.core_type for cpu in arm] == ["p-core", "p-core", "e-core", "e-core"]


def test_cpus_that_are_offline_are_left_out_and_isolated_ones_marked(tmp_path):
    cpus = read_cpus(make_sysfs(tmp_path, PARTLY_OFFLINE))
    assert [cpu.id for cpu in cpus] == [0, 1, 2, 5, 6, 7]
    assert [set(cpu.threads) for cpu in cpus if cpu.id in (0, 1, 7)] == [{0}, {1, 5}, {7}]
    assert {cpu.id for cpu in cpus if cpu.is_isolated} == {2, 6}


def test_memory_and_pci_roots(tmp_path):
    sysfs = make_sysfs(tmp_path, TWO_SOCKETS)
    pages = (HugePages(2 << 20, 512),)
    assert read_memory(sysfs) == (MemoryNode(0, 4 << 30, pages), MemoryNode(1, 4 << 30, pages))
    assert read_memory(sysfs)[0].ordinary == 3 << 30
    assert read_pcie_roots(sysfs)["pci0000:80"] == {4, 5, 6, 7, 12, 13, 14, 15}


@pytest.mark.skipif(not Path("/sys/devices/system/cpu/online").exists(), reason="this machine has no /sys")
def test_this_machine_is_told_as_the_kernel_tells_it(tmp_path):
    cpus = read_cpus()
    assert {cpu.id for cpu in cpus} >= os.sched_getaffinity(0)
    assert all(cpu.id in cpu.threads for cpu in cpus)
    told = [path.read_text().split() for path in Path("/sys/devices/system/node").glob("node[0-9]*/meminfo")]
    totals = [int(words[words.index("MemTotal:") + 1]) << 10 for words in told]
    assert sorted(node.total for node in read_memory()) == sorted(filter(None, totals))


@pytest.mark.parametrize(
    "path",
    ["online", "cpu0/topology/core_id", "cpu0/topology/physical_package_id", "cpu0/topology/thread_siblings_list"],
)
def test_made_up_machines_have_the_files_of_this_one(tmp_path, path):
    """Where the kernel of this machine has the file, too; some virtual machines have less of it."""
    folder = Path("devices/system/cpu")
    real = Path("/sys") / folder / path
    if not real.exists():
        pytest.skip(f"{real} is not there")
    made = make_sysfs(tmp_path, TWO_SOCKETS) / folder / path
    shape = str.maketrans("123456789", "0" * 9)
    assert set(real.read_text().translate(shape)) <= {*"0-,", "\n"}
    assert set(made.read_text().translate(shape)) <= {*"0-,", "\n"}
