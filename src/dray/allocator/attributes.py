"""Attribute values as constraints compare them: a type with a value, or a set of such pairs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dray.allocator.devices import DeviceKind
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
