"""What the pod's devices take from its node, written into the pod's status before it is bound."""

import logging

import msgspec

from dray.api.codec import to_document
from dray.api.core import Pod
from dray.client.errors import ApiError, ServerUnreachable
from dray.scheduler.framework.cycle_state import CycleState
from dray.scheduler.handle import Handle
from dray.scheduler.plugins.dynamic_resources.pre_bind import BindingProblem

log = logging.getLogger(__name__)

FIELD = "nodeAllocatableResourceClaimStatuses"


class Written(msgspec.Struct, frozen=True):
    """Statuses of this attempt reached the API server, so undoing it must clear them."""


async def write_statuses(cycle: CycleState, pod: Pod, node_name: str, handle: Handle) -> None:
    """The assumed pod says what to write: the ledger and the status can never differ."""
    placed = handle.snapshot.placed(pod.metadata.uid)
    statuses = placed.pod.status.node_allocatable_resource_claim_statuses if placed is not None else ()
    if statuses == pod.status.node_allocatable_resource_claim_statuses:
        return
    try:
        await handle.writer.patch_pod_status(pod, {FIELD: [to_document(status) for status in statuses]})
    except (ApiError, ServerUnreachable) as problem:
        where = f"{pod.metadata.namespace}/{pod.metadata.name}"
        raise BindingProblem(f"updating pod {where} NodeAllocatableResourceClaimStatuses: {problem}") from problem
    cycle.write(Written())


async def clear_statuses(cycle: CycleState, pod: Pod, handle: Handle) -> None:
    if cycle.read(Written) is None:
        return
    try:
        await handle.writer.patch_pod_status(pod, {FIELD: []}, strategic=False)
    except (ApiError, ServerUnreachable) as problem:
        log.warning("pod %s/%s: status not cleared: %s", pod.metadata.namespace, pod.metadata.name, problem)
