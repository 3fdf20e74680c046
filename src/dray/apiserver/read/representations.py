"""How objects are shown to a client: whole, in its version; as rows of a table; or as metadata only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

import msgspec
import yaml

from dray.api.jsontext import go_json
from dray.api.scheme import Resource, group_version
from dray.api.shaping import empty_object, empty_of
from dray.apiserver.errors import ApiError, bad_request
from dray.apiserver.read.protobuf_encoding import encode_item, encode_list, encode_object, watch_event
from dray.apiserver.read.tables import (
    column_definitions,
    row_cells,
)
from dray.apiserver.request.request_info import ApiCall
from dray.apiserver.request.request_options import JSON, PROTOBUF, SHARED_DEVICES, YAML, Query, ResponseFormat
from dray.apiserver.watch.stored_object import Pieces, Stored, decode, encode, from_storage, is_stored_form, line
from dray.clock import Clock
from dray.http.responses import Response

Document = dict[str, Any]

META_VERSION = "meta.k8s.io"
# Bytes of JSON. A megabyte takes about two seconds of a thread that other large requests wait for.
MOST_YAML = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ListMetadata:
    revision: int
    continue_token: str = ""
    remaining: int | None = None

    def document(self) -> Document:
        metadata: Document = {"resourceVersion": str(self.revision)}
        if self.continue_token:
            metadata["continue"] = self.continue_token
        if self.remaining:
            metadata["remainingItemCount"] = self.remaining
        return metadata


class JsonAnswer:
    """What the representations in JSON share."""

    __slots__ = ()
    content_type: ClassVar[str] = JSON

    def failed(self, status: Document) -> bytes:
        """An error in the middle of a watch."""
        return encode(status)

    def event(self, event_type: str, encoded: bytes) -> bytes:
        return line(event_type, encoded)


# Made once for each version by `representation_of`, compared and hashed by identity: watchers of one representation share its lines.
@dataclass(frozen=True, slots=True, eq=False)
class Whole(JsonAnswer):
    """Complete objects. Those that are stored in the client's version are sent without decoding."""

    row: Resource
    version: str
    # Whether objects are sent as they are stored, which takes no time to speak of.
    copies: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "copies", is_stored_form(self.row, self.version))

    def encode(self, stored: Stored) -> bytes:
        if self.copies:
            return stored.data()
        return encode(from_storage(self.row, self.version, stored.document()))

    def list(self, chosen: Iterable[Stored], meta: ListMetadata) -> bytes:
        items = [stored.item() if self.copies else (encode(self._item(stored)),) for stored in chosen]
        return joined_list(self._head(meta), items)

    def _head(self, meta: ListMetadata) -> bytes:
        """The fields of the list before its items."""
        return b'"kind":"%b","apiVersion":"%b","metadata":%b' % (
            self.row.list_kind.encode(), group_version(self.row.group, self.version).encode(), encode(meta.document()),
        )  # fmt: skip

    def _item(self, stored: Stored) -> Document:
        document = from_storage(self.row, self.version, stored.document())
        return {key: value for key, value in document.items() if key not in ("kind", "apiVersion")}

    def bookmark(self, revision: int, annotations: Document | None) -> bytes:
        metadata = _bookmark_metadata(revision, annotations)
        return encode({**empty_of(self.row, self.version), "metadata": metadata})


@dataclass(frozen=True, slots=True, eq=False)
class SharedDevices(Whole):
    """A list of slices for clients that know it: nodes of one kind publish the same devices, and equal lists of them are sent once.

    `deviceLists` has the lists, and `spec.devices` of an item is a number in it. Slices with few devices have these as always.
    """

    def list(self, chosen: Iterable[Stored], meta: ListMetadata) -> bytes:
        numbers: dict[bytes, int] = {}
        items = [stored.item_sharing(numbers) for stored in chosen]
        return joined_list(b'%b,"deviceLists":[%b]' % (self._head(meta), b",".join(numbers)), items)


def joined_list(head: bytes, items: Iterable[Pieces]) -> bytes:
    """A list of `items` with the fields `head`. The items are copied here for the first time."""
    pieces: list[bytes | memoryview] = [b'{%b,"items":[' % head]
    for item in items:
        pieces += item
        pieces.append(b",")
    if len(pieces) > 1:
        pieces.pop()  # no comma after the last
    return b"".join([*pieces, b"]}"])


@dataclass(frozen=True, slots=True)
class Protobuf:
    """Complete objects in protobuf."""

    row: Resource
    version: str
    content_type: ClassVar[str] = PROTOBUF
    copies: ClassVar[bool] = False

    def encode(self, stored: Stored) -> bytes:
        return self.of(stored.document())

    def of(self, document: Document) -> bytes:
        """A document of the storage version."""
        return encode_object(from_storage(self.row, self.version, document), self._api_version, self.row.kind)

    @property
    def _api_version(self) -> str:
        return group_version(self.row.group, self.version)

    def list(self, chosen: Iterable[Stored], meta: ListMetadata) -> bytes:
        items = [
            encode_item(from_storage(self.row, self.version, stored.document()), self._api_version, self.row.kind)
            for stored in chosen
        ]
        return encode_list(items, meta.document(), self._api_version, self.row.list_kind)

    def bookmark(self, revision: int, annotations: Document | None) -> bytes:
        empty = empty_object(self._api_version, self.row.kind)
        document = {**empty, "metadata": _bookmark_metadata(revision, annotations)}
        return encode_object(document, self._api_version, self.row.kind)

    def failed(self, status: Document) -> bytes:
        return encode_object(status, "v1", "Status")

    def event(self, event_type: str, encoded: bytes) -> bytes:
        return watch_event(event_type, encoded)


def _bookmark_metadata(revision: int, annotations: Document | None) -> Document:
    metadata: Document = {"resourceVersion": str(revision)}
    if annotations:
        metadata["annotations"] = annotations
    return metadata


@dataclass(frozen=True, slots=True)
class MetadataOnly(JsonAnswer):
    meta_version: str
    copies: ClassVar[bool] = False

    def encode(self, stored: Stored) -> bytes:
        return encode(self.of(stored.document()))

    def of(self, document: Document) -> Document:
        return {
            "kind": "PartialObjectMetadata",
            "apiVersion": f"{META_VERSION}/{self.meta_version}",
            "metadata": document["metadata"],
        }

    def list(self, chosen: Iterable[Stored], meta: ListMetadata) -> bytes:
        return encode(
            {
                "kind": "PartialObjectMetadataList",
                "apiVersion": f"{META_VERSION}/{self.meta_version}",
                "metadata": meta.document(),
                "items": [msgspec.Raw(encode(self.of(stored.document()))) for stored in chosen],
            }
        )

    def bookmark(self, revision: int, annotations: Document | None) -> bytes:
        return encode(self.of({"metadata": _bookmark_metadata(revision, annotations)}))


@dataclass(frozen=True, slots=True)
class Table(JsonAnswer):
    """Table rows; `include` says how much of each object is sent with its row."""

    row: Resource
    version: str
    meta_version: str
    include: str
    clock: Clock
    with_columns: bool = True
    copies: ClassVar[bool] = False

    def encode(self, stored: Stored) -> bytes:
        return self.list([stored], ListMetadata(stored.revision))

    def list(self, chosen: Iterable[Stored], meta: ListMetadata) -> bytes:
        return encode(
            {
                "kind": "Table",
                "apiVersion": f"{META_VERSION}/{self.meta_version}",
                "metadata": meta.document(),
                "columnDefinitions": column_definitions(self.row, self.version) if self.with_columns else None,
                "rows": [msgspec.Raw(encode(self._row(document))) for document in self._in_order(chosen)],
            }
        )

    def _in_order(self, chosen: Iterable[Stored]) -> Iterable[Document]:
        """Flow schemas come in the order in which they are tried, all others in that of their names."""
        documents = (stored.document() for stored in chosen)
        return (
            sorted(documents, key=_precedence)
            if self.row.plural == FLOW_SCHEMAS and self.row.custom is None
            else documents
        )

    def _row(self, document: Document) -> Document:
        row: Document = {"cells": row_cells(self.row, self.version, document, self.clock.now())}
        if self.include == "Object":
            row["object"] = from_storage(self.row, self.version, document)
        elif self.include == "None":
            row["object"] = None
        else:
            row["object"] = MetadataOnly(self.meta_version).of(document)
        return row

    def bookmark(self, revision: int, annotations: Document | None) -> bytes:
        return encode(
            {
                "kind": "Table",
                "apiVersion": f"{META_VERSION}/{self.meta_version}",
                "metadata": {"resourceVersion": str(revision)},
                "columnDefinitions": None,
                "rows": [self._bookmark_row(revision, annotations)],
            }
        )

    def _bookmark_row(self, revision: int, annotations: Document | None) -> Document:
        metadata = _bookmark_metadata(revision, annotations)
        return {"cells": [], "object": MetadataOnly(self.meta_version).of({"metadata": metadata})}


def _precedence(flow_schema: Document) -> tuple[int, str]:
    precedence = (flow_schema.get("spec") or {}).get("matchingPrecedence") or 0
    return precedence, flow_schema["metadata"]["name"]


_whole = lru_cache(maxsize=1024)(Whole)
SLICE, FLOW_SCHEMAS = "ResourceSlice", "flowschemas"

Representation = Whole | Protobuf | MetadataOnly | Table


def representation_of(call: ApiCall, clock: Clock, *, is_list: bool) -> Representation:
    """Raises 400 or 406 if the kind cannot be shown in this format."""
    row, version, wanted = call.row, call.version, call.response_format
    if wanted.media_type == PROTOBUF:
        return Protobuf(row, version)
    if wanted.kind == SHARED_DEVICES and is_list and row.kind == SLICE and is_stored_form(row, version):
        return SharedDevices(row, version)
    if not wanted.kind or wanted.kind == SHARED_DEVICES:
        return _whole(row, version)
    if wanted.kind == "Table":
        include = call.query.get("includeObject", "")
        if include not in ("", "Metadata", "Object", "None"):
            raise bad_request(
                f"Unable to convert to Table as requested: includeObject: Invalid value: {go_json(include)}: "
                "must be 'Metadata', 'Object', 'None', or empty"
            )
        return Table(row, version, wanted.version, include or "Metadata", clock)
    if is_list and wanted.kind == "PartialObjectMetadata":
        text = f"you requested PartialObjectMetadata, but the requested object is a list ({_go_list(row)})"
        raise ApiError(406, "NotAcceptable", text)
    if not is_list and wanted.kind == "PartialObjectMetadataList":
        text = f"you requested PartialObjectMetadataList, but the requested object is not a list ({_go_type(row)})"
        raise ApiError(406, "NotAcceptable", text)
    return MetadataOnly(wanted.version)


def _go_type(row: Resource) -> str:
    return f"*{(row.group or 'core').partition('.')[0]}.{row.kind}"


def _go_list(row: Resource) -> str:
    return _go_type(row) + "List"


def bytes_to_rewrite(response: Response, chosen: ResponseFormat, query: Query) -> int:
    """How much of the answer `in_media_type` reads again."""
    if chosen.media_type != YAML and not query.flag("pretty"):
        return 0
    return len(response.body) if response.stream is None and response.content_type == JSON else 0


def in_media_type(response: Response, chosen: ResponseFormat, query: Query) -> Response:
    size = bytes_to_rewrite(response, chosen, query)
    if not size:
        return response
    if chosen.media_type == YAML:
        if size > MOST_YAML:
            text = f"{size} bytes are too many to be shown in YAML: ask for JSON, or for less with limit"
            raise ApiError(406, "NotAcceptable", text)
        response.body = yaml.safe_dump(decode(response.body), sort_keys=True, allow_unicode=True).encode()
        response.content_type = YAML
    else:
        response.body = msgspec.json.format(response.body, indent=2) + b"\n"
    return response
