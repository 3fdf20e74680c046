"""Why each device of a node can or cannot serve each request, as if nothing else had been chosen. `dray explain` shows it.

The search stops at the first "no" and in its own order. The report tests each device in the order in which people think:
is there such a device, is it of the class, does it match, is it free, tolerated, large enough, fit for the constraints?
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from dray.allocator.allocator import Allocator, Question
from dray.allocator.device_kinds import DeviceKind
from dray.allocator.inventory import NodePools
from dray.allocator.pools import PoolView, taint_rule_matches
from dray.allocator.requests import Option
from dray.allocator.search_input import SearchInput
from dray.allocator.selectors import SelectorFailure
from dray.allocator.types import FatalError
from dray.api.core import Node
from dray.api.dra.pools import DeviceID
from dray.api.dra.taints import untolerated
from dray.api.resource import DeviceTaint, DeviceTaintRule

USABLE = "usable"


@dataclass(frozen=True, slots=True)
class DeviceReport:
    """`code` is the first test that says no, or `usable`; `selector` is the expression if it was one, `taints` those that
    the request does not tolerate, `missing` the capacity or attribute that the device does not have."""

    device_id: DeviceID
    kind: DeviceKind
    code: str
    detail: str = ""
    selector: str = ""
    taints: tuple[DeviceTaint, ...] = ()
    missing: str = ""


@dataclass(frozen=True, slots=True)
class RequestReport:
    """One request, or one alternative of it. `wanted` is 0 where all matching devices are asked for. `incomplete` are
    pools with devices that match, or with none yet: they offer nothing until all their slices are there."""

    claim: str
    request: str
    device_class: str
    wanted: int
    alternatives: int
    capacity: Mapping[str, object]
    devices: tuple[DeviceReport, ...]
    incomplete: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class NodeReport:
    """`invalid` are pools of the node that offer nothing, each with what is wrong."""

    node: str
    requests: tuple[RequestReport, ...]
    invalid: tuple[tuple[str, str], ...]


class _InputWithoutAll(SearchInput):
    """Search input that does not count the devices of a request for all devices."""

    __slots__ = ()

    def _lay_out_all(self) -> None:
        pass


def report_on_node(allocator: Allocator, question: Question, node: Node) -> NodeReport:
    """The result of each request on the node. An invalid question gives no requests."""
    pools = allocator.inventory.pools_on(node)
    invalid = tuple((f"{view.driver}/{view.name}", view.problem) for view in pools.invalid)
    problem, scopes = question.problem, question.scopes
    if problem is None:
        return NodeReport(pools.name, (), invalid)
    given = _InputWithoutAll(problem, pools, allocator.ledger, scopes)
    requests = tuple(
        RequestReport(
            _said(question.with_names(option.claim.label)),
            option.name,
            option.device_class.metadata.name,
            0 if option.all_devices else option.count,
            len(option.request.options),
            option.device_filter.capacity,
            tuple(_judged(given, option, tuple(allocator.inventory.taint_rules))),
            tuple(_incomplete(pools.incomplete, option)),
        )
        for option in problem.options
    )
    return NodeReport(pools.name, requests, invalid)


def report_key(allocator: Allocator, pools: NodePools) -> Hashable:
    """Equal for nodes whose reports differ in the names of devices and pools only; None: not to be compared."""
    if pools.incomplete or pools.invalid or any(True for _ in allocator.inventory.taint_rules):
        return None
    parts: list[Hashable] = [pools.unreachable, pools.declares_operations]
    for view in pools.pools:
        taken = allocator.ledger.taken(view)
        parts += [view.driver, view.shape, taken.dedicated, taken.shared, taken.consumed_key]
        if view.counters is not None and view.shape.consumes:
            if view.shape.grouped:
                return None
            parts += [view.counters.names_key, tuple(allocator.ledger.counters(view).available)]
    return tuple(parts)


def _said(claim: str) -> str:
    """A claim that exists in memory only has a UID behind its name in brackets, which tells nobody anything."""
    name, bracket, _ = claim.partition(">")
    return name + bracket


def _incomplete(views: Iterable[PoolView], option: Option) -> Iterator[tuple[str, str]]:
    for view in views:
        if not view.devices or any(_selected(option, kind) for kind in set(view.shape.kinds)):
            yield f"{view.driver}/{view.name}", _slices_there(view)


def _slices_there(view: PoolView) -> str:
    there, wanted = len(view.slice_names), view.wanted_slices
    if there > wanted:
        return f"{there} slices are there, and they say that there are {wanted}: two drivers publish it, or one was left behind"
    return f"{there} of {wanted} slices are there, and driver {view.driver} has to publish the rest"


def _selected(option: Option, kind: DeviceKind) -> bool:
    return all(
        option.device_filter.evaluator.verdict(expression, kind) is True
        for _, expression in option.device_filter.selectors
    )


def _judged(given: SearchInput, option: Option, rules: tuple[DeviceTaintRule, ...]) -> Iterator[DeviceReport]:
    for view, offset in zip(given.node.pools, given.node.offsets, strict=True):
        for place in range(len(view.names)):
            position = offset + place
            kind = given.kinds[position]
            no = _first_no(given, option, position)
            device_id = view.device_id(place)
            taints = _untolerated(option, kind) if no.code == "taint" else ()
            detail = no.detail + (_who_set(taints, device_id, rules) if taints else "")
            yield DeviceReport(device_id, kind, no.code, detail, no.selector, taints, no.missing)


class _Judgement(NamedTuple):
    """The first test that says no to a device, or `USABLE`; see `DeviceReport`."""

    code: str
    detail: str = ""
    selector: str = ""
    missing: str = ""


def _first_no(given: SearchInput, option: Option, position: int) -> _Judgement:
    kind = given.kinds[position]
    bit = 1 << position
    if given.node.unreachable & bit:
        return _Judgement("other-node", "belongs to another node")
    for label, expression in option.device_filter.selectors:
        verdict = option.device_filter.evaluator.verdict(expression, kind)
        if verdict is not True:
            code = "class-selector" if label.startswith("class ") else "request-selector"
            if isinstance(verdict, SelectorFailure):
                return _Judgement("selector-error", verdict.message, expression)
            return _Judgement(code, "does not match", expression)
    if given.stored & bit and not option.admin_access:
        return _Judgement("in-use", "is in use")
    if taints := _untolerated(option, kind):
        said = ", ".join(map(taint_text, taints))
        return _Judgement(
            "taint", f"taint {said} is not tolerated" if len(taints) == 1 else f"taints {said} are not tolerated"
        )
    return _lack(given, option, position)


def _untolerated(option: Option, kind: DeviceKind) -> tuple[DeviceTaint, ...]:
    return tuple(untolerated(kind.taints, option.tolerations)) if option.features.device_taints else ()


def _who_set(taints: tuple[DeviceTaint, ...], device_id: DeviceID, rules: tuple[DeviceTaintRule, ...]) -> str:
    names = [rule.metadata.name for rule in rules if taint_rule_matches(rule, *device_id) and rule.spec.taint in taints]
    return f" (set by DeviceTaintRule {', '.join(names)})" if names else ""


def taint_text(taint: DeviceTaint) -> str:
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


def _lack(given: SearchInput, option: Option, position: int) -> _Judgement:
    kind = given.kinds[position]
    if kind.has_binding_conditions and not option.features.binds_with_conditions:
        return _Judgement("binding-conditions", "has binding conditions, which are switched off")
    if kind.skips_node_operations and not (option.features.optional_node_operations and given.node.declares_operations):
        return _Judgement("node-operations", "needs node operations that the node does not declare")
    if kind.consumes and not option.features.partitionable_devices:
        return _Judgement("counters-off", "draws counters, which are switched off")
    amounts = option.amounts(kind) if option.features.consumable_capacity else None
    if amounts is not None and (amounts.refusal or amounts.error):
        return _Judgement("capacity", amounts.refusal or amounts.error, missing=amounts.missing)
    for rule in given.rules:
        try:
            if not rule.enter(option, position):
                code = "constraint" if rule.is_constraint else rule.name
                return _Judgement(code, rule.why(option, position), missing=rule.lacks(option, position))
            rule.leave(option, position)
        except FatalError as problem:
            return _Judgement(problem.code, problem.message)
    return _Judgement(USABLE)
