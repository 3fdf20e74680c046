"""A dump of a cluster: its objects, collected from the bytes of manifests or added one by one.

Reads YAML and JSON, many documents, Lists, and every served version. Large YAML is read one object at a time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from dray.api.codec import shape_document, to_object
from dray.api.core import Event, Namespace, Node, Pod, PriorityClass, ResourceQuota
from dray.api.defaults import apply_defaults
from dray.api.errors import DecodeError
from dray.api.jsontext import read_json
from dray.api.kep_field_names import uses_old_spelling
from dray.api.manifests import Manifest, read_manifests
from dray.api.plain_yaml import NOT_PLAIN, read_plain_yaml
from dray.api.resource import (
    API_VERSION,
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from dray.api.scheme import is_namespaced
from dray.api.versions import to_storage
from dray.explain.cluster_objects import ClusterObjects

# The rules of all kinds take a while to import, and only files are checked.
if TYPE_CHECKING:
    from dray.validation import ValidationContext

Document = dict[str, Any]
T = TypeVar("T")

# Kind to its type and to the version that an object without one is taken for.
_KINDS: dict[str, tuple[type, str]] = {
    "Node": (Node, "v1"),
    "Pod": (Pod, "v1"),
    "ResourceClaim": (ResourceClaim, API_VERSION),
    "ResourceClaimTemplate": (ResourceClaimTemplate, API_VERSION),
    "ResourceSlice": (ResourceSlice, API_VERSION),
    "DeviceClass": (DeviceClass, API_VERSION),
    "DeviceTaintRule": (DeviceTaintRule, API_VERSION),
    "Namespace": (Namespace, "v1"),
    "PriorityClass": (PriorityClass, "scheduling.k8s.io/v1"),
    "ResourceQuota": (ResourceQuota, "v1"),
    "Event": (Event, "v1"),
}

# The time that defaults use; any fixed time will do, since no answer depends on it.
_NOW = "2024-01-01T00:00:00Z"

# Claims with admin access were checked when they were created, so every namespace counts as allowed.
_ADMIN_NAMESPACE = {"resource.kubernetes.io/admin-access": "true"}

# Smaller YAML files are read as a whole.
WORTH_CUTTING = 1_000_000


class InvalidObject(ValueError):
    """An object of the dump is not valid; the text names the file and the object."""


@dataclass(frozen=True, slots=True)
class Dump:
    """Objects of a cluster in the order in which they were found; of a repeated object the last copy counts.

    `problems` holds one line for each object that was left out, with file and name. `old_spellings` names the objects
    that use field names from before the newest.
    """

    objects: dict[str, dict[tuple[str, str], Any]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    old_spellings: list[str] = field(default_factory=list)

    def add(self, kind: str, obj: Any) -> None:
        key = (obj.metadata.namespace, obj.metadata.name)
        self.objects.setdefault(kind, {})[key] = obj

    def of(self, kind: type[T]) -> list[T]:
        return list(self.objects.get(kind.__name__, {}).values())

    def find(self, kind: type[T], name: str, namespace: str = "") -> T | None:
        return self.objects.get(kind.__name__, {}).get((namespace, name))

    def world(self) -> ClusterObjects:
        return ClusterObjects.of(obj for kind in self.objects.values() for obj in kind.values())

    def __len__(self) -> int:
        return sum(map(len, self.objects.values()))


@dataclass(frozen=True, slots=True)
class DumpReader:
    """Reads files into one dump.

    With `check`, objects are validated as the API server validates them. An object that cannot be used raises
    `InvalidObject` and a broken file raises `DecodeError`; with `keep_going` both become problems of the dump instead.
    `on_bytes` is called with the number of bytes that were read since the last call.
    """

    dump: Dump
    check: ValidationContext | None = None
    keep_going: bool = False
    on_bytes: Callable[[int], None] | None = None

    def read(self, name: str, data: bytes) -> None:
        try:
            for document in _documents(name, data, self.on_bytes):
                self._add(name, document)
        except DecodeError as problem:
            if not self.keep_going:
                raise
            self.dump.problems.append(f"{name}: {problem}")

    def _add(self, name: str, document: Document) -> None:
        check = replace(self.check, namespace_labels=_ADMIN_NAMESPACE) if self.check is not None else None
        problem = add_document(self.dump, document, check)
        if not problem:
            return
        problem = f"{name}: {_kind_and_name(document)}: {problem}"
        if not self.keep_going:
            raise InvalidObject(problem)
        self.dump.problems.append(problem)


def _kind_and_name(document: Document) -> str:
    metadata = document.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    name = "/".join(str(metadata[key]) for key in ("namespace", "name") if metadata.get(key))
    return f"{document.get('kind') or 'object'} {name or 'without a name'}"


def _documents(name: str, data: bytes, on_bytes: Callable[[int], None] | None) -> Iterator[Document]:
    # Large dumps are JSON more often than not, which reads a hundred times faster as JSON than as YAML.
    if data.lstrip()[:1] in (b"{", b"["):
        try:
            yield from _opened(read_json(data))
        except DecodeError:
            if name.endswith(".json"):
                raise
        else:
            if on_bytes is not None:
                on_bytes(len(data))
            return
    for part in parts_of_yaml(data):
        plain = read_plain_yaml(part)
        if plain is not NOT_PLAIN:
            yield from _opened(plain)
            if on_bytes is not None:
                on_bytes(len(part))
            continue
        try:
            found = list(read_manifests(part))
        except DecodeError as problem:
            if part is data:
                raise
            # Anchors may reach across the cuts, and lines count from the beginning of the file.
            found, part = _as_a_whole(data, problem), data
        for manifest in found:
            yield manifest.document
        if part is data:
            return
        if on_bytes is not None:
            on_bytes(len(part))


def _as_a_whole(data: bytes, problem: DecodeError) -> list[Manifest]:
    try:
        return list(read_manifests(data))
    except DecodeError as larger:
        raise (larger if larger.line is not None else problem) from None


def _opened(value: Any) -> Iterator[Document]:
    if isinstance(value, list):
        yield from (item for item in value if isinstance(item, dict))
        return
    if not isinstance(value, dict):
        raise DecodeError("expected an object with apiVersion and kind")
    items, kind = value.get("items"), str(value.get("kind") or "")
    if not kind.endswith("List") or not isinstance(items, list):
        yield value
        return
    said = {} if kind == "List" else {"apiVersion": value.get("apiVersion"), "kind": kind.removesuffix("List")}
    yield from ({**said, **item} for item in items if isinstance(item, dict))


def _problems(document: Document, check: ValidationContext) -> list[Any]:
    from dray.validation import validate_create

    return list(validate_create(document, check))


def add_document(dump: Dump, document: Document, check: ValidationContext | None) -> str:
    """Adds the document's object to the dump; the answer says why it cannot be used, and is empty if it can."""
    kind = str(document.get("kind") or "")
    if not kind:
        return "has no kind"
    if kind not in _KINDS:
        return ""
    wanted, version = _KINDS[kind]
    # Events of the newer group have other fields; kubectl prints them as v1.
    if wanted is Event and document.get("apiVersion") not in (None, version):
        return ""
    try:
        shaped = shape_document({**document, "apiVersion": document.get("apiVersion") or version}).document
        stored = to_storage(apply_defaults(_in_namespace(shaped, kind), _NOW))
        errors = _problems(stored, check) if check is not None else []
        if errors:
            return "; ".join(map(str, errors[:3])) + (f"; and {len(errors) - 3} more" if len(errors) > 3 else "")
        obj: Any = to_object(stored, wanted)
    except DecodeError as problem:
        return str(problem)
    if not obj.metadata.name:
        return "has no name"
    dump.add(kind, obj)
    if uses_old_spelling(document):
        dump.old_spellings.append(_kind_and_name(document))
    return ""


# No question is answered with these, and people put passwords into them.
_NOT_SHARED_OF_CONTAINERS = (
    "command",
    "args",
    "env",
    "envFrom",
    "lifecycle",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
)
_NOT_SHARED_OF_METADATA = ("managedFields",)
_NOT_SHARED_ANNOTATIONS = ("kubectl.kubernetes.io/last-applied-configuration",)


def without_secrets(document: Document) -> Document:
    """The document as it may be shown to others; everything that an answer depends on stays."""
    metadata = _less(document.get("metadata") or {}, _NOT_SHARED_OF_METADATA)
    if metadata.get("annotations"):
        metadata["annotations"] = _less(metadata["annotations"], _NOT_SHARED_ANNOTATIONS)
    shared = {**document, "metadata": metadata}
    if document.get("kind") == "Pod":
        shared["spec"] = _pod_spec_without_secrets(document.get("spec") or {})
    return shared


def _pod_spec_without_secrets(spec: Document) -> Document:
    containers = {
        name: [_less(each, _NOT_SHARED_OF_CONTAINERS) for each in spec[name]]
        for name in ("containers", "initContainers", "ephemeralContainers")
        if spec.get(name)
    }
    return {**spec, **containers}


def _less(mapping: Document, names: tuple[str, ...]) -> Document:
    return {key: value for key, value in mapping.items() if key not in names}


def _in_namespace(document: Document, kind: str) -> Document:
    metadata = document.get("metadata")
    if not is_namespaced(kind) or not isinstance(metadata, dict) or metadata.get("namespace"):
        return document
    return {**document, "metadata": {**metadata, "namespace": "default"}}


def parts_of_yaml(data: bytes) -> Iterator[bytes]:
    """Splits a large YAML text: one part per document, and one per item of a top-level `items` list.

    kubectl prints lists with `items:` and each `- ` at the start of a line, and the text is split there. A list that
    looks different is not split.
    """
    if len(data) < WORTH_CUTTING:
        yield data
        return
    for document in _yaml_documents(data):
        yield from _yaml_items(document)


# The patterns begin with the end of the line before, which is found ten times faster than the beginning of a line.
_SEPARATOR = re.compile(rb"\n---(?=\s|$)")
_ITEMS = re.compile(rb"\nitems:\r?\n(?=- )")
_AFTER_ITEMS = re.compile(rb"\n(?=[^\s#-])")
_ITEM = re.compile(rb"\n(?=- )")


def _yaml_documents(data: bytes) -> Iterator[bytes]:
    start = 3 if re.match(rb"---(?=\s|$)", data) else 0
    for separator in _SEPARATOR.finditer(data):
        yield data[start : separator.start() + 1]
        start = separator.end()
    yield data[start:]


def _yaml_items(document: bytes) -> Iterator[bytes]:
    """Each item with the text around the list: the kind of the list may stand before or after its items."""
    begins = re.match(rb"items:\r?\n(?=- )", document) or _ITEMS.search(document)
    if begins is None:
        yield document
        return
    # From the end of the line `items:` on, so that every item begins after the end of a line.
    first = begins.end() - 1
    ends = _AFTER_ITEMS.search(document, first)
    end = ends.end() if ends is not None else len(document)
    frame = document[: begins.start()] + b"\n" + document[end:] + b"\nitems:\n"
    bounds = [item.end() for item in _ITEM.finditer(document, first, end)]
    for begin, until in zip(bounds, [*bounds[1:], end], strict=True):
        yield frame + document[begin:until]
