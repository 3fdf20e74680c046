"""What is wrong with the schema of a definition: it must be structural, must use only what Kubernetes knows, and its rules must compile and be cheap."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dray.api.jsontext import go_json
from dray.apiserver.custom_resources.cel_rules import (
    DEFINITION_COST_LIMIT,
    REASONS,
    RULE_COST_LIMIT,
    RuleTree,
    compile_rules,
)
from dray.apiserver.custom_resources.pruning_and_defaults import pruned
from dray.apiserver.custom_resources.schema_nodes import SchemaNode, read_schema, size_problem
from dray.apiserver.custom_resources.value_validation import value_problems
from dray.apiserver.errors import OptionError
from dray.apiserver.request.request_info import Document
from dray.cel import CompileFailure, Program
from dray.cel.errors import CelError
from dray.cel.library import regex
from dray.cel.types import STRING

TYPES = ("array", "boolean", "integer", "number", "object", "string")
UNSUPPORTED = ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref")
INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]
NESTED_FORBIDDEN = {
    "type": "must be empty to be structural",
    "additionalProperties": "must be undefined to be structural",
    "default": "must be undefined to be structural",
    "title": "must be empty to be structural",
    "description": "must be empty to be structural",
    "nullable": "must be false to be structural",
    "x-kubernetes-preserve-unknown-fields": "must be false to be structural",
    "x-kubernetes-embedded-resource": "must be false to be structural",
    "x-kubernetes-int-or-string": "must be false to be structural",
    "x-kubernetes-list-map-keys": "must be empty to be structural",
    "x-kubernetes-list-type": "must be undefined to be structural",
    "x-kubernetes-map-type": "must be undefined to be structural",
    "x-kubernetes-validations": "must be empty to be structural",
}
# Rules that are named when all rules together cost too much.
MOST_NAMED = 4
EMPTY_TYPE = {
    "root": "must not be empty at the root",
    "item": "must not be empty for specified array items",
    "field": "must not be empty for specified object fields",
}
COST_HINT = "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"


def required(path: str, why: str = "") -> OptionError:
    return OptionError("Required", path, f"Required value: {why}" if why else "Required value")


def forbidden(path: str, why: str) -> OptionError:
    return OptionError("Forbidden", path, f"Forbidden: {why}")


def invalid(path: str, value: Any, why: str) -> OptionError:
    return OptionError("Invalid", path, f"Invalid value: {go_json(value)}: {why}")


def unsupported(path: str, value: Any, supported: tuple[str, ...]) -> OptionError:
    listed = ", ".join(f'"{name}"' for name in supported)
    return OptionError("NotSupported", path, f"Unsupported value: {go_json(value)}: supported values: {listed}")


def schema_problems(schema: Document, path: str) -> list[OptionError]:
    """All field errors of a schema."""
    if too_large := size_problem(schema):
        return [invalid(path, "", too_large)]
    found = [*_words(schema, path), *sorted(_structure(schema, path, "root"), key=str)]
    if found:
        return found
    node = read_schema(schema)
    return [*_default_problems(node, path), *_rule_problems(node, path)]


# --- what a schema may say


def _words(schema: Document, path: str) -> Iterator[OptionError]:
    kind = schema.get("type") or ""
    if kind == "null":
        yield forbidden(f"{path}.type", "type cannot be set to null, use nullable as an alternative")
    elif kind and kind not in TYPES:
        yield unsupported(f"{path}.type", kind, TYPES)
    for word in UNSUPPORTED:
        if schema.get(word):
            yield forbidden(f"{path}.{word}", f"{word} is not supported")
    if schema.get("uniqueItems"):
        yield forbidden(
            f"{path}.uniqueItems", "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        )
    if schema.get("x-kubernetes-preserve-unknown-fields") is False:
        yield invalid(f"{path}.x-kubernetes-preserve-unknown-fields", False, "must be true or undefined")
    if isinstance(schema.get("additionalProperties"), dict) and schema.get("properties"):
        yield forbidden(f"{path}.additionalProperties", "additionalProperties and properties are mutual exclusive")
    if isinstance(schema.get("items"), list):
        yield forbidden(f"{path}.items", "items must be a schema object and not an array")
    yield from _list_and_map_types(schema, path)
    yield from _rule_words(schema, path)
    for where, inner in _parts(schema, path):
        yield from _words(inner, where)


def _parts(schema: Document, path: str) -> Iterator[tuple[str, Document]]:
    for name, inner in (schema.get("properties") or {}).items():
        yield f"{path}.properties[{name}]", inner
    for word in ("items", "additionalProperties", "not"):
        if isinstance(schema.get(word), dict):
            yield f"{path}.{word}", schema[word]
    for word in ("allOf", "anyOf", "oneOf"):
        for at, inner in enumerate(schema.get(word) or ()):
            yield f"{path}.{word}[{at}]", inner


def _list_and_map_types(schema: Document, path: str) -> Iterator[OptionError]:
    kind, list_type, map_type = (
        schema.get("type"),
        schema.get("x-kubernetes-list-type"),
        schema.get("x-kubernetes-map-type"),
    )
    keys = schema.get("x-kubernetes-list-map-keys") or []
    if map_type is not None and kind != "object":
        yield _wrong_type(path, kind, "must be object if x-kubernetes-map-type is specified")
    if map_type not in (None, "atomic", "granular"):
        yield unsupported(f"{path}.x-kubernetes-map-type", map_type, ("atomic", "granular"))
    if list_type is not None and kind != "array":
        yield _wrong_type(path, kind, "must be array if x-kubernetes-list-type is specified")
    if list_type not in (None, "atomic", "set", "map"):
        yield unsupported(f"{path}.x-kubernetes-list-type", list_type, ("atomic", "set", "map"))
    if keys and list_type != "map":
        why = "must be map if x-kubernetes-list-map-keys is non-empty"
        where = f"{path}.x-kubernetes-list-type"
        yield required(where, why) if list_type is None else invalid(where, list_type, why)
    if list_type == "map":
        yield from _list_map(schema, keys, path)


def _wrong_type(path: str, kind: Any, why: str) -> OptionError:
    return invalid(f"{path}.type", kind, why) if kind else required(f"{path}.type", why)


def _list_map(schema: Document, keys: list[str], path: str) -> Iterator[OptionError]:
    items = schema.get("items")
    if not keys:
        yield required(f"{path}.x-kubernetes-list-map-keys", "must not be empty if x-kubernetes-list-type is map")
    if not isinstance(items, dict):
        yield required(f"{path}.items", "must have a schema if x-kubernetes-list-type is map")
        return
    if items.get("type") != "object":
        why = "must be object if parent array's x-kubernetes-list-type is map"
        yield invalid(f"{path}.items.type", items.get("type") or "", why)
        return
    if items.get("nullable"):
        yield forbidden(f"{path}.items.nullable", "cannot be nullable when x-kubernetes-list-type is map")
    if len(set(keys)) != len(keys):
        yield invalid(f"{path}.x-kubernetes-list-map-keys", keys, "must not contain duplicate entries")
    properties, needed = items.get("properties") or {}, items.get("required") or []
    for key in keys:
        found = properties.get(key)
        if found is None:
            yield invalid(f"{path}.x-kubernetes-list-map-keys", keys, "entries must all be names of item properties")
        elif found.get("type") in ("array", "object"):
            why = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            yield invalid(f"{path}.items.properties[{key}].type", found.get("type"), why)
        elif key not in needed and "default" not in found:
            why = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"
            yield required(f"{path}.items.properties[{key}].default", why)


def _rule_words(schema: Document, path: str) -> Iterator[OptionError]:
    for at, rule in enumerate(schema.get("x-kubernetes-validations") or ()):
        where = f"{path}.x-kubernetes-validations[{at}]"
        text, message = rule.get("rule") or "", rule.get("message") or ""
        if not text.strip():
            yield required(f"{where}.rule", "rule is not specified")
        if message and not message.strip():
            yield invalid(f"{where}.message", message, "must be non-empty if specified")
        elif "\n" in message.strip():
            yield invalid(f"{where}.message", message, "must not contain line breaks")
        elif "\n" in text.strip() and not message:
            yield required(f"{where}.message", "message must be specified if rule contains line breaks")
        if rule.get("reason") not in (None, *REASONS):
            yield unsupported(f"{where}.reason", rule["reason"], REASONS)


# --- structure


def _structure(schema: Document, path: str, level: str) -> Iterator[OptionError]:
    kind, embedded = schema.get("type") or "", bool(schema.get("x-kubernetes-embedded-resource"))
    preserves, int_or_string = (
        bool(schema.get(f"x-kubernetes-{word}")) for word in ("preserve-unknown-fields", "int-or-string")
    )
    if kind == "array" and not isinstance(schema.get("items"), dict):
        yield required(f"{path}.items", "must be specified")
    if schema.get("additionalProperties") is not None and level == "root":
        yield forbidden(f"{path}.additionalProperties", "must not be used at the root")
    if int_or_string and preserves:
        yield invalid(
            f"{path}.x-kubernetes-preserve-unknown-fields", True, "must be false if x-kubernetes-int-or-string is true"
        )
    if int_or_string and embedded:
        yield invalid(
            f"{path}.x-kubernetes-embedded-resource", True, "must be false if x-kubernetes-int-or-string is true"
        )
    if embedded and kind != "object":
        yield _wrong_type(path, kind, "must be object if x-kubernetes-embedded-resource is true")
    elif not kind and not int_or_string and not preserves:
        yield required(f"{path}.type", EMPTY_TYPE[level])
    if level == "root" and kind not in ("", "object"):
        yield invalid(f"{path}.type", kind, "must be object at the root")
    if embedded and not preserves and not schema.get("properties"):
        why = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields"
        yield required(f"{path}.properties", why)
    yield from _resource_fields(schema, path, level, is_resource=level == "root" or embedded)
    yield from _value_validation(schema, path)
    if level == "root":
        yield from _completeness(schema, schema, path)
    for name, inner in (schema.get("properties") or {}).items():
        yield from _structure(inner, f"{path}.properties[{name}]", "field")
    if isinstance(schema.get("items"), dict):
        yield from _structure(schema["items"], f"{path}.items", "item")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from _structure(schema["additionalProperties"], f"{path}.additionalProperties", "field")


def _resource_fields(schema: Document, path: str, level: str, *, is_resource: bool) -> Iterator[OptionError]:
    properties = schema.get("properties") or {}
    if not is_resource:
        return
    for name in ("apiVersion", "kind"):
        if name in properties and properties[name].get("type") != "string":
            yield invalid(f"{path}.properties[{name}].type", properties[name].get("type") or "", "must be string")
    metadata = properties.get("metadata")
    if metadata is None:
        return
    where = f"{path}.properties[metadata]"
    if metadata.get("type") != "object":
        yield invalid(f"{where}.type", metadata.get("type") or "", "must be object")
    said = {key for key, value in metadata.items() if value} - {"type", "properties", "description", "default"}
    if level == "root" and (said or set(metadata.get("properties") or {}) - {"name", "generateName"}):
        why = "must not specify anything other than name and generateName, but metadata is implicitly specified"
        yield forbidden(where, why)


def _value_validation(schema: Document, path: str, *, skip_any_of: bool = False) -> Iterator[OptionError]:
    any_of, all_of = schema.get("anyOf") or [], schema.get("allOf") or []
    if not skip_any_of and any_of != INT_OR_STRING:
        for at, inner in enumerate(any_of):
            yield from _nested(inner, f"{path}.anyOf[{at}]")
    for at, inner in enumerate(all_of):
        skip = at == 0 and inner.get("anyOf") == INT_OR_STRING
        yield from _nested(inner, f"{path}.allOf[{at}]", skip_any_of=skip)
    for at, inner in enumerate(schema.get("oneOf") or ()):
        yield from _nested(inner, f"{path}.oneOf[{at}]")
    if isinstance(schema.get("not"), dict):
        yield from _nested(schema["not"], f"{path}.not")
    pattern = schema.get("pattern")
    if pattern:
        try:
            regex.compiled(pattern)
        except CelError as error:
            why = f"must be a valid regular expression, but isn't: {error}"
            yield invalid(f"{path}.pattern", pattern, why)


def _nested(schema: Document, path: str, *, skip_any_of: bool = False) -> Iterator[OptionError]:
    yield from _value_validation(schema, path, skip_any_of=skip_any_of)
    for word, why in NESTED_FORBIDDEN.items():
        if schema.get(word) not in (None, "", False, [], {}) or (word == "default" and word in schema):
            yield forbidden(f"{path}.{word}", why)
    properties = schema.get("properties") or {}
    if "metadata" in properties:
        yield forbidden(f"{path}.properties[metadata]", "must not be specified in a nested context")
    for name, inner in properties.items():
        yield from _nested(inner, f"{path}.properties[{name}]")
    if isinstance(schema.get("items"), dict):
        yield from _nested(schema["items"], f"{path}.items")


def _completeness(schema: Document, spine: Document, path: str) -> Iterator[OptionError]:
    """What an alternative names must stand outside of it, too."""
    for word in ("allOf", "anyOf", "oneOf"):
        for at, inner in enumerate(schema.get(word) or ()):
            yield from _named_outside(inner, spine, f"{path}.{word}[{at}]", path)
    if isinstance(schema.get("not"), dict):
        yield from _named_outside(schema["not"], spine, f"{path}.not", path)


def _named_outside(nested: Document, spine: Document, path: str, outside: str) -> Iterator[OptionError]:
    if nested.get("items") is not None and not isinstance(spine.get("items"), dict):
        yield required(f"{outside}.items", f"because it is defined in {path}.items")
    for name, inner in (nested.get("properties") or {}).items():
        known = (spine.get("properties") or {}).get(name)
        if known is None:
            yield required(f"{outside}.properties[{name}]", f"because it is defined in {path}.properties[{name}]")
        else:
            yield from _named_outside(inner, known, f"{path}.properties[{name}]", f"{outside}.properties[{name}]")
    yield from _completeness(nested, spine, path)


# --- defaults and rules


def _default_problems(node: SchemaNode, path: str) -> Iterator[OptionError]:
    if not node.has_defaults_below:
        return
    if node.has_default:
        unknown: list[str] = []
        pruned(node.default, node, unknown)
        if unknown:
            yield invalid(f"{path}.default", node.default, "must not have unknown fields")
        else:
            for problem in value_problems(node.default, node, is_resource=False):
                where = f"{path}.default" if problem.field == "<nil>" else f"{path}.default.{problem.field}"
                yield OptionError(problem.type, where, problem.body)
    for where, inner in _children(node, path):
        yield from _default_problems(inner, where)


def _children(node: SchemaNode, path: str) -> Iterator[tuple[str, SchemaNode]]:
    for name, inner in node.properties.items():
        yield f"{path}.properties[{name}]", inner
    if node.items is not None:
        yield f"{path}.items", node.items
    if isinstance(node.additional, SchemaNode):
        yield f"{path}.additionalProperties", node.additional


def _rule_problems(node: SchemaNode, path: str) -> Iterator[OptionError]:
    tree = compile_rules(node)
    if tree is None:
        return
    costs: list[tuple[int, str]] = []
    yield from _tree_problems(tree, path, 1, costs, correlatable=True)
    total = sum(cost for cost, _ in costs)
    if total > DEFINITION_COST_LIMIT:
        for _, where in sorted(costs, reverse=True)[:MOST_NAMED]:
            yield forbidden(
                where, "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
            )
        yield forbidden(
            path,
            _too_dear(
                "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema",
                total,
                DEFINITION_COST_LIMIT,
            ),
        )


def _tree_problems(
    tree: RuleTree, path: str, times: int, costs: list[tuple[int, str]], *, correlatable: bool
) -> Iterator[OptionError]:
    for at, rule in enumerate(tree.rules):
        where = f"{path}.x-kubernetes-validations[{at}]"
        if isinstance(rule.program, CompileFailure):
            yield invalid(f"{where}.rule", _go_rule(rule.source), _compile_problem(rule.program))
            continue
        cost = rule.program.estimate * times
        costs.append((cost, f"{where}.rule"))
        if cost > RULE_COST_LIMIT:
            yield forbidden(f"{where}.rule", _too_dear("estimated rule cost", cost, RULE_COST_LIMIT))
        if rule.uses_old and not correlatable:
            why = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {path}"
            yield invalid(f"{where}.rule", rule.source.get("rule"), why)
        if rule.is_old_optional and not rule.uses_old:
            yield invalid(f"{where}.optionalOldSelf", True, "may not be set if oldSelf is not used in rule")
        if isinstance(rule.message_program, CompileFailure):
            why = f"messageExpression {rule.message_program.message}"
            yield invalid(f"{where}.messageExpression", _go_rule(rule.source), why)
        elif isinstance(rule.message_program, Program) and rule.message_program.type != STRING:
            why = "messageExpression must evaluate to a string"
            yield invalid(f"{where}.messageExpression", _go_rule(rule.source), why)
    for name, below in tree.properties.items():
        yield from _tree_problems(below, f"{path}.properties[{name}]", times, costs, correlatable=correlatable)
    node = tree.node
    if tree.items is not None:
        most = node.limits.get("maxItems", UNBOUNDED)
        is_map = node.list_type == "map"
        yield from _tree_problems(
            tree.items, f"{path}.items", times * most, costs, correlatable=correlatable and is_map
        )
    if tree.additional is not None:
        most = node.limits.get("maxProperties", UNBOUNDED)
        yield from _tree_problems(
            tree.additional, f"{path}.additionalProperties", times * most, costs, correlatable=correlatable
        )


def _go_rule(rule: Document) -> Document:
    """A rule as Kubernetes prints it."""
    fields = {
        "Rule": "rule",
        "Message": "message",
        "MessageExpression": "messageExpression",
        "Reason": "reason",
        "FieldPath": "fieldPath",
        "OptionalOldSelf": "optionalOldSelf",
    }
    empty = {"Reason": None, "OptionalOldSelf": None}
    return {
        shown: rule.get(name) if rule.get(name) is not None else empty.get(shown, "") for shown, name in fields.items()
    }


def _compile_problem(failure: CompileFailure) -> str:
    text = failure.message
    return "cel expression must evaluate to a bool" if text.startswith("must evaluate to bool") else text


# Entries that a list or map without a limit may have, in the smallest object that holds them.
UNBOUNDED = 3 * 1024 * 1024 // 4


def _too_dear(what: str, cost: int, limit: int) -> str:
    factor = cost / limit
    shown = "more than 100x" if factor > 100 else f"{factor:.1f}x"
    return f"{what} exceeds budget by factor of {shown} {COST_HINT}"
