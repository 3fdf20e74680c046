"""Why pods wait: one record per rejected pod, with stable codes, kept for people and tools that ask."""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from dray.api.core import Pod
from dray.api.reasons import Reason
from dray.scheduler.framework.filtering import positions
from dray.scheduler.framework.interface import LACKS_DEVICES, DeviceExplainingPlugin
from dray.scheduler.nodes import NodeList
from dray.scheduler.outcomes import PodRejection

KEPT = 10_000
NODES_NAMED = 20
DEVICE_EXAMPLES = 2


@dataclass(frozen=True, slots=True)
class RequestVerdict:
    """What one request met on a node: the rule that turned devices away, how many, and the nearest miss."""

    node: str
    claim: str
    request: str
    code: str
    rule: str
    devices: int
    detail: str

    def document(self) -> dict[str, Any]:
        return {
            "node": self.node,
            "claim": self.claim,
            "request": self.request,
            "code": self.code,
            "rule": self.rule,
            "devices": self.devices,
            "detail": self.detail,
        }


@dataclass(frozen=True, slots=True)
class NodesTurnedAway:
    """Nodes with the same first refusal; `names` are the first of them, `count` is all."""

    plugin: str
    code: str
    reasons: tuple[Reason, ...]
    resolvable: bool
    count: int
    names: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        return {
            "plugin": self.plugin,
            "code": self.code,
            "reasons": [reason.text for reason in self.reasons],
            "resolvable": self.resolvable,
            "count": self.count,
            "nodes": list(self.names),
        }


@dataclass(frozen=True, slots=True)
class SchedulingExplanation:
    namespace: str
    name: str
    uid: str
    at: str
    message: str
    nodes: tuple[NodesTurnedAway, ...]
    devices: tuple[RequestVerdict, ...] = ()

    def document(self) -> dict[str, Any]:
        return {
            "namespace": self.namespace,
            "name": self.name,
            "uid": self.uid,
            "time": self.at,
            "message": self.message,
            "nodes": [row.document() for row in self.nodes],
            "devices": [row.document() for row in self.devices],
        }


class Explanations:
    """The last rejection of each waiting pod, by UID; the oldest go first when there are too many."""

    def __init__(self) -> None:
        self._records: OrderedDict[str, SchedulingExplanation] = OrderedDict()

    def get(self, uid: str) -> SchedulingExplanation | None:
        return self._records.get(uid)

    def find(self, namespace: str, name: str) -> SchedulingExplanation | None:
        return next((row for row in self._records.values() if (row.namespace, row.name) == (namespace, name)), None)

    def __iter__(self) -> Iterator[SchedulingExplanation]:
        return iter(self._records.values())

    def __len__(self) -> int:
        return len(self._records)

    def drop(self, uid: str) -> None:
        self._records.pop(uid, None)

    def note(
        self, pod: Pod, rejection: PodRejection, nodes: NodeList, plugin: DeviceExplainingPlugin | None, at: str
    ) -> None:
        metadata = pod.metadata
        known = self._records.pop(metadata.uid, None)
        if known is not None and known.message == rejection.message:
            # Nothing new: a pod that is turned away again and again costs its explanation once.
            self._records[metadata.uid] = replace(known, at=at)
            return
        self._records[metadata.uid] = SchedulingExplanation(
            metadata.namespace,
            metadata.name,
            metadata.uid,
            at,
            rejection.message,
            _turned_away(rejection, nodes),
            tuple(_device_verdicts(rejection, nodes, plugin)) if plugin is not None else (),
        )
        if len(self._records) > KEPT:
            self._records.popitem(last=False)


def _turned_away(rejection: PodRejection, nodes: NodeList) -> tuple[NodesTurnedAway, ...]:
    rows = []
    by_status = dict(rejection.nodes_by_status)
    if rejection.pre_filter is not None:
        by_status = {rejection.pre_filter: nodes.everything}
    for status, mask in by_status.items():
        rows.append(
            NodesTurnedAway(
                status.plugin,
                status.reason_code,
                status.reasons,
                status.code.value == "Unschedulable",
                mask.bit_count(),
                _names(mask, nodes),
            )
        )
    return tuple(rows)


def _names(mask: int, nodes: NodeList) -> tuple[str, ...]:
    states = nodes.in_order
    named = islice(positions(mask & nodes.everything), NODES_NAMED)
    return tuple([states[position].node.metadata.name for position in named])


def _device_verdicts(
    rejection: PodRejection, nodes: NodeList, plugin: DeviceExplainingPlugin
) -> Iterator[RequestVerdict]:
    """Details of a few nodes; the allocator keeps its answers, so alike nodes and alike pods cost nothing more."""
    for status, mask in rejection.nodes_by_status.items():
        if not status.has_reason(LACKS_DEVICES):
            continue
        for count, position in enumerate(positions(mask)):
            if count == DEVICE_EXAMPLES:
                return
            name = nodes[position].name
            no_fit = plugin.no_fit_on(rejection.cycle, name)
            for reason in no_fit.reasons if no_fit is not None else ():
                yield _device_verdict(name, reason)


def _device_verdict(node: str, reason: Reason) -> RequestVerdict:
    facts = reason.facts
    said, devices = facts.get, facts.get("devices", 0)
    return RequestVerdict(
        node,
        str(said("claim", "")),
        str(said("request", "")),
        reason.code,
        str(said("rule", "")),
        devices if isinstance(devices, int) else 0,
        reason.text,
    )
