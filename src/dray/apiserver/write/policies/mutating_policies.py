"""MutatingAdmissionPolicy: its expressions, and the changes they make to an object.

An expression makes an apply configuration, `Object{spec: Object.spec{replicas: 3}}`, which is merged into the object as server-side apply would,
or a list of `JSONPatch{op: "add", path: "/spec/replicas", value: 3}`.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec

from dray.api.safe_get import mapping, mappings, text
from dray.apiserver.request.request_info import Document
from dray.apiserver.write.admission.policies_and_webhooks import MUTATING_POLICIES, POLICY_PREFIX
from dray.apiserver.write.field_sets import Field, OwnershipSchema, fields_of_struct
from dray.apiserver.write.patching import json_patch
from dray.apiserver.write.patching.schema_patches import merge_applied
from dray.apiserver.write.policies import authorizer_library
from dray.apiserver.write.policies.compiled_policies import (
    CompiledOnDemand,
    NamedProgram,
    PolicyBinding,
    condition_programs,
    environment,
    policy_variables,
    variable_programs,
)
from dray.apiserver.write.policies.evaluation import PolicyError, value_of
from dray.cel import CompileFailure, Environment, Program, compile_expression
from dray.cel.environment import BASE_LIBRARIES
from dray.cel.errors import Issue
from dray.cel.functions import Library
from dray.cel.types import DYN, STRING, Type, list_of
from dray.cel.values import StructValue

APPLY, JSON_PATCH = "ApplyConfiguration", "JSONPatch"
OBJECT = "Object"
# What an expression must make, by the type of the patch.
MADE = {APPLY: Type("struct", OBJECT), JSON_PATCH: list_of(Type("struct", JSON_PATCH))}
_OPERATION_FIELDS = {"op": STRING, "path": STRING, "from": STRING, "value": DYN}

library = Library("jsonpatch")
library.add(
    "jsonpatch.escapeKey",
    "string_jsonpatch_escapeKey_string",
    (STRING,),
    STRING,
    lambda key: key.replace("~", "~0").replace("/", "~1"),
)


class _AnyField(dict[str, Type]):
    """Fields of an object whose schema expressions do not know."""

    def get(self, key: str, default: Any = None) -> Any:
        return DYN


_ANY_FIELD = _AnyField()


def _constructible(name: str) -> Mapping[str, Type] | None:
    if name == JSON_PATCH:
        return _OPERATION_FIELDS
    return _ANY_FIELD if name == OBJECT or name.startswith(f"{OBJECT}.") else None


@cache
def mutation_environment(*, with_params: bool) -> Environment:
    return Environment(
        policy_variables(with_params=with_params),
        libraries=(*BASE_LIBRARIES, authorizer_library.library, library),
        constructible=_constructible,
    )


# --- policies


@dataclass(frozen=True, slots=True)
class Mutation:
    patch_type: str
    program: Program | CompileFailure


@dataclass(frozen=True, slots=True)
class CompiledMutatingPolicy:
    name: str
    document: Document
    fails_closed: bool
    is_reinvoked: bool
    conditions: tuple[NamedProgram, ...]
    variables: tuple[NamedProgram, ...]
    mutations: tuple[Mutation, ...]

    def programs(self) -> Iterator[Program | CompileFailure]:
        yield from (named.program for named in (*self.conditions, *self.variables))
        yield from (mutation.program for mutation in self.mutations)


def compile_mutating_policy(document: Document) -> CompiledMutatingPolicy:
    spec = mapping(document, "spec")
    with_params = bool(mapping(spec, "paramKind"))
    inner = environment(with_params=with_params)
    outer = environment(with_params=with_params, with_variables=False)
    return CompiledMutatingPolicy(
        name=text(document, "metadata", "name"),
        document=document,
        fails_closed=text(spec, "failurePolicy") != "Ignore",
        is_reinvoked=text(spec, "reinvocationPolicy") == "IfNeeded",
        conditions=condition_programs(spec, outer),
        variables=variable_programs(spec, inner),
        mutations=tuple(_mutation(entry, with_params) for entry in mappings(spec, "mutations")),
    )


def _mutation(entry: Document, with_params: bool) -> Mutation:
    patch_type = text(entry, "patchType")
    source = mutation_source(entry)
    program = compile_expression(source, mutation_environment(with_params=with_params))
    made = MADE.get(patch_type)
    if isinstance(program, Program) and made is not None and program.type != made:
        program = CompileFailure(source, "invalid", (Issue(-1, f"must evaluate to {made}"),))
    return Mutation(patch_type, program)


def mutation_source(entry: Document) -> str:
    field = "jsonPatch" if text(entry, "patchType") == JSON_PATCH else "applyConfiguration"
    return text(entry, field, "expression")


class MutatingPolicyIndex:
    def __init__(self) -> None:
        self.policies = CompiledOnDemand(compile_mutating_policy)
        self.bindings: dict[str, PolicyBinding] = {}

    async def in_order(self) -> AsyncIterator[tuple[CompiledMutatingPolicy, PolicyBinding]]:
        """By the names of policies, then of bindings."""
        for binding in sorted(self.bindings.values(), key=lambda found: (found.policy, found.name)):
            if policy := await self.policies.get(binding.policy):
                yield policy, binding

    def apply(self, key: str, value: bytes | None) -> None:
        plural, _, name = key.removeprefix(POLICY_PREFIX).partition("/")
        document = None if value is None else msgspec.json.decode(value)
        if plural == MUTATING_POLICIES:
            self.policies.set(name, document)
        else:
            self.bindings.pop(name, None)
            if document is not None:
                self.bindings[name] = PolicyBinding(name, text(document, "spec", "policyName"), document)


# --- changes


def changed(mutation: Mutation, document: Document, values: dict[str, Any], schema: OwnershipSchema) -> Document:
    """The object after the mutation; raises PolicyError."""
    made = value_of(mutation.program, values)
    if mutation.patch_type == JSON_PATCH:
        return _patched(document, made)
    _check_type_names(made, OBJECT)
    config = _plain(made)
    _check_not_atomic(config, schema)
    try:
        return merge_applied(document, config, schema)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise PolicyError(f"error applying patch: failed to merge patch: {error}") from None


def _patched(document: Document, made: Any) -> Document:
    operations = [_operation(value) for value in made]
    try:
        patched = json_patch.apply(document, operations)
    except json_patch.UnmetTest:
        return document
    except json_patch.PatchFailed as error:
        raise PolicyError(f"JSON Patch: {error}") from None
    if not isinstance(patched, dict):
        raise PolicyError("JSON Patch: the patch leaves no object")
    return patched


def _operation(value: Any) -> Document:
    if not isinstance(value, StructValue) or value.type_name != JSON_PATCH:
        raise PolicyError("type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch")
    fields = value.fields
    operation: Document = {"op": fields.get("op", ""), "path": fields.get("path", "")}
    if fields.get("from"):
        operation["from"] = fields["from"]
    if "value" in fields:
        if isinstance(fields["value"], StructValue):
            _check_type_names(fields["value"], fields["value"].type_name)
        operation["value"] = _plain(fields["value"])
    return operation


def _check_type_names(value: Any, path: str) -> None:
    """`Object.spec{...}` may stand only where `spec` is."""
    if isinstance(value, StructValue):
        if value.type_name != path:
            raise PolicyError(
                f'type mismatch: unexpected type name "{value.type_name}", expected "{path}", which matches field name '
                "path from root Object type"
            )
        for name, inner in value.fields.items():
            _check_type_names(inner, f"{path}.{name}")
    elif isinstance(value, (list, tuple)):
        for inner in value:
            _check_type_names(inner, path)
    elif isinstance(value, dict):
        for inner in value.values():
            _check_type_names(inner, path)


def _plain(value: Any) -> Any:
    """A CEL value as JSON."""
    if isinstance(value, StructValue):
        return {name: _plain(inner) for name, inner in value.fields.items()}
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise PolicyError("a map with keys that are no texts cannot be written as JSON")
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, bool):
        return bool(value)
    if isinstance(value, int):
        return int(value)
    if value is None or isinstance(value, (str, float)):
        return value
    raise PolicyError(f"a value of type {type(value).__name__} cannot be written as JSON")


def _check_not_atomic(config: Document, schema: OwnershipSchema) -> None:
    """Whoever sets one field of an atomic part would drop all others without noticing."""
    found = list(_atomic_parts(config, fields_of_struct(schema), ""))
    if found:
        raise PolicyError(
            f"error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {', '.join(found)}"
        )


def _atomic_parts(config: Document, fields: dict[str, Field], path: str) -> Iterator[str]:
    for name, value in config.items():
        field = fields.get(name)
        if field is not None:
            yield from _atomic_values(value, field, f"{path}.{name}")


def _atomic_values(value: Any, field: Field, path: str) -> Iterator[str]:
    if field.shape == "leaf" and isinstance(value, (dict, list)):
        yield path
    elif isinstance(value, dict) and field.struct is not None:
        yield from _atomic_parts(value, field.struct, path)
    elif isinstance(value, dict) and field.item is not None:
        for key, inner in value.items():
            yield from _atomic_values(inner, field.item, f"{path}.{key}")
    elif isinstance(value, list) and field.item is not None:
        for position, inner in enumerate(value):
            yield from _atomic_values(inner, field.item, f"{path}[{position}]")
