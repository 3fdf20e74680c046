"""The two patch formats that know the schema of a kind: strategic merge patch and server-side apply.

Directives of a strategic merge patch: `$patch: delete|replace|merge` in an object or a list entry, `$deleteFromPrimitiveList/FIELD`,
`$setElementOrder/FIELD`, `$retainKeys`. For server-side apply: the merge of an applied configuration into an object, the removal of
fields that it no longer names, and the check that it fits its kind.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from dray.api.jsontext import go_json
from dray.api.schemas import FieldSchema, StructSchema, TypeRef, struct
from dray.apiserver.write.field_sets import (
    LEAF,
    Field,
    FieldSet,
    OwnershipSchema,
    element_of,
    fields_of_struct,
    has_self,
)

Document = dict[str, Any]

DELETE_FROM = "$deleteFromPrimitiveList/"
SET_ORDER = "$setElementOrder/"
RETAIN_KEYS = "$retainKeys"
PATCH = "$patch"


class BadPatch(Exception):
    """The patch contradicts itself or the kind's schema."""


def strategic_merge(document: Document, patch: Document, schema: StructSchema) -> Document:
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


# --- server-side apply -----------------------------------------------------------------------------------------------


def merge_applied(live: Document, config: Document, schema: OwnershipSchema) -> Document:
    return _applied_struct(live, config, fields_of_struct(schema))


def _applied_struct(live: Document, config: Document, fields: dict[str, Field]) -> Document:
    result = dict(live)
    for key, value in config.items():
        result[key] = _applied_value(live.get(key), value, fields.get(key, LEAF))
    return result


def _applied_value(live: Any, config: Any, field: Field) -> Any:
    if field.shape == "struct" and isinstance(live, dict) and isinstance(config, dict):
        assert field.struct is not None
        return _applied_struct(live, config, field.struct)
    if field.shape == "map" and isinstance(live, dict) and isinstance(config, dict):
        item = field.item or LEAF
        return {**live, **{key: _applied_value(live.get(key), value, item) for key, value in config.items()}}
    if field.shape in ("set", "map-list") and isinstance(live, list) and isinstance(config, list):
        return _applied_list(live, config, field)
    return config


def _applied_list(live: list[Any], config: list[Any], field: Field) -> list[Any]:
    """Entries of the configuration in its order; entries it does not name keep their place before the next one."""
    item = field.item or LEAF
    old = {element_of(entry, field): entry for entry in live}
    new = {element_of(entry, field): entry for entry in config}
    result: list[Any] = []
    rest = iter(new.items())
    for element, entry in old.items():
        if element not in new:
            result.append(entry)
            continue
        for key, value in rest:
            result.append(_applied_value(old.get(key), value, item))
            if key == element:
                break
    result += [_applied_value(old.get(key), value, item) for key, value in rest]
    return result


def remove_fields(document: Document, gone: FieldSet, schema: OwnershipSchema) -> Document:
    """The document without the elements of `gone`; what holds something else stays."""
    return _remove_fields(document, gone, fields_of_struct(schema))


def _remove_fields(value: Document, gone: FieldSet, fields: dict[str, Field]) -> Document:
    result = dict(value)
    for element, node in gone.items():
        key = element[2:]
        if not element.startswith("f:") or key not in result:
            continue
        left = _remove_value(result[key], node, fields.get(key, LEAF))
        if left is None:
            del result[key]
        else:
            result[key] = left
    return result


def _remove_value(value: Any, node: FieldSet, field: Field) -> Any:
    """What is left of a value, None if nothing is."""
    if not node:
        return None
    if field.shape == "struct" and isinstance(value, dict):
        assert field.struct is not None
        left: Any = _remove_fields(value, node, field.struct)
    elif field.shape == "map" and isinstance(value, dict):
        item = field.item or LEAF
        left = _remove_fields(value, node, dict.fromkeys(value, item))
    elif field.shape in ("set", "map-list") and isinstance(value, list):
        left = _remove_entries(value, node, field)
    else:
        return None if has_self(node) else value
    return left or None


def _remove_entries(value: list[Any], gone: FieldSet, field: Field) -> list[Any]:
    left = []
    for entry in value:
        node = gone.get(element_of(entry, field))
        if node is None:
            left.append(entry)
            continue
        # An entry that goes takes along what the server filled in: nobody owns that.
        kept = None if has_self(node) else _remove_value(entry, node, field.item or LEAF)
        if kept is not None:
            left.append(kept)
    return left


TEXTS = frozenset({"string", "time", "microTime", "bytes"})
NUMBERS = frozenset({"int32", "int64", "float"})
# Ports are told apart by their protocol, too, which is TCP if nobody says.
DEFAULTED = "protocol"
# A message is for people, and a body may be large; so may be the number of things wrong with it.
MOST_SHOWN = 1024
MOST_PROBLEMS = 100


def typed_problems(tree: Document, schema: StructSchema) -> list[str]:
    """Every value that is of another type than its field, every field that the kind does not have."""
    return list(islice(struct_problems(tree, schema, ""), MOST_PROBLEMS))


def struct_problems(value: Any, schema: StructSchema, path: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield _expected(path, "map", value)
        return
    for key, inner in value.items():
        field = schema.fields.get(key)
        if field is None:
            yield f"{path}.{key}: field not declared in schema"
        elif inner is not None:
            yield from (
                _list(inner, field, f"{path}.{key}")
                if field.type.shape == "list"
                else _value(inner, field.type, f"{path}.{key}")
            )


def _value(value: Any, ref: TypeRef, path: str) -> Iterator[str]:
    if value is None:
        return
    if ref.shape == "struct":
        yield from struct_problems(value, struct(ref.name), path)
    elif ref.shape == "scalar":
        yield from _scalar(value, ref.name, path)
    elif ref.shape == "map" and isinstance(value, dict):
        for key, inner in value.items():
            yield from _value(inner, ref.item or ref, f"{path}.{key}")
    elif ref.shape == "list" and isinstance(value, list):
        for at, inner in enumerate(value):
            yield from _value(inner, ref.item or ref, f"{path}[{at}]")
    else:
        yield _expected(path, ref.shape, value)


def _list(value: Any, field: FieldSchema, path: str) -> Iterator[str]:
    assert field.type.item is not None
    if not isinstance(value, list):
        yield _expected(path, "list", value)
        return
    seen: set[str] = set()
    for at, entry in enumerate(value):
        place = f"[{at}]"
        if field.list_type == "map" and isinstance(entry, dict):
            if not any(entry.get(key) is not None or key == DEFAULTED for key in field.list_keys):
                listed = " ".join(map(go_json, field.list_keys))
                yield (
                    f"{path}: element {at}: associative list with keys has an element that omits all key fields "
                    f"[{listed}] (and doesn't have default values for any key fields)"
                )
                continue
            place = "[" + ",".join(f"{key}={go_json(entry[key])}" for key in field.list_keys if key in entry) + "]"
        elif field.list_type == "set":
            place = f"[={go_json(entry)}]"
        if field.list_type != "atomic" and place in seen:
            yield f"{path}: duplicate entries for key {place}"
        seen.add(place)
        yield from _value(entry, field.type.item, path + place)


def _scalar(value: Any, name: str, path: str) -> Iterator[str]:
    if name in TEXTS and not isinstance(value, str):
        yield _expected(path, "string", value)
    elif name == "bool" and not isinstance(value, bool):
        yield _expected(path, "boolean", value)
    elif name in NUMBERS and (isinstance(value, bool) or not isinstance(value, int | float)):
        yield _expected(path, "numeric (int or float)", value)


def _expected(path: str, what: str, value: Any) -> str:
    shown = _go(value)
    if len(shown) > MOST_SHOWN:
        shown = f"{shown[:MOST_SHOWN]}..."
    return f"{path}: expected {what}, got &value.valueUnstructured{{Value:{shown}}}"


def _go(value: Any) -> str:
    """A value as Go writes it in its own syntax."""
    if isinstance(value, dict):
        return "map[string]interface {}{" + ", ".join(f"{go_json(k)}:{_go(value[k])}" for k in sorted(value)) + "}"
    if isinstance(value, list):
        return "[]interface {}{" + ", ".join(map(_go, value)) + "}"
    return "interface {}(nil)" if value is None else go_json(value)
