"""Features, and the answers of the allocator: `NoFit` with its reasons, and `Failure`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Protocol

from dray.api.dra.pools import DeviceID
from dray.api.reasons import Reason


class Gates(Protocol):
    def enabled(self, name: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class Features:
    """The features that the allocator may use. A feature that is off is off here only: objects may still carry its fields."""

    admin_access: bool = True
    prioritized_list: bool = True
    partitionable_devices: bool = True
    device_taints: bool = True
    consumable_capacity: bool = True
    fractional_capacity_range: bool = True
    binding_conditions: bool = True
    device_status: bool = True
    list_type_attributes: bool = True
    optional_node_operations: bool = True
    derived_attributes: bool = True
    compatibility_groups: bool = True

    @classmethod
    def from_gates(cls, gates: Gates) -> Features:
        return cls(**{name: gates.enabled(gate) for name, gate in GATE_OF_FEATURE.items()})

    @classmethod
    def from_names(cls, switched_on: Mapping[str, bool]) -> Features:
        """From camelCase names as scenarios spell them; an absent name is off."""
        return cls(*[bool(switched_on.get(name, False)) for name in CAMEL_NAMES])

    @property
    def binds_with_conditions(self) -> bool:
        return self.binding_conditions and self.device_status


GATE_OF_FEATURE: dict[str, str] = {
    "admin_access": "DRAAdminAccess",
    "prioritized_list": "DRAPrioritizedList",
    "partitionable_devices": "DRAPartitionableDevices",
    "device_taints": "DRADeviceTaints",
    "consumable_capacity": "DRAConsumableCapacity",
    "fractional_capacity_range": "DRAFractionalCapacityRange",
    "binding_conditions": "DRADeviceBindingConditions",
    "device_status": "DRAResourceClaimDeviceStatus",
    "list_type_attributes": "DRAListTypeAttributes",
    "optional_node_operations": "DRAOptionalNodeOperations",
    "derived_attributes": "DRADerivedAttributes",
    "compatibility_groups": "DRADeviceCompatibilityGroups",
}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


CAMEL_NAMES = tuple(_camel(field.name) for field in fields(Features))


Deadline = Callable[[], bool]
"""Says whether time is up; asked now and then in the middle of a search. The allocator itself knows no clock."""

ShareIDs = Callable[[], str]
"""Gives a fresh share ID each time it is called."""


@dataclass(frozen=True, slots=True)
class ChosenDevice:
    """One device of an answer; `device_id`, the request as the result spells it, and what it consumes if shared."""

    request: str
    device_id: DeviceID
    is_share: bool


@dataclass(frozen=True, slots=True)
class Miss:
    """The device that came closest: how many tests it passed, and the one it failed."""

    request: str
    device_id: DeviceID
    rule: str
    detail: str


class Explained(Protocol):
    def explain(self) -> tuple[tuple[Reason, ...], Miss | None]: ...


class NoFit:
    """The node cannot serve the claims now. Reasons are worked out only when somebody asks for them."""

    __slots__ = ("_explained", "_source", "steps")

    message = "cannot allocate all claims"

    def __init__(self, source: Explained | None = None, steps: int = 0) -> None:
        self._source = source
        self._explained: tuple[tuple[Reason, ...], Miss | None] | None = None
        self.steps = steps

    def _explain(self) -> tuple[tuple[Reason, ...], Miss | None]:
        if self._explained is None:
            self._explained = self._source.explain() if self._source is not None else ((), None)
            self._source = None
        return self._explained

    @property
    def reasons(self) -> tuple[Reason, ...]:
        return self._explain()[0]

    @property
    def nearest_miss(self) -> Miss | None:
        return self._explain()[1]

    def __str__(self) -> str:
        said = "; ".join(map(str, self.reasons))
        return f"{self.message}: {said}" if said else self.message

    def __repr__(self) -> str:
        return f"NoFit(steps={self.steps})"


INVALID_POOLS = "invalid-pools"
TIMED_OUT = "timeout"


@dataclass(frozen=True, slots=True)
class Failure:
    """Something is wrong with the claims, the classes or the pools.

    `for_this_node_only` means that other nodes may still serve; otherwise the whole attempt is over.
    """

    reason: Reason
    for_this_node_only: bool = False
    steps: int = 0

    @property
    def code(self) -> str:
        return self.reason.code

    @property
    def message(self) -> str:
        return self.reason.text

    def __str__(self) -> str:
        return self.reason.text


class FatalError(Exception):
    """Ends an attempt for all nodes; never leaves the allocator, where it becomes a `Failure`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def bits(mask: int) -> Iterable[int]:
    """Positions of the set bits, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
