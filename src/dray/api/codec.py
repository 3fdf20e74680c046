"""Bytes to documents and objects, and back.

- `decode` reads bytes straight into a struct: the fast way, for objects that a server has checked before.
- `read_document` brings a JSON document into the shape of its kind and names unknown and duplicate fields: the careful
  way, for what people send. `DecodeError` is the only thing it raises.
- `to_object`, `to_document` and `encode` go between the two forms.

YAML, files with several documents and List kinds are in `dray.api.manifests`.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from dray.api.errors import DecodeError
from dray.api.jsontext import MAX_BYTES, duplicate_fields, read_json
from dray.api.kep_field_names import canonical_spelling
from dray.api.quantity import Quantity, QuantityError, decoding_hook
from dray.api.scalars import Shaping, UnknownField
from dray.api.shaping import Document, shape_for_kind

__all__ = [
    "DecodeError",
    "Document",
    "ShapedDocument",
    "decode",
    "encode",
    "encode_document",
    "read_document",
    "shape_document",
    "to_document",
    "to_object",
]

T = TypeVar("T")


def _enc_hook(value: Any) -> Any:
    if isinstance(value, Quantity):
        return str(value)
    raise NotImplementedError(type(value))


_decoders: dict[type, msgspec.json.Decoder[Any]] = {}


def _decoder_for(kind: type[T]) -> msgspec.json.Decoder[T]:
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind, dec_hook=decoding_hook)
    return decoder


_encoder = msgspec.json.Encoder(enc_hook=_enc_hook)


def decode(kind: type[T], data: bytes) -> T:
    """An object from JSON bytes, without looking for unknown fields."""
    try:
        return _decoder_for(kind).decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, QuantityError):
        return _decode_with_nulls(kind, read_json(data))


def to_object(document: Document, kind: type[T]) -> T:
    """The struct that a document fills; fields that the struct does not model are left out."""
    try:
        data = _encoder.encode(document)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise DecodeError(f"not a JSON document: {error}") from None
    try:
        return _decoder_for(kind).decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, QuantityError):
        return _decode_with_nulls(kind, document)


def _decode_with_nulls(kind: type[T], value: Any) -> T:
    """Decodes again without nulls, which count as absent as in Go; an error that remains is the sender's."""
    if not isinstance(value, dict):
        raise DecodeError("expected an object")
    shape = shape_for_kind(str(value.get("apiVersion") or _default_version(kind)), kind.__name__)
    shaped = shape(value, kind.__name__, None, Shaping()) if shape else _without_nulls(value)
    try:
        return _decoder_for(kind).decode(_encoder.encode(_without_null_fields(shaped)))
    except RecursionError:
        raise DecodeError("the document is nested too deeply") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, QuantityError, TypeError) as error:
        message, _, path = str(error).partition(" - at ")
        raise DecodeError(message, path=path.strip("`").removeprefix("$").removeprefix(".")) from None


def _default_version(kind: type) -> str:
    for field in getattr(kind, "__struct_fields__", ()):
        if field == "api_version":
            return str(kind().api_version)
    return ""


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_without_nulls(inner) for inner in value]
    return value


def _without_null_fields(shaped: Document) -> Document:
    """Removes the nulls that the wire form always has; those inside of driver parameters stay."""
    return {
        key: (
            inner
            if key in ("parameters", "data", "fieldsV1")
            else _without_null_fields(inner)
            if isinstance(inner, dict)
            else [_without_null_fields(i) if isinstance(i, dict) else i for i in inner]
            if isinstance(inner, list)
            else inner
        )
        for key, inner in shaped.items()
        if inner is not None
    }


def to_document(obj: msgspec.Struct) -> Document:
    """The document of an object, with the keys that are always on the wire."""
    document = msgspec.json.decode(_encoder.encode(obj))
    shape = shape_for_kind(document.get("apiVersion", ""), document.get("kind", ""))
    return shape(document, document["kind"], None, Shaping()) if shape else document


def encode(obj: msgspec.Struct) -> bytes:
    return _encoder.encode(obj)


def encode_document(document: Document) -> bytes:
    return _encoder.encode(document)


class ShapedDocument(msgspec.Struct, frozen=True):
    """A document in the shape of its kind, with the unknown and duplicate fields that were found."""

    document: Document
    unknown: tuple[UnknownField, ...] = ()
    duplicate_fields: tuple[str, ...] = ()

    @property
    def unknown_fields(self) -> tuple[str, ...]:
        return tuple(field.path for field in self.unknown)

    @property
    def warnings(self) -> tuple[str, ...]:
        """As Kubernetes words them, in warnings and in strict decoding errors."""
        return (*map(str, self.unknown), *[f'duplicate field "{path}"' for path in self.duplicate_fields])

    def strict(self) -> Document:
        """The document; raises DecodeError if it has unknown or duplicate fields."""
        if self.warnings:
            raise DecodeError("strict decoding error: " + ", ".join(self.warnings))
        return self.document


def read_document(
    data: bytes, *, api_version: str | None = None, kind: str | None = None, max_bytes: int = MAX_BYTES
) -> ShapedDocument:
    """Reads one JSON document; `api_version` and `kind` are used if the document has none."""
    value = read_json(data, max_bytes=max_bytes)
    return shape_document(value, duplicate_fields(data, value), api_version=api_version, kind=kind)


# Kinds of which newer clients and nodes may send fields that we do not know: these fields are kept.
NEWER_THAN_US = ("Pod", "Node")


def shape_document(
    value: Any, duplicates: tuple[str, ...] = (), *, api_version: str | None = None, kind: str | None = None
) -> ShapedDocument:
    """A JSON value in the shape of its kind; older spellings come out in canonical form."""
    if not isinstance(value, dict):
        raise DecodeError("expected an object with apiVersion and kind")
    api_version = _said(value, "apiVersion", api_version)
    kind = _said(value, "kind", kind)
    shape = shape_for_kind(api_version, kind)
    if shape is None:
        raise DecodeError(f'no kind "{kind}" is registered for version "{api_version}"')
    run = Shaping(keeps_unknown=kind in NEWER_THAN_US)
    document = shape(canonical_spelling({**value, "kind": kind, "apiVersion": api_version}), kind, None, run)
    document.setdefault("metadata", {})
    _mirror(document)
    return ShapedDocument(document, tuple(run.unknown), duplicates)


def _said(document: Document, name: str, default: str | None) -> str:
    text = document.get(name) or default
    if type(text) is not str:
        raise DecodeError(f"Object '{name.capitalize()}' is missing" if text is None else f"{name} must be a string")
    return text


def _mirror(document: Document) -> None:
    """Keeps pairs of fields equal that exist for old and new clients: a list, and its first entry alone."""
    if document["kind"] == "Pod" and "status" in document:
        _mirror_first(document["status"], "podIP", "podIPs", "ip")
    elif document["kind"] == "Node" and "spec" in document:
        _mirror_first(document["spec"], "podCIDR", "podCIDRs", "")


def _mirror_first(section: Document, single: str, many: str, key: str) -> None:
    """If the two differ, the single field wins: only an old client would have changed it alone."""
    entries, alone = section.get(many), section.get(single)
    first = (entries[0].get(key, "") if key else entries[0]) if entries else ""
    if not alone:
        if first:
            section[single] = first
    elif alone != first:
        section[many] = [{key: alone}] if key else [alone]
