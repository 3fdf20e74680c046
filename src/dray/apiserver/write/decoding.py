"""Request bodies to documents: JSON or YAML, checked against the kind, unknown and repeated fields named."""

from __future__ import annotations

from typing import Any

import msgspec

from dray.api.codec import shape_document
from dray.api.errors import DecodeError
from dray.api.jsontext import duplicate_fields, read_json
from dray.api.schemas import known_kinds
from dray.api.scheme import Resource, group_version
from dray.api.yamltext import read_yaml
from dray.apiserver.errors import ApiError, bad_request
from dray.apiserver.request.request_options import (
    PROTOBUF,
    YAML,
    unknown_format,
)
from dray.apiserver.write import protobuf
from dray.apiserver.write.go_json_errors import complaint

Document = dict[str, Any]

SUMMARY = 30
# What most writes either change or leave alone as a whole.
PARTS = ("spec", "status")
MAX_WARNINGS = 100
SCHEME_TEXT = 'in scheme "pkg/api/legacyscheme/scheme.go:30"'


_canonical = msgspec.json.Encoder(order="deterministic").encode


class Decoded(msgspec.Struct, frozen=True):
    """`problems` are what strict validation refuses and what otherwise becomes warnings."""

    document: Document
    problems: tuple[str, ...] = ()
    # managedFields was sent empty: ownership starts over.
    resets_managers: bool = False


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


def decode_object(
    body: bytes, media_type: str, row: Resource, version: str, kind: str = "", before: Document | None = None
) -> Decoded:
    """A body as an object of the kind (or of another `kind` that a subresource takes); raises 400.

    `before` is the object as it is stored, in the same version: what is equal in it was read and checked before.
    """
    expected_kind, expected_version = kind or row.kind, group_version(row.group, version)
    try:
        tree, duplicates = parse(body, media_type)
    except DecodeError as error:
        raise _unrecognized(body, expected_kind, str(error)) from None
    if not isinstance(tree, dict):
        found = {list: "array", str: "string", bool: "bool", type(None): "null"}.get(type(tree), "number")
        why = f"json: cannot unmarshal {found} into Go value of type struct {{ APIVersion string; Kind string }}"
        raise _unrecognized(body, expected_kind, why)
    check_type(tree, expected_version, expected_kind)
    if before is not None:
        _share_equal_parts(tree, before)
    try:
        return shaped_or_fail(tree, expected_version, expected_kind, duplicates, before)
    except DecodeError as error:
        why = f'{expected_kind} in version "{version}" cannot be handled as a {expected_kind}: {error.answer}'
        raise bad_request(why) from None


def _share_equal_parts(tree: Document, before: Document) -> None:
    """In Python 1 equals True and 1.0; in JSON they differ."""
    for part in PARTS:
        sent, known = tree.get(part), before.get(part)
        if sent and sent == known and _canonical(sent) == _canonical(known):
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


def check_type(tree: Document, expected_version: str, expected_kind: str) -> None:
    """A body may leave out what it is; what it says must be what the URL says."""
    version, kind = tree.get("apiVersion") or expected_version, tree.get("kind") or expected_kind
    for name, value in (("apiVersion", version), ("kind", kind)):
        if not isinstance(value, str):
            raise bad_request(f"{name} must be a string")
    if (version, kind) == (expected_version, expected_kind):
        return
    short = version.rpartition("/")[2]
    if (version, kind) not in known_kinds():
        why = f'no kind "{kind}" is registered for version "{version}" {SCHEME_TEXT}'
        raise bad_request(f'{kind} in version "{short}" cannot be handled as a {expected_kind}: {why}')
    if kind == expected_kind:
        raise bad_request(
            f"the API version in the data ({version}) does not match the expected API version ({expected_version})"
        )
    raise bad_request(
        f'{kind} in version "{short}" cannot be handled as a {expected_kind}: converting ({short}.{kind}) to '
        f"({expected_version.partition('/')[0].partition('.')[0]}.{expected_kind}): unknown conversion"
    )


def shaped_or_fail(
    tree: Document,
    api_version: str,
    kind: str,
    duplicates: tuple[str, ...] = (),
    before: Document | None = None,
) -> Decoded:
    """`before` is the object that was patched: what the patch left alone needs no second look."""
    metadata = tree.get("metadata")
    resets = isinstance(metadata, dict) and metadata.get("managedFields") in ([], [{}])
    kept = _untouched(tree, before) if before else {}
    rest = {key: value for key, value in tree.items() if key not in kept} if kept else tree
    reading = shape_document(rest, duplicates, api_version=api_version, kind=kind)
    document = reading.document
    if kept:
        whole = document | kept
        document = {key: whole[key] for key in tree if key in whole} | whole
    if resets:
        document["metadata"].pop("managedFields", None)
    return Decoded(document, reading.warnings, resets)


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
