"""Drops fields that the schema does not know, and fills in its defaults. Both return copies where something changes. Pure."""

from __future__ import annotations

import copy
import math
from typing import Any

from dray.apiserver.custom_resources.schema_nodes import SchemaNode

# Fields of every object, and of every resource embedded in one; their shape is not the schema's business.
IMPLICIT = frozenset({"apiVersion", "kind", "metadata"})


def pruned(value: Any, node: SchemaNode, unknown: list[str], path: str = "", *, is_resource: bool = False) -> Any:
    """`value` without unknown fields, whose paths are added to `unknown`."""
    if isinstance(value, dict):
        return _pruned_object(value, node, unknown, path, is_resource or node.embedded)
    if isinstance(value, list) and node.items is not None:
        return [pruned(entry, node.items, unknown, f"{path}[{at}]") for at, entry in enumerate(value)]
    return value


def _pruned_object(value: dict[str, Any], node: SchemaNode, unknown: list[str], path: str, is_resource: bool) -> Any:
    kept = {}
    for key, entry in value.items():
        here = f"{path}.{key}" if path else key
        if is_resource and key in IMPLICIT:
            kept[key] = entry
        elif (known := node.properties.get(key)) is not None:
            # A null where none is allowed counts as left out.
            if entry is not None or known.nullable or known.preserves:
                kept[key] = pruned(entry, known, unknown, here)
        elif isinstance(node.additional, SchemaNode):
            kept[key] = pruned(entry, node.additional, unknown, here)
        elif node.preserves or node.additional is True:
            kept[key] = entry
        else:
            unknown.append(here)
    return kept


class TooManyDefaults(Exception):
    """The defaults would make an object too large: those of a list are filled in once for each of its entries."""


def with_defaults(value: Any, node: SchemaNode, most_bytes: float = math.inf) -> Any:
    """`value` with the defaults of what it leaves out; a null where none is allowed counts as left out. Raises TooManyDefaults."""
    return _Defaults(most_bytes).fill(value, node)


class _Defaults:
    """Of one object; `_left` counts the bytes that they may still have as JSON."""

    def __init__(self, most_bytes: float) -> None:
        self._left = most_bytes

    def fill(self, value: Any, node: SchemaNode) -> Any:
        if not node.has_defaults_below:
            return value
        if isinstance(value, dict):
            return self._object(value, node)
        if isinstance(value, list) and node.items is not None:
            return [self._entry(entry, node.items) for entry in value]
        return value

    def _object(self, value: dict[str, Any], node: SchemaNode) -> dict[str, Any]:
        filled = dict(value)
        for name, known in node.properties.items():
            if known.has_default and (name not in filled or (filled[name] is None and not known.nullable)):
                filled[name] = self._default(known)
            if name in filled:
                filled[name] = self.fill(filled[name], known)
        if isinstance(node.additional, SchemaNode):
            for name, entry in value.items():
                if name not in node.properties:
                    filled[name] = self._entry(entry, node.additional)
        return filled

    def _entry(self, entry: Any, node: SchemaNode) -> Any:
        if entry is None and node.has_default and not node.nullable:
            entry = self._default(node)
        return self.fill(entry, node)

    def _default(self, node: SchemaNode) -> Any:
        self._left -= node.default_bytes
        if self._left < 0:
            raise TooManyDefaults
        return copy.deepcopy(node.default)
