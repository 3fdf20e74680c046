"""Keeps the text of opaque values (parameters for drivers, device data) as it was sent.

The server does not read these values, so it stores their text unchanged, spaces included. A PUT stores the text that it brought; a patch goes
over the whole object and leaves the plain spelling behind, some also the members in order. Text that changed is a change of the object, even where it means
the same; whether a field that may not change did change is judged by its meaning.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from dray.api.projections import OpaqueConfiguration, OpaqueObject, OpaqueSpec, OpaqueStatus
from dray.apiserver.watch.stored_object import (
    decode,
    encode,
    to_value,
)

Document = dict[str, Any]
Slot = tuple[Document, str]

KINDS = frozenset({"DeviceClass", "ResourceClaim", "ResourceClaimTemplate"})
# What JSON with spaces in it has somewhere, and plain JSON outside of texts has not.
_SPACED = b'": '
# A stored object is one line: watches send lines.
_ONE_LINE = bytes.maketrans(b"\n\r\t", b"   ")


_read = msgspec.json.Decoder(OpaqueObject).decode


@dataclass(frozen=True, slots=True)
class RawValues:
    """The texts of all opaque values, in a fixed order."""

    spec: tuple[bytes, ...] = ()
    status: tuple[bytes, ...] = ()


def may_have_spaces(data: bytes) -> bool:
    """Whether the JSON may contain a value with spaces."""
    return _SPACED in data


def raw_values_of(data: bytes) -> RawValues:
    """The opaque values in the JSON of an object; none if it is not the JSON of an object."""
    try:
        found = _read(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return RawValues()
    return RawValues(tuple(_spec_texts(found.spec)), tuple(_status_texts(found.status)))


def _spec_texts(spec: OpaqueSpec | None) -> Iterator[bytes]:
    while spec is not None:
        yield from _config_texts(spec.config)
        yield from _config_texts(spec.devices.config if spec.devices else None)
        spec = spec.spec


def _config_texts(config: list[OpaqueConfiguration] | None) -> Iterator[bytes]:
    for entry in config or ():
        if entry.opaque and (text := bytes(entry.opaque.parameters)):
            yield text.translate(_ONE_LINE)


def _status_texts(status: OpaqueStatus | None) -> Iterator[bytes]:
    if status is None:
        return
    allocated = status.allocation.devices if status.allocation else None
    yield from _config_texts(allocated.config if allocated else None)
    for device in status.devices or ():
        if text := bytes(device.data):
            yield text.translate(_ONE_LINE)


def raw_values_after_write(new: RawValues, stored: bytes, endpoint: str) -> RawValues | None:
    """How the outcome of a write is to be spelled; None: plainly, as it is already.

    `new` is what the write brings. An endpoint leaves alone what is not its part.
    """
    kept = raw_values_of(stored) if may_have_spaces(stored) else RawValues()
    if new == kept == RawValues():
        return None
    return RawValues(kept.spec, new.status) if endpoint == "status" else RawValues(new.spec, kept.status)


def raw_values_sent(body: bytes) -> RawValues:
    """Of a body that replaces or makes an object."""
    return raw_values_of(body) if may_have_spaces(body) else RawValues()


def sorted_raw_values(document: Document) -> RawValues:
    """Members by name, as a strategic merge and server-side apply leave them."""
    spec, status = (
        tuple(_sorted(holder[key]) for holder, key in slots)
        for slots in (_spec_slots(document), _status_slots(document))
    )
    return RawValues(spec, status)


_sorted = msgspec.json.Encoder(order="sorted").encode


def with_raw_values(document: Document, wanted: RawValues) -> bytes:
    """The stored form of a document, its opaque values as in `wanted`; plain where there are more or fewer of them."""
    copy = decode(to_value(document))
    for slots, texts in ((_spec_slots(copy), wanted.spec), (_status_slots(copy), wanted.status)):
        if len(slots) == len(texts):
            for (holder, key), text in zip(slots, texts, strict=True):
                holder[key] = msgspec.Raw(text)
    return encode(copy)


def _spec_slots(document: Document) -> list[Slot]:
    found: list[Slot] = []
    spec = document.get("spec")
    while isinstance(spec, dict):
        found += _config_slots(spec)
        found += _config_slots(spec.get("devices") or {})
        spec = spec.get("spec")
    return found


def _config_slots(holder: Document) -> list[Slot]:
    opaque = (entry.get("opaque") for entry in holder.get("config") or ())
    return [(entry, "parameters") for entry in opaque if entry and "parameters" in entry]


def _status_slots(document: Document) -> list[Slot]:
    status = document.get("status") or {}
    allocated = (status.get("allocation") or {}).get("devices") or {}
    devices = status.get("devices") or ()
    return [*_config_slots(allocated), *((device, "data") for device in devices if "data" in device)]
