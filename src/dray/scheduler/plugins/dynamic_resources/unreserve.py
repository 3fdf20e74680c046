"""Unreserve: give back what Reserve and PreBind took, so that a pod that failed blocks nobody."""

import logging

from dray.api.core import Pod
from dray.client.errors import ApiError, ServerUnreachable
from dray.scheduler.handle import Handle
from dray.scheduler.plugins.dynamic_resources.attempt import Attempt
from dray.scheduler.plugins.dynamic_resources.pod_claims import PodClaim, is_reserved_for
from dray.scheduler.pod_groups import group_name

log = logging.getLogger(__name__)


async def unreserve(attempt: Attempt, pod: Pod, handle: Handle) -> None:
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


async def _leave_claim(row: PodClaim, pod: Pod, handle: Handle) -> None:
    metadata = row.claim.metadata
    if row.user.uid != pod.metadata.uid and is_group_placed(pod, handle):
        return
    current = handle.devices.claims.get(metadata.namespace, metadata.name)
    if current is None or current.metadata.uid != metadata.uid or not is_reserved_for(current, row.user):
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


async def _delete_made(attempt: Attempt, handle: Handle) -> None:
    if attempt.made is None:
        return
    try:
        await handle.writer.delete_claim(attempt.made)
    except (ApiError, ServerUnreachable) as problem:
        log.warning("claim %s for extended resources not deleted: %s", attempt.made.metadata.name, problem)
