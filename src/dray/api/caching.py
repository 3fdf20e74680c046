"""Bounded caches for JSON that arrives again and again: digests of trees that were checked, values of texts that were decoded. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from hashlib import blake2b
from typing import Any, Generic, TypeVar

import msgspec


def digest_of(tree: Any) -> bytes | None:
    """A digest of the tree as JSON, long enough that nobody can make two trees share one; None if the tree is not JSON."""
    try:
        return blake2b(msgspec.json.encode(tree), digest_size=20).digest()
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None


class LruSet:
    """Keeps the `size` members that were used most recently."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._members: OrderedDict[Hashable, None] = OrderedDict()

    def __contains__(self, member: Hashable) -> bool:
        if member not in self._members:
            return False
        self._members.move_to_end(member)
        return True

    def add(self, member: Hashable) -> None:
        self._members[member] = None
        self._members.move_to_end(member)
        if len(self._members) > self._size:
            self._members.popitem(last=False)

    def __len__(self) -> int:
        return len(self._members)


Value = TypeVar("Value")


class SharedDecoder(Generic[Value]):
    """`read`, with a memory for the texts that were asked for most recently, up to `most_bytes` of text.

    Only for values that nobody changes.
    """

    def __init__(self, read: Callable[[bytes], Value], most_bytes: int) -> None:
        self._read = read
        self._most_bytes = most_bytes
        self._bytes = 0
        self._values: OrderedDict[bytes, Value] = OrderedDict()
        self.reads = 0

    def __call__(self, text: bytes) -> Value:
        if text in self._values:
            self._values.move_to_end(text)
            return self._values[text]
        value = self._read(text)
        self.reads += 1
        self._values[text] = value
        self._bytes += len(text)
        while self._bytes > self._most_bytes:
            forgotten, _ = self._values.popitem(last=False)
            self._bytes -= len(forgotten)
        return value

    def __len__(self) -> int:
        return len(self._values)
