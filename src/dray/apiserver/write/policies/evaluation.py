"""Do the match conditions of a policy hold for a request, and what does the policy say about it?"""

import asyncio
from dataclasses import dataclass
from typing import Any, Protocol

from dray.apiserver.request.request_info import Attributes, Document
from dray.apiserver.write.admission.chain import Admission
from dray.apiserver.write.policies.admission_request import request_document
from dray.apiserver.write.policies.authorizer_library import CelAuthorizer, Decide, ResourceCheck
from dray.apiserver.write.policies.compiled_policies import CompiledPolicy, NamedProgram, Validation
from dray.apiserver.write.policies.request_matching import MatchedResource
from dray.cel import CelRuntimeError, CompileFailure, Program

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
        """The objects as they are stored."""
        return Scene.showing(admission, admission.document, admission.old, namespace, decide)

    @staticmethod
    def showing(
        admission: Admission,
        new: Document | None,
        old: Document | None,
        namespace: Document | None,
        decide: Decide,
        matched: MatchedResource | None = None,
    ) -> "Scene":
        """The objects in another version, the one that `matched` names."""
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
                "object": new,
                "oldObject": old,
                "request": request_document(admission, matched),
                "namespaceObject": namespace,
                "authorizer": CelAuthorizer(admission.user, decide),
                "authorizer.requestResource": ResourceCheck(decide, about),
            }
        )


class HasConditions(Protocol):
    @property
    def conditions(self) -> tuple[NamedProgram, ...]: ...


def applies(policy: HasConditions, scene: Scene, params: Document | None) -> bool:
    """Whether all match conditions hold. One that is false settles it, whatever others say. Raises PolicyError."""
    problem = ""
    for condition in policy.conditions:
        try:
            if value_of(condition.program, {**scene.values, "params": params}) is not True:
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


# Characters. An expression of this size takes up to a millisecond, after which others have their turn.
LONG_EXPRESSION = 1000


async def judge(policy: CompiledPolicy, scene: Scene, params: Document | None) -> Judgement:
    """Raises PolicyError if an expression gives no answer."""
    values: dict[str, Any] = {**scene.values, "params": params, "variables": {}}
    broken = await fill_variables(policy.variables, values)
    found: list[Denial] = []
    for validation in policy.validations:
        denial = _denial(validation, values, broken)
        if denial is not None:
            found.append(denial)
        await _give_way_after(validation.program)
    return Judgement(tuple(found), _annotations(policy, values))


async def _give_way_after(program: Program | CompileFailure) -> None:
    """Lets other requests have their turn, after an expression that was long."""
    if len(program.text) > LONG_EXPRESSION:
        await asyncio.sleep(0)


def _annotations(policy: CompiledPolicy, values: dict[str, Any]) -> dict[str, str]:
    """A null or an empty text leaves an annotation out; a long one is cut."""
    found: dict[str, str] = {}
    for annotation in policy.annotations:
        value = value_of(annotation.program, values)
        if value is not None and not isinstance(value, str):
            raise PolicyError(f"valueExpression of audit annotation '{annotation.name}' is neither a text nor null")
        if value and value.strip():
            found[f"{policy.name}/{annotation.name}"] = value.strip()[:MAX_ANNOTATION]
    return found


async def fill_variables(variables: tuple[NamedProgram, ...], values: dict[str, Any]) -> dict[str, str]:
    """Variables in order, each seeing those before it. A broken one is only a problem for who uses it."""
    broken: dict[str, str] = {}
    for variable in variables:
        try:
            values["variables"] = {**values["variables"], variable.name: value_of(variable.program, values)}
        except PolicyError as error:
            broken[variable.name] = str(error)
        await _give_way_after(variable.program)
    return broken


def _denial(validation: Validation, values: dict[str, Any], broken: dict[str, str]) -> Denial | None:
    try:
        if value_of(validation.program, values) is True:
            return None
    except PolicyError as error:
        cause = next((why for name, why in broken.items() if name in str(error)), str(error))
        raise PolicyError(f"expression '{validation.text.strip()}' resulted in error: {cause}") from None
    return Denial(_message(validation, values), validation.reason)


def _message(validation: Validation, values: dict[str, Any]) -> str:
    """The expression's message if it makes one of a decent shape, else the fixed one, else the expression itself."""
    if validation.message_program is not None:
        try:
            made = value_of(validation.message_program, values)
        except PolicyError:
            made = None
        if isinstance(made, str) and made.strip() and "\n" not in made and len(made) <= MAX_MESSAGE:
            return made.strip()
    return validation.message or f"failed expression: {validation.text.strip()}"


def value_of(program: Program | CompileFailure, values: dict[str, Any]) -> Any:
    if isinstance(program, CompileFailure):
        raise PolicyError(f"compilation error: {program.message}")
    try:
        return program.value_of(values)
    except CelRuntimeError as error:
        raise PolicyError(error.message) from None
