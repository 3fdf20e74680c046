"""Strategic merge patch: a merge that knows from the schema of a kind which lists are merged, and by which key.

Directives: `$patch: delete|replace` in an object or a list entry, `$deleteFromPrimitiveList/FIELD`, `$setElementOrder/FIELD`,
`$retainKeys`. They are only looked at where there is something to merge with, as in Kubernetes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from dray.api.jsontext import go_json, go_map
from dray.api.schemas import FieldSchema, StructSchema, TypeRef, struct

Document = dict[str, Any]

DELETE_FROM = "$deleteFromPrimitiveList"
SET_ORDER = "$setElementOrder"
RETAIN_KEYS = "$retainKeys"
PATCH = "$patch"
WRONG_FORMAT = {
    DELETE_FROM: "invalid patch format of primitive list",
    SET_ORDER: "invalid patch format of setElementOrder list",
    RETAIN_KEYS: "invalid patch format of retainKeys",
}


class BadPatch(Exception):
    """The patch contradicts itself or the kind's schema."""


class ListOfLists(BadPatch):
    """A list to be merged holds lists."""


def strategic_merge(document: Document, patch: Document, schema: StructSchema) -> Document:
    return _merge_objects(document, patch, schema)


def _merge_objects(old: Document, patch: Document, schema: StructSchema | None) -> Document:
    if PATCH in patch:
        return _replaced(patch)
    result = _retained(old, patch)
    orders = {_list_name(key, SET_ORDER): order for key, order in patch.items() if key.startswith(SET_ORDER)}
    for name, order in orders.items():
        _check_order(name, order, patch.get(name), schema)
    for key, value in patch.items():
        if key == RETAIN_KEYS or key.startswith(SET_ORDER):
            continue
        if key.startswith(DELETE_FROM):
            _delete_scalars(result, _list_name(key, DELETE_FROM), value)
        elif value is None:
            result.pop(key, None)
        else:
            _merge_member(result, key, value, schema.fields.get(key) if schema else None, orders.get(key))
    for name, order in orders.items():
        if name not in patch:
            _reorder(result, name, order, schema)
    return result


def _replaced(patch: Document) -> Document:
    directive = patch[PATCH]
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != PATCH}
    if directive == "delete":
        return {}
    raise _unknown_directive(patch)


def _unknown_directive(patch: Document) -> BadPatch:
    return BadPatch(f"unknown patch type: {go_map(patch[PATCH])} in map: {go_map(patch)}")


def _list_name(key: str, directive: str) -> str:
    found, slash, name = key.partition("/")
    if not slash or found != directive:
        raise BadPatch(WRONG_FORMAT[directive])
    return name


def _retained(old: Document, patch: Document) -> Document:
    """$retainKeys names all keys that may stay, among them those of the patch."""
    if RETAIN_KEYS not in patch:
        return dict(old)
    keys = patch[RETAIN_KEYS]
    if not isinstance(keys, list):
        raise BadPatch(WRONG_FORMAT[RETAIN_KEYS])
    kept = {_hashable(key) for key in keys}
    for key, value in patch.items():
        is_directive = key == RETAIN_KEYS or key.startswith((DELETE_FROM, SET_ORDER))
        if value is not None and not is_directive and key not in kept:
            raise BadPatch(WRONG_FORMAT[RETAIN_KEYS])
    return {key: value for key, value in old.items() if key in kept}


def _delete_scalars(result: Document, key: str, values: Any) -> None:
    if isinstance(result.get(key), list) and isinstance(values, list):
        deleted = {_hashable(value) for value in values}
        result[key] = [entry for entry in result[key] if _hashable(entry) not in deleted]


def _merge_member(result: Document, key: str, value: Any, field: FieldSchema | None, order: Any) -> None:
    live = result.get(key)
    if isinstance(live, dict) and isinstance(value, dict):
        result[key] = _merge_maps(live, value, field)
    elif isinstance(live, list) and isinstance(value, list):
        result[key] = _merge_lists(live, value, field, order)
    elif isinstance(value, dict) and PATCH in value:
        result.pop(key, None)
    else:
        result[key] = _new_value(value)


def _new_value(value: Any) -> Any:
    """A value with nothing to merge with: without nulls, directives, and whatever has a `$patch`."""
    if isinstance(value, dict):
        return {
            key: _new_value(entry)
            for key, entry in value.items()
            if entry is not None and not _is_directive(key) and not _has_directive(entry)
        }
    if isinstance(value, list):
        return [_new_value(entry) for entry in value if not _has_directive(entry)]
    return value


def _has_directive(value: Any) -> bool:
    return isinstance(value, dict) and PATCH in value


def _is_directive(key: str) -> bool:
    return key in (PATCH, RETAIN_KEYS) or key.startswith((DELETE_FROM, SET_ORDER))


def _merge_maps(old: Document, value: Document, field: FieldSchema | None) -> Document:
    if field is not None and field.type.shape == "map" and field.type.item is not None:
        return _merge_map(old, value, _struct_of(field.type.item))
    return _merge_objects(old, value, _struct_of(field.type) if field else None)


def _merge_map(old: Document, patch: Document, inner: StructSchema | None) -> Document:
    if inner is None:
        return _merge_objects(old, patch, None)
    if PATCH in patch:
        return _replaced(patch)
    result = dict(old)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = _merge_objects(result.get(key) or {}, value, inner)
        else:
            result[key] = value
    return result


def _struct_of(ref: TypeRef) -> StructSchema | None:
    return struct(ref.name) if ref.shape == "struct" else None


# --- lists -----------------------------------------------------------------------------------------------------------


def _merge_lists(old: list[Any], patch: list[Any], field: FieldSchema | None, order: Any) -> list[Any]:
    if field is None or field.merge_key is None:
        return [without_directives(entry) for entry in patch]
    if not old and not patch:
        return old
    _check_elements(old, patch)
    if not field.merge_key:
        known = {_hashable(entry) for entry in old}
        merged = old + [entry for entry in patch if _hashable(entry) not in known]
        return _ordered_scalars(merged, patch if order is None else order, old)
    inner = _struct_of(field.type.item) if field.type.item else None
    return _merge_by_key(old, patch, field.merge_key, inner, order)


def _check_elements(old: list[Any], patch: list[Any]) -> None:
    first = _go_type((old or patch)[0])
    if first == "[]interface {}":
        raise ListOfLists("lists of lists are not supported")
    if any(_go_type(entry) != first for entry in (*old, *patch)):
        raise BadPatch(f"list element types are not identical: {go_map([old, patch])}")


def _go_type(value: Any) -> str:
    if value is None:
        return "%!s(<nil>)"
    types: dict[type, str] = {
        dict: "map[string]interface {}",
        list: "[]interface {}",
        bool: "bool",
        int: "int64",
        float: "float64",
    }
    return types.get(type(value), "string")


def _wrong_type(expected: str, value: Any) -> BadPatch:
    return BadPatch(f"expected a {expected}, but received a {_go_type(value)}")


def _key_of(entry: Any, key: str) -> Any:
    if not isinstance(entry, dict):
        raise _wrong_type("map[string]interface {}", entry)
    if key not in entry:
        raise BadPatch(f"map: {go_map(entry)} does not contain declared merge key: {key}")
    return _hashable(entry[key])


def _merge_by_key(old: list[Any], patch: list[Any], key: str, inner: StructSchema | None, order: Any) -> list[Any]:
    result, rest = _without_directed_entries(old, patch, key)
    places: dict[Any, int] = {}
    for at, entry in enumerate(result):
        places.setdefault(_key_of(entry, key), at)
    for entry in rest:
        name = _key_of(entry, key)
        if name in places:
            result[places[name]] = _merge_objects(result[places[name]], entry, inner)
        else:
            places[name] = len(result)
            result.append(without_directives(entry))
    return _ordered_entries(result, key, rest if order is None else order, old)


def _without_directed_entries(old: list[Any], patch: list[Any], key: str) -> tuple[list[Any], list[Any]]:
    """The list without what the patch deletes, and the entries to merge into it; one `$patch: replace` replaces the whole list."""
    rest, deleted, replaces = [], set(), False
    for entry in patch:
        directive = entry.get(PATCH) if isinstance(entry, dict) else None
        if not _has_directive(entry):
            rest.append(entry)
        elif directive == "delete":
            deleted.add(_key_of(entry, key))
        elif directive == "replace":
            replaces = True
        elif directive == "merge":
            raise BadPatch("merging lists cannot yet be specified in the patch")
        else:
            raise _unknown_directive(entry)
    if replaces:
        return [without_directives(entry) for entry in rest], []
    return [entry for entry in old if _hashable(entry.get(key)) not in deleted] if deleted else list(old), rest


def _check_order(name: str, order: Any, patched: Any, schema: StructSchema | None) -> None:
    """The patched entries have to be among those of the order, one after the other."""
    if not isinstance(order, list):
        raise _wrong_type("[]interface {}", order)
    if patched is not None and not isinstance(patched, list):
        raise _wrong_type("[]interface {}", patched)
    if schema is None:
        return
    field = schema.fields.get(name)
    if field is None:
        kind = schema.name.rpartition(".")[2]
        raise BadPatch(f"unable to find api field in struct {kind} for the json field {go_json(name)}")
    if not order:
        return
    key = field.merge_key
    names = iter([_key_of(entry, key) if key else _hashable(entry) for entry in order])
    merged = [entry for entry in patched or () if not _has_directive(entry)]
    if not all((_key_of(entry, key) if key else _hashable(entry)) in names for entry in merged):
        raise BadPatch(
            f"The order in patch list:\n{go_map(patched)}\n doesn't match {SET_ORDER} list:\n{go_map(order)}\n"
        )


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


def _reorder(result: Document, name: str, order: list[Any], schema: StructSchema | None) -> None:
    field = schema.fields.get(name) if schema else None
    live = result.get(name)
    if field is None or not isinstance(live, list):
        return
    if field.merge_key:
        result[name] = _ordered_entries(live, field.merge_key, order, live)
    else:
        result[name] = _ordered_scalars(live, order, live)


def without_directives(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_directives(entry) for key, entry in value.items() if not _is_directive(key)}
    return [without_directives(entry) for entry in value] if isinstance(value, list) else value


# --- the result as an object of its kind -----------------------------------------------------------------------------


def restore_problem(value: Any, ref: TypeRef) -> str | None:
    """The first value of another type than its field, in the words that are used for this kind of patch only."""
    if value is None:
        return None
    if ref.shape == "scalar":
        return _scalar_problem(value, ref.name)
    if not isinstance(value, list if ref.shape == "list" else dict):
        text = {"struct": "struct from:", "map": "map from", "list": "slice from"}[ref.shape]
        return f"cannot restore {text} {_go_kind(value)}"
    return next(filter(None, (restore_problem(entry, found) for entry, found in _members(value, ref))), None)


def _members(value: Any, ref: TypeRef) -> Iterator[tuple[Any, TypeRef]]:
    if ref.shape == "struct":
        fields = struct(ref.name).fields
        yield from ((entry, fields[key].type) for key, entry in value.items() if key in fields)
    elif ref.item is not None:
        yield from ((entry, ref.item) for entry in (value.values() if ref.shape == "map" else value))


def _go_kind(value: Any) -> str:
    if isinstance(value, dict):
        return "map"
    return "slice" if isinstance(value, list) else _go_type(value)


def _scalar_problem(value: Any, name: str) -> str | None:
    kind = _go_kind(value)
    is_number = kind in ("int64", "float64")
    match name:
        case "string" if kind != "string":
            return "cannot convert int64 to string" if kind == "int64" else "unrecognized type: string"
        case "bool" if kind != "bool":
            return "unrecognized type: bool"
        case "int32" | "int64" if not is_number:
            return f"unrecognized type: {name}"
        case "int32" | "int64" if kind == "float64" and not value.is_integer():
            return f"cannot convert float64 to {name}"
        case "float" if not is_number:
            return "unrecognized type: float64"
    return None
