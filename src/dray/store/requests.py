"""What both stores refuse before looking at a single key: mistakes of the caller, not of the world."""

from collections.abc import Sequence

from dray.store.interface import Operation, Precondition, Put

# What an etcd accepts in one transaction, unless told otherwise, is 128.
MAX_OPERATIONS = 128
MAX_KEY_BYTES = 4096


def check_commit(operations: Sequence[Operation], preconditions: Sequence[Precondition]) -> None:
    """Raise ValueError unless every key is sane text and occurs once among the operations."""
    keys = {operation.key for operation in operations}
    if len(keys) != len(operations):
        raise ValueError("a key occurs twice in one commit")
    if len(operations) > MAX_OPERATIONS:
        raise ValueError(f"a commit has {len(operations)} operations; at most {MAX_OPERATIONS} are allowed")
    for operation in operations:
        if isinstance(operation, Put) and not isinstance(operation.value, bytes):
            raise ValueError("a value is not bytes")
    keys.update(precondition.key for precondition in preconditions)
    for key in keys:
        check_key(key)


def check_key(key: str) -> None:
    if not key.startswith("/") or "\0" in key:
        raise ValueError(f"{key!r} is not a key: it must start with a slash and hold no zero byte")
    try:
        size = len(key) if key.isascii() else len(key.encode())
    except UnicodeEncodeError:
        raise ValueError(f"{key!r} is not a key: it is not valid Unicode") from None
    if size > MAX_KEY_BYTES:
        raise ValueError(f"a key has {size} bytes; at most {MAX_KEY_BYTES} are allowed")
