"""`x-kubernetes-validations`: rules in CEL about the parts of an object, with `self` and, for changes, `oldSelf`."""

from __future__ import annotations

import base64
import binascii
import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from dray.api.jsontext import go_json
from dray.apiserver.custom_resources.schema_nodes import SchemaNode
from dray.apiserver.custom_resources.value_validation import list_key
from dray.apiserver.errors import OptionError
from dray.apiserver.request.request_info import Document
from dray.cel import CelRuntimeError, CompileFailure, Environment, Program, compile_expression, lexer
from dray.cel.ast import AstNode, Ident
from dray.cel.environment import Size
from dray.cel.errors import CelError
from dray.cel.library.times import parse_duration, parse_timestamp
from dray.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    Type,
    list_of,
    map_of,
    optional_of,
)
from dray.cel.values import NONE, Optional

# What one rule may cost at most as its schema promises it, and all rules of a definition together.
RULE_COST_LIMIT = 10_000_000
DEFINITION_COST_LIMIT = 100_000_000
# What all rules may cost for one write.
WRITE_COST_LIMIT = 10_000_000
MAX_MESSAGE = 5 * 1024
# An object cannot be larger than a request, which bounds what the schema leaves open.
MAX_REQUEST = 3 * 1024 * 1024
# Words that an expression cannot use as a name.
RESERVED = lexer.RESERVED | {"true", "false", "null", "in"}
REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")


# --- types and values of a schema


def escaped(name: str) -> str | None:
    """A property's name as expressions spell it; None where it cannot be spelled."""
    if name in RESERVED:
        return f"__{name}__"
    made = (
        name.replace("__", "__underscores__").replace(".", "__dot__").replace("-", "__dash__").replace("/", "__slash__")
    )
    return made if made.isidentifier() and made.isascii() else None


Fields = dict[str, dict[str, Type]]
_METADATA_TYPE = Type("struct", "ObjectMeta")


def type_of(node: SchemaNode, name: str, fields: Fields, *, is_resource: bool = False) -> Type:
    if node.int_or_string:
        return DYN
    if node.type == "object":
        if isinstance(node.additional, SchemaNode):
            return map_of(STRING, type_of(node.additional, f"{name}.@values", fields))
        if node.properties or is_resource or node.embedded:
            return _struct_type(node, name, fields, is_resource or node.embedded)
        return map_of(STRING, DYN) if node.additional is True else DYN
    if node.type == "array":
        return list_of(type_of(node.items, f"{name}.@items", fields)) if node.items is not None else list_of(DYN)
    if node.type == "string":
        by_format = {"byte": BYTES, "date": TIMESTAMP, "date-time": TIMESTAMP, "duration": DURATION}
        return by_format.get(node.limits.get("format", ""), STRING)
    return {"boolean": BOOL, "integer": INT, "number": DOUBLE}.get(node.type, DYN)


def _struct_type(node: SchemaNode, name: str, fields: Fields, is_resource: bool) -> Type:
    known: dict[str, Type] = {}
    for property_name, inner in node.properties.items():
        if (spelled := escaped(property_name)) and not (is_resource and property_name == "metadata"):
            known[spelled] = type_of(inner, f"{name}.{property_name}", fields)
    if is_resource:
        known |= {"apiVersion": STRING, "kind": STRING, "metadata": _METADATA_TYPE}
        fields[_METADATA_TYPE.name] = {"name": STRING, "generateName": STRING}
    fields[name] = known
    return Type("struct", name)


def value_of(value: Any, node: SchemaNode, *, is_resource: bool = False) -> Any:
    """A JSON value as CEL sees it: numbers as doubles, times as times, properties under the names of expressions."""
    if isinstance(value, dict):
        if isinstance(node.additional, SchemaNode):
            return {key: value_of(entry, node.additional) for key, entry in value.items()}
        if not node.properties and not is_resource:
            return value
        return {
            escaped(key) or key: value_of(entry, node.properties[key]) if key in node.properties else entry
            for key, entry in value.items()
        }
    if isinstance(value, list):
        return [value_of(entry, node.items) for entry in value] if node.items is not None else value
    if node.type == "number" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if node.type == "integer" and isinstance(value, float):
        return int(value)
    if node.type == "string" and isinstance(value, str):
        return _text_value(value, node.limits.get("format", ""))
    return value


def _text_value(value: str, form: str) -> Any:
    try:
        if form == "byte":
            return base64.b64decode(value)
        if form in ("date", "date-time"):
            return parse_timestamp(value if form == "date-time" else f"{value}T00:00:00Z")
        if form == "duration":
            return parse_duration(value)
    except (CelError, binascii.Error):
        pass
    return value


def _size_of(node: SchemaNode) -> Size:
    if node.type == "object" and isinstance(node.additional, SchemaNode):
        inner = node.additional
        most = node.limits.get("maxProperties", (MAX_REQUEST - 2) // (_least_bytes(inner) + 6))
        return Size(most, key=Size(MAX_REQUEST), value=_size_of(inner))
    if node.type == "object":
        named = {escaped(name) or name: _size_of(inner) for name, inner in node.properties.items()}
        return Size(0, {**named, "metadata": Size(0, {"name": Size(253), "generateName": Size(253)})})
    if node.type == "array" and node.items is not None:
        most = node.limits.get("maxItems", (MAX_REQUEST - 2) // (_least_bytes(node.items) + 1))
        return Size(most, value=_size_of(node.items))
    if node.type == "string":
        if "enum" in node.limits:
            return Size(max((len(str(value)) for value in node.limits["enum"]), default=0))
        return Size(min(node.limits.get("maxLength", MAX_REQUEST - 2) * 4, MAX_REQUEST - 2))
    return Size(1)


def _least_bytes(node: SchemaNode) -> int:
    if node.type == "object":
        required = [node.properties[name] for name in node.limits.get("required", ()) if name in node.properties]
        return 2 + sum(_least_bytes(inner) + 4 for inner in required)
    return {"string": 2, "array": 2, "boolean": 4}.get(node.type, 1)


# --- rules


@dataclass(frozen=True, slots=True)
class ValidationRule:
    source: Document
    program: Program | CompileFailure
    message_program: Program | CompileFailure | None
    uses_old: bool
    is_old_optional: bool

    @property
    def text(self) -> str:
        return str(self.source.get("rule") or "").strip()


@dataclass(slots=True)
class RuleTree:
    """The rules of a part of a schema, and those below it."""

    node: SchemaNode
    is_resource: bool
    rules: tuple[ValidationRule, ...]
    properties: dict[str, RuleTree] = field(default_factory=dict)
    items: RuleTree | None = None
    additional: RuleTree | None = None


class LazyRules:
    """The rules of a schema, compiled when an object is first judged: many kinds are defined and never used."""

    __slots__ = ("_node", "_tree", "is_compiled")

    def __init__(self, node: SchemaNode) -> None:
        self._node = node
        self._tree: RuleTree | None = None
        self.is_compiled = not node.has_rules_below

    def tree(self) -> RuleTree | None:
        if not self.is_compiled:
            self._tree = compile_rules(self._node)
            self.is_compiled = True
        return self._tree


@cache
def _base_environment() -> Environment:
    return Environment({})


def compile_rules(node: SchemaNode, name: str = "self", *, is_resource: bool = True) -> RuleTree | None:
    if not node.has_rules_below:
        return None
    fields: Fields = {}
    own = type_of(node, name, fields, is_resource=is_resource) if node.rules else DYN
    size = _size_of(node) if node.rules else Size(0)
    tree = RuleTree(node, is_resource, tuple(_rule(source, own, fields, size) for source in node.rules))
    for property_name, inner in node.properties.items():
        if below := compile_rules(inner, is_resource=inner.embedded):
            tree.properties[property_name] = below
    if node.items is not None:
        tree.items = compile_rules(node.items, is_resource=node.items.embedded)
    if isinstance(node.additional, SchemaNode):
        tree.additional = compile_rules(node.additional, is_resource=node.additional.embedded)
    return tree


def _rule(source: Document, own: Type, fields: Fields, size: Size) -> ValidationRule:
    is_old_optional = bool(source.get("optionalOldSelf"))
    seen = copy.copy(_base_environment())
    seen.variables = {"self": own, "oldSelf": optional_of(own) if is_old_optional else own}
    seen.fields = fields
    seen.sizes = {"self": size, "oldSelf": size}
    program = compile_expression(str(source.get("rule") or ""), seen, "bool")
    message = str(source.get("messageExpression") or "")
    uses_old = isinstance(program, Program) and _uses(program.root, "oldSelf")
    return ValidationRule(
        source, program, compile_expression(message, seen) if message else None, uses_old, is_old_optional
    )


def _uses(node: AstNode, name: str) -> bool:
    left = [node]
    while left:
        each = left.pop()
        if isinstance(each, Ident) and each.name == name:
            return True
        left += each.children()
    return False


# --- evaluation


@dataclass(slots=True)
class Budget:
    left: int = WRITE_COST_LIMIT
    is_spent: bool = False


def rule_problems(tree: RuleTree, value: Any, old: Any = None, path: str = "") -> list[OptionError]:
    """The rules that a value breaks; `old` is what is stored now, None for a new object."""
    return list(_problems(tree, value, old, path, Budget()))


def _problems(tree: RuleTree, value: Any, old: Any, path: str, budget: Budget) -> Iterator[OptionError]:
    if value is None or budget.is_spent:
        return
    if tree.rules:
        yield from _own_problems(tree, value, old, path, budget)
    if isinstance(value, dict):
        before = old if isinstance(old, dict) else {}
        for name, below in tree.properties.items():
            if name in value:
                yield from _problems(below, value[name], before.get(name), f"{path}.{name}" if path else name, budget)
        if tree.additional is not None:
            for name, entry in value.items():
                yield from _problems(tree.additional, entry, before.get(name), f"{path}[{name}]", budget)
    elif isinstance(value, list) and tree.items is not None:
        known = _old_entries(old, tree.node)
        for at, entry in enumerate(value):
            yield from _problems(tree.items, entry, known.get(_key(entry, tree.node)), f"{path}[{at}]", budget)


def _old_entries(old: Any, node: SchemaNode) -> dict[str, Any]:
    if node.list_type != "map" or not isinstance(old, list):
        return {}
    return {_key(entry, node): entry for entry in old}


def _key(entry: Any, node: SchemaNode) -> str:
    return list_key(entry, node) if isinstance(entry, dict) and node.list_type == "map" else ""


def _own_problems(tree: RuleTree, value: Any, old: Any, path: str, budget: Budget) -> Iterator[OptionError]:
    node = tree.node
    new = value_of(value, node, is_resource=tree.is_resource)
    before = None if old is None else value_of(old, node, is_resource=tree.is_resource)
    for rule in tree.rules:
        if rule.uses_old and old is None and not rule.is_old_optional:
            continue
        if not rule.uses_old and old is not None and value == old:
            continue
        old_self = (NONE if before is None else Optional(before)) if rule.is_old_optional else before
        variables = {"self": new, "oldSelf": old_self}
        problem = _broken(rule, variables, value, node, path, budget)
        if problem is not None:
            yield problem
        if budget.is_spent:
            return


def _broken(
    rule: ValidationRule, variables: dict[str, Any], value: Any, node: SchemaNode, path: str, budget: Budget
) -> OptionError | None:
    if isinstance(rule.program, CompileFailure):
        return _invalid(path, node.type, f"rule compile error: {rule.program.message}")
    outcome = rule.program.outcome_of(variables)
    budget.left -= outcome.cost or 0
    if budget.left < 0:
        budget.is_spent = True
        why = "validation failed due to running out of cost budget, no further validation rules will be run"
        return _invalid(path, node.type, why)
    if isinstance(outcome.value, CelRuntimeError):
        return _invalid(path, node.type, _failure(outcome.value, rule, budget))
    if outcome.value is True:
        return None
    where = (
        path + str(rule.source.get("fieldPath") or "") if path else str(rule.source.get("fieldPath") or "").lstrip(".")
    )
    return _refusal(rule, where, value, node, _message(rule, variables, budget))


def _failure(error: CelRuntimeError, rule: ValidationRule, budget: Budget) -> str:
    if error.cost_exceeded:
        budget.is_spent = True
        return f"'{error.message}': no further validation rules will be run due to call cost exceeds limit for rule: {rule.text}"
    if error.message.startswith("no such overload"):
        return f"'{error.message}': call arguments did not match a supported operator, function or macro signature for rule: {rule.text}"
    return f"{error.message} evaluating rule: {rule.text}"


def _message(rule: ValidationRule, variables: dict[str, Any], budget: Budget) -> str:
    if isinstance(rule.message_program, Program):
        outcome = rule.message_program.outcome_of(variables)
        budget.left -= outcome.cost or 0
        made = outcome.value
        if isinstance(made, str) and made.strip() and "\n" not in made and len(made) <= MAX_MESSAGE:
            return made.strip()
    return str(rule.source.get("message") or "").strip() or f"failed rule: {rule.text}"


def _refusal(rule: ValidationRule, path: str, value: Any, node: SchemaNode, detail: str) -> OptionError:
    shown = "" if node.type in ("object", "array") else f"{go_json(value)}: "
    where = path or "<nil>"
    match rule.source.get("reason"):
        case "FieldValueForbidden":
            return OptionError("Forbidden", where, f"Forbidden: {detail}")
        case "FieldValueRequired":
            return OptionError("Required", where, f"Required value: {detail}")
        case "FieldValueDuplicate":
            return OptionError("Duplicate", where, f"Duplicate value: {shown}{detail}")
    return OptionError("Invalid", where, f"Invalid value: {shown}{detail}")


def _invalid(path: str, value: Any, why: str) -> OptionError:
    return OptionError("Invalid", path or "<nil>", f"Invalid value: {go_json(value)}: {why}")
