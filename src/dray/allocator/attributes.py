"""Attribute values as constraints compare them, published or derived: a type with a value, or a set of such pairs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dray.allocator.device_kinds import DeviceKind
from dray.allocator.selectors import SelectorFailure, Selectors
from dray.allocator.types import FatalError
from dray.api.resource import DeviceAttribute

Value = tuple[str, Any]


class UnknownValue:
    """A value of no type that can be compared: a list while lists are off."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN = UnknownValue()


def attribute_of(kind: DeviceKind, name: str) -> DeviceAttribute | None:
    """By its full name; else by the bare name, if the domain is the driver's own."""
    attributes = kind.device.attributes
    found = attributes.get(name)
    if found is None:
        domain, _, bare = name.partition("/")
        if domain == kind.driver:
            found = attributes.get(bare)
    return found


def scalar(attribute: DeviceAttribute) -> Value | UnknownValue:
    if attribute.string is not None:
        return ("string", attribute.string)
    if attribute.int_ is not None:
        return ("int", attribute.int_)
    if attribute.bool_ is not None:
        return ("bool", attribute.bool_)
    if attribute.version is not None:
        return ("version", attribute.version)
    return UNKNOWN


def as_set(attribute: DeviceAttribute) -> frozenset[Value]:
    """A scalar is a set of one; an unknown type is empty and thus never fits."""
    lists: Iterable[tuple[str, tuple[Any, ...] | None]] = (
        ("string", attribute.strings),
        ("int", attribute.ints),
        ("bool", attribute.bools),
        ("version", attribute.versions),
    )
    for name, values in lists:
        if values is not None:
            return frozenset([(name, value) for value in values])
    value = scalar(attribute)
    return frozenset() if isinstance(value, UnknownValue) else frozenset([value])


def single(values: frozenset[Value]) -> Value | frozenset[Value] | None:
    """None for nothing, the element of a set of one, else the set."""
    if len(values) == 1:
        return next(iter(values))
    return values or None


def several(value: Any) -> frozenset[Value]:
    return value if isinstance(value, frozenset) else frozenset([value])


# --- derived attributes --------------------------------------------------------------------------------------------


def derived_attribute(
    selectors: Selectors, name: str, expression: str, kind: DeviceKind
) -> DeviceAttribute | FatalError:
    value = selectors.derived(expression, kind)
    if isinstance(value, SelectorFailure):
        return _fatal(name, value.message)
    attribute = _as_attribute(value)
    return attribute if isinstance(attribute, DeviceAttribute) else _fatal(name, attribute)


def _fatal(name: str, message: str) -> FatalError:
    return FatalError("selector-error", f"evaluate derived attribute {name} failed: {message}")


def _as_attribute(value: Any) -> DeviceAttribute | str:
    """A list is a value also while list attributes are switched off: expressions that are stored stay valid."""
    if isinstance(value, (list, tuple)):
        return _list_attribute(value)
    field = _field(value)
    if field is None:
        return f"unsupported CEL return type: {type(value).__name__}"
    return DeviceAttribute(**{field: _plain(field, value)})


def _list_attribute(values: Any) -> DeviceAttribute | str:
    if not values:
        return DeviceAttribute(strings=())
    fields = [_field(value) for value in values]
    if fields[0] is None:
        return f"unsupported CEL return type: list of {type(values[0]).__name__}"
    for i, field in enumerate(fields):
        if field != fields[0]:
            return f"expected list element at index {i} to be {fields[0].strip('_')}, got {type(values[i]).__name__}"
    plain: Any = tuple([_plain(fields[0], value) for value in values])
    return DeviceAttribute(**{fields[0].strip("_") + "s": plain})


def _field(value: Any) -> str | None:
    if isinstance(value, bool):
        return "bool_"
    if isinstance(value, int):
        return "int_"
    if isinstance(value, str):
        return "string"
    return "version" if type(value).__name__ in ("Semver", "SemVer", "Version") else None


def _plain(field: str, value: Any) -> Any:
    return str(value) if field in ("version", "string") else value
