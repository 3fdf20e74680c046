"""Does an applied configuration fit its kind? In the words of the library that Kubernetes asks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from dray.api.jsontext import go_json
from dray.api.schemas import FieldSchema, StructSchema, TypeRef, struct

Document = dict[str, Any]

TEXTS = frozenset({"string", "time", "microTime", "bytes"})
NUMBERS = frozenset({"int32", "int64", "float"})
# Ports are told apart by their protocol, too, which is TCP if nobody says.
DEFAULTED = "protocol"
# A message is for people, and a body may be large; so may be the number of things wrong with it.
MOST_SHOWN = 1024
MOST_PROBLEMS = 100


def typed_problems(tree: Document, schema: StructSchema) -> list[str]:
    """Every value that is of another type than its field, every field that the kind does not have."""
    return list(islice(_struct(tree, schema, ""), MOST_PROBLEMS))


def _struct(value: Any, schema: StructSchema, path: str) -> Iterator[str]:
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
        yield from _struct(value, struct(ref.name), path)
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
