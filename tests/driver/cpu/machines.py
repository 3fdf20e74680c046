"""Folders that look like the /sys of machines of several kinds.

Their shape (which files there are, and how they write numbers and lists) was checked against the /sys of a real machine with
Linux 6.18; `test_topology.py` compares the files that the driver reads on the machine that runs the tests.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from dray.api.cpuset import format_cpu_list


@dataclass(frozen=True)
class MadeCpu:
    id: int
    core: int
    socket: int = 0
    node: int = 0
    cache: int = 0
    capacity: int = 1024


@dataclass(frozen=True)
class MadeMachine:
    cpus: tuple[MadeCpu, ...]
    offline: tuple[int, ...] = ()
    isolated: tuple[int, ...] = ()
    efficient: tuple[int, ...] = ()
    memory_kib: int = 4 << 20
    huge_pages: dict[int, int] = field(default_factory=dict)
    """Pages on each NUMA node by their size in KiB."""
    pcie_roots: dict[str, str] = field(default_factory=dict)


def write(path: Path, text: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def make_sysfs(root: Path, machine: MadeMachine) -> Path:
    folder = root / "devices/system/cpu"
    online = [cpu for cpu in machine.cpus if cpu.id not in machine.offline]
    write(folder / "online", format_cpu_list(cpu.id for cpu in online))
    write(folder / "offline", format_cpu_list(machine.offline))
    write(folder / "isolated", format_cpu_list(machine.isolated))
    if machine.efficient:
        write(root / "devices/cpu_atom/cpus", format_cpu_list(machine.efficient))
        rest = (cpu.id for cpu in machine.cpus if cpu.id not in machine.efficient)
        write(root / "devices/cpu_core/cpus", format_cpu_list(rest))
    for cpu in machine.cpus:
        make_cpu(folder / f"cpu{cpu.id}", cpu, online)
    for node in {cpu.node for cpu in machine.cpus}:
        make_node(root / f"devices/system/node/node{node}", node, machine)
    write(root / "devices/system/node/online", format_cpu_list(cpu.node for cpu in machine.cpus))
    for name, cpus in machine.pcie_roots.items():
        write(root / f"devices/{name}/pci_bus/{name.removeprefix('pci')}/cpulistaffinity", cpus)
    return root


def make_cpu(folder: Path, cpu: MadeCpu, online: Iterable[MadeCpu]) -> None:
    """A CPU that is offline keeps its folder and its NUMA node, and loses its topology and its caches."""
    write(folder / f"node{cpu.node}/cpulist", "")
    if cpu not in online:
        return
    threads = format_cpu_list(each.id for each in online if (each.socket, each.core) == (cpu.socket, cpu.core))
    write(folder / "topology/core_id", cpu.core)
    write(folder / "topology/physical_package_id", cpu.socket)
    write(folder / "topology/thread_siblings_list", threads)
    write(folder / "cpu_capacity", cpu.capacity)
    for level in (1, 2, 3):
        same = threads if level < 3 else format_cpu_list(each.id for each in online if each.cache == cpu.cache)
        write(folder / f"cache/index{level}/level", level)
        write(folder / f"cache/index{level}/id", cpu.cache if level == 3 else cpu.id)
        write(folder / f"cache/index{level}/shared_cpu_list", same)


def make_node(folder: Path, node: int, machine: MadeMachine) -> None:
    lines = (f"Node {node} MemTotal:       {machine.memory_kib} kB", f"Node {node} MemFree:        1024 kB")
    write(folder / "meminfo", "\n".join(lines))
    for size, count in {2048: 0, 1048576: 0, **machine.huge_pages}.items():
        write(folder / f"hugepages/hugepages-{size}kB/nr_hugepages", count)


TWO_SOCKETS = MadeMachine(
    tuple(
        MadeCpu(thread * 8 + core, core % 4, core // 4, node=core // 4, cache=core // 2)
        for thread in range(2)
        for core in range(8)
    ),
    huge_pages={2048: 512},
    pcie_roots={"pci0000:00": "0-3,8-11", "pci0000:80": "4-7,12-15"},
)
"""Two sockets of four cores with two threads each; two cores share an L3 cache. Threads of core 0 are CPU 0 and 8."""

HYBRID = MadeMachine(
    (*(MadeCpu(number, number // 2) for number in range(4)), *(MadeCpu(number, number) for number in range(4, 8))),
    efficient=(4, 5, 6, 7),
)
"""Two performance cores with two threads each, and four efficient ones with one."""

BIG_AND_LITTLE = MadeMachine(
    tuple(MadeCpu(number, number, capacity=1024 if number < 2 else 446) for number in range(4))
)
"""Arm: two large cores and two small ones."""

PARTLY_OFFLINE = MadeMachine(tuple(MadeCpu(number, number % 4) for number in range(8)), offline=(3, 4), isolated=(2, 6))
"""Four cores with two threads each, of which CPUs 3 and 4 are turned off and 2 and 6 isolated."""
