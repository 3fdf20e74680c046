"""Objects in the store: their keys, their bytes, and the conversion between the stored version and the served ones.

Keys: `/registry/<group>/<plural>/[<namespace>/]<name>` for objects (`core` for the core group), in the storage version and
without resourceVersion; events of both groups share their keys below `core`. `/guard/...` holds which claim has which device:
it is derived from claims and changes in the same commit as they do; in a store of several servers it also holds which pod was
bound to a node last. `/server/...` holds what several servers share.

Bytes: the stored bytes begin with kind, apiVersion and metadata, in this order, so that the resourceVersion (which the store
does not keep) can be put in, and the head of a list item left out, by cutting bytes.

Versions: the other versions of resource.k8s.io and autoscaling are converted; events of events.k8s.io are stored as core
events; the versions of other kinds have the same shape.

Memory: slices with equal devices share the text of these (`SharedStored`); `packed_objects` compresses what has not changed for a while.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from dray.api import autoscaler_versions, versions
from dray.api.projections import LabelledObject, PlacedPod
from dray.api.scheme import Resource, by_kind, group_version
from dray.api.slice_text import SplitSlice, learn, with_devices_text
from dray.apiserver.read.selectors import FieldSelector
from dray.store.interface import Entry

Document = dict[str, Any]
FieldsOf = Callable[[Document], dict[str, str]]

SLICE = "ResourceSlice"
# A field by which thousands of kubelets select their pods.
NODE_FIELD = "spec.nodeName"
NO_LABELS: Mapping[str, str] = {}
_decode_document = msgspec.json.Decoder(Document).decode


# --- keys

REGISTRY = "/registry/"
GUARD = "/guard/"
SERVER = "/server/"


def resource_prefix(group: str, plural: str) -> str:
    """All objects of a kind. The trailing slash keeps `pods` from matching `podsets`."""
    if plural == "events":
        group = ""
    return f"{REGISTRY}{group or 'core'}/{plural}/"


def namespace_prefix(group: str, plural: str, namespace: str) -> str:
    """All objects of a namespaced kind in one namespace."""
    return f"{resource_prefix(group, plural)}{namespace}/"


def object_key(group: str, plural: str, namespace: str, name: str) -> str:
    """One object; an empty namespace means a cluster-scoped kind."""
    prefix = namespace_prefix(group, plural, namespace) if namespace else resource_prefix(group, plural)
    return prefix + name


# --- bytes

# How every pod that has a node is written in the store. Finding it in a pod without one only costs a look.
HAS_NODE = b'"nodeName":'

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode


def line(event_type: str, encoded: bytes) -> bytes:
    """One event of a watch in JSON."""
    return b'{"type":"%b","object":%b}\n' % (event_type.encode(), encoded)


def ordered(document: dict[str, Any]) -> dict[str, Any]:
    """kind, apiVersion and metadata first: the stored form, whose head has one fixed length per kind."""
    head = {"kind": document.get("kind"), "apiVersion": document.get("apiVersion"), "metadata": document["metadata"]}
    return head | document


_decode_head = msgspec.json.Decoder(LabelledObject).decode


@lru_cache(maxsize=256)
def head_of(kind: str, api_version: str) -> bytes:
    """The bytes that every stored object of a kind begins with."""
    return b'{"kind":"%b","apiVersion":"%b","metadata":{' % (kind.encode(), api_version.encode())


def to_value(document: Document) -> bytes:
    """The bytes that are stored for a document: without resourceVersion."""
    shaped = ordered(document)
    if "resourceVersion" in shaped["metadata"]:
        shaped["metadata"] = metadata = dict(shaped["metadata"])
        del metadata["resourceVersion"]
    return encode(with_devices_text(shaped) if shaped["kind"] == SLICE else shaped)


def document_of(entry: Entry) -> Document:
    """The stored document with its resourceVersion."""
    document: Document = _decode_document(entry.value)
    document.setdefault("metadata", {})["resourceVersion"] = str(entry.revision)
    return document


_decode_node = msgspec.json.Decoder(PlacedPod).decode


def node_in(value: bytes) -> str | None:
    """The node of a stored pod, without reading all of the pod: empty if it has none, None if the pod cannot be read."""
    if HAS_NODE not in value:
        return ""
    try:
        return _decode_node(value).spec.node_name
    except msgspec.MsgspecError:
        return None


def labels_in(value: bytes) -> Mapping[str, str]:
    return _decode_head(value).metadata.labels or NO_LABELS


# Bytes that follow each other and are not joined yet.
Pieces = tuple[bytes | memoryview, ...]


class Stored:
    """An object at one revision. It is shared by readers and watchers and never changes."""

    __slots__ = ("_fields", "_head", "_labels", "_shared", "created", "key", "namespace", "revision", "value")

    def __init__(self, key: str, namespace: str, value: bytes, revision: int, created: int, head: int) -> None:
        self.key = key
        self.namespace = namespace
        self.value = value
        self.revision = revision
        self.created = created
        self._head = head
        self._labels: Mapping[str, str] | None = None
        self._fields: dict[str, str] | None = None
        self._shared: Document | None = None

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2]

    @property
    def size(self) -> int:
        """The bytes that it holds by itself."""
        return len(self.value)

    def data(self, revision: int = 0) -> bytes:
        """The whole object as JSON; a deleted one shows the revision of its deletion."""
        head, value = self._head, self.value
        return b'%b"resourceVersion":"%d",%b' % (value[:head], revision or self.revision, value[head:])

    def item(self) -> Pieces:
        """The object as an item of a list: without kind and apiVersion. In pieces, since a list copies its objects once, when it joins them."""
        return b'{"metadata":{"resourceVersion":"%d",' % self.revision, memoryview(self.value)[self._head :]

    def item_sharing(self, numbers: dict[bytes, int]) -> Pieces:
        """As `item`. A list of devices that others may share is replaced by its number, which it gets here when it is new."""
        return self.item()

    def document(self, revision: int = 0) -> Document:
        """A fresh copy that the caller may change."""
        document: Document = _decode_document(self.value)
        document["metadata"]["resourceVersion"] = str(revision or self.revision)
        return document

    def shared_document(self) -> Document:
        """One copy for all who only look; nobody may change it."""
        if self._shared is None:
            self._shared = self.document()
        return self._shared

    def labels(self) -> Mapping[str, str]:
        if self._labels is None:
            self._labels = labels_in(self.value)
        return self._labels

    def fields(self, fields_of: FieldsOf) -> dict[str, str]:
        if self._fields is None:
            self._fields = fields_of(_decode_document(self.value))
        return self._fields

    def matches_fields(self, selector: FieldSelector, fields_of: FieldsOf) -> bool:
        return selector.matches(self.fields(fields_of))

    def node(self) -> str | None:
        """Of a pod: see `node_in`."""
        return node_in(self.value)

    def at(self, revision: int) -> Stored:
        """The same content under another revision, for the event of a deletion."""
        copy = Stored(self.key, self.namespace, self.value, revision, self.created, self._head)
        copy._labels, copy._fields = self._labels, self._fields
        return copy


# Bytes of the stored objects whose documents are kept: a hundred pods and their claims, as many as are on their way at a time. The documents
# take about five times as much.
MOST_KEPT_BYTES = 192 * 1024


class RecentDocuments:
    """The documents of the objects that were written last. Each component on a pod's way writes the object that the one before it wrote, and
    does not decode it again. Nobody may change these documents: a changed object is a new document, which may share parts with the old one.
    """

    def __init__(self) -> None:
        # By key, and only for the newest version of each object.
        self._kept: dict[str, tuple[Stored, Document]] = {}
        self._bytes = 0

    def of(self, stored: Stored) -> Document:
        kept = self._kept.get(stored.key)
        return kept[1] if kept is not None and kept[0] is stored else stored.document()

    def keep(self, stored: Stored, document: Document) -> None:
        """`document` is what was encoded as the value of `stored`, and now belongs to us."""
        self._drop(stored.key)
        kept = ordered(document)
        kept["metadata"] = {**kept["metadata"], "resourceVersion": str(stored.revision)}
        self._kept[stored.key] = stored, kept
        self._bytes += len(stored.value)
        while self._bytes > MOST_KEPT_BYTES:
            self._drop(next(iter(self._kept)))

    def moved(self, before: Stored, after: Stored) -> None:
        """The document of `before` is now that of `after`, which differs by its revision only."""
        kept = self._kept.get(before.key)
        if kept is not None and kept[0] is before:
            self.keep(after, kept[1])

    def _drop(self, key: str) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._bytes -= len(kept[0].value)

    def __iter__(self) -> Iterator[tuple[Stored, Document]]:
        return iter(self._kept.values())


class SharedStored(Stored):
    """A slice that shares the text of its devices with the slices of equal nodes; `value` is put together when it is read."""

    __slots__ = ("_parts",)

    def __init__(self, key: str, parts: SplitSlice, revision: int, created: int, head: int) -> None:
        # The base's constructor is not called: the slot of `value` stays empty, so that reading it calls `__getattr__`.
        self.key, self.namespace = key, ""
        self.revision, self.created, self._head, self._parts = revision, created, head, parts
        self._labels = self._fields = self._shared = None

    def __getattr__(self, name: str) -> Any:
        if name == "value":
            return b"".join(self._parts)
        raise AttributeError(name)

    @property
    def size(self) -> int:
        return len(self._parts.before) + len(self._parts.after)

    def data(self, revision: int = 0) -> bytes:
        (before, devices, after), head = self._parts, self._head
        return b'%b"resourceVersion":"%d",%b%b%b' % (
            before[:head], revision or self.revision, before[head:], devices, after,
        )  # fmt: skip

    def item(self) -> Pieces:
        before, devices, after = self._parts
        return b'{"metadata":{"resourceVersion":"%d",' % self.revision, memoryview(before)[self._head :], devices, after

    def item_sharing(self, numbers: dict[bytes, int]) -> Pieces:
        before, devices, after = self._parts
        number = numbers.setdefault(devices, len(numbers))
        beginning = b'{"metadata":{"resourceVersion":"%d",' % self.revision
        return beginning, memoryview(before)[self._head :], b"%d" % number, after

    def labels(self) -> Mapping[str, str]:
        if self._labels is None:
            self._labels = labels_in(self._parts.short())
        return self._labels

    def fields(self, fields_of: FieldsOf) -> dict[str, str]:
        """No field that a selector may name is in the list of devices."""
        if self._fields is None:
            self._fields = fields_of(_decode_document(self._parts.short()))
        return self._fields


def stored_factory(row: Resource, prefix: str) -> Callable[[str, bytes, int, int], Stored]:
    """Makes Stored from what the store returns: key, value, revision, created."""
    head = head_of(row.kind, group_version(row.group, row.storage_version))
    length, cut, namespaced, custom = len(head), len(prefix), row.namespaced, row.custom
    shares_devices = row.kind == SLICE

    def make(key: str, value: bytes, revision: int, created: int) -> Stored:
        if custom is not None:
            value = custom.as_stored(value) or value
        elif not value.startswith(head):
            value = to_value(_decode_document(value))
        if shares_devices and (parts := learn(value)) is not None:
            return SharedStored(key, parts, revision, created, length)
        # Interned: the objects of a namespace share its name.
        namespace = sys.intern(key[cut : key.rindex("/")]) if namespaced else ""
        return Stored(key, namespace, value, revision, created, length)

    return make


# --- versions

AUTOSCALER = "HorizontalPodAutoscaler"
EVENTS_GROUP = "events.k8s.io"
# events.k8s.io name, core name
EVENT_FIELDS = (
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
)


def storage_row(row: Resource) -> Resource:
    """The resource under which objects of this resource are stored."""
    return by_kind("Event", "") if row.group == EVENTS_GROUP else row


def to_storage(row: Resource, document: Document) -> Document:
    if row.custom is not None:
        converted: Document = row.custom.converted(document, row.storage_version)
        return converted
    if row.group == versions.GROUP:
        return versions.to_storage(document)
    if row.group == EVENTS_GROUP:
        return _renamed(document, dict(EVENT_FIELDS), "v1")
    if document.get("apiVersion") == row.api_version():
        return document
    if row.kind == AUTOSCALER:
        return autoscaler_versions.to_v2(document)
    return {**document, "apiVersion": row.api_version()}


def from_storage(row: Resource, version: str, document: Document) -> Document:
    if row.custom is not None:
        converted: Document = row.custom.converted(document, version)
        return converted
    if row.group == versions.GROUP:
        return versions.from_storage(document, group_version(row.group, version))
    if row.group == EVENTS_GROUP:
        return _without_empty_reporter(
            _renamed(document, {core: new for new, core in EVENT_FIELDS}, "events.k8s.io/v1")
        )
    if version == row.storage_version:
        return document
    if row.kind == AUTOSCALER:
        return autoscaler_versions.to_v1(document)
    return {**document, "apiVersion": row.api_version(version)}


def _without_empty_reporter(event: Document) -> Document:
    """Core events always have these fields, events of events.k8s.io only with a value."""
    return {
        key: value
        for key, value in event.items()
        if value != "" or key not in ("reportingController", "reportingInstance")
    }


def is_stored_form(row: Resource, version: str) -> bool:
    """Whether objects are stored in this version."""
    return row.group != EVENTS_GROUP and version == row.storage_version


def _renamed(document: Document, names: dict[str, str], api_version: str) -> Document:
    made = {names.get(key, key): value for key, value in document.items()}
    return {**made, "apiVersion": api_version}
