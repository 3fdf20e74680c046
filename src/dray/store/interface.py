"""The Store protocol and its values.

One global revision counts commits. All changes of a commit carry its revision, become visible together and reach a
watch in one batch. A commit that was acknowledged survives the death of the process and of the machine.
"""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec


class Entry(msgspec.Struct, frozen=True, gc=False):
    key: str
    value: bytes
    revision: int  # of the commit that wrote this value
    created: int  # revision of the commit that created the key


@dataclass(frozen=True, slots=True)
class Page:
    """Entries in key order, as they were at `revision`."""

    entries: tuple[Entry, ...]
    revision: int
    remaining: int = 0  # entries of the same list after the last one here


class Put(msgspec.Struct, frozen=True, gc=False):
    key: str
    value: bytes
    # Seconds after which the store may delete the key by itself; 0 means never.
    ttl_s: int = 0


class Delete(msgspec.Struct, frozen=True, gc=False):
    key: str


Operation = Put | Delete


class Precondition(msgspec.Struct, frozen=True, gc=False):
    """`key` was last written by the commit `revision`; 0 means it does not exist."""

    key: str
    revision: int


class Change(msgspec.Struct, frozen=True, gc=False):
    """One key written (`value` set) or deleted (`value` None) by the commit `revision`.

    `previous` is the value before, or None if the key is new. A store may have lost it for a change that is older
    than its last compaction; then a deleted key has neither value.
    """

    key: str
    revision: int
    value: bytes | None
    previous: bytes | None
    previous_revision: int
    created: int  # for a deletion: when the deleted key had been created


class Batch(msgspec.Struct, frozen=True):
    """Changes in order. Everything up to and including `revision` has been delivered; `changes` may be empty."""

    revision: int
    changes: tuple[Change, ...]


class Store(Protocol):
    async def get(self, key: str) -> Entry | None:
        """The newest acknowledged entry."""
        ...

    async def get_many(self, keys: Sequence[str]) -> dict[str, Entry]:
        """The newest entries of those `keys` that exist, all at one revision."""
        ...

    async def list(self, prefix: str, *, limit: int = 0, start_after: str = "", revision: int = 0) -> Page:
        """Entries whose key starts with `prefix`, after the key `start_after`, at most `limit` (0: all).

        `revision` 0 means now. Raises Compacted or FutureRevision for a revision that cannot be served.
        """
        ...

    def pages(self, prefix: str) -> AsyncGenerator[Page, None]:
        """All entries whose key starts with `prefix`, as they are at one revision, some at a time.

        There is at least one page. It is for readers that keep little of each value: only one page is in memory. Raises Compacted when the
        revision is compacted before the last page was read. Close it with `aclose()`.
        """
        ...

    async def create(self, key: str, value: bytes, *, ttl_s: int = 0) -> int:
        """Write a new key and return the commit's revision. Raises AlreadyExists."""
        ...

    async def update(self, key: str, value: bytes, expected_revision: int) -> int:
        """Replace the value written by `expected_revision`. Raises NotFound or Conflict."""
        ...

    async def delete(self, key: str, expected_revision: int) -> int:
        """Remove the value written by `expected_revision`. Raises NotFound or Conflict."""
        ...

    async def commit(self, operations: Sequence[Operation], preconditions: Sequence[Precondition] = ()) -> int:
        """Do all `operations` if all `preconditions` hold, else nothing, and return the revision.

        Raises Conflict with the keys whose precondition failed. Each key occurs at most once among the operations.
        Deleting a key that does not exist is no error and changes nothing.
        """
        ...

    def watch(self, prefix: str, after_revision: int) -> AsyncGenerator[Batch, None]:
        """Every change below `prefix` after `after_revision`, without gaps, in order, until closed.

        Past changes come first, then live ones. The first iteration raises Compacted if `after_revision` is
        older than the history kept. Empty batches report progress. Close it with `aclose()`, or by cancelling its reader.
        """
        ...

    async def current_revision(self) -> int: ...

    async def compacted_revision(self) -> int:
        """History starts after this revision; 0 if the store was never compacted."""
        ...

    async def compact(self, revision: int) -> None:
        """Drops values that were replaced or deleted by `revision`. The state at `revision` stays readable."""
        ...

    async def close(self) -> None: ...
