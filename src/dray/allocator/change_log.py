"""A bounded log of changes. A reader remembers its position and asks for the entries after it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

T = TypeVar("T")

LONGEST_LOG = 4096


class ChangeLog(Generic[T]):
    """`end` is the position after the newest entry."""

    __slots__ = ("_entries", "_start", "end")

    def __init__(self) -> None:
        self._entries: list[T] = []
        self._start = 0
        self.end = 0

    def append(self, entry: T) -> None:
        if len(self._entries) >= LONGEST_LOG:
            self._start = self.end
            self._entries.clear()
        self._entries.append(entry)
        self.end += 1

    def since(self, seen: int) -> Sequence[T] | None:
        """Entries after `seen`; None if they are no longer known."""
        return None if seen < self._start else self._entries[seen - self._start :]
