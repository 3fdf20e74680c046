"""Objects of which there are many and that hardly anybody reads again, kept small: Events, an hour of them.

They look much like each other, so one of them serves as the dictionary for the others: of a thousand bytes about 130 are left.
Nothing that is read from a packed object is remembered beside it, as it would soon be larger than the object.
"""

import zlib
from collections.abc import Mapping
from typing import Any

from dray.apiserver.read.selectors import FieldSelector
from dray.apiserver.watch.stored_object import (
    Document,
    FieldsOf,
    Stored,
    labels_in,
)

# A window for two objects of usual size; larger ones take more time to set up than they save.
_WINDOW_BITS, _MEMORY_LEVEL, _LEVEL = -12, 5, 1


class Packing:
    """Packs the objects of one kind."""

    def __init__(self, prefix: str) -> None:
        self._cut = len(prefix)
        self._sample = b""

    def pack(self, stored: Stored) -> Stored:
        if not self._sample:
            self._sample = stored.value
        press = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOW_BITS, _MEMORY_LEVEL, zdict=self._sample)
        return Packed(stored, press.compress(stored.value) + press.flush(), self._sample, self._cut)


class Packed(Stored):
    """A Stored whose value, name and namespace are made when they are asked for."""

    __slots__ = ("_cut", "_packed", "_sample")

    def __init__(self, stored: Stored, packed: bytes, sample: bytes, cut: int) -> None:
        # Not the base's: what it would set stays empty, and empty slots lead to `__getattr__`.
        self.key, self.revision, self.created, self._head = stored.key, stored.revision, stored.created, stored._head
        self._packed, self._sample, self._cut = packed, sample, cut
        self._labels = self._fields = None

    def __getattr__(self, name: str) -> Any:
        match name:
            case "value":
                return zlib.decompressobj(_WINDOW_BITS, zdict=self._sample).decompress(self._packed)
            case "name":
                return self.key[self._cut :].rpartition("/")[2]
            case "namespace":
                return self.key[self._cut :].rpartition("/")[0]
        raise AttributeError(name)

    @property
    def packed_size(self) -> int:
        return len(self._packed)

    def labels(self) -> Mapping[str, str]:
        return labels_in(self.value)

    def fields(self, fields_of: FieldsOf) -> dict[str, str]:
        document: Document = self.document()
        return fields_of(document)

    def matches_fields(self, selector: FieldSelector, fields_of: FieldsOf) -> bool:
        """Who asks for the events of one pod meets thousands of others: those that do not mention it are not even decoded."""
        value = self.value
        return all(text in value for text in selector.plain_texts) and selector.matches(self.fields(fields_of))
