"""Events, and pods and claims where they are very many, that have not changed for a while are kept compressed."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Mapping
from typing import Any

from dray.api.scheme import Resource
from dray.apiserver.read.selectors import FieldSelector
from dray.apiserver.watch.stored_object import NODE_FIELD, Document, FieldsOf, Stored, labels_in, node_in

# Raw deflate. The window holds the sample and the object, if they are of usual size; a larger window takes more time to set up than it saves.
_LEAST_WINDOW_BITS, _MOST_WINDOW_BITS = 12, 15
_MEMORY_LEVEL, _LEVEL = 5, 1
# Longer objects stay as they are: packing one takes the loop for a millisecond.
MOST_TO_PACK = 64 * 1024
MOST_OF_A_SAMPLE = 16 * 1024
# Namespaces with a sample of their own; objects of others are packed like those of the first.
MOST_SAMPLES = 64
# Objects that have little in common with their sample, until one of them takes its place.
MOST_UNLIKE = 32


def _window_bits(sample: bytes, length: int) -> int:
    return -min(_MOST_WINDOW_BITS, max(_LEAST_WINDOW_BITS, (len(sample) + length).bit_length()))


class _Sample:
    """An object of a namespace that serves as the dictionary for the others."""

    __slots__ = ("_unlike", "text")

    def __init__(self, value: bytes) -> None:
        self.text = value[:MOST_OF_A_SAMPLE]
        self._unlike = 0

    def learn(self, value: bytes, packed: bytes) -> None:
        """Objects of a new template take over. Those that are packed already keep the sample that they need."""
        if 4 * len(packed) <= len(value):
            return
        self._unlike += 1
        if self._unlike > MOST_UNLIKE:
            self.text, self._unlike = value[:MOST_OF_A_SAMPLE], 0


class Packing:
    """Compresses the objects of one kind that has many objects, most of which nobody reads or changes.

    Those of a namespace are much alike, so one of them serves as the dictionary for the others: of a pod with 1,700 bytes about 120 are left.
    """

    def __init__(self, pack: type[Packed]) -> None:
        self._packed = pack
        self._samples: dict[str, _Sample] = {}

    def is_worth_it(self, objects: int) -> bool:
        """Where the kind has so many objects. A list takes twice as long when all have to be unpacked, so fewer stay as they are."""
        return objects >= self._packed.MANY

    def pack(self, stored: Stored) -> Stored:
        value = stored.value
        if len(value) > MOST_TO_PACK:
            return stored
        sample = self._sample(stored.namespace, value)
        text = sample.text
        press = zlib.compressobj(_LEVEL, zlib.DEFLATED, _window_bits(text, len(value)), _MEMORY_LEVEL, zdict=text)
        packed = press.compress(value) + press.flush()
        sample.learn(value, packed)
        return self._packed(stored, value, packed, text)

    def _sample(self, namespace: str, value: bytes) -> _Sample:
        found = self._samples.get(namespace)
        if found is None:
            if len(self._samples) >= MOST_SAMPLES:
                return next(iter(self._samples.values()))
            found = self._samples[namespace] = _Sample(value)
        return found


class Packed(Stored):
    """A Stored whose value is computed when it is read. What was once read from it for selectors is remembered."""

    __slots__ = ("_length", "_packed", "_sample")
    # So many objects of the kind are left as they are.
    MANY = 10_000

    def __init__(self, stored: Stored, value: bytes, packed: bytes, sample: bytes) -> None:
        # The base's constructor is not called: the slot of `value` stays empty, so that reading it calls `__getattr__`.
        self.key, self.namespace = stored.key, stored.namespace
        self.revision, self.created, self._head = stored.revision, stored.created, stored._head
        self._packed, self._sample, self._length = packed, sample, len(value)
        self._labels = self._fields = self._shared = None

    def __getattr__(self, name: str) -> Any:
        if name == "value":
            bits = _window_bits(self._sample, self._length)
            return zlib.decompressobj(bits, zdict=self._sample).decompress(self._packed)
        raise AttributeError(name)

    @property
    def size(self) -> int:
        """The bytes of the object when it is read."""
        return self._length

    @property
    def packed_size(self) -> int:
        return len(self._packed)


class PackedPod(Packed):
    """Knows its node: a kubelet that lists its pods passes those of all other nodes."""

    __slots__ = ("_node",)

    def __init__(self, stored: Stored, value: bytes, packed: bytes, sample: bytes) -> None:
        super().__init__(stored, value, packed, sample)
        node = node_in(value)
        # Interned: the pods of a node share its name.
        self._node = node if node is None else sys.intern(node)

    def node(self) -> str | None:
        return self._node

    def matches_fields(self, selector: FieldSelector, fields_of: FieldsOf) -> bool:
        if self._node is not None and not selector.allows(NODE_FIELD, self._node):
            return False
        return super().matches_fields(selector, fields_of)


class PackedEvent(Packed):
    """Nothing that is read from it is remembered beside it, since it would soon be larger than the object."""

    __slots__ = ()
    MANY = 0

    def labels(self) -> Mapping[str, str]:
        return labels_in(self.value)

    def fields(self, fields_of: FieldsOf) -> dict[str, str]:
        document: Document = self.document()
        return fields_of(document)

    def matches_fields(self, selector: FieldSelector, fields_of: FieldsOf) -> bool:
        """Decodes only objects that contain the wanted values: a reader of one pod's events passes thousands of others."""
        value = self.value
        return all(text in value for text in selector.plain_texts) and selector.matches(self.fields(fields_of))


_PACKED_KINDS: dict[str, type[Packed]] = {
    "pods": PackedPod,
    "events": PackedEvent,
    "resourceclaims.resource.k8s.io": Packed,
}


def packing_of(row: Resource) -> Packing | None:
    """For kinds that have an object or more for every pod. Those that are written all the time, like leases, are better not packed."""
    packed = _PACKED_KINDS.get(row.qualified_plural) if row.custom is None else None
    return Packing(packed) if packed is not None else None
