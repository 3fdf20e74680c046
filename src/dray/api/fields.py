"""Brings a document into the shape of its kind, as decoding does in Kubernetes.

`conform` walks a document with the kind's schema: a null is as if absent, quantities and times take their normal
spelling, keys that are always on the wire are put in, unknown fields are named, and a value of the wrong type is a DecodeError.
Values of type `any` are taken as they are.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from dray.api.errors import DecodeError
from dray.api.quantity import Quantity, QuantityError, rewritten
from dray.api.schemas import StructSchema, TypeRef, struct
from dray.api.times import micro_time_text, parse_time, time_text

Document = dict[str, Any]

# Where we are in the document: (outer place, text to append). Written out only when there is something to say.
Place = tuple["Place", str] | None
Check = Callable[[Any, Place, "Findings"], Any]

MAX_FINDINGS = 100

# Keys that Kubernetes writes even when there is nothing to say, with what it then writes.
ALWAYS_PRESENT: dict[str, dict[str, Any]] = {
    "AllocatedDeviceStatus": {"conditions": None},
    "CapacityRequestPolicy": {"default": None},
    "Counter": {"value": "0"},
    "DeviceCapacity": {"value": "0"},
    "DeviceClaim": {"requests": None},
    "PodExtendedResourceClaimStatus": {"requestMappings": None},
    "ResourcePool": {"name": "", "generation": 0, "resourceSliceCount": 0},
    "ResourceSliceSpec": {"driver": ""},
}


@dataclass(frozen=True, slots=True)
class UnknownField:
    """A field that the type it was found in does not have."""

    path: str
    name: str
    struct: str


@dataclass(slots=True)
class Findings:
    """What the walk noticed on its way, in the order of the document."""

    unknown: list[UnknownField]
    keep_unknown: bool


@dataclass(frozen=True, slots=True)
class Conformed:
    document: Document
    unknown: tuple[UnknownField, ...]

    @property
    def unknown_fields(self) -> tuple[str, ...]:
        return tuple(field.path for field in self.unknown)


def conform(document: Any, schema: StructSchema, *, keep_unknown: bool = False) -> Conformed:
    """`document` in the shape of `schema`; fields that no schema knows are dropped unless they are to be kept."""
    findings = Findings([], keep_unknown)
    shaped = check_struct(schema.name)(document, None, findings)
    return Conformed(shaped, tuple(findings.unknown))


def place_text(place: Place) -> str:
    parts: list[str] = []
    while place is not None:
        place, part = place
        parts.append(part)
    return "".join(reversed(parts)).removeprefix(".")


@cache
def check_struct(name: str) -> Check:
    """The check for one type, built once; its fields' checks are looked up when first needed."""
    always = ALWAYS_PRESENT.get(name.rpartition(".")[2], {})
    checks: dict[str, Check] = {}

    def check(value: Any, place: Place, findings: Findings) -> Document:
        if type(value) is not dict:
            raise _mismatch(value, place, name)
        if not checks:
            special = SPECIAL_CHECKS.get(name.rpartition(".")[2], {})
            checks.update({f.name: special.get(f.name) or check_for(f.type) for f in struct(name).fields.values()})
        shaped: Document = dict(always)
        for key, inner in value.items():
            known = checks.get(key)
            if known is None:
                _note_unknown(name, key, place, findings)
                if findings.keep_unknown:
                    shaped[key] = inner
            elif inner is not None:
                shaped[key] = known(inner, (place, "." + key), findings)
        return shaped

    return check


def _note_unknown(struct_name: str, key: str, place: Place, findings: Findings) -> None:
    if len(findings.unknown) < MAX_FINDINGS:
        findings.unknown.append(UnknownField(place_text((place, f".{key}")), key, struct_name))


@cache
def check_for(ref: TypeRef) -> Check:
    if ref.shape == "struct":
        return check_struct(ref.name)
    if ref.shape == "scalar":
        return SCALAR_CHECKS[ref.name]
    assert ref.item is not None
    return _check_list(ref.item) if ref.shape == "list" else _check_map(ref.item)


def _check_list(item: TypeRef) -> Check:
    check_item = check_for(item)

    def check(value: Any, place: Place, findings: Findings) -> list[Any]:
        if type(value) is not list:
            raise _mismatch(value, place, "list")
        return [
            check_item(inner if inner is not None else _zero(item), (place, f"[{i}]"), findings)
            for i, inner in enumerate(value)
        ]

    return check


def _check_map(item: TypeRef) -> Check:
    check_item = check_for(item)

    def check(value: Any, place: Place, findings: Findings) -> Document:
        if type(value) is not dict:
            raise _mismatch(value, place, "map")
        return {
            key: check_item(inner if inner is not None else _zero(item), (place, "." + key), findings)
            for key, inner in value.items()
        }

    return check


def _zero(ref: TypeRef) -> Any:
    """What a null inside a list or map stands for."""
    if ref.shape in ("struct", "map"):
        return {}
    if ref.shape == "list":
        return []
    return {"bool": False, "int32": 0, "int64": 0, "float": 0, "quantity": "0", "intOrString": 0}.get(ref.name, "")


def _json_name(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return f"number {value}" if isinstance(value, float) or abs(value) < 10**30 else "number"
    return {str: "string", list: "array", dict: "object", type(None): "null"}.get(type(value), type(value).__name__)


_GO_NAMES = {"list": "array", "map": "object"}


def _mismatch(value: Any, place: Place, wanted: str) -> DecodeError:
    what = _GO_NAMES.get(wanted, wanted)
    return DecodeError(
        f"json: cannot unmarshal {_json_name(value)} into a value of type {what}", path=place_text(place)
    )


def _check_string(value: Any, place: Place, findings: Findings) -> str:
    if type(value) is str:
        return value
    raise _mismatch(value, place, "string")


def _check_bool(value: Any, place: Place, findings: Findings) -> bool:
    if value is True or value is False:
        return bool(value)
    raise _mismatch(value, place, "bool")


def _check_integer(name: str, bits: int) -> Check:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def check(value: Any, place: Place, findings: Findings) -> int:
        if type(value) is int and low <= value <= high:
            return value
        raise _mismatch(value, place, name)

    return check


def _check_float(value: Any, place: Place, findings: Findings) -> float:
    if type(value) is int or type(value) is float:
        return value
    raise _mismatch(value, place, "float64")


def _check_int_or_string(value: Any, place: Place, findings: Findings) -> int | str:
    if type(value) is str:
        return value
    if type(value) is int and -(2**31) <= value < 2**31:
        return value
    raise _mismatch(value, place, "int32 or string")


_written = lru_cache(maxsize=65536)(rewritten)


def _check_quantity(value: Any, place: Place, findings: Findings) -> str:
    try:
        if type(value) is str:
            return _written(value)
        return str(Quantity.parse(value))
    except QuantityError as error:
        raise DecodeError(str(error), path=place_text(place)) from None


def _check_time(value: Any, place: Place, findings: Findings) -> str:
    return _check_moment(value, place, time_text)


def _check_micro_time(value: Any, place: Place, findings: Findings) -> str:
    return _check_moment(value, place, micro_time_text)


def _check_moment(value: Any, place: Place, text_of: Callable[[Any], str]) -> str:
    if type(value) is not str:
        raise _mismatch(value, place, "time")
    try:
        return text_of(parse_time(value))
    except ValueError as error:
        raise DecodeError(f"parsing time {value[:64]!r}: {error}", path=place_text(place)) from None


def _check_bytes(value: Any, place: Place, findings: Findings) -> str:
    if type(value) is not str:
        raise _mismatch(value, place, "base64 text")
    try:
        base64.b64decode(value.replace("\n", "").replace("\r", ""), validate=True)
    except (binascii.Error, ValueError):
        raise DecodeError("illegal base64 data", path=place_text(place)) from None
    return value


def _check_valid_values(value: Any, place: Place, findings: Findings) -> list[str]:
    """Equal amounts keep their spelling here: whether they count as duplicates depends on it."""
    if type(value) is not list:
        raise _mismatch(value, place, "list")
    written = [_check_quantity("0" if v is None else v, (place, f"[{i}]"), findings) for i, v in enumerate(value)]
    if len({Quantity.parse(text) for text in written}) == len(written):
        return written
    return [spelled if type(spelled) is str else text for spelled, text in zip(value, written, strict=True)]


def _check_any(value: Any, place: Place, findings: Findings) -> Any:
    return value


SCALAR_CHECKS: dict[str, Check] = {
    "string": _check_string,
    "bool": _check_bool,
    "int32": _check_integer("int32", 32),
    "int64": _check_integer("int64", 64),
    "float": _check_float,
    "quantity": _check_quantity,
    "time": _check_time,
    "microTime": _check_micro_time,
    "intOrString": _check_int_or_string,
    "bytes": _check_bytes,
    "any": _check_any,
}

# Fields with a check of their own, by type and name.
SPECIAL_CHECKS: dict[str, dict[str, Check]] = {"CapacityRequestPolicy": {"validValues": _check_valid_values}}
