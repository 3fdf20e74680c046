"""The memory of NUMA nodes and its huge pages: claims divide it, and containers that use a claim get memory of its nodes only."""

import argparse
import os
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from dray.api.cdi import ContainerEdits
from dray.api.cpuset import format_cpu_list
from dray.api.quantity import Quantity, QuantityError
from dray.api.resource import Device, DeviceAttribute, NodeAllocatableResourceMapping
from dray.driver.claim_files import ClaimRecords
from dray.driver.cpu.devices import NUMA_NODE, OLD_NUMA_NODES, consumable
from dray.driver.cpu.topology import SYSFS, MemoryNode, read_memory
from dray.driver.plugin import ClaimReference, ClaimToPrepare, Driver, Pool, PreparedDevice, PrepareError

DRIVER = "dra.memory"
SIZE = f"{DRIVER}/size"
MEBIBYTE = 1 << 20


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

    def __init__(self, reserved: int = 0, *, sysfs: Path = SYSFS) -> None:
        """`reserved` bytes of each NUMA node are not offered."""
        self._reserved = reserved
        self._sysfs = sysfs
        self._parts: dict[str, MemoryPart] = {}
        self._records: ClaimRecords[MemoryRecord] | None = None

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--reserved-memory", default="0", metavar="SIZE", help="memory of each NUMA node that no claim gets; 1Gi"
        )

    def configure(self, options: argparse.Namespace) -> None:
        try:
            self._reserved = Quantity.parse(options.reserved_memory).value()
        except QuantityError as error:
            raise ValueError(f"--reserved-memory {options.reserved_memory!r}: {error}") from error

    def restore(self, data_dir: Path) -> None:
        self._records = ClaimRecords(data_dir / "memory.json", MemoryRecord)

    # --- devices

    def pools(self, node_name: str) -> Iterable[Pool]:
        parts = (part for node in read_memory(self._sysfs) for part in parts_of(node, self._reserved))
        self._parts = {part.name: part for part in parts}
        return [Pool(node_name, tuple(map(device_of, self._parts.values())))]

    # --- claims

    def prepare(self, claim: ClaimToPrepare) -> Iterable[PreparedDevice]:
        records = self._claims()
        records.reload()
        record = records.get(claim.uid) or self._record(claim)
        records.put(claim.uid, record)
        edits = ContainerEdits(env=_environment(claim.uid, record))
        return [PreparedDevice(device, edits) for device in claim.devices]

    def unprepare(self, claim: ClaimReference) -> None:
        records = self._claims()
        records.reload()
        records.remove(claim.uid)

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


def _environment(claim_uid: str, record: MemoryRecord) -> tuple[str, ...]:
    key = claim_uid.replace("-", "_")
    return f"DRA_MEMSET_{key}={format_cpu_list(record.nodes)}", f"DRA_MEMORY_GRANT_{key}={record.grant}"
