"""Functions that generated code calls: selections, loops, and calls that turn a raised CelError into an error value."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from dray.cel.device import CelDevice
from dray.cel.errors import CelError
from dray.cel.library.operators import index, list_index, shown_key
from dray.cel.values import (
    MISSING,
    NONE,
    OpenMap,
    Optional,
    StructValue,
    find_key,
    from_key,
    is_list,
    is_map,
    no_overload,
    to_key,
    type_name,
)


def select(operand: Any, field: str) -> Any:
    """`operand.field`, or an error value."""
    kind = type(operand)
    if kind is dict:
        found = operand.get(field, MISSING)
        return CelError(f"no such key: {field}") if found is MISSING else found
    if kind is OpenMap:
        return operand[field]
    if kind is CelDevice:
        return getattr(operand, DEVICE_FIELDS[field])
    return CelError(f"no such key: {field}")


DEVICE_FIELDS = {
    "driver": "driver",
    "attributes": "attributes",
    "capacity": "capacity",
    "allowMultipleAllocations": "allow_multiple_allocations",
}


def indexed(operand: Any, key: Any) -> Any:
    """`operand[key]`, or an error value."""
    if type(key) is CelError:
        return key
    if type(operand) is dict and type(key) is str:
        found = operand.get(key, MISSING)
        return CelError(f"no such key: {key}") if found is MISSING else found
    try:
        return index(operand, key)
    except CelError as problem:
        return problem.with_traceback(None)


def is_there(operand: Any, field: str) -> bool:
    """Implements `has()`. A map that answers every key has every key."""
    kind = type(operand)
    if kind is dict:
        return field in operand
    return kind is OpenMap or (kind is CelDevice and field in DEVICE_FIELDS)


def if_there(operand: Any, key: Any) -> Any:
    """The result of `.?` and `[?]`, or MISSING."""
    if type(key) is CelError:
        return key
    if is_map(operand):
        return find_key(operand, key)
    if is_list(operand):
        try:
            at = list_index(key)
        except CelError as problem:
            return problem.with_traceback(None)
        return operand[at] if 0 <= at < len(operand) else MISSING
    if type(operand) is CelDevice and key in DEVICE_FIELDS:
        return select(operand, key)
    return MISSING


def opened(value: Any) -> Any:
    """The value of an optional, or MISSING."""
    if type(value) is Optional:
        return MISSING if value is NONE else value.value
    return value


def wrapped(value: Any) -> Any:
    if type(value) is CelError:
        return value
    return NONE if value is MISSING else Optional(value)


def call1(function: Callable[[Any], Any], a: Any) -> Any:
    if type(a) is CelError:
        return a
    try:
        return function(a)
    except CelError as problem:
        return problem.with_traceback(None)


def call2(function: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    if type(a) is CelError:
        return a
    if type(b) is CelError:
        return b
    try:
        return function(a, b)
    except CelError as problem:
        return problem.with_traceback(None)


def call_many(function: Callable[..., Any], *args: Any) -> Any:
    for arg in args:
        if type(arg) is CelError:
            return arg
    try:
        return function(*args)
    except CelError as problem:
        return problem.with_traceback(None)


def both(a: Any, b: Any) -> Any:
    """`a && b` where a is not false."""
    if b is False:
        return False
    if a is True and b is True:
        return True
    return _undecided(a, b)


def either(a: Any, b: Any) -> Any:
    """`a || b` where a is not true."""
    if b is True:
        return True
    if a is False and b is False:
        return False
    return _undecided(a, b)


def _undecided(a: Any, b: Any) -> CelError:
    if type(a) is CelError:
        return a
    if type(b) is CelError:
        return b
    return no_overload()


def not_bool(value: Any) -> CelError:
    return value if type(value) is CelError else no_overload()


def iterated(range_: Any) -> Any:
    """The elements for a loop with one variable, or an error value."""
    if type(range_) is CelError or is_list(range_):
        return range_
    if is_map(range_):
        return [from_key(key) for key in range_]
    return _not_iterable(range_)


def paired(range_: Any) -> Any:
    """The pairs for a loop with two variables, or an error value."""
    if type(range_) is CelError:
        return range_
    if is_list(range_):
        return enumerate(range_)
    if is_map(range_):
        return [(from_key(key), value) for key, value in range_.items()]
    return _not_iterable(range_)


def _not_iterable(value: Any) -> CelError:
    name = {"int": "Int", "string": "String", "bool": "Bool"}.get(type_name(value), type_name(value))
    return CelError(f"got 'types.{name}', expected iterable type")


def inserted(mapping: Any, key: Any, value: Any) -> Any:
    """Adds an entry in place; for maps that a macro builds and nobody has seen yet."""
    for part in (key, value):
        if type(part) is CelError:
            return part
    try:
        slot = to_key(key)
    except CelError as problem:
        return problem.with_traceback(None)
    if slot in mapping:
        return CelError(f"insert failed: key {shown_key(key)} already exists")
    mapping[slot] = value
    return mapping


def inserted_all(mapping: Any, entries: Any) -> Any:
    if type(mapping) is CelError:
        return mapping
    if type(entries) is CelError:
        return entries
    for slot, value in entries.items():
        if slot in mapping:
            return CelError(f"insert failed: key {shown_key(from_key(slot))} already exists")
        mapping[slot] = value
    return mapping


def map_literal(keys: Iterable[Any], values: Iterable[Any], optional: frozenset[int]) -> Any:
    out: dict[Any, Any] = {}
    for at, (key, value) in enumerate(zip(keys, values, strict=False)):
        if at in optional:
            if type(value) is not Optional:
                return no_overload()
            if value is NONE:
                continue
            value = value.value
        try:
            out[to_key(key)] = value
        except CelError as problem:
            return problem.with_traceback(None)
    return out


def struct_literal(of_type: str, names: Iterable[str], values: Iterable[Any], optional: frozenset[int]) -> Any:
    fields = map_literal(names, values, optional)
    return fields if type(fields) is CelError else StructValue(of_type, fields)


def list_literal(items: Iterable[Any], optional: frozenset[int]) -> Any:
    out: list[Any] = []
    for at, item in enumerate(items):
        if at in optional:
            if type(item) is not Optional:
                return no_overload()
            if item is NONE:
                continue
            item = item.value
        out.append(item)
    return out
