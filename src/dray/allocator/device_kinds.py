"""Kinds of devices and shapes of pools: what selectors and rules can see, shared by all devices and pools that are alike.

Devices that are equal in everything but their name have one `DeviceKind`. Pools whose devices have equal kinds in equal
order have one `Shape`. The allocator computes an answer once per kind or shape and uses it for all of them.

A column is one property of all devices of a shape, in their order. Columns are interned: shapes that agree in
what a claim looks at are recognised by comparing a few objects.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any
from weakref import WeakValueDictionary

from dray.api.dra.consumption import either_or_capacities
from dray.api.dra.taints import HARD_EFFECTS
from dray.api.resource import Device, DeviceTaint

# How many selectors a kind remembers its answer to before it starts afresh.
MOST_ANSWERS = 512

Consumption = tuple[str, tuple[tuple[str, int], ...], tuple[str, ...]]
"""Counter set, its counters with amounts in nano-units, compatibility groups."""


class CapacityPlan:
    """The capacities that a device publishes, with the amounts that requests come to. Interned, shared by kinds."""

    __slots__ = ("__weakref__", "amounts", "either_or", "is_simple")

    def __init__(self, device: Device) -> None:
        # Without policies the whole of each capacity is what a request takes that names none: always allowed.
        self.either_or = either_or_capacities(device)
        self.is_simple = all(one.request_policy is None and one.value.nanos >= 0 for one in device.capacity.values())
        # Capacity request to the amounts it comes to.
        self.amounts: dict[Hashable, Any] = {}


NO_CAPACITY_PLAN = CapacityPlan(Device())


class DeviceKind:
    """The properties of a device that selectors, rules and constraints can read. Interned: equal devices share one object."""

    __slots__ = (
        "__weakref__",
        "_base",
        "allows_multiple",
        "answers",
        "capacity",
        "cel_device",
        "consumes",
        "device",
        "driver",
        "has_binding_conditions",
        "skips_node_operations",
        "taints",
    )

    def __init__(
        self,
        driver: str,
        device: Device,
        capacity: CapacityPlan,
        consumes: tuple[Consumption, ...],
        taints: tuple[DeviceTaint, ...],
        skips: bool,
    ) -> None:
        self.driver = driver
        self.device = device
        self.capacity = capacity
        self.taints = tuple([taint for taint in taints if taint.effect in HARD_EFFECTS]) if taints else ()
        self.allows_multiple = bool(device.allow_multiple_allocations)
        self.has_binding_conditions = bool(device.binding_conditions)
        self.skips_node_operations = skips
        self.consumes = consumes
        self._base: Hashable = None
        self.cel_device: Any = None
        # Selector to True, False or the error it ends in; filled when first asked.
        self.answers: dict[Hashable, Any] = {}

    @property
    def base(self) -> Hashable:
        """Everything but attributes, as something to compare by."""
        if self._base is None:
            self._base = (
                self.driver,
                self.allows_multiple,
                self.capacity,
                tuple([(taint.key, taint.value, taint.effect) for taint in self.taints]),
                self.has_binding_conditions,
                self.skips_node_operations,
                self.consumes,
            )
        return self._base

    def remember(self, memory: dict[Hashable, Any], key: Hashable, value: Any) -> Any:
        if len(memory) >= MOST_ANSWERS:
            memory.clear()
        memory[key] = value
        return value


def _consumption(device: Device) -> tuple[Consumption, ...]:
    return tuple(
        [
            (
                drawn.counter_set,
                tuple(sorted([(name, counter.value.nanos) for name, counter in drawn.counters.items()])),
                drawn.compatibility_groups,
            )
            for drawn in device.consumes_counters
        ]
    )


class KindList(list[DeviceKind]):
    """The kinds of a list of devices, for every slice that has this very list. Keeps the devices, and so their identity."""

    __slots__ = ("__weakref__", "devices")

    def __init__(self, devices: tuple[Device, ...], kinds: Iterable[DeviceKind]) -> None:
        super().__init__(kinds)
        self.devices = devices


class KindTable:
    """Finds the kind of a device. Kinds nobody publishes any more vanish by themselves."""

    def __init__(self) -> None:
        self._kinds: WeakValueDictionary[Hashable, DeviceKind] = WeakValueDictionary()
        self._lists: WeakValueDictionary[Hashable, KindList] = WeakValueDictionary()
        self._plans: WeakValueDictionary[Hashable, CapacityPlan] = WeakValueDictionary()

    def kinds_of(self, driver: str, devices: tuple[Device, ...], skips: bool) -> KindList:
        """The kinds of devices that no rule taints. Slices of equal nodes share their list, and it is compiled once."""
        key = (driver, id(devices), skips)
        kinds = self._lists.get(key)
        if kinds is None:
            kinds = KindList(devices, [self.kind_of(driver, each, each.taints, skips) for each in devices])
            self._lists[key] = kinds
        return kinds

    def kind_of(self, driver: str, device: Device, taints: tuple[DeviceTaint, ...], skips: bool) -> DeviceKind:
        consumes = _consumption(device) if device.consumes_counters else ()
        key = (
            driver,
            frozenset(device.attributes.items()),
            frozenset(device.capacity.items()) if device.capacity else None,
            device.allow_multiple_allocations,
            tuple([(taint.key, taint.value, taint.effect) for taint in taints]) if taints else None,
            consumes,
            not device.binding_conditions,
            skips,
        )
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = DeviceKind(driver, device, self._plan(device), consumes, taints, skips)
        return kind

    def _plan(self, device: Device) -> CapacityPlan:
        if not device.capacity:
            return NO_CAPACITY_PLAN
        key = frozenset(device.capacity.items())
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = CapacityPlan(device)
        return plan

    def publishes(self, what: str, domain: str, name: str) -> bool:
        """Whether any device has the attribute or capacity; without a name, whether any has one of that domain."""
        for kind in list(self._kinds.values()):
            published = kind.device.attributes if what == "attributes" else kind.device.capacity
            for each in published:
                prefix, _, rest = each.rpartition("/")
                if (prefix or kind.driver) == domain and name in ("", rest):
                    return True
        return False

    def forget_answers(self) -> None:
        for kind in self._kinds.values():
            kind.answers.clear()
        for plan in self._plans.values():
            plan.amounts.clear()

    def __len__(self) -> int:
        return len(self._kinds)


class KindColumn:
    """Values of one property, device by device."""

    __slots__ = ("__weakref__", "_pattern", "values")

    def __init__(self, values: tuple[Hashable, ...]) -> None:
        self.values = values
        self._pattern: tuple[int, ...] | None = None

    @property
    def pattern(self) -> tuple[int, ...]:
        """Which values are equal to which, whatever they are."""
        if self._pattern is None:
            self._pattern = pattern_of(self.values)
        return self._pattern


def pattern_of(values: tuple[Hashable, ...]) -> tuple[int, ...]:
    """Each value by the number of its first appearance; None stays apart."""
    numbers: dict[Hashable, int] = {None: -1}
    return tuple([numbers.setdefault(value, len(numbers)) for value in values])


class Shape:
    """InterchangeableDevices of devices in search order, with masks of those that need attention. Bit i stands for device i."""

    __slots__ = (
        "__weakref__",
        "_base",
        "_columns",
        "_table",
        "allows_multiple",
        "binding",
        "consumes",
        "every",
        "grouped",
        "is_plain",
        "kinds",
        "skipping",
        "tainted",
    )

    def __init__(self, kinds: tuple[DeviceKind, ...], table: ShapeTable) -> None:
        self.kinds = kinds
        self._table = table
        self._columns: dict[Hashable, KindColumn] = {}
        self._base: KindColumn | None = None
        self.every = (1 << len(kinds)) - 1
        self.allows_multiple = self.binding = self.consumes = self.skipping = self.tainted = 0
        self.grouped = has_either_or = False
        for position, kind in enumerate(kinds):
            bit = 1 << position
            if kind.allows_multiple:
                self.allows_multiple |= bit
            has_either_or = has_either_or or bool(kind.capacity.either_or)
            if kind.has_binding_conditions:
                self.binding |= bit
            if kind.taints:
                self.tainted |= bit
            if kind.skips_node_operations:
                self.skipping |= bit
            if kind.consumes:
                self.consumes |= bit
                self.grouped = self.grouped or any(groups for _, _, groups in kind.consumes)
        self.is_plain = not (self.binding | self.consumes | self.skipping | self.tainted | has_either_or)

    @property
    def base(self) -> KindColumn:
        """Everything but attributes and names."""
        if self._base is None:
            self._base = self._table.column(tuple([kind.base for kind in self.kinds]))
        return self._base

    def column(self, key: Hashable, value_of: Callable[[DeviceKind], Hashable]) -> KindColumn:
        """The property named by `key`, worked out once."""
        column = self._columns.get(key)
        if column is None:
            column = self._table.column(tuple([value_of(kind) for kind in self.kinds]))
            self._columns[key] = column
        return column

    def joined_column(self, key: Hashable, columns: tuple[KindColumn, ...]) -> KindColumn:
        column = self._columns[key] = self._table.column(columns)
        return column

    def known_column(self, key: Hashable) -> KindColumn | None:
        return self._columns.get(key)


class ShapeTable:
    def __init__(self) -> None:
        self._shapes: WeakValueDictionary[Hashable, Shape] = WeakValueDictionary()
        self._columns: WeakValueDictionary[Hashable, KindColumn] = WeakValueDictionary()

    def shape_of(self, kinds: tuple[DeviceKind, ...]) -> Shape:
        # Kinds are interned and the shape keeps them alive, so identity is equality here.
        shape = self._shapes.get(kinds)
        if shape is None:
            shape = self._shapes[kinds] = Shape(kinds, self)
        return shape

    def column(self, values: tuple[Hashable, ...]) -> KindColumn:
        column = self._columns.get(values)
        if column is None:
            column = self._columns[values] = KindColumn(values)
        return column

    def __len__(self) -> int:
        return len(self._shapes)
