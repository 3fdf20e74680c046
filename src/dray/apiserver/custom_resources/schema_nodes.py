"""A structural schema, read once into nodes that the other modules walk."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from dray.apiserver.request.request_info import Document

# A schema may be large, but not so large that every write of an object pays for it.
MAX_NODES = 60_000
MAX_DEPTH = 64

ENUM_VALUES_OF_A_STEP = 16
PATTERN_PARTS_OF_A_STEP = 16
_REPETITION = re.compile(r"(\d+)\}").findall

Limits = dict[str, Any]
LIMITS = (
    "enum", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum", "maxLength", "minLength", "pattern",
    "maxItems", "minItems", "multipleOf", "maxProperties", "minProperties", "required", "format",
)  # fmt: skip


@dataclass(slots=True, eq=False)
class SchemaNode:
    """One part of a schema. `additional` is True where any value is allowed, None where unknown fields are pruned."""

    type: str = ""
    properties: dict[str, SchemaNode] = field(default_factory=dict)
    items: SchemaNode | None = None
    additional: SchemaNode | Literal[True] | None = None
    nullable: bool = False
    has_default: bool = False
    default: Any = None
    default_bytes: int = 0
    preserves: bool = False
    int_or_string: bool = False
    embedded: bool = False
    list_type: str = "atomic"
    list_keys: tuple[str, ...] = ()
    map_type: str = "granular"
    limits: Limits = field(default_factory=dict)
    all_of: tuple[SchemaNode, ...] = ()
    any_of: tuple[SchemaNode, ...] = ()
    one_of: tuple[SchemaNode, ...] = ()
    not_: SchemaNode | None = None
    rules: tuple[Document, ...] = ()
    # Whether there is a default, or a rule, here or below.
    has_defaults_below: bool = False
    has_rules_below: bool = False

    def children(self) -> Iterator[SchemaNode]:
        """The nodes that describe parts of the value."""
        yield from self.properties.values()
        if self.items is not None:
            yield self.items
        if isinstance(self.additional, SchemaNode):
            yield self.additional

    def alternatives(self) -> Iterator[SchemaNode]:
        """The nodes that describe the same value once more."""
        yield from (*self.all_of, *self.any_of, *self.one_of)
        if self.not_ is not None:
            yield self.not_

    def steps_for_a_value(self) -> int:
        """At most so many steps are taken for any one value, here or below."""
        own = self._own_steps() + sum(each._steps_in_all() for each in self.alternatives())
        return max([own, *(child.steps_for_a_value() for child in self.children())])

    def _own_steps(self) -> int:
        return 1 + enum_steps(self.limits) + _pattern_steps(self.limits.get("pattern") or "")

    def _steps_in_all(self) -> int:
        return self._own_steps() + sum(each._steps_in_all() for each in (*self.children(), *self.alternatives()))


def enum_steps(limits: Limits) -> int:
    """For the comparison with the values that are allowed; a step is some microseconds."""
    return len(limits.get("enum", ())) // ENUM_VALUES_OF_A_STEP


def _pattern_steps(pattern: str) -> int:
    """For compiling it, at most: a counted repetition writes its part out that often."""
    counts = [int(found[-4:]) for found in _REPETITION(pattern)]
    return len(pattern) * math.prod(max(count, 1) for count in counts[:8]) // PATTERN_PARTS_OF_A_STEP


def read_schema(schema: Document) -> SchemaNode:
    """The nodes of a schema that was found to be structural, and not too large."""
    additional = schema.get("additionalProperties")
    node = SchemaNode(
        type=schema.get("type") or "",
        properties={name: read_schema(inner) for name, inner in (schema.get("properties") or {}).items()},
        items=read_schema(schema["items"]) if isinstance(schema.get("items"), dict) else None,
        additional=read_schema(additional) if isinstance(additional, dict) else True if additional else None,
        nullable=bool(schema.get("nullable")),
        has_default="default" in schema,
        default=schema.get("default"),
        default_bytes=len(msgspec.json.encode(schema["default"])) if "default" in schema else 0,
        preserves=bool(schema.get("x-kubernetes-preserve-unknown-fields")),
        int_or_string=bool(schema.get("x-kubernetes-int-or-string")),
        embedded=bool(schema.get("x-kubernetes-embedded-resource")),
        list_type=schema.get("x-kubernetes-list-type") or "atomic",
        list_keys=tuple(schema.get("x-kubernetes-list-map-keys") or ()),
        map_type=schema.get("x-kubernetes-map-type") or "granular",
        limits={name: schema[name] for name in LIMITS if schema.get(name) is not None},
        all_of=_each(schema, "allOf"),
        any_of=_each(schema, "anyOf"),
        one_of=_each(schema, "oneOf"),
        not_=read_schema(schema["not"]) if isinstance(schema.get("not"), dict) else None,
        rules=tuple(schema.get("x-kubernetes-validations") or ()),
    )
    below = [*node.children()]
    node.has_defaults_below = node.has_default or any(child.has_defaults_below for child in below)
    node.has_rules_below = bool(node.rules) or any(child.has_rules_below for child in below)
    return node


def _each(schema: Document, name: str) -> tuple[SchemaNode, ...]:
    return tuple(read_schema(inner) for inner in schema.get(name) or ())


NOT_SCHEMAS = frozenset({"default", "example", "enum", "x-kubernetes-validations", "required"})


def size_problem(schema: Any) -> str:
    """Why a schema is too large to be read, if it is; looks at no more of it than the limit allows."""
    left: list[tuple[Any, int]] = [(schema, 0)]
    nodes = 0
    while left:
        part, depth = left.pop()
        nodes += 1
        if nodes > MAX_NODES:
            return f"the schema has more than {MAX_NODES} parts"
        if depth > 2 * MAX_DEPTH:
            return f"the schema is nested more than {MAX_DEPTH} levels deep"
        if isinstance(part, dict):
            left += [
                (inner, depth + 1)
                for key, inner in part.items()
                if key not in NOT_SCHEMAS and inner.__class__ in (dict, list)
            ]
        elif isinstance(part, list):
            left += [(inner, depth) for inner in part if inner.__class__ in (dict, list)]
    return ""
