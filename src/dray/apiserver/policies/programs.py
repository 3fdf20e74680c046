"""The expressions of a policy, compiled; and everything wrong with them, for who writes the policy."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from dray.apiserver.attributes import Document
from dray.apiserver.errors import OptionError
from dray.apiserver.jsontext import go_json
from dray.apiserver.parts import mapping, mappings, text
from dray.apiserver.policies.authorizer_library import AUTHORIZER, RESOURCE_CHECK, library
from dray.cel import CompileFailure, Environment, Program, compile_expression
from dray.cel.environment import BASE_LIBRARIES, MAX_EXPRESSION_LENGTH
from dray.cel.types import DYN

MAX_CONDITIONS = 64


@cache
def environment(*, with_params: bool, with_variables: bool = True) -> Environment:
    """Match conditions see neither params' absence nor variables; everything else sees both."""
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
    return Environment(variables, libraries=(*BASE_LIBRARIES, library))


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

    @property
    def has_params(self) -> bool:
        return bool(mapping(self.document, "spec", "paramKind"))


def compile_policy(document: Document) -> CompiledPolicy:
    spec = mapping(document, "spec")
    with_params = bool(mapping(spec, "paramKind"))
    inner = environment(with_params=with_params)
    outer = environment(with_params=with_params, with_variables=False)
    return CompiledPolicy(
        name=text(document, "metadata", "name"),
        document=document,
        fails_closed=text(spec, "failurePolicy") != "Ignore",
        conditions=tuple(
            NamedProgram(text(entry, "name"), compile_expression(text(entry, "expression"), outer, "bool"))
            for entry in mappings(spec, "matchConditions")
        ),
        variables=tuple(
            NamedProgram(text(entry, "name"), compile_expression(text(entry, "expression"), inner))
            for entry in mappings(spec, "variables")
        ),
        validations=tuple(_validation(entry, inner) for entry in mappings(spec, "validations")),
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


def policy_problems(document: Document) -> Iterator[OptionError]:
    """Field errors of a policy's expressions, in the order of its fields."""
    compiled = compile_policy(document)
    spec = mapping(document, "spec")
    conditions = mappings(spec, "matchConditions")
    if len(conditions) > MAX_CONDITIONS:
        why = f"Too many: {len(conditions)}: must have at most {MAX_CONDITIONS} items"
        yield OptionError("TooMany", "spec.matchConditions", why)
    for index, named in enumerate(compiled.conditions):
        source = text(conditions[index], "expression")
        yield from _problems(f"spec.matchConditions[{index}].expression", source, named.program)
    for index, named in enumerate(compiled.variables):
        source = text(mappings(spec, "variables")[index], "expression")
        yield from _problems(f"spec.variables[{index}].expression", source, named.program)
    if not mappings(spec, "validations") and not mappings(spec, "auditAnnotations"):
        why = "Required value: validations or auditAnnotations must be present"
        yield OptionError("Required", "spec.validations", why)
    for index, validation in enumerate(compiled.validations):
        path = f"spec.validations[{index}]"
        yield from _problems(f"{path}.expression", validation.text, validation.program)
        if validation.message_program is not None:
            source = text(mappings(spec, "validations")[index], "messageExpression")
            yield from _problems(f"{path}.messageExpression", source, validation.message_program)


def _problems(path: str, source: str, program: Program | CompileFailure) -> Iterator[OptionError]:
    if not source.strip():
        yield OptionError("Required", path, "Required value: expression is not specified")
    elif len(source.encode()) > MAX_EXPRESSION_LENGTH:
        yield OptionError("TooLong", path, f"Too long: may not be more than {MAX_EXPRESSION_LENGTH} bytes")
    elif isinstance(program, CompileFailure):
        yield OptionError("Invalid", path, f"Invalid value: {go_json(source)}: {program.message}")
