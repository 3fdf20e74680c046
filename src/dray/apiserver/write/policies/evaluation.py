"""Does a policy apply to a request (`matchConstraints`, `matchResources`, match conditions), and what does it say about it?"""

from dataclasses import dataclass
from typing import Any

from dray.api.safe_get import (
    labels_of,
    mapping,
    mappings,
    strings,
    text,
)
from dray.api.scheme import by_plural
from dray.apiserver.read.selectors import selects
from dray.apiserver.request.authorization.reviews import user_document
from dray.apiserver.request.request_info import Attributes, Document
from dray.apiserver.write.admission.chain import Admission
from dray.apiserver.write.policies.authorizer_library import CelAuthorizer, Decide, ResourceCheck
from dray.apiserver.write.policies.compiled_policies import CompiledPolicy, NamedProgram, Validation
from dray.cel import CelRuntimeError, CompileFailure, Program

ALL = "*"


def matches_request(resources: Document, admission: Admission, namespace: Document | None) -> bool:
    """`namespace` is the request's namespace (or the Namespace being written); None for cluster-scoped objects."""
    if namespace is not None and not selects(mapping(resources, "namespaceSelector"), labels_of(namespace)):
        return False
    selector = mapping(resources, "objectSelector")
    if selector and not any(selects(selector, labels_of(found)) for found in _objects_of(admission)):
        return False
    if any(_rule_matches(rule, admission) for rule in mappings(resources, "excludeResourceRules")):
        return False
    rules = mappings(resources, "resourceRules")
    return not rules or any(_rule_matches(rule, admission) for rule in rules)


def _objects_of(admission: Admission) -> list[Document]:
    return [found for found in (admission.document, admission.old) if found is not None]


def _rule_matches(rule: Document, admission: Admission) -> bool:
    attributes = admission.attributes
    names = strings(rule, "resourceNames")
    return (
        _has(strings(rule, "operations"), admission.operation)
        and _has(strings(rule, "apiGroups"), attributes.group)
        and _version_matches(strings(rule, "apiVersions"), admission)
        and any(_resource_matches(pattern, admission) for pattern in strings(rule, "resources"))
        and _scope_matches(text(rule, "scope"), admission)
        and (not names or admission.name in names)
    )


def _has(values: list[str], wanted: str) -> bool:
    return ALL in values or wanted in values


def _version_matches(versions: list[str], admission: Admission) -> bool:
    """A rule about one version of a kind means the kind: a client must not slip through in another version."""
    if _has(versions, admission.attributes.version):
        return True
    row = by_plural(admission.attributes.group, admission.attributes.resource)
    return row is not None and any(version.name in versions for version in row.versions)


def _resource_matches(pattern: str, admission: Admission) -> bool:
    resource, subresource = admission.attributes.resource, admission.attributes.subresource
    wanted, slash, wanted_sub = pattern.partition("/")
    if wanted not in (ALL, resource):
        return False
    if not slash:
        return not subresource
    return wanted_sub in (ALL, subresource)


def _scope_matches(scope: str, admission: Admission) -> bool:
    if scope in ("", ALL):
        return True
    is_namespaced = bool(admission.attributes.namespace) and admission.attributes.resource != "namespaces"
    return is_namespaced == (scope == "Namespaced")


MAX_MESSAGE = 5 * 1024
MAX_ANNOTATION = 10 * 1024


@dataclass(frozen=True, slots=True)
class Denial:
    message: str
    reason: str = ""


class PolicyError(Exception):
    """The policy has no answer; its failurePolicy decides."""


@dataclass(frozen=True, slots=True)
class Scene:
    """What expressions see of one request, but for params and variables."""

    values: dict[str, Any]

    @staticmethod
    def of(admission: Admission, namespace: Document | None, decide: Decide) -> "Scene":
        attributes = admission.attributes
        about = Attributes(
            admission.user,
            "",
            attributes.group,
            "*",
            attributes.resource,
            attributes.subresource,
            attributes.namespace,
            admission.name,
        )
        return Scene(
            {
                "object": admission.document,
                "oldObject": admission.old,
                "request": request_document(admission),
                "namespaceObject": namespace,
                "authorizer": CelAuthorizer(admission.user, decide),
                "authorizer.requestResource": ResourceCheck(decide, about),
            }
        )


def request_document(admission: Admission) -> Document:
    attributes = admission.attributes
    row = by_plural(attributes.group, attributes.resource)
    kind = {"group": attributes.group, "version": attributes.version, "kind": row.kind if row else admission.kind}
    resource = {"group": attributes.group, "version": attributes.version, "resource": attributes.resource}
    return {
        "kind": kind,
        "resource": resource,
        "subResource": attributes.subresource,
        "requestKind": kind,
        "requestResource": resource,
        "requestSubResource": attributes.subresource,
        "name": admission.name,
        "namespace": attributes.namespace,
        "operation": admission.operation,
        "userInfo": {"username": "", "uid": "", "groups": [], "extra": {}, **user_document(admission.user)},
        "dryRun": attributes.dry_run,
        "options": admission.options,
    }


def applies(policy: CompiledPolicy, scene: Scene, params: Document | None) -> bool:
    """Whether all match conditions hold. One that is false settles it, whatever others say. Raises PolicyError."""
    problem = ""
    for condition in policy.conditions:
        try:
            if _value(condition.program, {**scene.values, "params": params}) is not True:
                return False
        except PolicyError as error:
            problem = problem or f"match condition {condition.name}: {error}"
    if problem:
        raise PolicyError(problem)
    return True


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a policy has against a request, and what it wants to be remembered of it."""

    denials: tuple[Denial, ...]
    annotations: dict[str, str]


def judge(policy: CompiledPolicy, scene: Scene, params: Document | None) -> Judgement:
    """Raises PolicyError if an expression gives no answer."""
    values: dict[str, Any] = {**scene.values, "params": params, "variables": {}}
    broken = _fill_variables(policy.variables, values)
    found = tuple(denial for validation in policy.validations if (denial := _denial(validation, values, broken)))
    return Judgement(found, _annotations(policy, values))


def _annotations(policy: CompiledPolicy, values: dict[str, Any]) -> dict[str, str]:
    """A null or an empty text leaves an annotation out; a long one is cut."""
    found: dict[str, str] = {}
    for annotation in policy.annotations:
        value = _value(annotation.program, values)
        if value is not None and not isinstance(value, str):
            raise PolicyError(f"valueExpression of audit annotation '{annotation.name}' is neither a text nor null")
        if value and value.strip():
            found[f"{policy.name}/{annotation.name}"] = value.strip()[:MAX_ANNOTATION]
    return found


def _fill_variables(variables: tuple[NamedProgram, ...], values: dict[str, Any]) -> dict[str, str]:
    """Variables in order, each seeing those before it. A broken one is only a problem for who uses it."""
    broken: dict[str, str] = {}
    for variable in variables:
        try:
            values["variables"] = {**values["variables"], variable.name: _value(variable.program, values)}
        except PolicyError as error:
            broken[variable.name] = str(error)
    return broken


def _denial(validation: Validation, values: dict[str, Any], broken: dict[str, str]) -> Denial | None:
    try:
        if _value(validation.program, values) is True:
            return None
    except PolicyError as error:
        cause = next((why for name, why in broken.items() if name in str(error)), str(error))
        raise PolicyError(f"expression '{validation.text.strip()}' resulted in error: {cause}") from None
    return Denial(_message(validation, values), validation.reason)


def _message(validation: Validation, values: dict[str, Any]) -> str:
    """The expression's message if it makes one of a decent shape, else the fixed one, else the expression itself."""
    if validation.message_program is not None:
        try:
            made = _value(validation.message_program, values)
        except PolicyError:
            made = None
        if isinstance(made, str) and made.strip() and "\n" not in made and len(made) <= MAX_MESSAGE:
            return made.strip()
    return validation.message or f"failed expression: {validation.text.strip()}"


def _value(program: Program | CompileFailure, values: dict[str, Any]) -> Any:
    if isinstance(program, CompileFailure):
        raise PolicyError(f"compilation error: {program.message}")
    try:
        return program.value_of(values)
    except CelRuntimeError as error:
        raise PolicyError(error.message) from None
