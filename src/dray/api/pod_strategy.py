"""What the server itself puts into a pod: the first status, and the claim lists a status update must not lose."""

from __future__ import annotations

from typing import Any

from dray.api.dra.qos import qos_class_of_document

Document = dict[str, Any]

CLAIM_LISTS = ("resourceClaimStatuses", "nodeAllocatableResourceClaimStatuses")
EXTENDED_CLAIM = "extendedResourceClaimStatus"


GATED = "Scheduling is blocked due to non-empty scheduling gates"


def initial_pod_status(pod: Document) -> Document:
    spec = pod.get("spec") or {}
    status: Document = {"phase": "Pending", "qosClass": qos_class_of_document(spec)}
    if spec.get("schedulingGates"):
        gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": GATED}
        status["conditions"] = [{**gated, "lastProbeTime": None, "lastTransitionTime": None}]
    return status


def keep_claim_lists(new: Document, old: Document) -> Document:
    """A list that is not sent is kept, an empty one clears; the extended claim, once set, can only be replaced."""
    status = dict(new)
    for name in CLAIM_LISTS:
        if name not in status and name in old:
            status[name] = old[name]
        elif name in status and not status[name]:
            del status[name]
    if EXTENDED_CLAIM not in status and EXTENDED_CLAIM in old:
        status[EXTENDED_CLAIM] = old[EXTENDED_CLAIM]
    return status
