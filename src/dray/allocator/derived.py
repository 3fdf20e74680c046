"""Derived attributes: what a request's expression makes of a device, as an attribute that constraints compare."""

from __future__ import annotations

from typing import Any

from dray.allocator.devices import DeviceKind
from dray.allocator.selectors import SelectorFailure, Selectors
from dray.allocator.types import FatalError
from dray.api.resource import DeviceAttribute


def derived_attribute(
    selectors: Selectors, name: str, expression: str, kind: DeviceKind, lists: bool
) -> DeviceAttribute | FatalError:
    value = selectors.derived(expression, kind)
    if isinstance(value, SelectorFailure):
        return _fatal(name, value.message)
    attribute = _as_attribute(value, lists)
    return attribute if isinstance(attribute, DeviceAttribute) else _fatal(name, attribute)


def _fatal(name: str, message: str) -> FatalError:
    return FatalError("derived-attribute", f"evaluate derived attribute {name} failed: {message}")


def _as_attribute(value: Any, lists: bool) -> DeviceAttribute | str:
    if isinstance(value, (list, tuple)) and lists:
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
