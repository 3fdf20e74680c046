"""Every device of a node judged for every request on its own, as if nothing else had been chosen; for people who ask why.

The search stops at the first "no" and in its own order. A survey asks in the order in which people think: is there such a
device, is it of the class, does it match, is it free, tolerated, large enough, fit for the constraints?
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dray.allocator.attempt import Attempt
from dray.allocator.devices import DeviceKind
from dray.allocator.question import Allocator, Question
from dray.allocator.requests import Option
from dray.allocator.rules.taints import first_untolerated
from dray.allocator.selectors import SelectorFailure
from dray.allocator.types import DeviceID, FatalError
from dray.api.core import Node

USABLE = "usable"


@dataclass(frozen=True, slots=True)
class SurveyedDevice:
    """`code` is the first test that says no, or `usable`; `selector` is the expression if it was one."""

    device_id: DeviceID
    kind: DeviceKind
    code: str
    detail: str = ""
    selector: str = ""


@dataclass(frozen=True, slots=True)
class SurveyedRequest:
    """One request, or one alternative of it. `wanted` is 0 where all matching devices are asked for."""

    claim: str
    request: str
    device_class: str
    wanted: int
    alternatives: int
    capacity: Mapping[str, object]
    devices: tuple[SurveyedDevice, ...]


@dataclass(frozen=True, slots=True)
class Survey:
    """`incomplete` and `invalid` are pools of the node that offer nothing, each with what is wrong."""

    node: str
    requests: tuple[SurveyedRequest, ...]
    incomplete: tuple[tuple[str, str], ...]
    invalid: tuple[tuple[str, str], ...]


class _Unhurried(Attempt):
    """An attempt that does not yet ask how many devices "all" would be."""

    __slots__ = ()

    def _lay_out_all(self) -> None:
        pass


def survey(allocator: Allocator, question: Question, node: Node) -> Survey:
    """What each request meets on the node. A question that cannot be asked at all gives no requests."""
    pools = allocator.inventory.pools_on(node)
    incomplete = tuple(
        (f"{view.driver}/{view.name}", f"{len(view.slice_names)} of {view.wanted_slices} slices are there")
        for view in pools.incomplete
    )
    invalid = tuple((f"{view.driver}/{view.name}", view.problem) for view in pools.invalid)
    problem, scopes = question.problem, question.scopes
    if problem is None:
        return Survey(pools.name, (), incomplete, invalid)
    attempt = _Unhurried(problem, pools, allocator.ledger, scopes)
    requests = tuple(
        SurveyedRequest(
            _said(question.with_names(option.claim.label)),
            option.name,
            option.device_class.metadata.name,
            0 if option.all_devices else option.count,
            len(option.request.options),
            option.screen.capacity,
            tuple(_judged(attempt, option)),
        )
        for option in problem.options
    )
    return Survey(pools.name, requests, incomplete, invalid)


def _said(claim: str) -> str:
    """A claim that exists in memory only has a UID behind its name in brackets, which tells nobody anything."""
    name, bracket, _ = claim.partition(">")
    return name + bracket


def _judged(attempt: Attempt, option: Option) -> Iterator[SurveyedDevice]:
    for view, offset in zip(attempt.node.pools, attempt.node.offsets, strict=True):
        for place in range(len(view.names)):
            position = offset + place
            code, detail, selector = _first_no(attempt, option, position)
            yield SurveyedDevice(view.device_id(place), attempt.kinds[position], code, detail, selector)


def _first_no(attempt: Attempt, option: Option, position: int) -> tuple[str, str, str]:
    kind = attempt.kinds[position]
    bit = 1 << position
    if attempt.node.unreachable & bit:
        return ("other-node", "belongs to another node", "")
    for label, expression in option.screen.selectors:
        verdict = option.screen.room.verdict(expression, kind)
        if verdict is not True:
            code = "class-selector" if label.startswith("class ") else "request-selector"
            if isinstance(verdict, SelectorFailure):
                return ("selector-error", verdict.message, expression)
            return (code, "does not match", expression)
    if attempt.stored & bit and not option.admin_access:
        return ("in-use", "is in use", "")
    taint = first_untolerated(kind.taints, option.tolerations) if option.features.device_taints else None
    if taint is not None:
        said = f"{taint.key}={taint.value}" if taint.value else taint.key
        return ("taint", f"taint {said}:{taint.effect} is not tolerated", "")
    return (*_lack(attempt, option, position), "")


def _lack(attempt: Attempt, option: Option, position: int) -> tuple[str, str]:
    kind = attempt.kinds[position]
    if kind.has_binding_conditions and not option.features.binds_with_conditions:
        return ("binding-conditions", "has binding conditions, which are switched off")
    if kind.skips_node_operations and not (
        option.features.optional_node_operations and attempt.node.declares_operations
    ):
        return ("node-operations", "needs node operations that the node does not declare")
    amounts = option.amounts(kind) if option.features.consumable_capacity else None
    if amounts is not None and (amounts.refusal or amounts.error):
        return ("capacity", amounts.refusal or amounts.error)
    for rule in attempt.rules:
        try:
            if not rule.enter(option, position):
                return ("constraint" if rule.is_constraint else rule.name, rule.why(option, position))
            rule.leave(option, position)
        except FatalError as problem:
            return (problem.code, problem.message)
    return (USABLE, "")
