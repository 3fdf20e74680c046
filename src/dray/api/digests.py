"""Remembering what was checked before: digests of JSON trees, and a set of bounded size to keep them in. Pure."""

from collections import OrderedDict
from collections.abc import Hashable
from hashlib import blake2b
from typing import Any

import msgspec


def digest_of(tree: Any) -> bytes | None:
    """Equal trees, equal digests, and long enough that nobody can make two trees share one; None for what is no JSON."""
    try:
        return blake2b(msgspec.json.encode(tree), digest_size=20).digest()
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None


class LruSet:
    """The `size` members that were asked for most recently."""

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
