"""The merge of server-side apply: a configuration laid over an object, and what was given up taken away."""

from __future__ import annotations

from typing import Any

from dray.api.schemas import StructSchema
from dray.apiserver.write.field_sets import (
    LEAF,
    Field,
    FieldSet,
    element_of,
    fields_of_struct,
    has_self,
)

Document = dict[str, Any]


def merge(live: Document, config: Document, schema: StructSchema) -> Document:
    return _merge_struct(live, config, fields_of_struct(schema))


def _merge_struct(live: Document, config: Document, fields: dict[str, Field]) -> Document:
    result = dict(live)
    for key, value in config.items():
        result[key] = _merge_value(live.get(key), value, fields.get(key, LEAF))
    return result


def _merge_value(live: Any, config: Any, field: Field) -> Any:
    if field.shape == "struct" and isinstance(live, dict) and isinstance(config, dict):
        assert field.struct is not None
        return _merge_struct(live, config, field.struct)
    if field.shape == "map" and isinstance(live, dict) and isinstance(config, dict):
        item = field.item or LEAF
        return {**live, **{key: _merge_value(live.get(key), value, item) for key, value in config.items()}}
    if field.shape in ("set", "map-list") and isinstance(live, list) and isinstance(config, list):
        return _merge_lists(live, config, field)
    return config


def _merge_lists(live: list[Any], config: list[Any], field: Field) -> list[Any]:
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
            result.append(_merge_value(old.get(key), value, item))
            if key == element:
                break
    result += [_merge_value(old.get(key), value, item) for key, value in rest]
    return result


def remove(document: Document, gone: FieldSet, schema: StructSchema) -> Document:
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
        kept = _remove_value(entry, node, field.item or LEAF)
        if kept is not None and not (has_self(node) and _only_keys(kept, field)):
            left.append(kept)
    return left


def _only_keys(entry: Any, field: Field) -> bool:
    return isinstance(entry, dict) and entry.keys() <= set(field.keys)
