"""Telling people, and the pod itself, that it could not be scheduled."""

from typing import Any

from dray.api.core import Pod
from dray.clock import Clock, rfc3339

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
