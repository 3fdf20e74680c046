"""Reserve and Unreserve: the devices chosen for a node count before anything is written, and are given back if the pod fails."""

import logging

from msgspec.structs import replace

from dray.allocator import Allocation
from dray.api.core import Pod
from dray.api.dra.claim_users import group_name, is_reserved_for
from dray.api.resource import CLAIM_FINALIZER, AllocationResult, ResourceClaim
from dray.client.errors import ApiError, ServerUnreachable
from dray.scheduler.framework.status import PluginStatus, error
from dray.scheduler.handle import Handle
from dray.scheduler.nodes import NodeState
from dray.scheduler.plugins.dynamic_resources.pod_claims import UsableClaim
from dray.scheduler.plugins.dynamic_resources.pre_filter import PodAttempt


def reserve(attempt: PodAttempt, handle: Handle, node: NodeState, allocation: Allocation | None) -> PluginStatus | None:
    attempt.chosen = variant = attempt.on(node)
    if not variant.to_allocate:
        return None
    if allocation is None:
        return error("claim allocation not found for node")
    for claim, result in zip(variant.to_allocate, allocation.results(handle.share_ids), strict=True):
        attempt.results[claim.metadata.uid] = result
        handle.devices.begin(with_allocation(claim, result))
    return None


def with_finalizer(claim: ResourceClaim) -> ResourceClaim:
    if CLAIM_FINALIZER in claim.metadata.finalizers:
        return claim
    metadata = replace(claim.metadata, finalizers=(*claim.metadata.finalizers, CLAIM_FINALIZER))
    return replace(claim, metadata=metadata)


def with_allocation(claim: ResourceClaim, result: AllocationResult) -> ResourceClaim:
    return with_finalizer(replace(claim, status=replace(claim.status, allocation=result)))


log = logging.getLogger(__name__)


async def unreserve(attempt: PodAttempt, pod: Pod, handle: Handle) -> None:
    """Allocations that were stored stay; the pod's place in `reservedFor` goes. Best effort: failures are logged."""
    for uid in attempt.results:
        handle.devices.give_up(uid)
    await _delete_made(attempt, handle)
    if attempt.reserved and not await _has_a_node(pod, handle):
        for row in attempt.claims:
            if row.claim.metadata.uid in attempt.reserved:
                await _leave_claim(row, pod, handle)


async def _has_a_node(pod: Pod, handle: Handle) -> bool:
    """Another scheduler may have bound the pod with the very reservation we wrote; then it must stay."""
    try:
        return await handle.writer.is_assigned(pod)
    except (ApiError, ServerUnreachable) as problem:
        log.warning("pod %s/%s: not read: %s", pod.metadata.namespace, pod.metadata.name, problem)
        return True  # Nobody knows; a reservation too many can be given back later, one too few ends in a lost device.


async def _leave_claim(row: UsableClaim, pod: Pod, handle: Handle) -> None:
    metadata = row.claim.metadata
    if row.user.uid != pod.metadata.uid and is_group_placed(pod, handle):
        return
    current = handle.devices.claims.get(metadata.namespace, metadata.name)
    if current is None or current.metadata.uid != metadata.uid or not is_reserved_for(current, row.user.uid):
        return
    try:
        stored = await handle.writer.unreserve_claim(current, row.user)
    except (ApiError, ServerUnreachable) as problem:
        log.warning("claim %s/%s: reservation not removed: %s", metadata.namespace, metadata.name, problem)
    else:
        handle.devices.claims.wrote(stored)


def is_group_placed(pod: Pod, handle: Handle) -> bool:
    """Does another pod of the group have a node, or is about to?"""
    name, namespace = group_name(pod), pod.metadata.namespace
    return any(
        group_name(placed.pod) == name and placed.pod.metadata.namespace == namespace
        for placed in handle.snapshot.pods()
        if placed.pod.metadata.uid != pod.metadata.uid
    )


async def _delete_made(attempt: PodAttempt, handle: Handle) -> None:
    if attempt.made is None:
        return
    try:
        await handle.writer.delete_claim(attempt.made)
    except (ApiError, ServerUnreachable) as problem:
        log.warning("claim %s for extended resources not deleted: %s", attempt.made.metadata.name, problem)
