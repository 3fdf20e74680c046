"""Brings a JSON tree into the shape of its kind: checks types, drops and reports unknown fields, writes empty values as
Kubernetes does.

The result is what a Kubernetes server would write back after reading the same tree. A value of the wrong type raises a
ShapeError. Rules about values are in `dray.validation`. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from dray.api.caching import LruSet
from dray.api.scalars import (
    AS_IT_IS,
    SCALARS,
    Convert,
    MapKey,
    Place,
    Shaping,
    UnknownField,
    mismatch,
    string,
    text_of,
    valid_values,
)
from dray.api.schemas import (
    SCHEMA_OR_OTHER,
    SCHEMA_PROPS,
    FieldSchema,
    StructSchema,
    TypeRef,
    schema_for,
    struct,
)
from dray.api.scheme import Resource, group_version
from dray.api.slice_text import device_trees

Document = dict[str, Any]

# Fields with a converter of their own.
SPECIAL: dict[tuple[str, str], Convert] = {("CapacityRequestPolicy", "validValues"): valid_values}

ZEROS = {"string": "", "bytes": "", "bool": False, "quantity": "0", "any": None}

# Lists whose emptiness means something while a request is handled: an empty list clears a pod's status, and validation
# counts it as set. `as_written` takes out those that are left.
KEPT_EMPTY = frozenset(
    {
        ("PodStatus", "resourceClaimStatuses"), ("PodStatus", "nodeAllocatableResourceClaimStatuses"),
        ("ResourceSliceSpec", "devices"), ("ResourceSliceSpec", "sharedCounters"),
        ("DeviceAttribute", "ints"), ("DeviceAttribute", "bools"), ("DeviceAttribute", "strings"),
        ("DeviceAttribute", "versions"),
    }
)  # fmt: skip


class StructShape:
    """A struct schema made ready: per field how to convert it and what to do when it is empty."""

    __slots__ = ("always", "fields", "keeps_unknown", "name", "short_name")

    def __init__(self, schema: StructSchema) -> None:
        self.name = schema.name
        self.short_name = schema.name.rpartition(".")[2]
        self.keeps_unknown = not schema.name.startswith("meta.")
        self.fields: dict[str, tuple[Convert, bool, type | None]] = {}
        self.always: list[tuple[str, Callable[[], Any]]] = []

    def fill(self, schema: StructSchema) -> None:
        for name, field in schema.fields.items():
            key = (self.short_name, name)
            convert = SPECIAL.get(key) or _converter(field.type)
            self.fields[name] = (convert, field.drops_empty and key not in KEPT_EMPTY, AS_IT_IS.get(convert))
            if field.written_when_absent:
                self.always.append((name, _filler(field)))

    def __call__(self, value: Any, go: str, place: Place, run: Shaping) -> Document:
        if not isinstance(value, dict):
            raise mismatch(value, go, place, f"{_package(self.name)}.{self.short_name}")
        out: Document = {}
        fields, short_name = self.fields, self.short_name
        for key, raw in value.items():
            try:
                convert, drops, plain_type = fields[key]
            except KeyError:
                run.unknown.append(UnknownField(text_of((place, key)), key, self.name))
                if run.keeps_unknown and self.keeps_unknown:
                    out[key] = raw
                continue
            if type(raw) is not plain_type:
                if raw is None:
                    continue
                raw = convert(raw, short_name, (place, key), run)
            if raw or not drops:
                out[key] = raw
        if self.always:
            for key, fill in self.always:
                if key not in out:
                    out[key] = fill()
        return out


def _filler(field: FieldSchema) -> Callable[[], Any]:
    if field.written_when_absent == "null":
        return lambda: None
    if field.written_when_absent == "empty object":
        return lambda: _copied(_empty_struct(field.type.name))
    zero = _zero(field.type)
    return lambda: zero


_shapes: dict[str, StructShape] = {}


def shape_of(type_name: str) -> StructShape:
    """Types may contain themselves, so a shape exists before its fields do."""
    shape = _shapes.get(type_name)
    if shape is None:
        schema = struct(type_name)
        _shapes[type_name] = shape = StructShape(schema)
        shape.fill(schema)
    return shape


@cache
def _empty_struct(type_name: str) -> Document:
    return shape_of(type_name)({}, "", None, Shaping())


def _copied(empty: Document) -> Document:
    """An empty struct has no lists and few members."""
    return {key: _copied(value) if type(value) is dict else value for key, value in empty.items()} if empty else {}


def shape_for_kind(api_version: str, kind: str) -> StructShape | None:
    schema = schema_for(api_version, kind)
    return shape_of(schema.name) if schema else None


@cache
def empty_object(api_version: str, kind: str) -> Document:
    """The kind with nothing set: what a new object is compared with, and what a bookmark carries. Nobody may change it."""
    shape = shape_for_kind(api_version, kind)
    assert shape is not None
    return {"kind": kind, "apiVersion": api_version, "metadata": {}, **shape({}, kind, None, Shaping())}


def empty_of(row: Resource, version: str) -> Document:
    """As `empty_object`, also for a kind that comes from a definition: such a kind writes no empty fields."""
    api_version = group_version(row.group, version)
    if row.custom is not None:
        return {"kind": row.kind, "apiVersion": api_version, "metadata": {}}
    return empty_object(api_version, row.kind)


def as_written(document: Document) -> Document:
    """Without the empty lists that only validation may see: a slice may be valid with them, and is stored without."""
    if document.get("kind") != "ResourceSlice":
        return document
    spec = document.get("spec") or {}
    if spec.get("devices") != [] and spec.get("sharedCounters") != []:
        return document
    kept = {key: value for key, value in spec.items() if value or key not in ("devices", "sharedCounters")}
    return {**document, "spec": kept}


# --- conversion of values --------------------------------------------------------------------------------------------


def _converter(ref: TypeRef) -> Convert:
    if ref.name in SCHEMA_OR_OTHER and ref.shape == "struct":
        return _schema_or_other(ref.name)
    if ref.shape == "struct":
        return shape_of(ref.name)
    if ref.shape == "scalar":
        return SCALARS[ref.name]
    assert ref.item is not None
    item, text, zero = _converter(ref.item), _go_type(ref), _zero(ref.item)
    return _list_of(item, text, zero) if ref.shape == "list" else _map_of(item, text, zero)


def _schema_or_other(type_name: str) -> Convert:
    schema = shape_of(SCHEMA_PROPS)
    other = _converter(struct(type_name).fields[SCHEMA_OR_OTHER[type_name]].type)

    def convert(value: Any, go: str, place: Place, run: Shaping) -> Any:
        return (schema if isinstance(value, dict) else other)(value, go, place, run)

    return convert


def _zero(ref: TypeRef) -> Any:
    """The empty value that a null stands for in a list or map."""
    if ref.shape == "struct":
        return {}
    if ref.shape == "scalar":
        return ZEROS.get(ref.name, 0)
    return [] if ref.shape == "list" else {}


def _list_of(item: Convert, text: str, zero: Any) -> Convert:
    def convert(value: Any, go: str, place: Place, run: Shaping) -> Any:
        if type(value) is not list:
            raise mismatch(value, go, place, text)
        if item is string and all(type(entry) is str for entry in value):
            return value
        return [item(zero if entry is None else entry, go, (place, at), run) for at, entry in enumerate(value)]

    return (
        _cached_for_long_lists(item, convert)
        if isinstance(item, StructShape) and item.short_name in ("Device", "CounterSet")
        else convert
    )


# Digests of lists of devices and counter sets that were in shape: nodes of one kind publish the same ones again and again.
_WELL_SHAPED_LISTS = LruSet(4096)
_LONG_LIST = 8


def _cached_for_long_lists(item: StructShape, convert: Convert) -> Convert:
    """`convert`, called only once for each long list that it leaves unchanged."""

    def remembered(value: Any, go: str, place: Place, run: Shaping) -> Any:
        if type(value) is not list or len(value) < _LONG_LIST:
            return convert(value, go, place, run)
        digest = device_trees.digest_of(value)
        key = (item.name, digest)
        if digest is not None and key in _WELL_SHAPED_LISTS:
            return value
        unknown = len(run.unknown)
        shaped = convert(value, go, place, run)
        if digest is not None and len(run.unknown) == unknown and shaped == value:
            _WELL_SHAPED_LISTS.add(key)
            return value
        return shaped

    return remembered


def _map_of(item: Convert, text: str, zero: Any) -> Convert:
    def convert(value: Any, go: str, place: Place, run: Shaping) -> Any:
        if not isinstance(value, dict):
            raise mismatch(value, go, place, text)
        if item is string and all(type(entry) is str for entry in value.values()):
            return value
        return {
            key: item(zero if entry is None else entry, go, (place, MapKey(key)), run) for key, entry in value.items()
        }

    return _with_single_fields(item, convert) if isinstance(item, StructShape) else convert


def _with_single_fields(item: StructShape, convert: Convert) -> Convert:
    """`convert`, with a short way for maps of structs that have one field each, such as the attributes of a device."""

    def short(value: Any, go: str, place: Place, run: Shaping) -> Any:
        if type(value) is not dict or item.always:
            return convert(value, go, place, run)
        out = {}
        fields = item.fields
        for key, entry in value.items():
            if type(entry) is dict and len(entry) == 1:
                ((name, raw),) = entry.items()
                field = fields.get(name)
                if field is not None and raw is not None:
                    convert_field, drops, plain_type = field
                    if type(raw) is not plain_type:
                        raw = convert_field(raw, item.short_name, ((place, MapKey(key)), name), run)
                    out[key] = {name: raw} if raw or not drops else {}
                    continue
            out[key] = item({} if entry is None else entry, go, (place, MapKey(key)), run)
        return out

    return short


def _go_type(ref: TypeRef) -> str:
    if ref.shape == "scalar":
        return {"quantity": "resource.Quantity", "time": "v1.Time", "any": "interface {}"}.get(ref.name, ref.name)
    if ref.shape == "struct":
        return f"{_package(ref.name)}.{ref.name.rpartition('.')[2]}"
    assert ref.item is not None
    return ("[]" if ref.shape == "list" else "map[string]") + _go_type(ref.item)


def _package(type_name: str) -> str:
    return type_name.split(".")[-2]
