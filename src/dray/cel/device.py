"""The `device` variable: built once per device, so that evaluating costs no conversion."""

from __future__ import annotations

from typing import Any

from dray.api.resource import Device, DeviceAttribute
from dray.api.semver import Semver, SemverError
from dray.cel.quantities import CelQuantity, of_quantity
from dray.cel.values import MAX_UINT, OpenMap, name_type


class CelDevice:
    """A device as expressions see it. `problem` says why no expression can be evaluated on it."""

    __slots__ = ("allow_multiple_allocations", "attributes", "capacity", "driver", "problem")

    def __init__(
        self,
        driver: str,
        attributes: dict[str, dict[str, Any]],
        capacity: dict[str, dict[str, CelQuantity]],
        allow_multiple_allocations: bool = False,
        problem: str | None = None,
    ) -> None:
        self.driver = driver
        self.attributes = OpenMap(attributes)
        self.capacity = OpenMap(capacity)
        self.allow_multiple_allocations = allow_multiple_allocations
        self.problem = problem

    @classmethod
    def of(cls, driver: str, device: Device) -> CelDevice:
        """The view of a published device."""
        attributes: dict[str, dict[str, Any]] = {}
        capacity: dict[str, dict[str, CelQuantity]] = {}
        problem = None
        for name, attribute in device.attributes.items():
            domain, id_ = split_name(name, driver)
            try:
                attributes.setdefault(domain, {})[id_] = attribute_value(attribute)
            except ValueError as reason:
                problem = problem or f"attribute {name}: {reason}"
        for name, declared in device.capacity.items():
            domain, id_ = split_name(name, driver)
            capacity.setdefault(domain, {})[id_] = of_quantity(declared.value)
        return cls(driver, attributes, capacity, bool(device.allow_multiple_allocations), problem)


name_type(CelDevice, "map")


def split_name(name: str, driver: str) -> tuple[str, str]:
    """Domain and id of an attribute or capacity; without a domain it is the driver's."""
    domain, slash, id_ = name.partition("/")
    return (domain, id_) if slash else (driver, name)


def attribute_value(attribute: DeviceAttribute) -> Any:
    """The CEL value of an attribute; lists win over scalars. Raises ValueError for what has none."""
    if attribute.ints is not None:
        return attribute.ints
    if attribute.bools is not None:
        return attribute.bools
    if attribute.strings is not None:
        return attribute.strings
    if attribute.versions is not None:
        return tuple(map(_version, attribute.versions))
    if attribute.int_ is not None:
        return attribute.int_
    if attribute.bool_ is not None:
        return attribute.bool_
    if attribute.string is not None:
        return attribute.string
    if attribute.version is not None:
        return _version(attribute.version)
    raise ValueError("unsupported attribute value")


def _version(text: str) -> Semver:
    try:
        version = Semver.parse(text)
    except SemverError as problem:
        raise ValueError(f"parse semantic version: {problem}") from None
    if max(version.major, version.minor, version.patch) > MAX_UINT:
        raise ValueError(f"parse semantic version: {text!r} has a number of more than 64 bits")
    return version
