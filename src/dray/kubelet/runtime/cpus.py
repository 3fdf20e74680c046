"""CPU sets in the kernel's list notation, and where a container's environment names one."""

from collections.abc import Iterable, Mapping

ENVIRONMENT_PREFIX = "DRA_CPUSET_"


def parse_cpu_list(text: str) -> set[int]:
    """`0-3,8` as numbers; ValueError for anything else."""
    cpus: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    return cpus


def format_cpu_list(cpus: Iterable[int]) -> str:
    """Numbers as `0-3,8`."""
    ranges: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if ranges and cpu == ranges[-1][1] + 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def cpus_of_environment(environment: Mapping[str, str]) -> set[int]:
    """All CPUs that claims of the container were given; empty means no pinning."""
    cpus: set[int] = set()
    for name, value in environment.items():
        if name.startswith(ENVIRONMENT_PREFIX):
            try:
                cpus |= parse_cpu_list(value)
            except ValueError:
                continue
    return cpus
