"""The CPUs and the memory of a machine, as the kernel describes them below /sys."""

from dataclasses import dataclass
from pathlib import Path

from dray.api.cpuset import parse_cpu_list
from dray.driver.sysfs import SYSFS, read_number, read_text

STANDARD, PERFORMANCE, EFFICIENCY = "standard", "p-core", "e-core"


@dataclass(frozen=True, slots=True)
class Cpu:
    """One logical CPU and where it sits; -1 where the kernel does not say."""

    id: int
    core: int
    socket: int
    numa_node: int
    cache_l3: int
    core_type: str = STANDARD
    threads: frozenset[int] = frozenset()
    """The CPUs of its core that are online, itself among them."""
    is_isolated: bool = False
    """The kernel was told to keep ordinary processes off it (`isolcpus`)."""


@dataclass(frozen=True, slots=True)
class HugePages:
    size: int
    count: int


@dataclass(frozen=True, slots=True)
class MemoryNode:
    """The memory of a NUMA node, in bytes. `total` contains the huge pages."""

    id: int
    total: int
    huge_pages: tuple[HugePages, ...] = ()

    @property
    def ordinary(self) -> int:
        return self.total - sum(each.size * each.count for each in self.huge_pages)


def read_cpus(sysfs: Path = SYSFS) -> tuple[Cpu, ...]:
    """All CPUs that are online. The kernel has no topology of those that are not."""
    root = sysfs / "devices/system/cpu"
    online = parse_cpu_list(read_text(root / "online")) or {0}
    isolated = parse_cpu_list(read_text(root / "isolated"))
    types = _core_types(sysfs, online)
    return tuple(_cpu(root / f"cpu{each}", each, online, types, isolated) for each in sorted(online))


def _cpu(folder: Path, number: int, online: set[int], types: dict[int, str], isolated: set[int]) -> Cpu:
    threads = parse_cpu_list(read_text(folder / "topology/thread_siblings_list")) & online
    return Cpu(
        id=number,
        core=_number(folder / "topology/core_id", number),
        socket=_number(folder / "topology/physical_package_id", 0),
        numa_node=next((int(path.name.removeprefix("node")) for path in folder.glob("node[0-9]*")), 0),
        cache_l3=_l3_of(folder),
        core_type=types.get(number, STANDARD),
        threads=frozenset(threads | {number}),
        is_isolated=number in isolated,
    )


def _core_types(sysfs: Path, online: set[int]) -> dict[int, str]:
    """Machines with cores of two types: Intel's have a folder for each type, Arm's tell how much a CPU can do."""
    efficient = parse_cpu_list(read_text(sysfs / "devices/cpu_atom/cpus"))
    if efficient:
        return {each: EFFICIENCY if each in efficient else PERFORMANCE for each in online}
    power = {each: _number(sysfs / f"devices/system/cpu/cpu{each}/cpu_capacity", 0) for each in online}
    if len(set(power.values())) < 2:
        return {}
    return {each: PERFORMANCE if power[each] == max(power.values()) else EFFICIENCY for each in online}


def _l3_of(folder: Path) -> int:
    for index in sorted((folder / "cache").glob("index*")):
        if read_text(index / "level") == "3":
            shared = parse_cpu_list(read_text(index / "shared_cpu_list"))
            return _number(index / "id", min(shared, default=-1))
    return -1


def read_pcie_roots(sysfs: Path = SYSFS) -> dict[str, set[int]]:
    """The CPUs that are close to each PCI root, by its name."""
    affinities = sorted((sysfs / "devices").glob("pci*/pci_bus/*/cpulistaffinity"))
    return {path.parents[2].name: parse_cpu_list(read_text(path)) for path in affinities}


def read_memory(sysfs: Path = SYSFS) -> tuple[MemoryNode, ...]:
    """NUMA nodes that have memory."""
    root = sysfs / "devices/system/node"
    found = (_memory_node(root / f"node{each}", each) for each in sorted(parse_cpu_list(read_text(root / "online"))))
    return tuple(each for each in found if each.total)


def _memory_node(folder: Path, number: int) -> MemoryNode:
    total = 0
    for line in read_text(folder / "meminfo").splitlines():
        words = line.split()
        if "MemTotal:" in words:
            total = int(words[words.index("MemTotal:") + 1]) << 10
    pages = (_huge_pages(path) for path in folder.glob("hugepages/hugepages-*kB"))
    return MemoryNode(number, total, tuple(sorted((each for each in pages if each.count), key=lambda each: each.size)))


def _huge_pages(folder: Path) -> HugePages:
    size = int(folder.name.removeprefix("hugepages-").removesuffix("kB")) << 10
    return HugePages(size, _number(folder / "nr_hugepages", 0))


def _number(path: Path, otherwise: int) -> int:
    number = read_number(path)
    return otherwise if number is None else number
