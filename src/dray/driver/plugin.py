"""The protocol a driver implements, and the values it gives and gets."""

import argparse
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import msgspec

from dray.api.cdi import ContainerEdits
from dray.api.core import NodeSelector
from dray.api.quantity import Quantity
from dray.api.resource import AllocatedDeviceStatus, CounterSet, Device, ResourceClaim
from dray.telemetry import Registry

T = TypeVar("T")
Health = Literal["Healthy", "Unhealthy", "Unknown"]


class PrepareError(Exception):
    """Raised by `prepare` or `unprepare`: this claim cannot be served now; the kubelet shows the text and tries again."""


def wrong_parameter(field: str, value: object, why: str) -> PrepareError:
    """For opaque parameters that a driver cannot follow."""
    return PrepareError(f"opaque parameters: {field} {value!r}: {why}")


@dataclass(frozen=True, slots=True)
class PoolSlice:
    """One published slice: devices, or the counter sets that devices of the pool draw from."""

    devices: tuple[Device, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()
    per_device_node_selection: bool = False
    partition_type_attribute: str | None = None
    skip_node_operations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Pool:
    """Devices that are published together. Without a selector the pool belongs to the driver's own node.

    `devices` and `shared_counters` are split into slices of the allowed size; a driver that wants to decide this itself sets `slices` instead.
    """

    name: str
    devices: tuple[Device, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()
    slices: tuple[PoolSlice, ...] = ()
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    generation: int = 0


@dataclass(frozen=True, slots=True)
class ClaimReference:
    """All that is known of a claim when it is given back: the object itself may be gone."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class DeviceConfig:
    """Opaque parameters for a device. `source` says who wrote them: an admin in the class, or a user in the claim.

    A driver must not take from a claim what only an admin may decide.
    """

    source: Literal["FromClass", "FromClaim"]
    parameters: Mapping[str, Any]

    @property
    def is_from_class(self) -> bool:
        return self.source == "FromClass"

    def read(self, shape: type[T]) -> T:
        """The parameters as a msgspec struct; PrepareError names the field that does not fit."""
        try:
            return msgspec.convert(self.parameters, shape)
        except msgspec.ValidationError as error:
            raise PrepareError(f"opaque parameters: {error}") from error


@dataclass(frozen=True, slots=True)
class AllocatedDevice:
    """One device of this driver that the claim was given."""

    request: str
    pool: str
    device: str
    share_id: str | None = None
    consumed_capacity: Mapping[str, Quantity] = field(default_factory=dict)
    capacity_limits: Mapping[str, Quantity] = field(default_factory=dict)
    """How far the claim may go beyond what it consumes; it is up to the driver to let it, and to stop it there."""
    admin_access: bool = False
    config: tuple[DeviceConfig, ...] = ()
    """Opaque parameters that apply to this device, in the order of the allocation: class before claim; later ones win."""

    @property
    def base_request(self) -> str:
        """The request's own name, without the chosen alternative."""
        return self.request.partition("/")[0]


@dataclass(frozen=True, slots=True)
class ClaimToPrepare:
    """An allocated claim, with the devices of this driver only."""

    reference: ClaimReference
    devices: tuple[AllocatedDevice, ...]
    claim: ResourceClaim

    @property
    def uid(self) -> str:
        return self.reference.uid

    @property
    def pods(self) -> tuple[str, ...]:
        """Names of the pods that use the claim now."""
        return tuple(user.name for user in self.claim.status.reserved_for if user.resource == "pods")


@dataclass(frozen=True, slots=True)
class PreparedDevice:
    """The answer for one device: what a container that uses it gets.

    `edits` go into a CDI file that the kit writes; a driver that keeps CDI files of its own names devices of them in
    `cdi_device_ids`.
    """

    device: AllocatedDevice
    edits: ContainerEdits = ContainerEdits()
    cdi_device_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceHealth:
    """How a device is now; valid for `timeout_s`, after which it counts as unknown."""

    pool: str
    device: str
    health: Health = "Unknown"
    message: str = ""
    timeout_s: int = 0

    def __post_init__(self) -> None:
        if self.health not in get_args(Health):
            raise ValueError(
                f"health {self.health!r} of device {self.pool}/{self.device}: must be {', '.join(get_args(Health))}"
            )


ReportStatus = Callable[[ClaimReference, Sequence[AllocatedDeviceStatus]], None]


class Driver(ABC):
    """Subclass this. `prepare`, `unprepare` and `health` may be plain or async; plain ones run in a thread."""

    name: str = ""
    """The driver's name: a DNS subdomain of at most 63 characters, such as `gpu.example.com`."""

    published_pools: tuple[Pool, ...] = ()
    """What `pools` answered last; set by the kit."""

    report_status: ReportStatus = staticmethod(lambda claim, devices: None)
    """Tells the API what became of a claim's devices, in `status.devices` of the claim: conditions, data, network data.

    Set by the kit before `restore`. It may be called at any time and from any thread, and returns at once: the kit fills in
    the driver's name, writes in the background, and tries again. A report replaces the one before; an empty one removes it.
    """

    leaves_traces: bool = False
    """Whether `prepare` starts or changes something that outlives the driver's process.

    The kit then writes a claim down before it calls `prepare`. After a crash in the middle, the next life of the driver
    calls `unprepare` for the claim, unless the claim still exists: then the kubelet asks again.
    """

    def add_options(self, parser: argparse.ArgumentParser) -> None:  # noqa: B027
        """Adds options of this driver's own to its command line."""

    def configure(self, options: argparse.Namespace) -> None:  # noqa: B027
        """Reads the options before anything else happens; ValueError tells the user what is wrong with them."""

    def restore(self, data_dir: Path) -> None:  # noqa: B027
        """Called before anything else: where the driver may keep files, and a chance to read those of an earlier life."""

    @abstractmethod
    def pools(self, node_name: str) -> Iterable[Pool]:
        """The devices this driver offers on a node."""

    def check_config(self, config: DeviceConfig) -> None:  # noqa: B027
        """Raise PrepareError if these parameters make no sense. A webhook asks when they are written; `prepare` checks them again."""

    def prepare(self, claim: ClaimToPrepare) -> Iterable[PreparedDevice] | Awaitable[Iterable[PreparedDevice]]:
        """Make the devices usable. May be called again for the same claim and must then answer the same."""
        return [PreparedDevice(device) for device in claim.devices]

    def unprepare(self, claim: ClaimReference) -> Awaitable[None] | None:
        """Undo `prepare`. A claim that is not known is fine."""
        return None

    def health(self) -> Iterable[DeviceHealth] | Awaitable[Iterable[DeviceHealth]] | None:
        """The health of devices, asked for every few seconds; None says that this driver does not report health."""
        return None

    async def watch(self, republish: Callable[[], None]) -> None:  # noqa: B027
        """Runs beside the calls for as long as the driver serves; calls `republish` when the devices changed.

        When it raises, the kit logs the error and calls it again after a while.
        """

    def add_metrics(self, registry: Registry) -> None:  # noqa: B027
        """Adds metrics of this driver's own to those that the kit serves."""
