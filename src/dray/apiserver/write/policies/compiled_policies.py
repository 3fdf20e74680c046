"""The policies and bindings that exist; their CEL expressions are compiled once, when a request first needs them."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Generic, Protocol, TypeVar

import msgspec

from dray.api.safe_get import (
    mapping,
    mappings,
    strings,
    text,
)
from dray.apiserver.core import in_thread_if_large
from dray.apiserver.request.request_info import Document
from dray.apiserver.write.admission.policies_and_webhooks import POLICY_PREFIX, VALIDATING_BINDINGS, VALIDATING_POLICIES
from dray.apiserver.write.policies.authorizer_library import AUTHORIZER, RESOURCE_CHECK, library
from dray.cel import CompileFailure, Environment, Program, compile_expression
from dray.cel.environment import BASE_LIBRARIES
from dray.cel.types import DYN, Type


@cache
def environment(*, with_params: bool, with_variables: bool = True) -> Environment:
    """Match conditions see neither params' absence nor variables; everything else sees both."""
    variables = policy_variables(with_params=with_params, with_variables=with_variables)
    return Environment(variables, libraries=(*BASE_LIBRARIES, library))


def policy_variables(*, with_params: bool, with_variables: bool = True) -> dict[str, Type]:
    variables = {
        "object": DYN,
        "oldObject": DYN,
        "request": DYN,
        "namespaceObject": DYN,
        "authorizer": AUTHORIZER,
        "authorizer.requestResource": RESOURCE_CHECK,
    }
    if with_params:
        variables["params"] = DYN
    if with_variables:
        variables["variables"] = DYN
    return variables


@dataclass(frozen=True, slots=True)
class NamedProgram:
    name: str
    program: Program | CompileFailure


@dataclass(frozen=True, slots=True)
class Validation:
    text: str
    program: Program | CompileFailure
    message: str
    message_program: Program | CompileFailure | None
    reason: str


@dataclass(frozen=True, slots=True)
class CompiledPolicy:
    name: str
    document: Document
    fails_closed: bool
    conditions: tuple[NamedProgram, ...]
    variables: tuple[NamedProgram, ...]
    validations: tuple[Validation, ...]
    annotations: tuple[NamedProgram, ...] = ()

    def programs(self) -> Iterator[Program | CompileFailure | None]:
        for named in (*self.conditions, *self.variables, *self.annotations):
            yield named.program
        for validation in self.validations:
            yield from (validation.program, validation.message_program)


def condition_programs(spec: Document, outer: Environment) -> tuple[NamedProgram, ...]:
    """The conditions of a policy; they cannot use its variables."""
    return tuple(
        NamedProgram(text(entry, "name"), compile_expression(text(entry, "expression"), outer, "bool"))
        for entry in mappings(spec, "matchConditions")
    )


def variable_programs(spec: Document, inner: Environment) -> tuple[NamedProgram, ...]:
    """The variables that a policy computes for its other expressions."""
    return tuple(
        NamedProgram(text(entry, "name"), compile_expression(text(entry, "expression"), inner))
        for entry in mappings(spec, "variables")
    )


def compile_policy(document: Document) -> CompiledPolicy:
    spec = mapping(document, "spec")
    with_params = bool(mapping(spec, "paramKind"))
    inner = environment(with_params=with_params)
    outer = environment(with_params=with_params, with_variables=False)
    return CompiledPolicy(
        name=text(document, "metadata", "name"),
        document=document,
        fails_closed=text(spec, "failurePolicy") != "Ignore",
        conditions=condition_programs(spec, outer),
        variables=variable_programs(spec, inner),
        validations=tuple(_validation(entry, inner) for entry in mappings(spec, "validations")),
        annotations=tuple(
            NamedProgram(text(entry, "key"), compile_expression(text(entry, "valueExpression"), inner))
            for entry in mappings(spec, "auditAnnotations")
        ),
    )


def _validation(entry: Document, inner: Environment) -> Validation:
    message_expression = text(entry, "messageExpression")
    return Validation(
        text=text(entry, "expression"),
        program=compile_expression(text(entry, "expression"), inner, "bool"),
        message=text(entry, "message").strip(),
        message_program=compile_expression(message_expression, inner) if message_expression else None,
        reason=text(entry, "reason"),
    )


@dataclass(frozen=True, slots=True)
class PolicyBinding:
    name: str
    policy: str
    document: Document

    @property
    def actions(self) -> list[str]:
        return strings(self.document, "spec", "validationActions")


def expressions_in(document: Document) -> int:
    """The characters of all expressions of a policy or a webhook configuration."""
    fields = ("expression", "messageExpression", "valueExpression")
    entries = (
        entry
        for holder in (mapping(document, "spec"), *mappings(document, "webhooks"))
        for group in ("matchConditions", "variables", "validations", "auditAnnotations")
        for entry in mappings(holder, group)
    )
    mutations = mappings(document, "spec", "mutations")
    changes = (
        len(text(each, kind, "expression")) for each in mutations for kind in ("applyConfiguration", "jsonPatch")
    )
    return sum(len(text(entry, field)) for entry in entries for field in fields) + sum(changes)


class HasPrograms(Protocol):
    def programs(self) -> Iterable[Program | CompileFailure | None]: ...


Compiled = TypeVar("Compiled", bound=HasPrograms)


class CompiledOnDemand(Generic[Compiled]):
    """Policies by name. They are compiled when a request needs them first, and those with long expressions in a thread."""

    def __init__(self, compile_document: Callable[[Document], Compiled]) -> None:
        self._compile_document = compile_document
        self._documents: dict[str, Document] = {}
        self._compiled: dict[str, Compiled] = {}

    def set(self, name: str, document: Document | None) -> None:
        self._compiled.pop(name, None)
        self._documents.pop(name, None)
        if document is not None:
            self._documents[name] = document

    async def get(self, name: str) -> Compiled | None:
        """The policy with this name, as it is now."""
        while (document := self._documents.get(name)) is not None:
            known = self._compiled.get(name)
            if known is None:
                known = await in_thread_if_large(expressions_in(document), partial(self._with_code, document))
                if self._documents.get(name) is not document:
                    continue  # it changed meanwhile
                self._compiled[name] = known
            return known
        return None

    def _with_code(self, document: Document) -> Compiled:
        """Ready to be asked: what is left to do for a request is to run the code."""
        policy = self._compile_document(document)
        for program in policy.programs():
            if isinstance(program, Program):
                program.generate()
        return policy


class PolicyIndex:
    def __init__(self) -> None:
        self.policies = CompiledOnDemand(compile_policy)
        self.bindings: dict[str, PolicyBinding] = {}

    def apply(self, key: str, value: bytes | None) -> None:
        plural, _, name = key.removeprefix(POLICY_PREFIX).partition("/")
        if plural == VALIDATING_POLICIES:
            self.policies.set(name, None if value is None else msgspec.json.decode(value))
        elif plural == VALIDATING_BINDINGS:
            self.bindings.pop(name, None)
            if value is not None:
                document = msgspec.json.decode(value)
                self.bindings[name] = PolicyBinding(name, text(document, "spec", "policyName"), document)
