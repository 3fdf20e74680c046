"""The real CPUs of this machine, as cores, as NUMA nodes, or as one pool; counted in the node's own cpu ledger.

A claim gets whole CPUs. Their numbers reach the container as `DRA_CPUSET_<claim uid>`, and whoever runs it pins it: Dray's own node
agent does. A real kubelet does not, since CDI has no words for CPU sets, and there is no NRI plugin for them here.
"""

import json
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from dray.api.cdi import ContainerEdits
from dray.api.cpuset import format_cpu_list, parse_cpu_list
from dray.api.quantity import Quantity
from dray.api.resource import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    NodeAllocatableResourceMapping,
)
from dray.atomic_files import write_atomically
from dray.driver.example.topology import SYSFS, Cpu, read_topology
from dray.driver.plugin import ClaimReference, ClaimToPrepare, Driver, Pool, PreparedDevice, PrepareError

log = logging.getLogger(__name__)

Mode = Literal["cores", "numa", "machine"]
CAPACITY = "cpu"


class CpuDriver(Driver):
    name = "cpu.example.com"

    def __init__(self, mode: Mode = "numa", reserved: str = "", sysfs: Path = SYSFS) -> None:
        self._mode = mode
        reserved_cpus = parse_cpu_list(reserved)
        self._cpus = tuple(cpu for cpu in read_topology(sysfs) if cpu.id not in reserved_cpus)
        self._state_file: Path | None = None
        # CPUs by claim UID: what is given out on this machine.
        self._given: dict[str, set[int]] = {}

    def restore(self, data_dir: Path) -> None:
        self._state_file = data_dir / "cpusets.json"
        self._load()

    def _load(self) -> None:
        """Again before every change: during an update two instances give out the same CPUs."""
        if self._state_file is None:
            return
        try:
            stored = json.loads(self._state_file.read_text())
            self._given = {uid: parse_cpu_list(cpus) for uid, cpus in stored.items()}
        except FileNotFoundError:
            return
        except (ValueError, AttributeError) as error:
            log.error("%s cannot be read (%s): CPUs of running claims are not known", self._state_file, error)

    # --- devices

    def pools(self, node_name: str) -> Iterable[Pool]:
        if self._mode == "cores":
            return [Pool(node_name, tuple(self._core(cpu) for cpu in self._by_core()))]
        return [Pool(node_name, tuple(self._group(name, cpus) for name, cpus in self._groups().items()))]

    def _by_core(self) -> list[Cpu]:
        """Threads of one core next to each other, so that first fit fills cores."""
        return sorted(self._cpus, key=lambda cpu: (cpu.socket, cpu.core, cpu.id))

    def _core(self, cpu: Cpu) -> Device:
        return Device(
            name=f"cpudev{self._by_core().index(cpu):03d}",
            attributes={
                "cpuID": DeviceAttribute(int_=cpu.id),
                "coreID": DeviceAttribute(int_=cpu.core),
                "socketID": DeviceAttribute(int_=cpu.socket),
                "cacheL3ID": DeviceAttribute(int_=cpu.cache_l3),
                "coreType": DeviceAttribute(string="e-core" if cpu.is_efficient else "standard"),
                "smtEnabled": DeviceAttribute(bool_=self._has_smt()),
                "resource.kubernetes.io/numaNode": DeviceAttribute(int_=cpu.numa_node),
            },
            node_allocatable_resource_mappings={
                "cpu": NodeAllocatableResourceMapping(allocation_multiplier=Quantity.parse(1))
            },
        )

    def _groups(self) -> dict[str, list[Cpu]]:
        groups: dict[str, list[Cpu]] = {}
        for cpu in self._cpus:
            name = "cpudevmachine" if self._mode == "machine" else f"cpudevnuma{cpu.numa_node:03d}"
            groups.setdefault(name, []).append(cpu)
        return groups

    def _group(self, name: str, cpus: list[Cpu]) -> Device:
        """Many claims share a group; each takes whole CPUs of it."""
        one = Quantity.parse(1)
        policy = CapacityRequestPolicy(default=one, valid_range=CapacityRequestPolicyRange(min=one, step=one))
        return Device(
            name=name,
            attributes={
                "socketID": DeviceAttribute(int_=cpus[0].socket),
                "numCPUs": DeviceAttribute(int_=len(cpus)),
                "smtEnabled": DeviceAttribute(bool_=self._has_smt()),
                "resource.kubernetes.io/numaNode": DeviceAttribute(int_=cpus[0].numa_node),
            },
            # A group of one CPU has no room for a step above the minimum, so it takes the default only.
            capacity={
                CAPACITY: DeviceCapacity(
                    value=Quantity.parse(len(cpus)), request_policy=policy if len(cpus) > 1 else None
                )
            },
            allow_multiple_allocations=True,
            node_allocatable_resource_mappings={"cpu": NodeAllocatableResourceMapping(capacity_key=CAPACITY)},
        )

    def _has_smt(self) -> bool:
        return len({(cpu.socket, cpu.core) for cpu in self._cpus}) < len(self._cpus)

    # --- claims

    def prepare(self, claim: ClaimToPrepare) -> Iterable[PreparedDevice]:
        self._load()
        given = self._given.get(claim.uid) or self._choose(claim)
        self._save({**self._given, claim.uid: given})
        # Shells drop variables whose names are no identifiers.
        variable = f"DRA_CPUSET_{claim.uid.replace('-', '_')}={format_cpu_list(given)}"
        return [PreparedDevice(device, ContainerEdits(env=(variable,))) for device in claim.devices]

    def unprepare(self, claim: ClaimReference) -> None:
        self._load()
        if claim.uid in self._given:
            self._save({uid: cpus for uid, cpus in self._given.items() if uid != claim.uid})

    def _choose(self, claim: ClaimToPrepare) -> set[int]:
        chosen: set[int] = set()
        taken = set().union(*self._given.values()) if self._given else set()
        for device in claim.devices:
            if self._mode == "cores":
                wanted = {self._by_core()[int(device.device.removeprefix("cpudev"))].id}
            else:
                amount = device.consumed_capacity.get(CAPACITY)
                count = amount.value() if amount is not None else len(self._groups()[device.device])
                wanted = self._free_of(device.device, taken | chosen, count)
            if wanted & (taken | chosen):
                raise PrepareError(
                    f"device {device.device}: CPUs {format_cpu_list(wanted & (taken | chosen))} are in use by another claim"
                )
            chosen |= wanted
        return chosen

    def _free_of(self, group: str, taken: set[int], count: int) -> set[int]:
        """Whole cores first: both threads of a core, if the core is free and both are needed."""
        cores: dict[tuple[int, int], list[int]] = {}
        for cpu in self._groups()[group]:
            if cpu.id not in taken:
                cores.setdefault((cpu.socket, cpu.core), []).append(cpu.id)
        free = [cpu for _, cpus in sorted(cores.items(), key=lambda item: (-len(item[1]), item[0])) for cpu in cpus]
        if len(free) < count:
            raise PrepareError(f"device {group}: {count} CPUs are claimed, {len(free)} are free on this machine")
        return set(free[:count])

    def _save(self, given: dict[str, set[int]]) -> None:
        if self._state_file is not None:
            content = json.dumps({uid: format_cpu_list(cpus) for uid, cpus in given.items()})
            write_atomically(self._state_file, content.encode(), mode=0o600)
        self._given = given
