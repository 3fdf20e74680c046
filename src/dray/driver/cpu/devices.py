"""CPUs as DRA devices, with the names that kubernetes-sigs/dra-driver-cpu uses, so that classes and claims work with either."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from dray.api.quantity import Format, Quantity
from dray.api.resource import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    NodeAllocatableResourceMapping,
)
from dray.driver.cpu.topology import Cpu

DRIVER = "dra.cpu"
CAPACITY = f"{DRIVER}/cpu"
NUMA_NODE = "resource.kubernetes.io/numaNode"
OLD_NUMA_NODES = (f"{DRIVER}/numaNodeID", "dra.net/numaNode")
"""Names from before there was a standard one; claims and other drivers still use them."""
PCIE_ROOT = "resource.kubernetes.io/pcieRoot"

Mode = Literal["grouped", "individual"]
GroupBy = Literal["numanode", "socket", "l3", "core", "machine"]


@dataclass(frozen=True, slots=True)
class CpuOptions:
    """How the CPUs of a machine are offered."""

    mode: Mode = "grouped"
    group_by: GroupBy = "numanode"
    reserved: frozenset[int] = frozenset()
    has_full_cores: bool = False
    """Claims get whole cores only: never one of two threads."""
    accounting_policy: str | None = None
    """How claims and the requests of containers add up; None leaves it to the class."""
    exposes_pcie_roots: bool = False


def offered(cpus: Iterable[Cpu], options: CpuOptions) -> tuple[Cpu, ...]:
    """The CPUs that claims may get, threads of one core next to each other, so that first fit fills cores."""
    found = [cpu for cpu in cpus if cpu.id not in options.reserved]
    if options.has_full_cores:
        found = [cpu for cpu in found if not cpu.threads & options.reserved]
    return tuple(sorted(found, key=lambda cpu: (min(cpu.threads), cpu.id)))


def groups_of(cpus: Iterable[Cpu], options: CpuOptions) -> dict[str, tuple[Cpu, ...]]:
    """The offered CPUs behind each device. Names stay the same when other CPUs come and go."""
    groups: dict[str, tuple[Cpu, ...]] = {}
    for cpu in offered(cpus, options):
        name = f"cpudev{cpu.id:03d}" if options.mode == "individual" else _GROUP_NAMES[options.group_by](cpu)
        groups[name] = (*groups.get(name, ()), cpu)
    return groups


_GROUP_NAMES: Mapping[GroupBy, Callable[[Cpu], str]] = {
    "numanode": lambda cpu: f"cpudevnuma{cpu.numa_node:03d}",
    "socket": lambda cpu: f"cpudevsocket{cpu.socket:03d}",
    "l3": lambda cpu: f"cpudevcache{cpu.cache_l3:03d}",
    "core": lambda cpu: f"cpudevcore{min(cpu.threads):03d}",
    "machine": lambda cpu: "cpudevmachine",
}


def device_of(
    name: str, cpus: Sequence[Cpu], options: CpuOptions, *, has_smt: bool, pcie_roots: Mapping[str, set[int]]
) -> Device:
    """One CPU that one claim gets, or a group from which many claims take whole CPUs."""
    attributes = _common_attributes(cpus) | {f"{DRIVER}/smtEnabled": DeviceAttribute(bool_=has_smt)}
    roots = tuple(sorted(root for root, local in pcie_roots.items() if local & {cpu.id for cpu in cpus}))
    if roots:
        attributes[PCIE_ROOT] = DeviceAttribute(strings=roots)
    policy = options.accounting_policy
    if options.mode == "individual":
        mapping = NodeAllocatableResourceMapping(allocation_multiplier=Quantity.of(1), accounting_policy=policy)
        return Device(name=name, attributes=attributes, node_allocatable_resource_mappings={"cpu": mapping})
    step = max(len(cpu.threads) for cpu in cpus) if options.has_full_cores else 1
    return Device(
        name=name,
        attributes=attributes | {f"{DRIVER}/numCPUs": DeviceAttribute(int_=len(cpus))},
        capacity={CAPACITY: consumable(len(cpus), step)},
        allow_multiple_allocations=True,
        node_allocatable_resource_mappings={
            "cpu": NodeAllocatableResourceMapping(capacity_key=CAPACITY, accounting_policy=policy)
        },
    )


def consumable(value: int, step: int, format: Format = "DecimalSI") -> DeviceCapacity:
    """An amount that claims divide in steps; a claim that asks for no amount gets all of it."""
    whole, smallest = Quantity.of(value - value % step, format), Quantity.of(step, format)
    policy = CapacityRequestPolicy(
        default=whole, valid_range=CapacityRequestPolicyRange(min=smallest, max=whole, step=smallest)
    )
    # One step has no room for another above the minimum, so there is nothing to divide.
    return DeviceCapacity(value=whole, request_policy=policy if value >= 2 * step else None)


def _common_attributes(cpus: Sequence[Cpu]) -> dict[str, DeviceAttribute]:
    """What the CPUs have in common; a group has no core number or NUMA node if its CPUs differ in it."""
    numbers: Mapping[str, set[int]] = {
        f"{DRIVER}/cpuID": {cpu.id for cpu in cpus},
        f"{DRIVER}/coreID": {cpu.core for cpu in cpus} if len({cpu.threads for cpu in cpus}) == 1 else set(),
        f"{DRIVER}/cacheL3ID": {cpu.cache_l3 for cpu in cpus} - {-1},
        f"{DRIVER}/socketID": {cpu.socket for cpu in cpus},
        **{name: {cpu.numa_node for cpu in cpus} for name in (NUMA_NODE, *OLD_NUMA_NODES)},
    }
    attributes = {
        name: DeviceAttribute(int_=value) for name, values in numbers.items() if len(values) == 1 for value in values
    }
    types, isolated = {cpu.core_type for cpu in cpus}, {cpu.is_isolated for cpu in cpus}
    if len(types) == 1:
        attributes[f"{DRIVER}/coreType"] = DeviceAttribute(string=types.pop())
    if len(isolated) == 1:
        attributes[f"{DRIVER}/isolated"] = DeviceAttribute(bool_=isolated.pop())
    return attributes
