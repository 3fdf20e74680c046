"""The two patch formats of JSON itself: JSON patch (RFC 6902) and JSON merge patch (RFC 7386)."""

from __future__ import annotations

import copy
from typing import Any

import msgspec

MAX_OPERATIONS = 10_000
# As JSON, all copies of one patch together: a few lines that copy a field into itself would double it each time.
MAX_COPIED_BYTES = 3 * 1024 * 1024
MEMBERS = frozenset({"op", "path", "from", "value"})


class PatchFailed(Exception):
    """An operation that cannot be done, or a test that does not hold."""


class UnmetTest(PatchFailed):
    """A test that does not hold."""


def apply(document: Any, operations: list[dict[str, Any]]) -> Any:
    """The document after all operations; the one passed in stays as it is."""
    result = copy.deepcopy(document)
    copied = 0
    for operation in operations:
        if operation.get("op") == "copy":
            copied += len(msgspec.json.encode(_get(result, _pointer(operation.get("from")))))
            if copied > MAX_COPIED_BYTES:
                raise PatchFailed(
                    f"Unable to complete the copy, the accumulated size increase of copy is {copied}, "
                    f"exceeding the limit {MAX_COPIED_BYTES}"
                )
        result = _apply_one(result, operation)
    return result


def unknown_members(operations: list[Any]) -> list[str]:
    return [
        f'json patch unknown field "[{at}].{key}"'
        for at, operation in enumerate(operations)
        if isinstance(operation, dict)
        for key in operation
        if key not in MEMBERS
    ]


def _apply_one(document: Any, operation: dict[str, Any]) -> Any:
    name, path = operation.get("op"), _pointer(operation.get("path"))
    match name:
        case "add":
            return _add(document, path, copy.deepcopy(_value(operation)))
        case "remove":
            return _remove(document, path)
        case "replace":
            _get(document, path)
            return _replace(document, path, copy.deepcopy(_value(operation)))
        case "move":
            value = _get(document, source := _pointer(operation.get("from")))
            return _add(_remove(document, source), path, value)
        case "copy":
            return _add(document, path, copy.deepcopy(_get(document, _pointer(operation.get("from")))))
        case "test":
            if not same(_get(document, path, missing=None), operation.get("value")):
                raise UnmetTest(f"testing value {operation.get('path')} failed")
            return document
    raise PatchFailed(f"unexpected kind of operation: {name}")


def _value(operation: dict[str, Any]) -> Any:
    return operation.get("value")


def same(one: Any, other: Any) -> bool:
    """Equal as JSON: true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def _pointer(path: Any) -> list[str]:
    if not isinstance(path, str) or (path and not path.startswith("/")):
        raise PatchFailed(f"{path} is not a JSON pointer")
    return [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]


_NO_DEFAULT: Any = object()


def _get(document: Any, path: list[str], missing: Any = _NO_DEFAULT) -> Any:
    for at, part in enumerate(path):
        if isinstance(document, list):
            document = document[_index(document, part)]
        elif isinstance(document, dict) and part in document:
            document = document[part]
        elif missing is not _NO_DEFAULT and at == len(path) - 1 and isinstance(document, dict):
            return missing
        else:
            raise PatchFailed(f"no such path: /{'/'.join(path)}")
    return document


def _index(items: list[Any], part: str, *, end: bool = False) -> int:
    if not part.isascii() or not part.isdigit() or (len(part) > 1 and part[0] == "0") or len(part) > 9:
        raise PatchFailed(f"not an index: {part}")
    index = int(part)
    if index >= len(items) + end:
        raise PatchFailed(f"index out of range: {part}")
    return index


def _add(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent = _get(document, path[:-1])
    if isinstance(parent, list):
        if path[-1] == "-":
            parent.append(value)
        else:
            parent.insert(_index(parent, path[-1], end=True), value)
    elif isinstance(parent, dict):
        parent[path[-1]] = value
    else:
        raise PatchFailed(f"nothing can be added to /{'/'.join(path[:-1])}")
    return document


def _replace(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent = _get(document, path[:-1])
    if isinstance(parent, list):
        parent[_index(parent, path[-1])] = value
    else:
        parent[path[-1]] = value
    return document


def _remove(document: Any, path: list[str]) -> Any:
    if not path:
        raise PatchFailed("the whole document cannot be removed")
    _get(document, path)
    parent = _get(document, path[:-1])
    if isinstance(parent, list):
        del parent[_index(parent, path[-1])]
    else:
        del parent[path[-1]]
    return document


def apply_merge(document: Any, patch: Any) -> Any:
    """The document with the patch merged in: null removes, objects merge, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    result = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = apply_merge(result.get(key), value)
    return result
