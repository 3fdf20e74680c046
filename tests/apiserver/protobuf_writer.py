"""Writes Kubernetes' protobuf encoding, as client-go does, so that reading it can be tested."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from struct import pack as struct_pack
from typing import Any

from dray.api.schemas import TypeRef, schema_for, struct


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def block(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def body(document: dict[str, Any]) -> bytes:
    """A whole request body."""
    api_version, kind = document["apiVersion"], document["kind"]
    schema = schema_for(api_version, kind)
    assert schema is not None
    meta = block(1, api_version.encode()) + block(2, kind.encode())
    return b"k8s\x00" + block(1, meta) + block(2, message(document, schema.name)) + block(3, b"") + block(4, b"")


def message(document: dict[str, Any], type_name: str) -> bytes:
    out, embedded = b"", {}
    for name, field in struct(type_name).fields.items():
        if name in document and field.numbers:
            *around, own = field.numbers
            embedded.setdefault(tuple(around), []).append(_field(own, document[name], field.type))
    for around, fields in embedded.items():
        data = b"".join(fields)
        for outer in reversed(around):
            data = block(outer, data)
        out += data
    return out


def _field(field: int, value: Any, ref: TypeRef) -> bytes:
    if ref.shape == "list":
        assert ref.item is not None
        return b"".join(_field(field, entry, ref.item) for entry in value)
    if ref.shape == "map":
        assert ref.item is not None
        entries = (block(1, key.encode()) + _map_value(entry, ref.item) for key, entry in value.items())
        return b"".join(block(field, entry) for entry in entries)
    if ref.shape == "struct":
        return block(field, message(value, ref.name))
    if ref.name in ("bool", "int32", "int64"):
        return number(field, int(value))
    if ref.name == "float":
        return varint(field << 3 | 1) + struct_pack("<d", value)
    return block(field, _scalar(value, ref.name))


def _map_value(value: Any, ref: TypeRef) -> bytes:
    # A list inside of a map is a message of its own.
    return block(2, _field(1, value, ref)) if ref.shape == "list" else _field(2, value, ref)


def _scalar(value: Any, name: str) -> bytes:
    if name == "quantity":
        return block(1, str(value).encode())
    if name == "any":
        return block(1, json.dumps(value).encode())
    if name == "intOrString":
        return number(1, 0) + number(2, value) if isinstance(value, int) else number(1, 1) + block(3, value.encode())
    if name in ("time", "microTime"):
        moment = datetime.fromisoformat(value.replace("Z", "+00:00")).astimezone(UTC)
        return number(1, int(moment.timestamp())) + number(2, moment.microsecond * 1000)
    return base64.b64decode(value) if name == "bytes" else str(value).encode()
