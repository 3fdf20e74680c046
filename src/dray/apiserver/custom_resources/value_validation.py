"""Checks values against a schema, in the words of Kubernetes. Pure.

A part that an update leaves as it was is not checked again: it may be older than the schema (Kubernetes calls it ratcheting).
The work is counted, since a schema with many alternatives, values or patterns and a long list would take minutes together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from dray.api.jsontext import go_json
from dray.api.schemas import struct
from dray.apiserver.custom_resources.pruning_and_defaults import IMPLICIT
from dray.apiserver.custom_resources.schema_nodes import PATTERN_PARTS_OF_A_STEP, SchemaNode, enum_steps
from dray.apiserver.custom_resources.value_formats import FORMATS
from dray.apiserver.errors import OptionError
from dray.apiserver.write.patching.schema_patches import struct_problems
from dray.cel.errors import CelError
from dray.cel.library import regex

MAX_STEPS = 1_000_000
MAX_PROBLEMS = 100
# Of all problems together; one that names thousands of values that would be right is long.
MAX_CHARACTERS = 256 * 1024
# Of a text that is compared with a pattern.
CHARACTERS_OF_A_STEP = 16


class TooMuchWork(Exception):
    """The value and the schema together are more than a request may take."""


class EnoughProblems(Exception):
    """More of them would not be told."""


@dataclass(slots=True)
class Work:
    left: int
    most: int = MAX_PROBLEMS
    characters: int = 0
    found: list[OptionError] = field(default_factory=list)

    def charge(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0:
            raise TooMuchWork

    def add(self, problem: OptionError) -> None:
        self.found.append(problem)
        self.characters += len(problem.body)
        if len(self.found) >= self.most or self.characters > MAX_CHARACTERS:
            raise EnoughProblems


def value_problems(
    value: Any, node: SchemaNode, old: Any = None, *, is_resource: bool = True, most_steps: int = MAX_STEPS
) -> list[OptionError]:
    """The field errors of an object, or of a part of one; `old` is what is stored now, None for a new object."""
    work = Work(most_steps)
    try:
        _check(value, node, "", old, work, is_resource=is_resource)
    except EnoughProblems:
        pass
    except TooMuchWork:
        return [
            OptionError(
                "Invalid",
                "",
                f'Invalid value: "": the object has too many parts for its schema: more than {most_steps} checks',
            )
        ]
    return work.found


def _add(work: Work, kind: str, path: str, body: str) -> None:
    work.add(OptionError(kind, path or "<nil>", body))


def _invalid(work: Work, path: str, value: Any, why: str) -> None:
    _add(work, "Invalid", path, f"Invalid value: {_shown(value)}: {path} in body {why}")


def _shown(value: Any) -> str:
    text = go_json(value)
    return text if len(text) <= 1024 else f"{text[:1024]}..."


def _check(value: Any, node: SchemaNode, path: str, old: Any, work: Work, *, is_resource: bool = False) -> None:
    work.charge(1)
    if old is not None and value == old:
        return
    if value is None and node.nullable:
        return
    if not _type_fits(value, node):
        expected = "integer,string" if node.int_or_string else node.type
        given = _type_of(value)
        why = f"{path} in body must be of type {expected}: {go_json(given)}"
        _add(work, "TypeInvalid", path, f"Invalid value: {go_json(given)}: {why}")
        return
    _check_limits(value, node, path, work)
    _check_alternatives(value, node, path, work)
    if isinstance(value, dict):
        _check_object(value, node, path, old, work, is_resource or node.embedded)
    elif isinstance(value, list):
        _check_list(value, node, path, old, work)


def _type_fits(value: Any, node: SchemaNode) -> bool:
    if node.int_or_string:
        return isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool))
    match node.type:
        case "object":
            return isinstance(value, dict)
        case "array":
            return isinstance(value, list)
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return _is_number(value) and float(value).is_integer()
        case "number":
            return _is_number(value)
    return True


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _type_of(value: Any) -> str:
    kinds = {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null", int: "integer"}
    return kinds.get(type(value), "number")


# --- limits


def _check_limits(value: Any, node: SchemaNode, path: str, work: Work) -> None:
    limits = node.limits
    if not limits:
        return
    work.charge(enum_steps(limits))
    if "enum" in limits and not any(_same(value, allowed) for allowed in limits["enum"]):
        listed = ", ".join(
            f'"{allowed}"' if isinstance(allowed, str) else f'"{go_json(allowed)}"' for allowed in limits["enum"]
        )
        _add(work, "NotSupported", path, f"Unsupported value: {_shown(value)}: supported values: {listed}")
    if isinstance(value, str):
        _check_text(value, limits, path, work)
    elif _is_number(value):
        _check_number(value, limits, path, work)
    elif isinstance(value, list):
        _check_count(len(value), limits, "Items", "items", path, value, work)
    elif isinstance(value, dict):
        _check_count(len(value), limits, "Properties", "properties", path, value, work)


def _same(one: Any, other: Any) -> bool:
    return (type(one) is type(other) and one == other) or (_is_number(one) and _is_number(other) and one == other)


def _check_text(value: str, limits: dict[str, Any], path: str, work: Work) -> None:
    if len(value) > limits.get("maxLength", math.inf):
        _add(work, "TooLong", path, f"Too long: may not be more than {limits['maxLength']} bytes")
    if len(value) < limits.get("minLength", 0):
        _invalid(work, path, value, f"should be at least {limits['minLength']} chars long")
    pattern = limits.get("pattern")
    if pattern and not _matches(value, pattern, work):
        _invalid(work, path, value, f"should match '{pattern}'")
    form = FORMATS.get(limits.get("format", ""))
    if form is not None and not form(value):
        _invalid(work, path, value, f"must be of type {limits['format']}: {go_json(value)}")


def _matches(value: str, pattern: str, work: Work) -> bool:
    """Charges for compiling the pattern too, since few are remembered."""
    try:
        work.charge(len(value) // CHARACTERS_OF_A_STEP + regex.program_size(pattern) // PATTERN_PARTS_OF_A_STEP)
        return regex.search(value, pattern)
    except CelError:
        return True


def _check_number(value: Any, limits: dict[str, Any], path: str, work: Work) -> None:
    least, most, step = limits.get("minimum"), limits.get("maximum"), limits.get("multipleOf")
    if least is not None and (value < least or (limits.get("exclusiveMinimum") and value == least)):
        words = "should be greater than" if limits.get("exclusiveMinimum") else "should be greater than or equal to"
        _invalid(work, path, value, f"{words} {_number(least)}")
    if most is not None and (value > most or (limits.get("exclusiveMaximum") and value == most)):
        words = "should be less than" if limits.get("exclusiveMaximum") else "should be less than or equal to"
        _invalid(work, path, value, f"{words} {_number(most)}")
    if step and not float(value / step).is_integer():
        _invalid(work, path, value, f"should be a multiple of {_number(step)}")


def _number(value: Any) -> str:
    return str(int(value)) if float(value).is_integer() else str(value)


def _check_count(count: int, limits: dict[str, Any], name: str, word: str, path: str, value: Any, work: Work) -> None:
    most, least = limits.get(f"max{name}"), limits.get(f"min{name}")
    if most is not None and count > most:
        _add(work, "TooMany", path, f"Too many: {count}: must have at most {most} {'item' if most == 1 else 'items'}")
    if least is not None and count < least:
        _add(work, "Invalid", path, f"Invalid value: {count}: {path} in body should have at least {least} {word}")


# --- alternatives


def _check_alternatives(value: Any, node: SchemaNode, path: str, work: Work) -> None:
    for each in node.all_of:
        _check(value, each, path, None, work)
    if node.any_of and not any(_is_valid(value, each, path, work) for each in node.any_of):
        _add(work, "Invalid", path, f'Invalid value: "": "{path}" must validate at least one schema (anyOf)')
        _add_closest(value, node.any_of, path, work)
    if node.one_of:
        valid = sum(_is_valid(value, each, path, work) for each in node.one_of)
        if valid != 1:
            how = "Found none valid" if not valid else f"Found {valid} valid alternatives"
            _add(
                work,
                "Invalid",
                path,
                f'Invalid value: "": "{path}" must validate one and only one schema (oneOf). {how}',
            )
            if not valid:
                _add_closest(value, node.one_of, path, work)
    if node.not_ is not None and _is_valid(value, node.not_, path, work):
        _add(work, "Invalid", path, f'Invalid value: "": "{path}" must not validate the schema (not)')


def _problems_of(value: Any, node: SchemaNode, path: str, work: Work, most: int = MAX_PROBLEMS) -> list[OptionError]:
    inner = Work(work.left, most)
    with suppress(EnoughProblems):
        _check(value, node, path, None, inner)
    work.left = inner.left
    return inner.found


def _is_valid(value: Any, node: SchemaNode, path: str, work: Work) -> bool:
    return not _problems_of(value, node, path, work, most=1)


def _add_closest(value: Any, nodes: tuple[SchemaNode, ...], path: str, work: Work) -> None:
    """What is wrong with the alternative that the value is closest to."""
    found = [_problems_of(value, each, path, work) for each in nodes]
    fewest = min(len(problems) for problems in found)
    for problem in next(problems for problems in found if len(problems) == fewest):
        work.add(problem)


# --- what a value holds


def _check_object(value: dict[str, Any], node: SchemaNode, path: str, old: Any, work: Work, is_resource: bool) -> None:
    before = old if isinstance(old, dict) else {}
    for name in node.limits.get("required", ()):
        if name not in value:
            _add(work, "Required", f"{path}.{name}" if path else name, "Required value")
    for name, entry in value.items():
        known = node.properties.get(name)
        if known is None and isinstance(node.additional, SchemaNode):
            known = node.additional
        if known is not None and not (is_resource and not path and name == "metadata"):
            _check(entry, known, f"{path}.{name}" if path else name, before.get(name), work)
    if node.embedded:
        for name in sorted(IMPLICIT - {"metadata"}):
            if not value.get(name):
                _add(work, "Required", f"{path}.{name}", "Required value: must not be empty")


def _check_list(value: list[Any], node: SchemaNode, path: str, old: Any, work: Work) -> None:
    if node.items is None:
        return
    before = _correlated(old, node)
    for at, entry in enumerate(value):
        _check(entry, node.items, f"{path}[{at}]", before(at, entry), work)
    _check_unique(value, node, path, work)


def _correlated(old: Any, node: SchemaNode) -> Callable[[int, Any], Any]:
    """The old entry that a new one comes from: by its keys in a map-like list, by its value in a set; unknown otherwise."""
    if not isinstance(old, list):
        return lambda at, entry: None
    if node.list_type == "map":
        by_key = {list_key(entry, node): entry for entry in old if isinstance(entry, dict)}
        return lambda at, entry: by_key.get(list_key(entry, node)) if isinstance(entry, dict) else None
    return lambda at, entry: None


def list_key(entry: dict[str, Any], node: SchemaNode) -> str:
    return go_json({key: entry.get(key) for key in node.list_keys})


def _check_unique(value: list[Any], node: SchemaNode, path: str, work: Work) -> None:
    if node.list_type == "atomic":
        return
    seen: set[str] = set()
    for at, entry in enumerate(value):
        if node.list_type == "map":
            if not isinstance(entry, dict):
                continue
            key = go_json({name: entry[name] for name in node.list_keys if name in entry})
        else:
            key = go_json(entry)
        if key in seen:
            _add(work, "Duplicate", f"{path}[{at}]", f"Duplicate value: {key}")
        seen.add(key)


OBJECT_META = "meta.v1.ObjectMeta"


def typed_problems(tree: Any, node: SchemaNode, path: str = "", *, is_resource: bool = True) -> Iterator[str]:
    """Fields of an applied configuration that the schema does not have, or that have another type."""
    if tree is None:
        return
    if node.type == "object" and not isinstance(tree, dict):
        yield f"{path}: expected map, got {_shown(tree)}"
    elif node.type == "array" and not isinstance(tree, list):
        yield f"{path}: expected list, got {_shown(tree)}"
    elif isinstance(tree, dict):
        for name, entry in tree.items():
            if (is_resource or node.embedded) and name in IMPLICIT:
                if name == "metadata":
                    yield from struct_problems(entry, struct(OBJECT_META), f"{path}.{name}")
                continue
            known = node.properties.get(name)
            if known is None and isinstance(node.additional, SchemaNode):
                known = node.additional
            if known is not None:
                yield from typed_problems(entry, known, f"{path}.{name}", is_resource=False)
            elif not node.preserves and node.additional is None:
                yield f"{path}.{name}: field not declared in schema"
    elif isinstance(tree, list) and node.items is not None:
        for at, entry in enumerate(tree):
            if node.list_type == "map" and isinstance(entry, dict) and not entry.keys() & set(node.list_keys):
                listed = " ".join(map(go_json, node.list_keys))
                yield (
                    f"{path}: element {at}: associative list with keys has an element that omits all key fields [{listed}] "
                    "(and doesn't have default values for any key fields)"
                )
                continue
            yield from typed_problems(entry, node.items, f"{path}[{at}]", is_resource=False)
