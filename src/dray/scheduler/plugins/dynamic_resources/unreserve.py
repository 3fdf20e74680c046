"""Unreserve: give back what Reserve and PreBind took, so that a pod that failed blocks nobody."""

import logging

from dray.api.core import Pod
from dray.client.errors import ApiError, ServerUnreachable
from dray.scheduler.handle import Handle
from dray.scheduler.plugins.dynamic_resources.attempt import Attempt
from dray.scheduler.plugins.dynamic_resources.pod_claims import is_reserved_for

log = logging.getLogger(__name__)


async def unreserve(attempt: Attempt, pod: Pod, handle: Handle) -> None:
    """Allocations that were stored stay; the pod's place in `reservedFor` goes. Best effort: failures are logged."""
    for uid in attempt.results:
        handle.devices.give_up(uid)
    await _delete_made(attempt, handle)
    for row in attempt.claims:
        metadata = row.claim.metadata
        current = handle.devices.claims.get(metadata.namespace, metadata.name)
        if current is None or current.metadata.uid != metadata.uid or not is_reserved_for(current, pod):
            continue
        try:
            stored = await handle.writer.unreserve_claim(current, pod)
        except (ApiError, ServerUnreachable) as problem:
            log.warning("claim %s/%s: reservation not removed: %s", metadata.namespace, metadata.name, problem)
        else:
            handle.devices.claims.wrote(stored)


async def _delete_made(attempt: Attempt, handle: Handle) -> None:
    if attempt.made is None:
        return
    try:
        await handle.writer.delete_claim(attempt.made)
    except (ApiError, ServerUnreachable) as problem:
        log.warning("claim %s for extended resources not deleted: %s", attempt.made.metadata.name, problem)
