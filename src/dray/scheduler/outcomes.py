"""How an attempt to find a node ends, and how the pod and people are told that it failed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dray.api.core import Pod
from dray.api.reasons import Reason
from dray.clock import Clock, rfc3339
from dray.scheduler.framework.interface import CycleState, PluginStatus, StatusCode

NO_NODES = "no nodes available to schedule pods"


@dataclass(frozen=True, slots=True)
class Placement:
    """A node was found and the pod is assumed there; binding comes next."""

    node_name: str
    cycle: CycleState
    evaluated: int
    feasible: int


@dataclass(slots=True)
class PodRejection:
    """No node can take the pod now. `nodes_by_status` are masks of nodes by their first refusal."""

    nodes: int
    cycle: CycleState
    pre_filter: PluginStatus | None = None
    nodes_by_status: Mapping[PluginStatus, int] = field(default_factory=dict)
    post_filter: tuple[str, ...] = ()

    @property
    def rejected_by(self) -> set[str]:
        plugins = {status.plugin for status in self.nodes_by_status}
        if self.pre_filter is not None:
            plugins.add(self.pre_filter.plugin)
        return plugins - {""}

    @property
    def message(self) -> str:
        """The familiar `0/N nodes are available: ...`, counted by reason."""
        if not self.nodes:
            return NO_NODES
        text = f"0/{self.nodes} nodes are available:"
        if self.pre_filter is not None:
            text += f" {self.pre_filter.message}."
        elif self.nodes_by_status:
            text += f" {counted_reasons(self.nodes_by_status)}."
        after = ", ".join(part for part in self.post_filter if part)
        return f"{text} {after}" if after else text


@dataclass(frozen=True, slots=True)
class SchedulingFailed:
    """Something went wrong: the pod is tried again after a pause, whatever happens meanwhile.

    `assumed_on` names the node if the pod was already assumed there, so that this must be undone.
    """

    reason: Reason
    cycle: CycleState
    assumed_on: str = ""

    @property
    def message(self) -> str:
        return self.reason.text


Outcome = Placement | PodRejection | SchedulingFailed


def counted_reasons(nodes_by_status: Mapping[PluginStatus, int]) -> str:
    counts: dict[str, int] = {}
    for status, mask in nodes_by_status.items():
        if status.code is StatusCode.SUCCESS:
            continue
        for reason in status.reasons:
            counts[reason.text] = counts.get(reason.text, 0) + mask.bit_count()
    return ", ".join(sorted(f"{count} {text}" for text, count in counts.items()))


MAX_EVENT_MESSAGE = 1024
UNSCHEDULABLE = "Unschedulable"
SCHEDULER_ERROR = "SchedulerError"


def event_text(message: str) -> str:
    """At most 1024 bytes, with a mark where it was cut."""
    raw = message.encode()
    if len(raw) <= MAX_EVENT_MESSAGE:
        return message
    mark = " ..."
    return raw[: MAX_EVENT_MESSAGE - len(mark)].decode(errors="ignore") + mark


def failure_patch(pod: Pod, reason: str, message: str, nominated_node: str | None, clock: Clock) -> dict[str, Any]:
    """The change of `status` that says so; empty if the pod says so already.

    `nominated_node` is written as given, empty meaning none; None leaves what is there.
    """
    patch: dict[str, Any] = {}
    known = next((row for row in pod.status.conditions if row.type == "PodScheduled"), None)
    if known is None or (known.status, known.reason, known.message) != ("False", reason, message):
        since = known.last_transition_time if known is not None and known.status == "False" else None
        patch["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": reason,
                "message": message,
                "lastTransitionTime": since or rfc3339(clock.now()),
                "lastProbeTime": None,
            }
        ]
    if nominated_node is not None and nominated_node != pod.status.nominated_node_name:
        patch["nominatedNodeName"] = nominated_node or None
    return patch
