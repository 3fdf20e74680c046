"""The errors of a store."""

from collections.abc import Sequence


class StoreError(Exception):
    """Every error of this room."""


class AlreadyExists(StoreError):
    """The key of a create exists already."""

    def __init__(self, key: str) -> None:
        super().__init__(f"key {key} already exists")
        self.key = key


class NotFound(StoreError):
    """The key of an update or delete does not exist."""

    def __init__(self, key: str) -> None:
        super().__init__(f"key {key} does not exist")
        self.key = key


class Conflict(StoreError):
    """At least one precondition of a commit did not hold; nothing was written."""

    def __init__(self, keys: Sequence[str]) -> None:
        super().__init__(f"changed since it was read: {', '.join(keys)}")
        self.keys = tuple(keys)


class Compacted(StoreError):
    """The requested revision is older than the history that the store keeps."""

    def __init__(self, requested: int, compacted: int) -> None:
        super().__init__(f"revision {requested} is gone: history starts after revision {compacted}")
        self.requested = requested
        self.compacted = compacted


class FutureRevision(StoreError):
    """The requested revision lies in the future."""

    def __init__(self, requested: int, current: int) -> None:
        super().__init__(f"revision {requested} has not happened yet: the current revision is {current}")
        self.requested = requested
        self.current = current


class StoreUnavailable(StoreError):
    """The disk or the etcd cluster failed.

    An interrupted write was not acknowledged: it may or may not have happened.
    """


class StoreRefuses(StoreUnavailable):
    """The etcd cluster answers and refuses our credentials or TLS: waiting will not help."""


class ValueTooLarge(StoreError):
    """The value is larger than this store accepts; nothing was written."""


class StoreInUse(StoreError):
    """Another process has this store file open."""
