"""Server-side apply: the merge of an applied configuration into an object, the removal of fields that it no longer names, and the
check that it fits its kind."""

from __future__ import annotations

from collections.abc import Iterator
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
