"""Reserve: the devices chosen for this node count from now on, before anything is written."""

from msgspec.structs import replace

from dray.allocator import Allocation
from dray.api.resource import CLAIM_FINALIZER, AllocationResult, ResourceClaim
from dray.scheduler.framework.status import PluginStatus, error
from dray.scheduler.handle import Handle
from dray.scheduler.nodes import NodeState
from dray.scheduler.plugins.dynamic_resources.attempt import Attempt


def reserve(attempt: Attempt, handle: Handle, node: NodeState, allocation: Allocation | None) -> PluginStatus | None:
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
