"""What the server itself puts into a pod: the first status, and the claim lists a status update must not lose."""

from __future__ import annotations

from typing import Any

from dray.api.quantity import Quantity

Document = dict[str, Any]

COMPUTE = ("cpu", "memory")
CLAIM_LISTS = ("resourceClaimStatuses", "nodeAllocatableResourceClaimStatuses")
EXTENDED_CLAIM = "extendedResourceClaimStatus"


GATED = "Scheduling is blocked due to non-empty scheduling gates"


def initial_pod_status(pod: Document) -> Document:
    spec = pod.get("spec") or {}
    status: Document = {"phase": "Pending", "qosClass": qos_class(spec)}
    if spec.get("schedulingGates"):
        gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": GATED}
        status["conditions"] = [{**gated, "lastProbeTime": None, "lastTransitionTime": None}]
    return status


def qos_class(spec: Document) -> str:
    """Guaranteed, Burstable or BestEffort, from cpu and memory of the containers or, where given, of the whole pod."""
    whole = spec.get("resources") or {}
    if whole.get("requests") or whole.get("limits"):
        return _class_of([whole])
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    return _class_of([container.get("resources") or {} for container in containers])


def _class_of(all_resources: list[Document]) -> str:
    requests = [_amounts(resources.get("requests")) for resources in all_resources]
    limits = [_amounts(resources.get("limits")) for resources in all_resources]
    if not any(requests) and not any(limits):
        return "BestEffort"
    for asked, allowed in zip(requests, limits, strict=True):
        if any(name not in allowed for name in COMPUTE):
            return "Burstable"
        if any(amount != allowed[name] for name, amount in asked.items()):
            return "Burstable"
    return "Guaranteed"


def _amounts(resources: Document | None) -> dict[str, Quantity]:
    found = {name: Quantity.parse(value) for name, value in (resources or {}).items() if name in COMPUTE}
    return {name: amount for name, amount in found.items() if not amount.is_zero()}


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
