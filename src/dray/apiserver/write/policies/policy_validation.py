"""Everything wrong with a policy, a binding or the conditions of a webhook, told to who writes it.

Not in `dray.validation`: whether an expression compiles depends on what this server lets policies see.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from dray.api import names
from dray.api.jsontext import go_json
from dray.api.safe_get import (
    mapping,
    mappings,
    part,
    strings,
    text,
)
from dray.apiserver.errors import OptionError
from dray.apiserver.request.request_info import Document
from dray.apiserver.write.admission.policies_and_webhooks import (
    MUTATING_BINDINGS,
    MUTATING_POLICIES,
    MUTATING_WEBHOOKS,
    VALIDATING_BINDINGS,
    VALIDATING_POLICIES,
    VALIDATING_WEBHOOKS,
)
from dray.apiserver.write.policies.compiled_policies import compile_policy, environment
from dray.apiserver.write.policies.mutating_policies import compile_mutating_policy
from dray.cel import CompileFailure, Program, compile_expression
from dray.cel.environment import MAX_EXPRESSION_LENGTH

MAX_CONDITIONS = 64
ACTIONS = ("Audit", "Deny", "Warn")
OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
MUTABLE_OPERATIONS = ("*", "CONNECT", "CREATE", "UPDATE")
REINVOCATION_POLICIES = ("IfNeeded", "Never")
PATCH_FIELDS = {"ApplyConfiguration": "applyConfiguration", "JSONPatch": "jsonPatch"}
REASONS = ("Forbidden", "Invalid", "RequestEntityTooLarge", "Unauthorized")
NOT_FOUND_ACTIONS = ("Allow", "Deny")


def policy_problems(document: Document) -> Iterator[OptionError]:
    """Field errors of a policy, in the order of its fields."""
    spec = mapping(document, "spec")
    yield from _match_problems(spec)
    if not mappings(spec, "validations") and not mappings(spec, "auditAnnotations"):
        yield _required("spec.validations", "validations or auditAnnotations must be present")
    yield from _expression_problems(document)


def _match_problems(spec: Document) -> Iterator[OptionError]:
    """What every kind of policy says first: what happens when it fails, and which requests it is about."""
    if text(spec, "failurePolicy") not in ("", "Fail", "Ignore"):
        yield _unsupported("spec.failurePolicy", text(spec, "failurePolicy"), ("Fail", "Ignore"))
    constraints = part(spec, "matchConstraints")
    if not isinstance(constraints, dict):
        yield _required("spec.matchConstraints")
    elif not mappings(constraints, "resourceRules"):
        yield _required("spec.matchConstraints.resourceRules")
    yield from _rule_problems(mapping(spec, "matchConstraints"), "spec.matchConstraints")


def binding_problems(document: Document) -> Iterator[OptionError]:
    spec = mapping(document, "spec")
    if not text(spec, "policyName"):
        yield _required("spec.policyName")
    yield from _reference_problems(part(spec, "paramRef"))
    yield from _rule_problems(mapping(spec, "matchResources"), "spec.matchResources")
    actions = strings(spec, "validationActions")
    if not actions:
        yield _required("spec.validationActions", "at least one validation action is required")
    for index, action in enumerate(actions):
        if action not in ACTIONS:
            yield _unsupported(f"spec.validationActions[{index}]", action, ACTIONS)
    if {"Deny", "Warn"} <= set(actions):
        why = (
            "must not contain both Deny and Warn (repeating the same validation failure information in the API "
            "response and headers serves no purpose)"
        )
        yield _invalid("spec.validationActions", actions, why)


def mutating_policy_problems(document: Document) -> Iterator[OptionError]:
    """Field errors of a MutatingAdmissionPolicy, in the order of its fields."""
    spec = mapping(document, "spec")
    yield from _match_problems(spec)
    yield from _unchangeable_operations(mapping(spec, "matchConstraints"), "spec.matchConstraints")
    compiled = compile_mutating_policy(document)
    programs = [named.program for named in compiled.conditions]
    yield from _condition_problems(mappings(spec, "matchConditions"), programs, "spec.matchConditions")
    yield from _name_problems(spec)
    for index, named in enumerate(compiled.variables):
        source = text(mappings(spec, "variables")[index], "expression")
        yield from _problems(f"spec.variables[{index}].expression", source, named.program)
    if not compiled.mutations:
        yield _required("spec.mutations", "mutations must contain at least one item")
    for index, (entry, mutation) in enumerate(zip(mappings(spec, "mutations"), compiled.mutations, strict=True)):
        yield from _mutation_problems(entry, mutation.program, f"spec.mutations[{index}]")
    policy = text(spec, "reinvocationPolicy")
    if not policy:
        yield _required("spec.reinvocationPolicy")
    elif policy not in REINVOCATION_POLICIES:
        yield _unsupported("spec.reinvocationPolicy", policy, REINVOCATION_POLICIES)


def _mutation_problems(entry: Document, program: Program | CompileFailure, path: str) -> Iterator[OptionError]:
    patch_type = text(entry, "patchType")
    if not patch_type:
        yield _required(f"{path}.patchType")
        return
    if patch_type not in PATCH_FIELDS:
        yield _unsupported(f"{path}.patchType", patch_type, tuple(PATCH_FIELDS))
        return
    field = PATCH_FIELDS[patch_type]
    for other in PATCH_FIELDS.values():
        if other != field and part(entry, other) is not None:
            yield _invalid(f"{path}.{other}", f"{{{other}}}", f"must not be specified when patchType is {patch_type}")
    if part(entry, field) is None:
        yield _required(f"{path}.{field}", f"must be specified when patchType is {patch_type}")
        return
    source = text(entry, field, "expression")
    if not source.strip():
        yield _required(f"{path}.{field}.expression")
        return
    yield from _problems(f"{path}.{field}.expression", source, program)


def _unchangeable_operations(resources: Document, path: str) -> Iterator[OptionError]:
    """Only what creates or changes an object can be changed."""
    for rule in mappings(resources, "resourceRules"):
        for operation in strings(rule, "operations"):
            if operation not in MUTABLE_OPERATIONS:
                yield _unsupported(f"{path}.resourceRules.operations", operation, MUTABLE_OPERATIONS)


def mutating_binding_problems(document: Document) -> Iterator[OptionError]:
    spec = mapping(document, "spec")
    if not text(spec, "policyName"):
        yield _required("spec.policyName")
    yield from _reference_problems(part(spec, "paramRef"))
    yield from _rule_problems(mapping(spec, "matchResources"), "spec.matchResources")
    yield from _unchangeable_operations(mapping(spec, "matchResources"), "spec.matchResources")


def webhook_problems(configuration: Document, old: Document | None) -> Iterator[OptionError]:
    """Field errors of the match conditions of a webhook configuration; conditions that stay as they are may stay."""
    before = [webhook.get("matchConditions") for webhook in mappings(old, "webhooks")]
    webhooks = mappings(configuration, "webhooks")
    if before == [webhook.get("matchConditions") for webhook in webhooks]:
        return
    seen = environment(with_params=False, with_variables=False)
    for position, webhook in enumerate(webhooks):
        path, conditions = f"webhooks[{position}].matchConditions", mappings(webhook, "matchConditions")
        programs = [compile_expression(text(entry, "expression"), seen, "bool") for entry in conditions]
        yield from _condition_problems(conditions, programs, path)


def _condition_problems(
    conditions: list[Document], programs: Sequence[Program | CompileFailure], path: str
) -> Iterator[OptionError]:
    if len(conditions) > MAX_CONDITIONS:
        why = f"Too many: {len(conditions)}: must have at most {MAX_CONDITIONS} items"
        yield OptionError("TooMany", path, why)
    yield from _key_problems(conditions, path, "name")
    for index, (condition, program) in enumerate(zip(conditions, programs, strict=True)):
        yield from _problems(f"{path}[{index}].expression", text(condition, "expression"), program)


def _reference_problems(reference: object) -> Iterator[OptionError]:
    if not isinstance(reference, dict):
        return
    has_name, has_selector = bool(reference.get("name")), reference.get("selector") is not None
    if has_name and has_selector:
        yield OptionError("Forbidden", "spec.paramRef.name", "Forbidden: name and selector are mutually exclusive")
    if not has_name and not has_selector:
        yield _required("spec.paramRef", "one of name or selector must be specified")
    action = text(reference, "parameterNotFoundAction")
    if not action:
        yield _required("spec.paramRef.parameterNotFoundAction")
    elif action not in NOT_FOUND_ACTIONS:
        yield _unsupported("spec.paramRef.parameterNotFoundAction", action, NOT_FOUND_ACTIONS)


def _rule_problems(resources: Document, path: str) -> Iterator[OptionError]:
    for field in ("resourceRules", "excludeResourceRules"):
        for index, rule in enumerate(mappings(resources, field)):
            for name in ("operations", "apiGroups", "apiVersions", "resources"):
                if not strings(rule, name):
                    yield _required(f"{path}.{field}[{index}].{name}")
            for position, operation in enumerate(strings(rule, "operations")):
                if operation not in OPERATIONS:
                    yield _unsupported(f"{path}.{field}[{index}].operations[{position}]", operation, OPERATIONS)


def _expression_problems(document: Document) -> Iterator[OptionError]:
    compiled = compile_policy(document)
    spec = mapping(document, "spec")
    programs = [named.program for named in compiled.conditions]
    yield from _condition_problems(mappings(spec, "matchConditions"), programs, "spec.matchConditions")
    yield from _name_problems(spec)
    for index, named in enumerate(compiled.variables):
        source = text(mappings(spec, "variables")[index], "expression")
        yield from _problems(f"spec.variables[{index}].expression", source, named.program)
    for index, named in enumerate(compiled.annotations):
        source = text(mappings(spec, "auditAnnotations")[index], "valueExpression")
        yield from _problems(f"spec.auditAnnotations[{index}].valueExpression", source, named.program)
    for index, validation in enumerate(compiled.validations):
        path = f"spec.validations[{index}]"
        if validation.reason and validation.reason not in REASONS:
            yield _unsupported(f"{path}.reason", validation.reason, REASONS)
        yield from _problems(f"{path}.expression", validation.text, validation.program)
        if validation.message_program is not None:
            source = text(mappings(spec, "validations")[index], "messageExpression")
            yield from _problems(f"{path}.messageExpression", source, validation.message_program)


def _name_problems(spec: Document) -> Iterator[OptionError]:
    if kind := mapping(spec, "paramKind"):
        for field in ("apiVersion", "kind"):
            if not text(kind, field):
                yield _required(f"spec.paramKind.{field}")
    for index, variable in enumerate(mappings(spec, "variables")):
        name, path = text(variable, "name"), f"spec.variables[{index}].name"
        if not name:
            yield _required(path, "name is required")
        elif names.c_identifier_problems(name):
            yield _invalid(path, name, "name is not a valid CEL identifier")
    yield from _key_problems(mappings(spec, "auditAnnotations"), "spec.auditAnnotations", "key")


def _key_problems(entries: Sequence[Document], path: str, field: str) -> Iterator[OptionError]:
    seen: set[str] = set()
    for index, entry in enumerate(entries):
        here, name = f"{path}[{index}].{field}", text(entry, field)
        if not name:
            yield _required(here)
            continue
        for problem in names.qualified_name_problems(name):
            yield _invalid(here, name, problem)
        if name in seen:
            yield OptionError("Duplicate", here, f"Duplicate value: {go_json(name)}")
        seen.add(name)


def _problems(path: str, source: str, program: Program | CompileFailure) -> Iterator[OptionError]:
    if not source.strip():
        yield _required(path, "expression is not specified")
    elif len(source.encode()) > MAX_EXPRESSION_LENGTH:
        yield OptionError("TooLong", path, f"Too long: may not be more than {MAX_EXPRESSION_LENGTH} bytes")
    elif isinstance(program, CompileFailure):
        yield _invalid(path, source, program.message)


Check = Callable[[Document, Document | None], Iterable[OptionError]]
CHECKS: dict[str, Check] = {
    MUTATING_POLICIES: lambda new, old: mutating_policy_problems(new),
    MUTATING_BINDINGS: lambda new, old: mutating_binding_problems(new),
    VALIDATING_POLICIES: lambda new, old: policy_problems(new),
    VALIDATING_BINDINGS: lambda new, old: binding_problems(new),
    MUTATING_WEBHOOKS: webhook_problems,
    VALIDATING_WEBHOOKS: webhook_problems,
}


def problems_of(plural: str, new: Document, old: Document | None) -> list[OptionError]:
    return list(CHECKS[plural](new, old))


def _required(path: str, why: str = "") -> OptionError:
    return OptionError("Required", path, f"Required value: {why}" if why else "Required value")


def _invalid(path: str, value: object, why: str) -> OptionError:
    return OptionError("Invalid", path, f"Invalid value: {go_json(value)}: {why}")


def _unsupported(path: str, value: str, supported: tuple[str, ...]) -> OptionError:
    listed = ", ".join(f'"{name}"' for name in supported)
    return OptionError("NotSupported", path, f"Unsupported value: {go_json(value)}: supported values: {listed}")
