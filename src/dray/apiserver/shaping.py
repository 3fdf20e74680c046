"""A JSON tree brought into the shape of its kind: types checked, unknown fields named and left out, emptiness spelled as
Kubernetes spells it.

What comes out is what a Kubernetes server would write back after reading the same tree. Rules about values are not here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from functools import cache, lru_cache
from typing import Any

from dray.api.errors import DecodeError
from dray.api.quantity import Quantity, QuantityError, rewritten
from dray.api.schemas import FieldSchema, StructSchema, TypeRef, schema_for, struct
from dray.apiserver.jsontext import go_json
from dray.apiserver.wire_rules import (
    ALWAYS,
    ALWAYS_V1BETA1,
    DROPPED_ZERO,
    DROPPED_ZERO_V1BETA1,
    EMPTY_STRUCT,
    KEPT_EMPTY,
    KEPT_ZERO,
    NULL,
)

Document = dict[str, Any]
MAX_DEPTH = 200
QUANTITY_TEXT = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)
_INT_RANGE = {"int32": range(-(2**31), 2**31), "int64": range(-(2**63), 2**63)}


class Shaping:
    """One run over a tree; `problems` collects what strict decoding reports, in document order."""

    __slots__ = ("keeps_unknown", "problems")

    def __init__(self, *, keeps_unknown: bool = False) -> None:
        self.problems: list[str] = []
        self.keeps_unknown = keeps_unknown


# Where we are: the place of the holder and a field name or index. Written out only when there is something to say.
Place = tuple[Any, str | int] | None
Convert = Callable[[Any, str, Place, Shaping], Any]


def text_of(place: Place) -> str:
    """A place as messages show it: `spec.devices.requests[0].name`."""
    steps: list[str] = []
    while place is not None:
        place, step = place
        steps.append(f"[{step}]" if isinstance(step, int) else f".{step}")
    return "".join(reversed(steps)).removeprefix(".")


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
        old = ".v1beta1." in self.name
        for name, field in schema.fields.items():
            key = (self.short_name, name)
            convert = _converter(field.type, self.short_name)
            self.fields[name] = (convert, _drops_empty(self.name, key, field, old), AS_IT_IS.get(convert))
            rule = (ALWAYS_V1BETA1.get(key) if old else None) or ALWAYS.get(key)
            if rule:
                self.always.append((name, _filler(rule, field)))

    def __call__(self, value: Any, go: str, place: Place, run: Shaping) -> Document:
        if not isinstance(value, dict):
            raise DecodeError(_mismatch(value, go, place, f"{_package(self.name)}.{self.short_name}"))
        out: Document = {}
        fields, short_name = self.fields, self.short_name
        for key, raw in value.items():
            found = fields.get(key)
            if found is None:
                run.problems.append(f'unknown field "{text_of((place, key))}"')
                if run.keeps_unknown and self.keeps_unknown:
                    out[key] = raw
                continue
            if raw is None:
                continue
            convert, drops, plain_type = found
            if type(raw) is not plain_type:
                raw = convert(raw, short_name, (place, key), run)
            if raw or not drops:
                out[key] = raw
        for key, fill in self.always:
            if key not in out:
                out[key] = fill()
        return out


def _drops_empty(type_name: str, key: tuple[str, str], field: FieldSchema, old: bool) -> bool:
    """Whether an empty value of the field vanishes from the wire form."""
    shape, scalar = field.type.shape, field.type.name
    if key in ALWAYS or shape == "struct":
        return False
    if shape in ("list", "map"):
        return key not in KEPT_EMPTY
    if scalar in ("any", "quantity", "intOrString"):
        return False
    if key in KEPT_ZERO:
        return old and key in DROPPED_ZERO_V1BETA1
    if scalar in ("string", "bytes", "time", "microTime") or type_name.startswith("resource."):
        return True
    return key in DROPPED_ZERO


def _filler(rule: str, field: FieldSchema) -> Callable[[], Any]:
    if rule == NULL:
        return lambda: None
    if rule == EMPTY_STRUCT:
        return lambda: shape_of(field.type.name)({}, "", None, Shaping())
    zero = {"string": "", "bool": False, "quantity": "0"}.get(field.type.name, 0)
    return lambda: zero


@cache
def shape_of(type_name: str) -> StructShape:
    return _build(type_name)


_building: dict[str, StructShape] = {}


def _build(type_name: str) -> StructShape:
    """Types may contain themselves, so a shape exists before its fields do."""
    if type_name not in _building:
        schema = struct(type_name)
        _building[type_name] = shape = StructShape(schema)
        shape.fill(schema)
    return _building[type_name]


def shape_for_kind(api_version: str, kind: str) -> StructShape | None:
    schema = schema_for(api_version, kind)
    return shape_of(schema.name) if schema else None


def empty_object(api_version: str, kind: str) -> Document:
    """The kind with nothing set: what a new object is compared with, and what a bookmark carries."""
    shape = shape_for_kind(api_version, kind)
    assert shape is not None
    return {"kind": kind, "apiVersion": api_version, "metadata": {}, **shape({}, kind, None, Shaping())}


# --- conversion of values --------------------------------------------------------------------------------------------


def _converter(ref: TypeRef, owner: str) -> Convert:
    if ref.shape == "struct":
        return _build(ref.name)
    if ref.shape == "scalar":
        return SCALARS[ref.name]
    assert ref.item is not None
    item, text, zero = _converter(ref.item, owner), _go_type(ref), _zero(ref.item)
    return _list_of(item, text, zero) if ref.shape == "list" else _map_of(item, text, zero)


def _zero(ref: TypeRef) -> Any:
    """What a null stands for inside of a list or map: nothing, in the shape of something."""
    if ref.shape == "struct":
        return {}
    if ref.shape == "scalar":
        return {"string": "", "bytes": "", "bool": False, "quantity": "0", "any": None}.get(ref.name, 0)
    return [] if ref.shape == "list" else {}


def _list_of(item: Convert, text: str, zero: Any) -> Convert:
    def convert(value: Any, go: str, place: Place, run: Shaping) -> Any:
        if type(value) is not list:
            raise DecodeError(_mismatch(value, go, place, text))
        if item is _string and all(type(entry) is str for entry in value):
            return value
        return [item(zero if entry is None else entry, go, (place, at), run) for at, entry in enumerate(value)]

    return convert


def _map_of(item: Convert, text: str, zero: Any) -> Convert:
    def convert(value: Any, go: str, place: Place, run: Shaping) -> Any:
        if not isinstance(value, dict):
            raise DecodeError(_mismatch(value, go, place, text))
        if item is _string and all(type(entry) is str for entry in value.values()):
            return value
        return {key: item(zero if entry is None else entry, go, (place, key), run) for key, entry in value.items()}

    return convert


def _string(value: Any, go: str, place: Place, run: Shaping) -> Any:
    if type(value) is not str:
        raise DecodeError(_mismatch(value, go, place, "string"))
    return value


def _bool(value: Any, go: str, place: Place, run: Shaping) -> Any:
    if type(value) is not bool:
        raise DecodeError(_mismatch(value, go, place, "bool"))
    return value


def _integer(name: str) -> Convert:
    allowed = _INT_RANGE[name]

    def convert(value: Any, go: str, place: Place, run: Shaping) -> Any:
        if type(value) is not int:
            raise DecodeError(_mismatch(value, go, place, name))
        if value not in allowed:
            raise DecodeError(_mismatch(value, go, place, name, literal=True))
        return value

    return convert


def _float(value: Any, go: str, place: Place, run: Shaping) -> Any:
    if type(value) not in (int, float):
        raise DecodeError(_mismatch(value, go, place, "float64"))
    return value


def _quantity(value: Any, go: str, place: Place, run: Shaping) -> Any:
    try:
        if type(value) is str:
            return rewritten(value) if value else "0"
        if type(value) in (int, float):
            return str(Quantity.parse(value))
    except QuantityError:
        raise DecodeError(QUANTITY_TEXT) from None
    raise DecodeError(QUANTITY_TEXT)


def _int_or_string(value: Any, go: str, place: Place, run: Shaping) -> Any:
    if type(value) not in (int, str):
        raise DecodeError(_mismatch(value, go, place, "int32"))
    return value


def _any(value: Any, go: str, place: Place, run: Shaping) -> Any:
    return value


def _moment(value: Any, go: str, place: Place) -> datetime:
    if type(value) is not str:
        raise DecodeError(_mismatch(value, go, place, "string"))
    found = _TIME.fullmatch(value)
    try:
        if found is None:
            raise ValueError
        base = datetime.strptime(found[1], "%Y-%m-%dT%H:%M:%S")
        micros = int((found[2] or ".0")[1:7].ljust(6, "0"))
        return base.replace(microsecond=micros, tzinfo=_zone(found[3])).astimezone(UTC)
    except (ValueError, OverflowError):
        quoted = go_json(value)
        raise DecodeError(
            f'parsing time {quoted} as "2006-01-02T15:04:05Z07:00": cannot parse {quoted} as "2006"'
        ) from None


def _zone(text: str) -> timezone:
    if text == "Z":
        return UTC
    offset = timedelta(hours=int(text[1:3]), minutes=int(text[4:6]))
    return timezone(-offset if text[0] == "-" else offset)


def _time(value: Any, go: str, place: Place, run: Shaping) -> Any:
    if type(value) is str and len(value) == 20 and _TIME.fullmatch(value) and _is_date(value):
        return value
    return _moment(value, go, place).strftime("%Y-%m-%dT%H:%M:%SZ")


@lru_cache(maxsize=4096)
def _is_date(value: str) -> bool:
    try:
        datetime.strptime(value, "%Y-%m-%dT%H:%M:%SZ")
    except ValueError:
        return False
    return True


def _micro_time(value: Any, go: str, place: Place, run: Shaping) -> Any:
    return _moment(value, go, place).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


# A value of this type passes its converter unchanged.
AS_IT_IS: dict[Convert, type] = {_string: str, _bool: bool}

SCALARS: dict[str, Convert] = {
    "string": _string,
    "bytes": _string,
    "bool": _bool,
    "int32": _integer("int32"),
    "int64": _integer("int64"),
    "float": _float,
    "quantity": _quantity,
    "time": _time,
    "microTime": _micro_time,
    "intOrString": _int_or_string,
    "any": _any,
}


def _mismatch(value: Any, go: str, place: Place, wanted: str, *, literal: bool = False) -> str:
    kind = {dict: "object", list: "array", str: "string", bool: "bool"}.get(type(value), "number")
    if literal or (kind == "number" and wanted.startswith("int")):
        kind = f"number {go_json(value)}"
    field = re.sub(r"\[\d+\]", "", text_of(place))
    where = f"Go struct field {go}.{field}" if go and field else "Go value"
    return f"json: cannot unmarshal {kind} into {where} of type {wanted}"


def _go_type(ref: TypeRef) -> str:
    if ref.shape == "scalar":
        return {"quantity": "resource.Quantity", "time": "v1.Time", "any": "interface {}"}.get(ref.name, ref.name)
    if ref.shape == "struct":
        return f"{_package(ref.name)}.{ref.name.rpartition('.')[2]}"
    assert ref.item is not None
    return ("[]" if ref.shape == "list" else "map[string]") + _go_type(ref.item)


def _package(type_name: str) -> str:
    return type_name.split(".")[-2]
