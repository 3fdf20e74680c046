"""Published devices, as the search sees them: equal in everything but their name means one and the same kind."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any
from weakref import WeakValueDictionary

from dray.allocator.types import Features
from dray.api.resource import Device, DeviceTaint, DeviceTaintRule, ResourceSlice

BLOCKING_EFFECTS = ("NoSchedule", "NoExecute")

# How many selectors a kind remembers its answer to before it starts afresh.
MOST_ANSWERS = 512

Consumption = tuple[str, tuple[tuple[str, int], ...], tuple[str, ...]]
"""Counter set, its counters with amounts in nano-units, compatibility groups."""


class CapacityPlan:
    """The capacities that a device publishes, with the amounts that requests come to. Interned, shared by kinds."""

    __slots__ = ("__weakref__", "amounts", "is_simple")

    def __init__(self, device: Device) -> None:
        # Without policies the whole of each capacity is what a request takes that names none: always allowed.
        self.is_simple = all(one.request_policy is None and one.value.nanos >= 0 for one in device.capacity.values())
        # Capacity request to the amounts it comes to.
        self.amounts: dict[Hashable, Any] = {}


NO_CAPACITY_PLAN = CapacityPlan(Device())


class DeviceKind:
    """What selectors, rules and constraints can see of a device. Interned: equal devices share one object."""

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
        self, driver: str, device: Device, capacity: CapacityPlan, taints: tuple[DeviceTaint, ...], skips: bool
    ) -> None:
        self.driver = driver
        self.device = device
        self.capacity = capacity
        self.taints = tuple([taint for taint in taints if taint.effect in BLOCKING_EFFECTS]) if taints else ()
        self.allows_multiple = bool(device.allow_multiple_allocations)
        self.has_binding_conditions = bool(device.binding_conditions)
        self.skips_node_operations = skips
        self.consumes: tuple[Consumption, ...] = _consumption(device)
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
    if not device.consumes_counters:
        return ()
    return tuple(
        (
            drawn.counter_set,
            tuple(sorted((name, counter.value.nanos) for name, counter in drawn.counters.items())),
            drawn.compatibility_groups,
        )
        for drawn in device.consumes_counters
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
        key = (
            driver,
            frozenset(device.attributes.items()),
            frozenset(device.capacity.items()) if device.capacity else None,
            device.allow_multiple_allocations,
            tuple([(taint.key, taint.value, taint.effect) for taint in taints]) if taints else None,
            _consumption(device) if device.consumes_counters else None,
            not device.binding_conditions,
            skips,
        )
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = DeviceKind(driver, device, self._plan(device), taints, skips)
        return kind

    def _plan(self, device: Device) -> CapacityPlan:
        if not device.capacity:
            return NO_CAPACITY_PLAN
        key = frozenset(device.capacity.items())
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = CapacityPlan(device)
        return plan

    def forget_answers(self) -> None:
        for kind in self._kinds.values():
            kind.answers.clear()
        for plan in self._plans.values():
            plan.amounts.clear()

    def __len__(self) -> int:
        return len(self._kinds)


class CompiledSlice:
    """One slice with its devices' kinds, and the taints that rules add."""

    __slots__ = ("devices", "kinds", "name", "slice", "spec")

    def __init__(self, published: ResourceSlice, kinds: KindTable, rules: Iterable[DeviceTaintRule]) -> None:
        self.slice = published
        self.spec = spec = published.spec
        self.name = published.metadata.name
        # Slices with counter sets carry no devices that could be allocated.
        self.devices = () if spec.shared_counters else spec.devices
        skips = bool(spec.skip_node_operations)
        rules = [rule for rule in rules if _concerns_slice(rule, published)]
        self.kinds: list[DeviceKind] = (
            [kinds.kind_of(spec.driver, device, _taints(device, rules), skips) for device in self.devices]
            if rules
            else kinds.kinds_of(spec.driver, self.devices, skips)
        )


def taint_rule_matches(rule: DeviceTaintRule, driver: str, pool: str, device: str) -> bool:
    wanted = rule.spec.device_selector
    return wanted is None or (
        wanted.driver in (None, driver) and wanted.pool in (None, pool) and wanted.device in (None, device)
    )


def _concerns_slice(rule: DeviceTaintRule, published: ResourceSlice) -> bool:
    wanted = rule.spec.device_selector
    spec = published.spec
    return wanted is None or (wanted.driver in (None, spec.driver) and wanted.pool in (None, spec.pool.name))


def _taints(device: Device, rules: list[DeviceTaintRule]) -> tuple[DeviceTaint, ...]:
    added = []
    for rule in rules:
        wanted = rule.spec.device_selector
        if wanted is None or wanted.device in (None, device.name):
            added.append(rule.spec.taint)
    return (*device.taints, *added)


def uses_switched_off_features(published: ResourceSlice, features: Features) -> bool:
    """Whether the allocator must act as if the slice did not exist."""
    spec = published.spec
    if not features.partitionable_devices and (
        spec.per_device_node_selection is not None
        or spec.shared_counters
        or any(device.consumes_counters for device in spec.devices)
    ):
        return True
    return not features.compatibility_groups and any(
        drawn.compatibility_groups for device in spec.devices for drawn in device.consumes_counters
    )
