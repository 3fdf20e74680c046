"""Request bodies to documents: JSON or YAML, checked against the kind, unknown and repeated fields named.

The text of opaque values (parameters for drivers, device data) is kept as it was sent, see `RawValues`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from dray.api.codec import shape_document
from dray.api.defaults import apply_defaults
from dray.api.errors import DecodeError
from dray.api.jsontext import duplicate_fields, read_json
from dray.api.projections import OpaqueConfiguration, OpaqueObject, OpaqueSpec, OpaqueStatus
from dray.api.schemas import known_kinds
from dray.api.scheme import Resource, group_version
from dray.api.slice_text import learn, read_tree
from dray.api.yamltext import read_yaml
from dray.apiserver.errors import ApiError, bad_request
from dray.apiserver.request.request_options import JSON, PROTOBUF, YAML, unknown_format
from dray.apiserver.watch.stored_object import SLICE, Stored, decode, encode, to_value
from dray.apiserver.write import protobuf
from dray.apiserver.write.go_json_errors import complaint

if TYPE_CHECKING:
    from dray.apiserver.custom_resources.custom_kind import CustomKind

Document = dict[str, Any]

SUMMARY = 30
# What most writes either change or leave alone as a whole.
PARTS = ("metadata", "spec", "status")
MAX_WARNINGS = 100
SCHEME_TEXT = 'in scheme "pkg/api/legacyscheme/scheme.go:30"'


canonical = msgspec.json.Encoder(order="deterministic").encode


class Decoded(msgspec.Struct, frozen=True):
    """`problems` are what strict validation refuses and what otherwise becomes warnings."""

    document: Document
    problems: tuple[str, ...] = ()
    # managedFields was sent empty: ownership starts over.
    resets_managers: bool = False
    # The spec is the stored one, in shape and with its defaults.
    has_stored_spec: bool = False


def parse(body: bytes, media_type: str) -> tuple[Any, tuple[str, ...]]:
    """The tree in a body, and the fields it names twice; raises DecodeError."""
    if media_type == PROTOBUF:
        if not protobuf.is_readable(body):
            raise unknown_format()
        return protobuf.read(body), ()
    if (media_type == YAML or media_type.endswith("+yaml")) and body.lstrip()[:1] != b"{":
        for found in read_yaml(body):
            return found.value, found.duplicate_fields
        return None, ()
    try:
        tree = read_json(body)
    except DecodeError:
        raise DecodeError(complaint(body)) from None
    return tree, duplicate_fields(body, tree)


def _parse_slice(body: bytes) -> tuple[Any, tuple[str, ...]]:
    """As `parse`; a list of devices that was read before is shared with the slices that have the same."""
    found = learn(body)
    tree = read_tree(found) if found else None
    return parse(body, JSON) if tree is None else (tree, ())


def decode_object(
    body: bytes, media_type: str, row: Resource, version: str, kind: str = "", before: Document | None = None
) -> Decoded:
    """A body as an object of the kind (or of another `kind` that a subresource takes); raises 400.

    `before` is the object as it is stored, in the same version: what is equal in it was read and checked before.
    """
    expected_kind, expected_version = kind or row.kind, group_version(row.group, version)
    try:
        tree, duplicates = _parse_slice(body) if row.kind == SLICE and media_type == JSON else parse(body, media_type)
    except DecodeError as error:
        raise _unrecognized(body, expected_kind, str(error)) from None
    if not isinstance(tree, dict):
        found = {list: "array", str: "string", bool: "bool", type(None): "null"}.get(type(tree), "number")
        why = f"json: cannot unmarshal {found} into Go value of type struct {{ APIVersion string; Kind string }}"
        raise _unrecognized(body, expected_kind, why)
    if row.custom is not None:
        _check_custom_type(tree, body, expected_version, expected_kind)
    else:
        check_type(tree, expected_version, expected_kind)
    if before is not None:
        _share_equal_parts(tree, before)
    try:
        if not kind:
            return shaped_object(row, version, tree, duplicates, before)
        return shaped_or_fail(tree, expected_version, expected_kind, duplicates, before)
    except DecodeError as error:
        why = f'{expected_kind} in version "{version}" cannot be handled as a {expected_kind}: {error.answer}'
        raise bad_request(why) from None


def _share_equal_parts(tree: Document, before: Document) -> None:
    """Puts stored parts in place of equal ones. In Python 1 equals True and 1.0; in JSON they differ."""
    for part in PARTS:
        sent, known = tree.get(part), before.get(part)
        if sent and sent == known and canonical(sent) == canonical(known):
            tree[part] = known


def _unrecognized(body: bytes, kind: str, why: str) -> ApiError:
    return bad_request(
        f"the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; "
        f"json parse error: {why} ({_summary(body)})"
    )


def _summary(body: bytes) -> str:
    if not body:
        return "<empty>"
    cut, more = body[:SUMMARY], " ..." if len(body) > SUMMARY else ""
    return (cut.decode("utf-8", "replace") if body[:1] == b"{" else cut.hex()) + more


def _check_custom_type(tree: Document, body: bytes, expected_version: str, expected_kind: str) -> None:
    """Bodies of such kinds must say what they are."""
    if not tree.get("kind"):
        shown = body.decode("utf-8", "replace")
        raise bad_request(
            f"the object provided is unrecognized (must be of type {expected_kind}): Object 'Kind' is missing in "
            f"'{shown[:1024]}' ({_summary(body)})"
        )
    version = tree.get("apiVersion") or ""
    if version != expected_version:
        raise bad_request(
            f"the API version in the data ({version}) does not match the expected API version ({expected_version})"
        )
    if tree["kind"] != expected_kind:
        raise bad_request(f"the kind in the data ({tree['kind']}) does not match the expected kind ({expected_kind})")


def unregistered(version: str, kind: str) -> str:
    """Why this names no kind at all; empty if it names one."""
    if (version, kind) in known_kinds():
        return ""
    if version.count("/") > 1:
        return f"unexpected GroupVersion string: {version}"
    return f'no kind "{kind}" is registered for version "{version}" {SCHEME_TEXT}'


def check_type(tree: Document, expected_version: str, expected_kind: str) -> None:
    """A body may leave out what it is; what it says must be what the URL says."""
    version, kind = tree.get("apiVersion") or expected_version, tree.get("kind") or expected_kind
    if version == expected_version and kind == expected_kind:
        return
    for name, value in (("apiVersion", version), ("kind", kind)):
        if not isinstance(value, str):
            raise bad_request(f"{name} must be a string")
    short = version.rpartition("/")[2]
    why = unregistered(version, kind)
    if why:
        raise bad_request(f'{kind} in version "{short}" cannot be handled as a {expected_kind}: {why}')
    if kind == expected_kind:
        raise bad_request(
            f"the API version in the data ({version}) does not match the expected API version ({expected_version})"
        )
    raise bad_request(
        f'{kind} in version "{short}" cannot be handled as a {expected_kind}: converting ({short}.{kind}) to '
        f"({expected_version.partition('/')[0].partition('.')[0]}.{expected_kind}): unknown conversion"
    )


def shaped_object(
    row: Resource,
    version: str,
    tree: Document,
    duplicates: tuple[str, ...] = (),
    before: Document | None = None,
) -> Decoded:
    """A tree as an object of the kind; raises DecodeError."""
    custom: CustomKind | None = row.custom
    if custom is None:
        return shaped_or_fail(tree, group_version(row.group, version), row.kind, duplicates, before)
    resets = _resets_managers(tree)
    document, unknown = custom.shaped(version, tree)
    if resets:
        document["metadata"].pop("managedFields", None)
    return Decoded(document, (*unknown, *(f'duplicate field "{path}"' for path in duplicates)), resets)


def defaulted(row: Resource, document: Document, now: str, *, has_stored_spec: bool = False) -> Document:
    """The object with the defaults of its kind."""
    custom: CustomKind | None = row.custom
    if custom is not None:
        return custom.defaulted(document)
    return apply_defaults(document, now, has_stored_spec=has_stored_spec)


def _resets_managers(tree: Document) -> bool:
    metadata = tree.get("metadata")
    return isinstance(metadata, dict) and metadata.get("managedFields") in ([], [{}])


def shaped_or_fail(
    tree: Document,
    api_version: str,
    kind: str,
    duplicates: tuple[str, ...] = (),
    before: Document | None = None,
) -> Decoded:
    """`before` is the object that was patched: what the patch left alone needs no second look."""
    resets = _resets_managers(tree)
    kept = _untouched(tree, before) if before else {}
    rest = {key: value for key, value in tree.items() if key not in kept} if kept else tree
    reading = shape_document(rest, duplicates, api_version=api_version, kind=kind)
    document = reading.document
    if kept:
        whole = document | kept
        document = {key: whole[key] for key in tree if key in whole} | whole
    if resets:
        document["metadata"].pop("managedFields", None)
    return Decoded(document, reading.warnings, resets, "spec" in kept)


def _untouched(tree: Document, before: Document) -> Document:
    """Whole parts of the object that are still the stored ones, copied as far as admission may write into them."""
    return {
        part: dict(tree[part])
        for part in PARTS
        if part in tree and tree[part] is before.get(part) and isinstance(tree[part], dict)
    }


def strict_error(row: Resource, version: str, problems: tuple[str, ...]) -> ApiError:
    return bad_request(
        f'{row.kind} in version "{version}" cannot be handled as a {row.kind}: '
        f"strict decoding error: {', '.join(problems[:MAX_WARNINGS])}"
    )


# --- opaque values ---------------------------------------------------------------------------------------------------
#
# The server does not read these values, so it stores their text unchanged, spaces included. A PUT stores the text that it brought; a patch goes
# over the whole object and leaves the plain spelling behind, some also the members in order. Text that changed is a change of the object, even
# where it means the same; whether a field that may not change did change is judged by its meaning.

Slot = tuple[Document, str]

KINDS_WITH_RAW_VALUES = frozenset({"DeviceClass", "ResourceClaim", "ResourceClaimTemplate"})
# What JSON with spaces in it has somewhere, and plain JSON outside of texts has not.
_SPACED = b'": '
# A stored object is one line: watches send lines.
_ONE_LINE = bytes.maketrans(b"\n\r\t", b"   ")


_read = msgspec.json.Decoder(OpaqueObject).decode


class RawValues(msgspec.Struct, frozen=True, gc=False):
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


def value_with_raw_values(document: Document, wanted: RawValues | None) -> bytes:
    return to_value(document) if wanted is None else with_raw_values(document, wanted)


def change_raw_values(document: Document, stored: Stored, wanted: RawValues) -> bool:
    """Whether the text of an opaque value changes; in a spec that counts as a change of the spec and raises the generation."""
    before, after = (raw_values_of(data) for data in (stored.value, with_raw_values(document, wanted)))
    metadata, generation = document["metadata"], stored.document()["metadata"].get("generation")
    if before.spec != after.spec and generation and metadata.get("generation") == generation:
        metadata["generation"] = generation + 1
    return before != after
