"""Whether a pod has finished, is leaving, waits for a node, or takes up room on one. Pure."""

from __future__ import annotations

from typing import Any

from dray.api.core import Pod

TERMINAL_PHASES = frozenset({"Succeeded", "Failed"})


def is_finished(pod: Pod) -> bool:
    """Whether all containers have ended and none starts again."""
    return pod.status.phase in TERMINAL_PHASES


def is_finished_document(pod: dict[str, Any]) -> bool:
    """`is_finished` for a document; a missing or misshapen status means no."""
    status = pod.get("status")
    phase = status.get("phase") if isinstance(status, dict) else None
    return isinstance(phase, str) and phase in TERMINAL_PHASES


def is_deleted(pod: Pod) -> bool:
    """Whether somebody has asked for the pod's deletion; its containers may still run."""
    return pod.metadata.deletion_timestamp is not None


def is_active(pod: Pod) -> bool:
    """Neither finished nor being deleted."""
    return pod.status.phase not in TERMINAL_PHASES and pod.metadata.deletion_timestamp is None


def is_over(pod: Pod) -> bool:
    """Whether no container runs or ever will: the pod has finished, or was deleted before it got a node."""
    return is_finished(pod) or (is_deleted(pod) and not pod.spec.node_name)


def is_bound(pod: Pod) -> bool:
    return bool(pod.spec.node_name)


def is_on_node(pod: Pod) -> bool:
    """Whether the pod takes up room on a node: it is bound and has not finished. A pod being deleted still does."""
    return bool(pod.spec.node_name) and pod.status.phase not in TERMINAL_PHASES


def is_waiting_for_node(pod: Pod) -> bool:
    """Whether a scheduler still has to place the pod."""
    return not pod.spec.node_name and pod.status.phase in ("", "Pending") and pod.metadata.deletion_timestamp is None
