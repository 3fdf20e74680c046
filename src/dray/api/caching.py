"""Bounded caches for JSON that arrives again and again: digests of trees that were checked, values of texts that were decoded. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Generic, TypeVar

import msgspec


def digest_of(tree: Any) -> bytes | None:
    """A digest of the tree as JSON, long enough that nobody can make two trees share one; None if the tree is not JSON."""
    try:
        return digest_of_text(msgspec.json.encode(tree))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None


def digest_of_text(text: bytes) -> bytes:
    return blake2b(text, digest_size=20).digest()


class LruSet:
    """Keeps the `size` members that were used most recently. Members are short; several threads may use it."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._members: OrderedDict[Hashable, None] = OrderedDict()

    def __contains__(self, member: Hashable) -> bool:
        try:
            self._members.move_to_end(member)
        except KeyError:
            return False
        return True

    def add(self, member: Hashable) -> None:
        self._members.pop(member, None)
        self._members[member] = None
        if len(self._members) > self._size:
            self._members.popitem(last=False)

    def __len__(self) -> int:
        return len(self._members)


Value = TypeVar("Value")


SHORT_TEXT = 256


class RememberedTexts(Generic[Value]):
    """Answers of `compute` for texts (and further arguments) that were asked for most recently.

    Up to `entries` texts of at most 256 characters, which are nearly all, and of longer ones as many as have `long_characters` together:
    whoever sends large texts fills a bounded part of the memory, and does not push out the short ones.
    """

    def __init__(self, compute: Callable[..., Value], entries: int, long_characters: int) -> None:
        self._compute = compute
        self._short = lru_cache(maxsize=entries)(compute)
        self._long: OrderedDict[tuple[Hashable, ...], Value] = OrderedDict()
        self._most_characters = long_characters

    def __call__(self, text: str, *others: Hashable) -> Value:
        if len(text) <= SHORT_TEXT:
            return self._short(text, *others)
        key = (text, *others)
        found = self._long.pop(key, None)
        value = found if found is not None else self._compute(text, *others)
        self._long[key] = value
        if found is None:
            self._forget()
        return value

    def long_characters(self) -> int:
        return sum(len(str(key[0])) for key in list(self._long))

    def _forget(self) -> None:
        # Counted anew, since several threads may be here; there are few long texts, and each was expensive to read.
        beyond = self.long_characters() - self._most_characters
        while beyond > 0:
            forgotten, _ = self._long.popitem(last=False)
            beyond -= len(str(forgotten[0]))


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
