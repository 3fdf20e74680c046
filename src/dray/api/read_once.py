"""Texts that are read again and again: equal ones are decoded once and share one value. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class ReadOnce(Generic[Value]):
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
