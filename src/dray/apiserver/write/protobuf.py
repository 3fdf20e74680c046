"""Kubernetes' protobuf encoding, for reading only.

kubectl's own commands and programs made with client-go write it; the answer is JSON, which they accept. `dray.api.schemas`
says which number stands for which field, and of which type it is. The server answers 415 for a kind that it does not know,
and drops a field whose number it does not know, as Kubernetes does.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache, reduce
from struct import unpack
from typing import Any

import msgspec

from dray.api.errors import DecodeError
from dray.api.schemas import SCHEMA_OR_OTHER, FieldSchema, TypeRef, schema_for, struct

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field, in the order in which they were written."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        if kind == BYTES:
            size, at = _varint(data, at)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise DecodeError(f"proto: illegal wireType {kind}")
        if at + size > len(data):
            raise DecodeError("unexpected EOF")
        yield number, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise DecodeError("unexpected EOF" if at >= len(data) else "proto: integer overflow")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def text(value: int | bytes) -> str:
    try:
        return value.decode() if isinstance(value, bytes) else str(value)
    except UnicodeDecodeError:
        raise DecodeError("proto: invalid UTF-8") from None


def content(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise DecodeError("proto: a number where a message was expected")
    return value


def signed(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise DecodeError("proto: a message where a number was expected")
    return value - (1 << 64) if value >= 1 << 63 else value


Document = dict[str, Any]
# Number to the field it stands for, or to the numbers of an embedded struct.
Numbers = dict[int, Any]

MAGIC = b"k8s\x00"
MAX_DEPTH = 40
LAST_SECOND = 253402300799


@cache
def _numbers(type_name: str) -> Numbers:
    numbers: Numbers = {}
    for field in struct(type_name).fields.values():
        if field.numbers:
            *embedded, own = field.numbers
            reduce(lambda inner, number: inner.setdefault(number, {}), embedded, numbers)[own] = field
    return numbers


def is_readable(body: bytes) -> bool:
    """Whether a body is in this encoding and of a kind that is known here."""
    try:
        api_version, kind, _ = _envelope(body)
    except DecodeError:
        return False
    return _type_of(api_version, kind) is not None


def _type_of(api_version: str, kind: str) -> str | None:
    # Options are the same in every group.
    schema = schema_for(api_version, kind) or (schema_for("v1", kind) if kind == "DeleteOptions" else None)
    return schema.name if schema else None


def read(body: bytes) -> Document:
    """The object in a body, as the JSON it stands for."""
    api_version, kind, raw = _envelope(body)
    type_name = _type_of(api_version, kind)
    if type_name is None:
        raise DecodeError(f"kind {kind} cannot be read from protobuf")
    return {"apiVersion": api_version, "kind": kind, **_message(raw, type_name, 0)}


def _envelope(body: bytes) -> tuple[str, str, bytes]:
    if not body.startswith(MAGIC):
        raise DecodeError("provided data does not appear to be a protobuf message")
    said: dict[int, str] = {}
    raw = b""
    for number, value in fields(body[len(MAGIC) :]):
        if number == 1:
            said = {inner: text(part) for inner, part in fields(content(value))}
        elif number == 2:
            raw = content(value)
    return said.get(1, ""), said.get(2, ""), raw


def _message(data: bytes, type_name: str, depth: int) -> Document:
    if depth > MAX_DEPTH:
        raise DecodeError("the message is nested too deeply")
    out: Document = {}
    _read_into(out, data, _numbers(type_name), depth)
    return out


def _read_into(out: Document, data: bytes, numbers: Numbers, depth: int) -> None:
    for number, value in fields(data):
        field = numbers.get(number)
        if isinstance(field, FieldSchema):
            _read_field(out, field, value, depth)
        elif field is not None:
            _read_into(out, content(value), field, depth)


def _read_field(out: Document, field: FieldSchema, value: int | bytes, depth: int) -> None:
    ref = field.type
    if ref.shape == "list":
        assert ref.item is not None
        out.setdefault(field.name, []).append(_value(value, ref.item, depth))
    elif ref.shape == "map":
        assert ref.item is not None
        key, entry = _map_entry(content(value), ref.item, depth)
        out.setdefault(field.name, {})[key] = entry
    else:
        out[field.name] = _value(value, ref, depth)


def _map_entry(data: bytes, item: TypeRef, depth: int) -> tuple[str, Any]:
    parts = dict(fields(data))
    key = text(parts.get(1, b""))
    if item.shape == "list":
        assert item.item is not None
        inner = fields(content(parts.get(2, b"")))
        return key, [_value(entry, item.item, depth) for number, entry in inner if number == 1]
    return key, _value(parts.get(2, b""), item, depth)


def _value(value: int | bytes, ref: TypeRef, depth: int) -> Any:
    if ref.shape == "struct":
        message = _message(content(value), ref.name, depth + 1)
        other = SCHEMA_OR_OTHER.get(ref.name)
        return message.get("schema", message.get(other)) if other else message
    return _SCALARS[ref.name](value)


# --- scalars of JSON, some of which are small messages here -----------------------------------------------------------


def _quantity(value: int | bytes) -> str:
    return text(dict(fields(content(value))).get(1, b"0"))


def _int_or_string(value: int | bytes) -> int | str:
    parts = dict(fields(content(value)))
    return text(parts.get(3, b"")) if parts.get(1) else signed(parts.get(2, 0))


def _float(value: int | bytes) -> int | float:
    """A whole number is written without a fraction, as Go does."""
    data = content(value)
    if len(data) != 8:
        raise DecodeError("proto: a floating-point number has the wrong length")
    number: float = unpack("<d", data)[0]
    return int(number) if number.is_integer() else number


def _any(value: int | bytes) -> Any:
    raw = content(dict(fields(content(value))).get(1, b""))
    try:
        return msgspec.json.decode(raw) if raw else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise DecodeError("proto: an embedded value is not JSON") from None


def _time(form: str) -> Callable[[int | bytes], str | None]:
    def read_time(value: int | bytes) -> str | None:
        parts = dict(fields(content(value)))
        seconds, nanos = signed(parts.get(1, 0)), signed(parts.get(2, 0))
        if not (seconds or nanos) or not 0 <= seconds <= LAST_SECOND or not 0 <= nanos < 10**9:
            return None
        return datetime.fromtimestamp(seconds, UTC).replace(microsecond=nanos // 1000).strftime(form)

    return read_time


_SCALARS: dict[str, Callable[[int | bytes], Any]] = {
    "string": text,
    "bool": bool,
    "int32": signed,
    "int64": signed,
    "float": _float,
    "bytes": lambda value: base64.b64encode(content(value)).decode(),
    "quantity": _quantity,
    "intOrString": _int_or_string,
    "any": _any,
    "time": _time("%Y-%m-%dT%H:%M:%SZ"),
    "microTime": _time("%Y-%m-%dT%H:%M:%S.%fZ"),
}
