"""Strategic merge patch: a merge patch that knows which lists are maps in disguise.

Directives: `$patch: delete|replace|merge` in an object or a list entry, `$deleteFromPrimitiveList/FIELD`,
`$setElementOrder/FIELD`, `$retainKeys`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from dray.api.schemas import FieldSchema, StructSchema, TypeRef, struct

Document = dict[str, Any]

DELETE_FROM = "$deleteFromPrimitiveList/"
SET_ORDER = "$setElementOrder/"
RETAIN_KEYS = "$retainKeys"
PATCH = "$patch"


class BadPatch(Exception):
    """The patch contradicts itself or the kind's schema."""


def apply(document: Document, patch: Document, schema: StructSchema) -> Document:
    return _merge_objects(document, patch, schema)


def _merge_objects(old: Document, patch: Document, schema: StructSchema | None) -> Document:
    directive = patch.get(PATCH)
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != PATCH}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise BadPatch(f"Unknown patch directive: {directive}")
    result = _retained(old, patch)
    for key, value in patch.items():
        if key in (PATCH, RETAIN_KEYS) or key.startswith(SET_ORDER):
            continue
        if key.startswith(DELETE_FROM):
            _delete_scalars(result, key.removeprefix(DELETE_FROM), value)
            continue
        if value is None:
            result.pop(key, None)
            continue
        field = schema.fields.get(key) if schema else None
        result[key] = _merge_value(result.get(key), value, field, patch.get(SET_ORDER + key))
    for key, order in patch.items():
        if key.startswith(SET_ORDER) and key.removeprefix(SET_ORDER) not in patch:
            _reorder(result, key.removeprefix(SET_ORDER), order, schema)
    return result


def _retained(old: Document, patch: Document) -> Document:
    """$retainKeys names all keys that may stay."""
    keys = patch.get(RETAIN_KEYS)
    if keys is None:
        return dict(old)
    if not isinstance(keys, list):
        raise BadPatch("$retainKeys must be a list")
    kept = {_hashable(key) for key in keys}
    return {key: value for key, value in old.items() if key in kept}


def _delete_scalars(result: Document, key: str, values: Any) -> None:
    if isinstance(result.get(key), list) and isinstance(values, list):
        deleted = {_hashable(value) for value in values}
        result[key] = [entry for entry in result[key] if _hashable(entry) not in deleted]


def _merge_value(old: Any, value: Any, field: FieldSchema | None, order: Any) -> Any:
    if isinstance(value, dict):
        inner = _struct_of(field.type) if field else None
        if inner is not None and inner.atomic:
            return without_directives(value)
        if field is not None and field.type.shape == "map" and field.type.item is not None:
            inner = _struct_of(field.type.item)
            return _merge_map(old if isinstance(old, dict) else {}, value, inner)
        return _merge_objects(old if isinstance(old, dict) else {}, value, inner)
    if isinstance(value, list):
        return _merge_lists(old if isinstance(old, list) else [], value, field, order)
    return value


def _merge_map(old: Document, patch: Document, inner: StructSchema | None) -> Document:
    if inner is None:
        return _merge_objects(old, patch, None)
    if patch.get(PATCH) == "replace":
        return {key: value for key, value in patch.items() if key != PATCH}
    result = dict(old)
    for key, value in patch.items():
        if key == PATCH:
            continue
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = _merge_objects(result.get(key) or {}, value, inner)
        else:
            result[key] = value
    return result


def _struct_of(ref: TypeRef) -> StructSchema | None:
    return struct(ref.name) if ref.shape == "struct" else None


def _merge_lists(old: list[Any], patch: list[Any], field: FieldSchema | None, order: Any) -> list[Any]:
    if any(isinstance(entry, dict) and entry.get(PATCH) == "replace" and len(entry) == 1 for entry in patch):
        return [
            without_directives(entry)
            for entry in patch
            if not (isinstance(entry, dict) and entry.get(PATCH) == "replace")
        ]
    if field is None or field.merge_key is None:
        return [without_directives(entry) for entry in patch]
    if not field.merge_key:
        known = {_hashable(entry) for entry in old}
        merged = old + [entry for entry in patch if _hashable(entry) not in known]
        return _ordered_scalars(merged, order if isinstance(order, list) else patch, old)
    key = field.merge_key
    inner = _struct_of(field.type.item) if field.type.item else None
    return _merge_by_key(old, patch, key, inner, order)


def _merge_by_key(old: list[Any], patch: list[Any], key: str, inner: StructSchema | None, order: Any) -> list[Any]:
    result: list[Any] = [entry for entry in old if isinstance(entry, dict)]
    places: dict[Any, list[int]] = {}
    for at, entry in enumerate(result):
        places.setdefault(_hashable(entry.get(key)), []).append(at)
    for entry in patch:
        if not isinstance(entry, dict):
            raise BadPatch(f"a list merged by {key} holds objects only")
        if key not in entry:
            raise BadPatch(f"map: {entry} does not contain declared merge key: {key}")
        name = _hashable(entry[key])
        same = places.get(name)
        if entry.get(PATCH) == "delete":
            for at in places.pop(name, ()):
                result[at] = None
        elif not same:
            places[name] = [len(result)]
            result.append(_merge_objects({}, entry, inner))
        elif entry.get(PATCH) == "replace":
            result[same[0]] = {field: value for field, value in entry.items() if field != PATCH}
        else:
            result[same[0]] = _merge_objects(result[same[0]], entry, inner)
    left = [entry for entry in result if entry is not None]
    return _ordered_entries(left, key, order if isinstance(order, list) else patch, old)


def _ordered_entries(entries: list[Any], key: str, order: list[Any], live: list[Any]) -> list[Any]:
    names = [entry.get(key) if isinstance(entry, dict) else entry for entry in order]
    before = [entry.get(key) for entry in live if isinstance(entry, dict)]
    return _interleaved(entries, lambda entry: entry.get(key), names, before)


def _ordered_scalars(entries: list[Any], order: list[Any], live: list[Any]) -> list[Any]:
    return _interleaved(entries, lambda entry: entry, order, live)


def _interleaved(entries: list[Any], name_of: Callable[[Any], Any], order: list[Any], live: list[Any]) -> list[Any]:
    """Entries that the patch names, in its order; others come before one of these only if they did so before."""
    rank = {_hashable(name): at for at, name in enumerate(order)}
    place = {_hashable(name): at for at, name in enumerate(live)}
    named = sorted(
        (entry for entry in entries if _hashable(name_of(entry)) in rank),
        key=lambda entry: rank[_hashable(name_of(entry))],
    )
    others = deque(entry for entry in entries if _hashable(name_of(entry)) not in rank)
    result: list[Any] = []
    for entry in named:
        at = place.get(_hashable(name_of(entry)))
        while others and at is not None and place.get(_hashable(name_of(others[0])), at) < at:
            result.append(others.popleft())
        result.append(entry)
    return [*result, *others]


def _hashable(value: Any) -> Any:
    return ("", repr(value)) if isinstance(value, dict | list) else value


def _reorder(result: Document, name: str, order: Any, schema: StructSchema | None) -> None:
    field = schema.fields.get(name) if schema else None
    live = result.get(name)
    if field is None or not isinstance(live, list) or not isinstance(order, list):
        return
    if field.merge_key:
        result[name] = _ordered_entries(live, field.merge_key, order, live)
    else:
        result[name] = _ordered_scalars(live, order, live)


def without_directives(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: without_directives(entry)
            for key, entry in value.items()
            if key != PATCH and not key.startswith((DELETE_FROM, SET_ORDER)) and key != RETAIN_KEYS
        }
    return [without_directives(entry) for entry in value] if isinstance(value, list) else value
