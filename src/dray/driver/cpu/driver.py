"""The driver: publishes CPUs, gives whole ones to claims, and keeps all other containers off them.

Dray's node agent places local processes by the variable DRA_CPUSET_<claim>. Containers of a container runtime are placed over
NRI: containers show a grant, and the driver answers with the CPUs that its records have for it.
"""

import argparse
import asyncio
import logging
import secrets
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import get_args

from dray.api.cdi import ContainerEdits
from dray.api.cpuset import format_cpu_list, parse_cpu_list
from dray.driver.claim_files import ClaimRecords
from dray.driver.cpu.choice import choose_cpus
from dray.driver.cpu.claim_records import CpuRecord, cpus_of
from dray.driver.cpu.devices import CAPACITY, DRIVER, CpuOptions, GroupBy, Mode, device_of, groups_of
from dray.driver.cpu.parameters import read_parameters, wanted_cpus
from dray.driver.cpu.pinning import add_nri_option, granted, variable
from dray.driver.cpu.topology import Cpu, read_cpus, read_pcie_roots
from dray.driver.nri import NriPlugin, Resources, RuntimeUnreachable
from dray.driver.plugin import (
    AllocatedDevice,
    ClaimReference,
    ClaimToPrepare,
    DeviceConfig,
    DeviceHealth,
    Driver,
    Pool,
    PreparedDevice,
    PrepareError,
)
from dray.driver.sysfs import SYSFS

log = logging.getLogger(__name__)

LOOK_AT_CPUS_EVERY_S = 10.0
CPUS, GRANT = "DRA_CPUSET", "DRA_CPU_GRANT"
POLICIES = ("AddPerClaim", "AddPerReference", "ConsumeFrom", "Max")


class CpuDriver(Driver):
    name = DRIVER
    leaves_traces = True

    def __init__(self, options: CpuOptions | None = None, *, sysfs: Path = SYSFS, nri: Path | None = None) -> None:
        """`nri` is the socket of the container runtime, if there is one."""
        self._options = options or CpuOptions()
        self._sysfs = sysfs
        self._runtime = self._plugin(nri)
        self._cpus: tuple[Cpu, ...] = ()
        # A driver that shares its process with a cluster does not look again: there may be thousands of it.
        self._look_every_s: float | None = None
        self._records: ClaimRecords[CpuRecord] | None = None

    def _plugin(self, nri: Path | None) -> NriPlugin | None:
        return None if nri is None else NriPlugin(nri, "dray-cpu", self._resources_for)

    # --- start

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--cpu-device-mode",
            choices=get_args(Mode),
            default="grouped",
            help="a device for each group of CPUs, or for each CPU",
        )
        parser.add_argument("--group-by", choices=get_args(GroupBy), default="numanode", help="what makes a group")
        parser.add_argument(
            "--reserved-cpus", default="", metavar="LIST", help="CPUs that no claim gets, such as 0-1; default: none"
        )
        parser.add_argument(
            "--full-cores", action="store_true", help="claims get whole cores, with all their threads; for groups"
        )
        parser.add_argument(
            "--accounting-policy",
            choices=POLICIES,
            help="how claims and the requests of containers add up in the node's cpu; default: as the class says",
        )
        parser.add_argument(
            "--expose-pcie-roots", action="store_true", help="publish the PCI roots that are close to the CPUs"
        )
        add_nri_option(parser)

    def configure(self, options: argparse.Namespace) -> None:
        if options.full_cores and options.cpu_device_mode == "individual":
            raise ValueError("--full-cores is for groups; with single CPUs use --group-by core instead")
        try:
            reserved = frozenset(parse_cpu_list(options.reserved_cpus))
        except ValueError:
            raise ValueError(f"--reserved-cpus {options.reserved_cpus!r}: must be a list such as 0-1,4") from None
        self._options = CpuOptions(
            mode=options.cpu_device_mode,
            group_by=options.group_by,
            reserved=reserved,
            has_full_cores=options.full_cores,
            accounting_policy=options.accounting_policy,
            exposes_pcie_roots=options.expose_pcie_roots,
        )
        self._look_every_s = LOOK_AT_CPUS_EVERY_S
        self._runtime = self._plugin(options.nri_socket)

    def restore(self, data_dir: Path) -> None:
        self._records = ClaimRecords(data_dir / "cpus.json", CpuRecord)

    # --- devices

    def pools(self, node_name: str) -> Iterable[Pool]:
        self._cpus = read_cpus(self._sysfs)
        roots = read_pcie_roots(self._sysfs) if self._options.exposes_pcie_roots else {}
        has_smt = any(len(cpu.threads) > 1 for cpu in self._cpus)
        devices = (
            device_of(name, cpus, self._options, has_smt=has_smt, pcie_roots=roots)
            for name, cpus in self._groups().items()
        )
        return [Pool(node_name, tuple(devices))]

    def _groups(self) -> Mapping[str, tuple[Cpu, ...]]:
        return groups_of(self._cpus, self._options)

    async def watch(self, republish: Callable[[], None]) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._look_for_cpus(republish))
            if self._runtime is not None:
                tasks.create_task(self._runtime.run())

    async def _look_for_cpus(self, republish: Callable[[], None]) -> None:
        """CPUs are turned on and off while the machine runs."""
        while self._look_every_s is not None:
            await asyncio.sleep(self._look_every_s)
            found = await asyncio.to_thread(read_cpus, self._sysfs)
            if found != self._cpus:
                self._cpus = found
                republish()
                await self._tell_runtime()

    def health(self) -> Iterable[DeviceHealth]:
        online = {cpu.id for cpu in self._cpus}
        lost: dict[str, set[int]] = {}
        for record in self._claims().records():
            for device, cpus in record.cpus_by_device.items():
                lost.setdefault(device, set()).update(parse_cpu_list(cpus) - online)
        return [
            _health(pool.name, name, lost.get(name, set()))
            for pool in self.published_pools
            for name in {*(device.name for device in pool.devices), *lost}
        ]

    # --- claims

    def check_config(self, config: DeviceConfig) -> None:
        read_parameters(config)

    async def prepare(self, claim: ClaimToPrepare) -> Iterable[PreparedDevice]:
        """When it returns, the CPUs are the claim's own: all other containers have left them."""
        records = self._claims()
        records.reload()
        record = records.get(claim.uid) or self._choose(claim)
        self._refuse_last_cpus(record)
        records.put(claim.uid, record)
        if self._runtime is not None:
            try:
                await self._runtime.apply()
            except RuntimeUnreachable as error:
                raise PrepareError(f"other containers cannot be kept off CPUs {record.cpu_list}: {error}") from error
        edits = ContainerEdits(
            env=(variable(CPUS, claim.uid, record.cpu_list), variable(GRANT, claim.uid, record.grant))
        )
        return [PreparedDevice(device, edits) for device in claim.devices]

    async def unprepare(self, claim: ClaimReference) -> None:
        records = self._claims()
        records.reload()
        records.remove(claim.uid)
        await self._tell_runtime()

    async def _tell_runtime(self) -> None:
        """A runtime that is not there now gets to know when it connects."""
        if self._runtime is not None:
            try:
                await self._runtime.apply()
            except RuntimeUnreachable as error:
                log.warning("%s", error)

    # --- containers

    def _resources_for(self, environment: Mapping[str, str]) -> Resources:
        """What the runtime is told for a container: the CPUs of its claims, or those that no claim has."""
        records = granted(self._claims().records(), environment, GRANT)
        cpus = cpus_of(records) & {cpu.id for cpu in self._cpus} or self._shared()
        return Resources(cpu={"cpus": format_cpu_list(cpus)})

    def _shared(self) -> set[int]:
        """The CPUs of containers without claims; isolated ones are not for them."""
        return {cpu.id for cpu in self._cpus if not cpu.is_isolated} - cpus_of(self._claims().records())

    def _refuse_last_cpus(self, record: CpuRecord) -> None:
        if self._runtime is not None and not self._shared() - record.cpus:
            raise PrepareError(
                f"CPUs {record.cpu_list} are the last ones: no CPU would remain for containers without a claim; "
                "start the driver with --reserved-cpus"
            )

    def _claims(self) -> ClaimRecords[CpuRecord]:
        assert self._records is not None, "restore comes first"
        return self._records

    def _choose(self, claim: ClaimToPrepare) -> CpuRecord:
        groups = self._groups()
        taken = cpus_of(self._claims().records())
        chosen: dict[str, set[int]] = {}
        for device in claim.devices:
            cpus = self._cpus_for(device, groups, taken)
            taken |= cpus
            chosen.setdefault(device.device, set()).update(cpus)
        return CpuRecord(
            namespace=claim.reference.namespace,
            name=claim.reference.name,
            cpus_by_device={device: format_cpu_list(cpus) for device, cpus in chosen.items()},
            grant=secrets.token_hex(16),
        )

    def _cpus_for(self, device: AllocatedDevice, groups: Mapping[str, tuple[Cpu, ...]], taken: set[int]) -> set[int]:
        if device.admin_access:
            return set()
        group = groups.get(device.device)
        if group is None:
            raise PrepareError(f"device {device.device}: its CPUs are offline or reserved now")
        count = _amount(device, len(group))
        wanted = wanted_cpus(device.config)
        if wanted is not None:
            return _checked_choice(device.device, wanted, {cpu.id for cpu in group}, taken, count)
        chosen = choose_cpus(group, taken, count)
        if chosen is None:
            free = sum(cpu.id not in taken for cpu in group)
            raise PrepareError(f"device {device.device}: {count} CPUs are claimed, {free} are free on this machine")
        return chosen


def _checked_choice(device: str, wanted: set[int], group: set[int], taken: set[int], count: int) -> set[int]:
    """The CPUs that a claim names itself, if they are as many as it was given, in the group, and free."""
    problems = [
        f"CPUs {format_cpu_list(cpus)} are {what}"
        for cpus, what in ((wanted - group, "not offered there"), (wanted & taken, "in use by another claim"))
        if cpus
    ]
    if len(wanted) != count:
        problems.append(f"the claim has {count} CPUs")
    if problems:
        text = format_cpu_list(wanted)
        raise PrepareError(f"opaque parameters: cpuConfig.cpuset {text!r} of device {device}: {', '.join(problems)}")
    return wanted


def _amount(device: AllocatedDevice, otherwise: int) -> int:
    """Whole CPUs: a part of one counts as one."""
    amount = device.consumed_capacity.get(CAPACITY)
    return amount.value() if amount is not None else otherwise


def _health(pool: str, device: str, lost: set[int]) -> DeviceHealth:
    if lost:
        return DeviceHealth(pool, device, "Unhealthy", f"CPUs {format_cpu_list(lost)} of a claim are offline")
    return DeviceHealth(pool, device, "Healthy")
