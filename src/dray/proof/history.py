"""The history of a cluster as plain data: acknowledged writes, reads, lists, and watch events stream by stream.

Documents are kept as the server sent them. Times are seconds of the recorder's clock; only `reads` compares them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

Document = dict[str, Any]


class ObjectKey(NamedTuple):
    """`resource` is the plural with its group, as in `resourceclaims.resource.k8s.io`."""

    resource: str
    namespace: str
    name: str

    @classmethod
    def at(cls, resource: str, place: str) -> ObjectKey:
        """From `namespace/name`, or the name of an object without namespace."""
        namespace, _, name = place.rpartition("/")
        return cls(resource, namespace, name)

    def __str__(self) -> str:
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.resource.partition('.')[0]} {where}"


class Write(msgspec.Struct, frozen=True, tag=True, tag_field="record"):
    """A write that the server acknowledged. `revision` is the revision of the answered object, or 0."""

    key: ObjectKey
    verb: str
    revision: int
    uid: str
    at: float
    actor: str = ""
    subresource: str = ""
    request: msgspec.Raw = msgspec.Raw(b"null")
    answer: Document | None = None
    # When the call was made.
    began: float = 0.0


class Read(msgspec.Struct, frozen=True, tag=True, tag_field="record"):
    """One object was asked for as it is now, and answered. `revision` is 0 if there was none."""

    key: ObjectKey
    revision: int
    began: float
    at: float
    actor: str = ""


class Listed(msgspec.Struct, frozen=True, tag=True, tag_field="record"):
    """A whole list at one revision. The stream continues from it."""

    stream: str
    resource: str
    revision: int
    at: float
    documents: list[Document]


class Opened(msgspec.Struct, frozen=True, tag=True, tag_field="record"):
    """A watch that was opened to see everything after `revision`."""

    stream: str
    resource: str
    revision: int
    at: float


class SeenEvent(msgspec.Struct, frozen=True, tag="Seen", tag_field="record"):
    """A watch event: ADDED, MODIFIED, DELETED or BOOKMARK (then `key.name` is empty)."""

    stream: str
    type: str
    key: ObjectKey
    revision: int
    at: float
    document: Document


Record = Write | Read | Listed | Opened | SeenEvent

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Record)


class History:
    """Records in the order in which they were made."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self.records: list[Record] = list(records)

    def add(self, record: Record) -> None:
        self.records.append(record)

    def __len__(self) -> int:
        return len(self.records)

    @property
    def writes(self) -> Iterator[Write]:
        return (each for each in self.records if isinstance(each, Write))

    @property
    def reads(self) -> Iterator[Read]:
        return (each for each in self.records if isinstance(each, Read))

    def streams(self) -> dict[tuple[str, str], list[Listed | Opened | SeenEvent]]:
        """The records of each stream and resource, in order."""
        streams: dict[tuple[str, str], list[Listed | Opened | SeenEvent]] = {}
        for record in self.records:
            if isinstance(record, Write | Read):
                continue
            resource = record.key.resource if isinstance(record, SeenEvent) else record.resource
            streams.setdefault((record.stream, resource), []).append(record)
        return streams

    def save(self, path: Path) -> None:
        path.write_bytes(b"".join(line_of(record) for record in self.records))

    @classmethod
    def load(cls, path: Path) -> History:
        """Streams that saw the same state of an object share it: a long history is mostly that."""
        states: dict[tuple[ObjectKey, int], Document] = {}
        with path.open("rb") as lines:
            return cls(_sharing_state(_decoder.decode(line), states) for line in lines if line.strip())


class HistoryFile:
    """A history that is written down at once, for `History.load` later: an hour of it would fill the memory."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("xb")

    def add(self, record: Record) -> None:
        self._file.write(line_of(record))

    def close(self) -> None:
        self._file.close()


def _sharing_state(record: Record, states: dict[tuple[ObjectKey, int], Document]) -> Record:
    if not isinstance(record, SeenEvent) or record.type == "BOOKMARK":
        return record
    known = states.setdefault((record.key, record.revision), record.document)
    if known is record.document or known != record.document:
        return record
    return msgspec.structs.replace(record, document=known)


def line_of(record: Record) -> bytes:
    return _encoder.encode(record) + b"\n"


def metadata_of(document: Document) -> Document:
    found = document.get("metadata")
    return found if isinstance(found, dict) else {}


def revision_of(document: Document) -> int:
    text = str(metadata_of(document).get("resourceVersion", ""))
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0


def key_of(resource: str, document: Document) -> ObjectKey:
    metadata = metadata_of(document)
    return ObjectKey(resource, str(metadata.get("namespace", "")), str(metadata.get("name", "")))
