"""The wire form of protobuf: numbered fields, each a number or some bytes."""

from __future__ import annotations

from collections.abc import Iterator

from dray.api.errors import DecodeError

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
