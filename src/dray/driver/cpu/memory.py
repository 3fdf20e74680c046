"""The memory of NUMA nodes and its huge pages: claims divide it, and containers that use a claim get memory of its nodes only.

How much memory a container gets is the node agent's matter, which counts claims together with the pod's spec.
"""

import argparse
import os
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from dray.api.cdi import ContainerEdits
from dray.api.cpuset import format_cpu_list
from dray.api.quantity import Quantity, QuantityError
from dray.api.resource import Device, DeviceAttribute, NodeAllocatableResourceMapping
from dray.driver.claim_files import ClaimRecords
from dray.driver.cpu.devices import NUMA_NODE, OLD_NUMA_NODES, consumable
from dray.driver.cpu.pinning import add_nri_option, granted, variable
from dray.driver.cpu.topology import MemoryNode, read_memory
from dray.driver.nri import NriPlugin, Resources
from dray.driver.plugin import ClaimReference, ClaimToPrepare, DeviceConfig, Driver, Pool, PreparedDevice, PrepareError
from dray.driver.sysfs import SYSFS

DRIVER = "dra.memory"
SIZE = f"{DRIVER}/size"
MEBIBYTE = 1 << 20
NODES, GRANT = "DRA_MEMSET", "DRA_MEMORY_GRANT"


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """What one device is: the ordinary memory of a NUMA node, or its huge pages of one size."""

    node: int
    size: int
    step: int
    resource: str
    page_size: int = 0
    """0 for ordinary memory."""

    @property
    def name(self) -> str:
        return f"{self.resource.lower()}numa{self.node:03d}"


class MemoryRecord(msgspec.Struct, frozen=True):
    """The NUMA nodes of a claim and its huge pages: bytes by page size."""

    namespace: str
    name: str
    nodes: tuple[int, ...]
    huge_pages: dict[int, int]
    grant: str


class MemoryDriver(Driver):
    name = DRIVER
    leaves_traces = True

    def __init__(self, reserved: int = 0, *, sysfs: Path = SYSFS, nri: Path | None = None) -> None:
        """`reserved` bytes of each NUMA node are not offered; `nri` is the socket of the container runtime, if there is one."""
        self._reserved = reserved
        self._sysfs = sysfs
        self._runtime = self._plugin(nri)
        self._parts: dict[str, MemoryPart] = {}
        self._records: ClaimRecords[MemoryRecord] | None = None

    def _plugin(self, nri: Path | None) -> NriPlugin | None:
        return None if nri is None else NriPlugin(nri, "dray-memory", self._resources_for, index="51")

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--reserved-memory", default="0", metavar="SIZE", help="memory of each NUMA node that no claim gets; 1Gi"
        )
        add_nri_option(parser)

    def configure(self, options: argparse.Namespace) -> None:
        try:
            self._reserved = Quantity.parse(options.reserved_memory).value()
        except QuantityError as error:
            raise ValueError(f"--reserved-memory {options.reserved_memory!r}: {error}") from error
        self._runtime = self._plugin(options.nri_socket)

    def restore(self, data_dir: Path) -> None:
        self._records = ClaimRecords(data_dir / "memory.json", MemoryRecord)

    # --- devices

    def pools(self, node_name: str) -> Iterable[Pool]:
        parts = (part for node in read_memory(self._sysfs) for part in parts_of(node, self._reserved))
        self._parts = {part.name: part for part in parts}
        return [Pool(node_name, tuple(map(device_of, self._parts.values())))]

    # --- claims

    def check_config(self, config: DeviceConfig) -> None:
        raise PrepareError("opaque parameters: this driver has none")

    def prepare(self, claim: ClaimToPrepare) -> Iterable[PreparedDevice]:
        records = self._claims()
        records.reload()
        record = records.get(claim.uid) or self._record(claim)
        records.put(claim.uid, record)
        nodes = variable(NODES, claim.uid, format_cpu_list(record.nodes))
        edits = ContainerEdits(env=(nodes, variable(GRANT, claim.uid, record.grant)))
        return [PreparedDevice(device, edits) for device in claim.devices]

    def unprepare(self, claim: ClaimReference) -> None:
        records = self._claims()
        records.reload()
        records.remove(claim.uid)

    async def watch(self, republish: Callable[[], None]) -> None:
        if self._runtime is not None:
            await self._runtime.run()

    def _resources_for(self, environment: Mapping[str, str]) -> Resources:
        """What the runtime is told for a container; nothing for one without a claim."""
        nodes: set[int] = set()
        limits: dict[int, int] = {}
        for record in granted(self._claims().records(), environment, GRANT):
            nodes.update(record.nodes)
            for page_size, size in record.huge_pages.items():
                limits[page_size] = limits.get(page_size, 0) + size
        pages = [{"page_size": _kernel_page_size(size), "limit": limit} for size, limit in sorted(limits.items())]
        return Resources(cpu={"mems": format_cpu_list(nodes)} if nodes else None, hugepage_limits=pages)

    def _claims(self) -> ClaimRecords[MemoryRecord]:
        assert self._records is not None, "restore comes first"
        return self._records

    def _record(self, claim: ClaimToPrepare) -> MemoryRecord:
        nodes: set[int] = set()
        huge_pages: dict[int, int] = {}
        for device in claim.devices:
            part = self._parts.get(device.device)
            if part is None:
                raise PrepareError(f"device {device.device}: its memory is not on this machine any more")
            if device.config:
                raise PrepareError("opaque parameters: this driver has none")
            if device.admin_access:
                continue
            nodes.add(part.node)
            size = device.consumed_capacity.get(SIZE, Quantity.of(part.size)).value()
            if part.page_size:
                huge_pages[part.page_size] = huge_pages.get(part.page_size, 0) + size
        reference = claim.reference
        return MemoryRecord(
            reference.namespace, reference.name, tuple(sorted(nodes)), huge_pages, secrets.token_hex(16)
        )


def parts_of(node: MemoryNode, reserved: int) -> Iterable[MemoryPart]:
    """The devices of a NUMA node, those without a whole step left out."""
    ordinary = (node.ordinary - reserved) // MEBIBYTE * MEBIBYTE
    if ordinary > 0:
        yield MemoryPart(node.id, ordinary, MEBIBYTE, "memory")
    for pages in node.huge_pages:
        resource = f"hugepages-{Quantity.of(pages.size, 'BinarySI')}"
        yield MemoryPart(node.id, pages.size * pages.count, pages.size, resource, pages.size)


def device_of(part: MemoryPart) -> Device:
    attributes: Mapping[str, DeviceAttribute] = {
        **{name: DeviceAttribute(int_=part.node) for name in (NUMA_NODE, *OLD_NUMA_NODES)},
        f"{DRIVER}/hugeTLB": DeviceAttribute(bool_=part.page_size > 0),
        f"{DRIVER}/pageSize": DeviceAttribute(string=_page_size(part.page_size or os.sysconf("SC_PAGE_SIZE"))),
    }
    return Device(
        name=part.name,
        attributes=dict(attributes),
        capacity={SIZE: consumable(part.size, part.step, "BinarySI")},
        allow_multiple_allocations=True,
        node_allocatable_resource_mappings={part.resource: NodeAllocatableResourceMapping(capacity_key=SIZE)},
    )


def _page_size(size: int) -> str:
    """`4k`, `2m`, `1g`."""
    return str(Quantity.of(size, "BinarySI")).removesuffix("i").lower()


def _kernel_page_size(size: int) -> str:
    """As the kernel names its files: `2MB`, `1GB`."""
    return f"{Quantity.of(size, 'BinarySI')}".removesuffix("i") + "B"
