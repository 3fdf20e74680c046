"""Logs how the plugin decides: at -v 5 what each method did, at -v 6 the devices that were chosen, at -v 7 why each other device was not.

The allocator itself logs nothing. What it said about single devices is worked out here, and only for somebody who looks.
"""

from dray.allocator import Allocation, Answer, Failure, NoFit, Question
from dray.allocator.node_report import USABLE, report_on_node
from dray.api.core import Pod
from dray.api.resource import AllocationResult, ResourceClaim
from dray.scheduler.devices import DeviceState
from dray.scheduler.nodes import NodeState
from dray.telemetry import VerboseLog

log = VerboseLog(__name__)

# What Kubernetes' allocator calls the refusals that people look for in its log.
REFUSALS = {
    "in-use": "Device in use",
    "class-selector": "Device not selectable",
    "request-selector": "Device not selectable",
    "selector-error": "Device not selectable",
    "capacity": "Device capacity not enough",
    "counters": "Insufficient counters",
    "compatibility": "Incompatible compatibility groups",
    "constraint": "Constraint not satisfied",
    "taint": "Device has taints that are not tolerated",
    "other-node": "Device belongs to another node",
}
UNUSABLE = "Device not usable"


def log_answer(
    pod: Pod, node: NodeState, question: Question | None, answer: Answer | None, devices: DeviceState
) -> None:
    """What the allocator said about the pod's claims on one node."""
    match answer:
        case None:
            log.say(5, "Nothing to allocate", pod=pod, node=node.name)
        case Failure():
            log.say(5, "Allocation failed", pod=pod, node=node.name, err=answer.message)
        case NoFit():
            log.say(5, "Cannot allocate all claims", pod=pod, node=node.name)
        case Allocation():
            log.say(5, "Allocation found", pod=pod, node=node.name, devices=_device_names(answer))
    if log.shows(7) and isinstance(answer, NoFit) and question is not None:
        _log_refusals(pod, node, question, devices)


def _device_names(answer: Allocation) -> list[str]:
    return [str(chosen.device_id) for claim in answer.devices() for chosen in claim]


def _log_refusals(pod: Pod, node: NodeState, question: Question, devices: DeviceState) -> None:
    for request in report_on_node(devices.allocator, question, node.node).requests:
        for device in request.devices:
            if device.code != USABLE:
                log.say(
                    7,
                    REFUSALS.get(device.code, UNUSABLE),
                    device=device.device_id,
                    pod=pod,
                    node=node.name,
                    claim=request.claim,
                    request=request.request,
                    reason=device.detail,
                )


def log_reserved(claim: ResourceClaim, result: AllocationResult) -> None:
    """The devices that an attempt settled on, with the capacity that each gives."""
    log.say(5, "Reserved resource in allocation result", claim=claim, uid=claim.metadata.uid)
    if not log.shows(6):
        return
    for row in result.devices.results:
        log.say(
            6,
            "Allocating one device",
            claim=claim,
            request=row.request,
            device=f"{row.driver}/{row.pool}/{row.device}",
            capacities=[f"{name}={amount}" for name, amount in row.consumed_capacity.items()],
        )
