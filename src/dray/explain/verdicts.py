"""The explanation of a pod as values: a verdict for the pod, for each node, and for each request on a node."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from dray.allocator import Allocator, Failure, NoFit, Question
from dray.allocator.node_report import USABLE, NodeReport, RequestReport, report_on_node
from dray.allocator.rules.constraints import ConstraintScope
from dray.api.core import Node
from dray.api.dra.pools import DeviceID
from dray.explain.device_holders import DeviceHolders
from dray.explain.nearest_device import (
    NearestMiss,
    nearest_miss,
)
from dray.explain.node_shortage import ShortRow
from dray.explain.reason_codes import (
    CODES,
    FITS,
    SCHEDULED,
    distance,
)
from dray.explain.request_counts import (
    RequestCounts,
    count_devices,
)
from dray.explain.what_if import Remedy, WhatIfContext, step_limit, what_would_help

# The code of a request that is short at a stage.
_CODE_AT = {
    "exist": "no-devices",
    "matchClass": "class-selector",
    "matchSelectors": "request-selector",
    "free": "in-use",
    "tolerated": "taint",
    "satisfy": "constraint",
}


class PodNotFound(LookupError):
    """There is no pod of that name."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """One thing that keeps the pod off a node. `rows` are ledger rows that are short."""

    code: str
    message: str
    plugin: str = ""
    rows: tuple[ShortRow, ...] = ()

    def document(self) -> dict[str, object]:
        return {
            "code": self.code,
            "message": self.message,
            "plugin": self.plugin,
            "rows": [row.document() for row in self.rows],
        }


@dataclass(frozen=True, slots=True)
class DeviceVerdict:
    """The allocator's result for the claims on one node. `example` is a device that the message names."""

    code: str
    message: str
    requests: tuple[RequestCounts, ...] = ()
    nearest: NearestMiss | None = None
    helps: tuple[Remedy, ...] = ()
    example: DeviceID | None = None


@dataclass(frozen=True, slots=True)
class NodeVerdict:
    """`refusals` in the order in which the scheduler asks; the first one is what it reports. `scores` are the weighted points
    of each plugin, for nodes that fit where several do."""

    node: str
    refusals: tuple[Refusal, ...] = ()
    devices: DeviceVerdict | None = None
    chosen: tuple[str, ...] = ()
    scores: tuple[tuple[str, int], ...] = ()

    @property
    def fits(self) -> bool:
        return not self.refusals

    @property
    def code(self) -> str:
        return self.refusals[0].code if self.refusals else FITS

    @property
    def score(self) -> int:
        return sum(points for _, points in self.scores)

    @property
    def message(self) -> str:
        return "; ".join(refusal.message for refusal in self.refusals)

    @property
    def distance(self) -> tuple[int, int, int, float, int]:
        """How far the node is from taking the pod: by what is in the way, then by how many devices are missing where a
        request is short, and after all tests, then by how much of the ledger's rows is missing, and where requests fail
        together by how many devices each could have."""
        short = [counts for counts in self.devices.requests if counts.short_stage] if self.devices is not None else []
        return (
            sum(distance(refusal.code) for refusal in self.refusals) + self._distance_of_more_requests,
            sum(counts.wanted - counts.by_stage[counts.short_stage] for counts in short),
            sum(counts.wanted - counts.by_stage["satisfy"] for counts in short),
            sum(row.missing_share for refusal in self.refusals for row in refusal.rows),
            -sum(counts.by_stage["satisfy"] for counts in self.devices.requests) if self.devices is not None else 0,
        )

    @property
    def _distance_of_more_requests(self) -> int:
        """The refusal tells of the first request that is short; each further one is in the way as well."""
        by_request: dict[tuple[str, str], list[RequestCounts]] = {}
        for counts in self.devices.requests if self.devices is not None else ():
            by_request.setdefault((counts.claim, counts.request.partition("/")[0]), []).append(counts)
        short = [options for options in by_request.values() if all(counts.short_stage for counts in options)]
        return sum(min(distance(_CODE_AT.get(row.short_stage, "capacity")) for row in options) for options in short[1:])

    def document(self) -> dict[str, object]:
        devices = self.devices
        return {
            "node": self.node,
            "fits": self.fits,
            "code": self.code,
            "message": self.message,
            "refusals": [refusal.document() for refusal in self.refusals],
            "requests": [counts.document() for counts in devices.requests] if devices is not None else [],
            "nearest": devices.nearest.document() if devices is not None and devices.nearest is not None else None,
            "helps": [row.document() for row in devices.helps] if devices is not None else [],
            "devices": list(self.chosen),
            "scores": dict(self.scores),
        }


@dataclass(frozen=True, slots=True)
class PodVerdict:
    """The answer. `code` is the cause; `nodes` are sorted from nearest to farthest. `fix` is what to do where nothing can
    be rehearsed."""

    namespace: str
    name: str
    code: str
    headline: str
    node: str = ""
    fix: str = ""
    details: tuple[str, ...] = ()
    helps: tuple[Remedy, ...] = ()
    nodes: tuple[NodeVerdict, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def is_well(self) -> bool:
        """Nothing keeps the pod from running, as far as the objects show."""
        return self.code in (FITS, SCHEDULED, "pod-finished")

    @property
    def why(self) -> str:
        """The headline without the pod's name, for lists that have it in another column."""
        return self.headline.removeprefix(f"{self.namespace}/{self.name} ").removeprefix("waits: ")

    @property
    def remedy(self) -> str:
        """The first thing to do about it: rehearsed, known for this cause in this cluster, or known in general."""
        if self.fix or self.helps:
            return self.fix or self.helps[0].text
        return self.usually

    @property
    def usually(self) -> str:
        """What helps with the cause in general; with all of them where several things are in the way on the nearest node."""
        codes = [refusal.code for refusal in self.nodes[0].refusals] if self.nodes else []
        return "; and ".join(dict.fromkeys(CODES[code].remedy for code in codes or [self.code] if code in CODES))

    @property
    def cause(self) -> str:
        """The code with its meaning."""
        return f"{self.code} ({CODES[self.code].meaning})" if self.code in CODES else self.code

    @property
    def nodes_by_code(self) -> dict[str, int]:
        return dict(Counter(verdict.code for verdict in self.nodes).most_common())

    def document(self) -> dict[str, object]:
        return {
            "pod": {"namespace": self.namespace, "name": self.name},
            "code": self.code,
            "message": self.headline,
            "meaning": CODES[self.code].meaning if self.code in CODES else "",
            "remedy": self.usually,
            "node": self.node,
            "fix": self.fix,
            "details": list(self.details),
            "helps": [row.document() for row in self.helps],
            "nodesByCode": self.nodes_by_code,
            "nodes": [verdict.document() for verdict in self.nodes],
            "notes": list(self.notes),
        }


# --- devices of one node


def device_verdict(
    allocator: Allocator,
    question: Question,
    node: Node,
    holders: DeviceHolders,
    conditions: WhatIfContext | None = None,
) -> DeviceVerdict | None:
    """Why the node's devices cannot serve the claims; None if they can. With an `conditions` it is tried what would help."""
    answer = question.on(node, step_limit())
    if not isinstance(answer, (NoFit, Failure)):
        return None
    report = report_on_node(allocator, question, node)
    all_counts = [count_devices(request) for request in report.requests]
    cause = _cause(report, all_counts)
    nearest = (
        nearest_miss(*cause, allocator, allocator.inventory.pools_on(node), holders) if cause is not None else None
    )
    example: DeviceID | None = None
    if isinstance(answer, Failure):
        code = answer.code
        message = _failure(answer, report, cause, nearest)
    elif cause is not None:
        code, message = _short_request(*cause)
        if code == "incomplete-pool":
            # What the other devices lack is no part of the answer.
            nearest = None
        message += _most_telling(code, nearest, cause[0]) if nearest is not None else ""
    else:
        code, message = _together(answer, question, report)
        example = answer.nearest_miss.device_id if answer.nearest_miss is not None else None
    helps = (
        what_would_help(allocator, question.claims, node, report, holders, conditions) if conditions is not None else []
    )
    return DeviceVerdict(code, message, tuple(all_counts), nearest, tuple(helps), example)


def _most_telling(code: str, nearest: NearestMiss, request: RequestReport) -> str:
    """What the nearest device adds to the counts: a name that is not published, the taint, the attribute of a constraint."""
    if nearest.hints:
        return f"; {nearest.hints[0]}"
    if code == "taint":
        return f"; {nearest.detail}"
    if code == "constraint" and nearest.missing:
        return _missing_attribute(nearest.missing, request)
    return ""


def _missing_attribute(attribute: str, request: RequestReport) -> str:
    """A constraint over an attribute that none of the devices publishes, with the one that was meant."""
    short = attribute.rpartition("/")[2]
    found = {
        name if "/" in name else f"{device.device_id.driver}/{name}"
        for device in request.devices
        if device.code in (USABLE, "constraint")
        for name in device.kind.device.attributes
    }
    if attribute in found:
        return ""
    alike = [name for name in sorted(found) if name.rpartition("/")[2] == short]
    near = alike or difflib.get_close_matches(attribute, sorted(found), n=1)
    return f"; none of them publishes {attribute}" + (f"; did you mean {near[0]}?" if near else "")


def _failure(
    answer: Failure,
    report: NodeReport,
    cause: tuple[RequestReport, RequestCounts] | None,
    nearest: NearestMiss | None,
) -> str:
    """A failure in words: which pool is wrong, or what a selector looks for and does not find."""
    if answer.code == "invalid-pools":
        return _invalid(report)
    if answer.code == "pool-not-ready":
        waiting = {name.partition("/")[0]: None for request in report.requests for name, _ in request.incomplete}
        return answer.message + (f"; driver {', '.join(waiting)} has to publish the rest" if waiting else "")
    if answer.code == "selector-error" and cause is not None and nearest is not None:
        said = nearest.hints[0] if nearest.hints else "; ".join(nearest.because) or nearest.detail
        return f"request {cause[0].request} of claim {cause[0].claim} has a selector that fails: {said}"
    return answer.message


def _invalid(report: NodeReport) -> str:
    pools = "; ".join(f"pool {name} is invalid: {problem}" for name, problem in report.invalid)
    return pools or "invalid resource pools were encountered"


def _cause(report: NodeReport, all_counts: Sequence[RequestCounts]) -> tuple[RequestReport, RequestCounts] | None:
    """The first request that cannot be served even alone; of alternatives the one that came furthest."""
    by_request: dict[tuple[str, str], list[tuple[RequestReport, RequestCounts]]] = {}
    for request, counts in zip(report.requests, all_counts, strict=True):
        key = (request.claim, request.request.partition("/")[0] if request.alternatives > 1 else request.request)
        by_request.setdefault(key, []).append((request, counts))
    for options in by_request.values():
        if all(counts.short_stage for _, counts in options):
            return max(options, key=lambda pair: pair[1].progress)
    return None


def _short_request(request: RequestReport, counts: RequestCounts) -> tuple[str, str]:
    stage = counts.short_stage
    code = _CODE_AT.get(stage) or _lacking(request)
    where = f"request {request.request} of claim {request.claim}"
    if stage in ("exist", "matchClass", "matchSelectors") and request.incomplete:
        pools = "; ".join(f"pool {name} is incomplete: {text}" for name, text in request.incomplete)
        return "incomplete-pool", f"{where} {counts.sentence()}; {pools}"
    if stage == "exist" and any(device.code == "other-node" for device in request.devices):
        return "other-node", f"{where} {counts.sentence()} on this node, the others belong to other nodes"
    if stage == "exist" and counts.by_stage["matchClass"] < counts.by_stage["exist"]:
        # Devices of other classes are no part of the question.
        return "class-selector", f"{where} {counts.sentence()}"
    if stage == "exist" and counts.by_stage["exist"]:
        return "too-few-devices", f"{where} {counts.sentence()}"
    if stage == "matchSelectors" and any(device.code == "selector-error" for device in request.devices):
        return "selector-error", f"{where} {counts.sentence()}, and a selector fails"
    return code, f"{where} {counts.sentence()}"


def _lacking(request: RequestReport) -> str:
    """At the stage of capacity and counters several rules may say no; the most frequent one counts."""
    known = {"usable", "other-node", "class-selector", "request-selector", "selector-error", "in-use", "taint"}
    counts = Counter(
        device.code for device in request.devices if device.code not in known and device.code != "constraint"
    )
    return counts.most_common(1)[0][0] if counts else "capacity"


def _together(answer: NoFit, question: Question, report: NodeReport) -> tuple[str, str]:
    """Every request alone could be served: the search says where all of them together get stuck."""
    competing = _competing(report)
    if competing is not None:
        return competing
    reasons = [reason for reason in answer.reasons if reason.code in CODES]
    live = [reason for reason in reasons if reason.code in _LIVE]
    if not any(device.code == "in-use" for request in report.requests for device in request.devices):
        live = [reason for reason in live if reason.code != "in-use"]
    chosen = max(
        live or reasons, key=lambda reason: _LIVE.index(reason.code) if reason.code in _LIVE else -1, default=None
    )
    if chosen is None:
        return "later-requests", "the claims cannot be served together"
    for scope in question.scopes if chosen.code == "constraint" else ():
        unmet = _unmet_constraint(scope, report)
        if unmet:
            return "constraint", unmet
    miss = answer.nearest_miss
    example = f"; for example {miss.device_id}: {miss.detail}" if miss is not None and miss.rule == chosen.code else ""
    which = f" ({_constraints(question)})" if chosen.code == "constraint" else ""
    return chosen.code, f"{chosen.text}{which}{example}"


def _competing(report: NodeReport) -> tuple[str, str] | None:
    """Requests that together want more devices than there are for them, each device once."""
    requests = report.requests
    if len(requests) < 2 or any(request.alternatives > 1 or not request.wanted for request in requests):
        return None
    devices = [device for request in requests for device in request.devices]
    usable = {device.device_id for device in devices if device.code == USABLE}
    taken = {device.device_id for device in devices if device.code == "in-use"} - usable
    wanted = sum(request.wanted for request in requests)
    shared = any(device.kind.device.allow_multiple_allocations for device in devices if device.code == USABLE)
    if shared or wanted <= len(usable):
        return None
    said = f"requests {_names_of(requests)} together want {wanted} devices"
    if wanted <= len(usable) + len(taken):
        return "in-use", f"{said}: {len(usable) + len(taken)} match, {len(usable)} of them free"
    there = "is 1" if len(usable) == 1 else f"are {len(usable)}"
    return "chosen-already", f"{said}, and there {there} that they could share out"


def _names_of(requests: Sequence[RequestReport]) -> str:
    """With their claims, where the requests of several claims have the same name."""
    names = [request.request for request in requests]
    if len(set(names)) < len(names):
        names = [f"{request.request} of claim {request.claim}" for request in requests]
    return ", ".join(names)


def _unmet_constraint(scope: ConstraintScope, report: NodeReport) -> str:
    """How many of the devices that the requests could have agree, or differ, in the attribute; empty if enough do."""
    covered = [request for index, request in enumerate(report.requests) if index in scope.covered]
    if any(request.alternatives > 1 or not request.wanted for request in covered):
        return ""
    usable = {device.device_id: device for request in covered for device in request.devices if device.code == USABLE}
    values = Counter(scope.published(device.kind) for device in usable.values())
    del values[None]
    wanted = sum(request.wanted for request in covered)
    names = ", ".join(request.request for request in covered)
    said = f"request {names} wants" if len(covered) == 1 else f"requests {names} together want"
    short = scope.attribute.rpartition("/")[2]
    if any(isinstance(value, frozenset) for value in values):
        return ""
    if scope.is_match and max(values.values(), default=0) < wanted:
        most = f"at most {max(values.values())} share a {short}" if values else f"none publishes {short}"
        return f"{said} {wanted} devices with the same {scope.attribute}: {len(usable)} could serve, {most}"
    if not scope.is_match and len(values) < wanted:
        there = f"they have {len(values)} different {short}" if values else f"none publishes {short}"
        return f"{said} {wanted} devices with different {scope.attribute}: {len(usable)} could serve, {there}"
    return ""


def _constraints(question: Question) -> str:
    found = [each for claim in question.claims for each in claim.spec.devices.constraints]
    return ", ".join(
        f"matchAttribute {each.match_attribute}"
        if each.match_attribute
        else f"distinctAttribute {each.distinct_attribute}"
        for each in found
    )


_LIVE = ("chosen-already", "in-use", "later-requests", "capacity", "compatibility", "counters", "constraint")
