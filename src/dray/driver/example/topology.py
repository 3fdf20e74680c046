"""The CPUs of a machine, as the kernel describes them below /sys."""

from dataclasses import dataclass
from pathlib import Path

from dray.api.cpuset import parse_cpu_list

SYSFS = Path("/sys")


@dataclass(frozen=True, slots=True)
class Cpu:
    """One logical CPU and where it sits; -1 where the kernel does not say."""

    id: int
    core: int
    socket: int
    numa_node: int
    cache_l3: int
    is_efficient: bool = False


def read_topology(sysfs: Path = SYSFS) -> tuple[Cpu, ...]:
    """All CPUs that are online."""
    root = sysfs / "devices/system/cpu"
    efficient = parse_cpu_list(_text(sysfs / "devices/cpu_atom/cpus"))
    online = parse_cpu_list(_text(root / "online")) or {0}
    return tuple(_cpu(root / f"cpu{number}", number, number in efficient) for number in sorted(online))


def _cpu(folder: Path, number: int, is_efficient: bool) -> Cpu:
    return Cpu(
        id=number,
        core=_number(folder / "topology/core_id", number),
        socket=_number(folder / "topology/physical_package_id", 0),
        numa_node=next((int(path.name.removeprefix("node")) for path in folder.glob("node[0-9]*")), 0),
        cache_l3=_l3_of(folder),
        is_efficient=is_efficient,
    )


def _l3_of(folder: Path) -> int:
    for index in sorted((folder / "cache").glob("index*")):
        if _text(index / "level") == "3":
            shared = parse_cpu_list(_text(index / "shared_cpu_list"))
            return _number(index / "id", min(shared, default=-1))
    return -1


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _number(path: Path, otherwise: int) -> int:
    text = _text(path)
    return int(text) if text.lstrip("-").isdigit() else otherwise
