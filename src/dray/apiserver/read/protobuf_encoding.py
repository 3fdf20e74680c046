"""Writes Kubernetes' protobuf encoding, which typed Go clients ask for.

`dray.api.schemas` says which number stands for which field and of which type it is; a field without a number, which only Dray
has, is left out. The reader is in `dray.apiserver.write.protobuf`.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import cache
from struct import pack
from typing import Any

import msgspec

from dray.api.schemas import SCHEMA_OR_OTHER, FieldSchema, TypeRef, schema_for, struct

Document = dict[str, Any]

MAGIC = b"k8s\x00"
_WORD = 1 << 64


def varint(value: int) -> bytes:
    if 0 <= value < 0x80:
        return bytes((value,))
    value %= _WORD
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _block(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def _integer(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


# --- whole answers ---------------------------------------------------------------------------------------------------


def envelope(api_version: str, kind: str, raw: bytes) -> bytes:
    said = _block(1, api_version.encode()) + _block(2, kind.encode())
    return MAGIC + _block(1, said) + _block(2, raw) + b"\x1a\x00\x22\x00"


def encode_object(document: Document, api_version: str, kind: str) -> bytes:
    return envelope(api_version, kind, encode_item(document, api_version, kind))


def encode_item(document: Document, api_version: str, kind: str) -> bytes:
    """An object without the envelope: kind and apiVersion are left out, as inside of a list."""
    schema = schema_for(api_version, kind)
    assert schema is not None
    return _message(document, schema.name)


def encode_list(items: Iterable[bytes], metadata: Document, api_version: str, list_kind: str) -> bytes:
    raw = _block(1, _message(metadata, "meta.v1.ListMeta")) + b"".join(_block(2, item) for item in items)
    return envelope(api_version, list_kind, raw)


def watch_event(event_type: str, encoded: bytes) -> bytes:
    """One event of a watch: its length in four bytes, then the event around the object."""
    event = _block(1, event_type.encode()) + _block(2, _block(1, encoded))
    return pack(">I", len(event)) + event


# --- messages --------------------------------------------------------------------------------------------------------


@cache
def _fields(type_name: str) -> dict[str, FieldSchema]:
    return {name: field for name, field in struct(type_name).fields.items() if field.numbers}


def _message(document: Document, type_name: str) -> bytes:
    fields = _fields(type_name)
    out: list[bytes] = []
    embedded: dict[tuple[int, ...], list[bytes]] = {}
    for name, value in document.items():
        field = fields.get(name)
        if field is None or value is None:
            continue
        *around, own = field.numbers
        data = _field(own, value, field.type)
        if around:
            embedded.setdefault(tuple(around), []).append(data)
        else:
            out.append(data)
    out += [_around(numbers, b"".join(parts)) for numbers, parts in embedded.items()]
    return b"".join(out)


def _around(numbers: tuple[int, ...], data: bytes) -> bytes:
    for number in reversed(numbers):
        data = _block(number, data)
    return data


def _field(number: int, value: Any, ref: TypeRef) -> bytes:
    if ref.name in SCHEMA_OR_OTHER and ref.shape == "struct":
        return _block(number, _message(_schema_or_other(value, ref.name), ref.name))
    if ref.shape == "struct":
        return _block(number, _message(value, ref.name))
    if ref.shape == "scalar":
        return _SCALARS[ref.name](number, value)
    assert ref.item is not None
    item = ref.item
    if ref.shape == "list":
        return b"".join([_field(number, entry, item) for entry in value])
    return b"".join([_block(number, _block(1, key.encode()) + _map_value(entry, item)) for key, entry in value.items()])


def _schema_or_other(value: Any, type_name: str) -> Document:
    """The message around something that JSON shows without it; a schema for further fields also allows them."""
    other = SCHEMA_OR_OTHER[type_name]
    if not isinstance(value, dict):
        return {other: value}
    return {"allows": True, "schema": value} if other == "allows" else {"schema": value}


def _map_value(value: Any, ref: TypeRef) -> bytes:
    # A list inside of a map is a message of its own.
    return _block(2, _field(1, value, ref)) if ref.shape == "list" else _field(2, value, ref)


# --- scalars of JSON, some of which are small messages here ------------------------------------------------------------


def _text(number: int, value: Any) -> bytes:
    return _block(number, str(value).encode())


def _int_or_string(number: int, value: Any) -> bytes:
    if isinstance(value, str):
        return _block(number, _integer(1, 1) + _integer(2, 0) + _block(3, value.encode()))
    return _block(number, _integer(1, 0) + _integer(2, int(value)) + _block(3, b""))


def _time(number: int, value: str) -> bytes:
    moment = datetime.fromisoformat(value)
    seconds = int(moment.replace(microsecond=0, tzinfo=moment.tzinfo or UTC).timestamp())
    return _block(number, _integer(1, seconds) + _integer(2, moment.microsecond * 1000))


_SCALARS: dict[str, Callable[[int, Any], bytes]] = {
    "string": _text,
    "bool": lambda number, value: _integer(number, 1 if value else 0),
    "int32": _integer,
    "int64": _integer,
    "float": lambda number, value: varint(number << 3 | 1) + pack("<d", value),
    "bytes": lambda number, value: _block(number, base64.b64decode(value)),
    "quantity": lambda number, value: _block(number, _block(1, str(value).encode())),
    "intOrString": _int_or_string,
    "any": lambda number, value: _block(number, _block(1, msgspec.json.encode(value))),
    "time": _time,
    "microTime": _time,
}
