"""PostFilter: frees an unused claim that keeps the pod from running somewhere else. For preemption, devices of given pods count as free for a moment."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from msgspec.structs import replace

from dray.api.core import Pod
from dray.api.dra.claim_users import is_reserved_only_for
from dray.api.resource import ResourceClaim, ResourceClaimStatus
from dray.api.times import parse_time
from dray.client.errors import ApiError, ServerUnreachable
from dray.scheduler.devices import DeviceState
from dray.scheduler.framework.interface import PluginStatus, error, unschedulable
from dray.scheduler.handle import Handle
from dray.scheduler.plugins.dynamic_resources.pod_claims import PodAttempt
from dray.scheduler.plugins.dynamic_resources.pre_bind import is_group_placed
from dray.scheduler.snapshot import named_claims


def freed_claims(pods: Iterable[Pod], devices: DeviceState) -> list[ResourceClaim]:
    """Claims whose every consumer is among `pods`."""
    pods = list(pods)
    leaving = {pod.metadata.uid for pod in pods}
    keys = set().union(*(named_claims(pod) for pod in pods)) if pods else set()
    found = []
    for namespace, name in sorted(keys):
        claim = devices.claims.get(namespace, name)
        if claim is None or claim.status.allocation is None or claim.metadata.uid in devices.in_flight:
            continue
        if is_reserved_only_for(claim, leaving):
            found.append(claim)
    return found


@contextmanager
def hypothetically_freed(pods: Iterable[Pod], devices: DeviceState) -> Iterator[bool]:
    """Gives whether any device became free. For questions only: nothing may be awaited inside."""
    claims = freed_claims(pods, devices)
    for claim in claims:
        devices.ledger.remove_claim(claim.metadata.namespace, claim.metadata.name)
        devices.touch(claim.status.allocation)
    try:
        yield bool(claims)
    finally:
        for claim in claims:
            devices.ledger.apply_claim(claim)
            devices.touch(claim.status.allocation)


# From a stored reservation to the bound pod; a scheduler that was stopped in between takes longer and is not waited for.
BINDING_TAKES = timedelta(seconds=30)
DEALLOCATED = unschedulable("deallocation of ResourceClaim completed")
DELETED = unschedulable("deletion of ResourceClaim completed")
NOTHING_TO_DO = unschedulable()


async def post_filter(attempt: PodAttempt, pod: Pod, handle: Handle) -> PluginStatus:
    if attempt.leftover is not None:
        return await _delete(attempt.leftover, handle)
    users = {row.claim.metadata.uid: row.user.uid for row in attempt.claims}
    candidates = [
        claim
        for claim in attempt.unavailable.values()
        if _is_unused(claim, users.get(claim.metadata.uid, ""), pod, handle)
    ]
    if not candidates:
        return NOTHING_TO_DO
    claim = handle.chance.choice(candidates)
    try:
        # Another scheduler may have reserved the claim for this very pod and bound it since: then it is in use.
        if claim.status.reserved_for and (_is_fresh(claim, handle) or await handle.writer.is_assigned(pod)):
            return NOTHING_TO_DO
        stored = await handle.writer.update_claim_status(replace(claim, status=ResourceClaimStatus()))
    except (ApiError, ServerUnreachable) as problem:
        return error(f"deallocate claim {claim.metadata.namespace}/{claim.metadata.name}: {problem}")
    handle.devices.claims.wrote(stored)
    return DEALLOCATED


async def _delete(leftover: ResourceClaim, handle: Handle) -> PluginStatus:
    """A claim for extended resources that an earlier attempt left behind."""
    try:
        await handle.writer.delete_claim(leftover)
    except (ApiError, ServerUnreachable) as problem:
        return error(f"delete claim {leftover.metadata.namespace}/{leftover.metadata.name}: {problem}")
    return DELETED


def _is_fresh(claim: ResourceClaim, handle: Handle) -> bool:
    """Whether whoever allocated the claim may be about to bind the pod: looking at the pod first cannot exclude that."""
    allocation = claim.status.allocation
    if allocation is None or allocation.allocation_timestamp is None:
        return False
    age = handle.clock.now() - parse_time(allocation.allocation_timestamp)
    return abs(age) < BINDING_TAKES


def _is_unused(claim: ResourceClaim, user: str, pod: Pod, handle: Handle) -> bool:
    """Nobody has it but this pod, or its group, of which no other pod has a node."""
    users = claim.status.reserved_for
    if any(known.uid != user for known in users):
        return False
    return not users or user == pod.metadata.uid or not is_group_placed(pod, handle)
