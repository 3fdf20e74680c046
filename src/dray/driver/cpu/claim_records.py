"""Records on disk of the CPUs of each claim. The driver writes a record before a container can use the CPUs, so a crash gives no CPU away twice."""

from collections.abc import Iterable

import msgspec

from dray.api.cpuset import format_cpu_list, parse_cpu_list


class CpuRecord(msgspec.Struct, frozen=True):
    """The CPUs of a claim in the kernel's list notation, by the name of the device that they come from."""

    namespace: str
    name: str
    cpus_by_device: dict[str, str]
    grant: str
    """What a container shows to get the CPUs. Only containers that use the claim are told."""

    @property
    def cpus(self) -> set[int]:
        return set().union(*map(parse_cpu_list, self.cpus_by_device.values()))

    @property
    def cpu_list(self) -> str:
        return format_cpu_list(self.cpus)


def cpus_of(records: Iterable[CpuRecord]) -> set[int]:
    return set().union(*(record.cpus for record in records))
