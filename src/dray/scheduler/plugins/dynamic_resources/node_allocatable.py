"""Devices that take cpu, memory or huge pages of their node: how much, and whether there is room (KEP-5517)."""

from collections.abc import Callable
from functools import lru_cache

from msgspec.structs import replace

from dray.accounting import (
    AccountingError,
    AllocatedClaim,
    ClaimCharge,
    Demand,
    DeviceLookup,
    Fits,
    budget_problems,
    check_compatibility,
    claim_charges_of_published,
    pod_demand,
    sharing_conflict,
)
from dray.allocator import Allocation
from dray.api.core import Pod, PodExtendedResourceClaimStatus
from dray.scheduler.framework.interface import PluginStatus, StatusCode, unresolvable
from dray.scheduler.handle import Handle
from dray.scheduler.node_demand import NodeDemand
from dray.scheduler.nodes import NodeState
from dray.scheduler.plugins.dynamic_resources.pod_claims import AllocationVariant, PodAttempt

SHORT_OF_ROOM = "node-resources-of-devices"
"""The code of a refusal because devices would take more of the node than it has left."""


def allocated_claims(
    attempt: PodAttempt, variant: AllocationVariant, allocation: Allocation | None
) -> dict[str, AllocatedClaim]:
    """Every claim of the pod with its devices on one node, by the name the pod gives it."""
    results = allocation.results(_no_share_id) if allocation is not None else ()
    fresh = {claim.metadata.uid: result for claim, result in zip(variant.to_allocate, results, strict=False)}
    found = {}
    for row in attempt.claims:
        devices = row.claim.status.allocation or fresh.get(row.claim.metadata.uid)
        if devices is not None:
            found[row.entry] = AllocatedClaim(row.claim, devices)
    extended = variant.extended_claim
    if extended is not None and extended.metadata.uid in fresh:
        found[f"/{extended.metadata.name}"] = AllocatedClaim(extended, fresh[extended.metadata.uid])
    return found


def _with_extended_claim(pod: Pod, variant: AllocationVariant) -> Pod:
    """The pod as it will be: its status says which containers use the claim for extended resources."""
    if variant.extended is None or variant.extended_claim is None:
        return pod
    status = PodExtendedResourceClaimStatus(
        request_mappings=variant.extended.mappings, resource_claim_name=variant.extended_claim.metadata.name
    )
    return replace(pod, status=replace(pod.status, extended_resource_claim_status=status))


def _no_share_id() -> str:
    """Amounts do not depend on it."""
    return ""


def charges_on(
    attempt: PodAttempt, pod: Pod, node: NodeState, handle: Handle, allocation: Allocation | None
) -> tuple[ClaimCharge, ...]:
    if not handle.gates.enabled("DRANodeAllocatableResources"):
        return ()  # Slices may still carry amounts: of a server that knows them, or from before the gate was turned off.
    inventory = DeviceLookup(handle.devices.published, handle.devices.classes)
    variant = attempt.on(node)
    pod = _with_extended_claim(pod, variant)
    return claim_charges_of_published(pod, allocated_claims(attempt, variant, allocation), inventory)


def why_no_room(
    attempt: PodAttempt, pod: Pod, node: NodeState, handle: Handle, allocation: Allocation | None
) -> PluginStatus | None:
    """Sharing, policies, the pod-level budget, then the node's ledger."""
    try:
        charges = charges_on(attempt, pod, node, handle, allocation)
        if not charges and not attempt.checks_node_resources:
            return None
        check_compatibility(charges)
        refused = _not_shared(attempt, pod, charges) or _over_budget(pod, charges)
        if refused is not None:
            return refused
        answer = node.ledger.fits_node_allocatable(_sharing_with_group(pod_demand(pod, charges), attempt, pod))
    except AccountingError as problem:
        return unresolvable(problem.reason)
    if isinstance(answer, Fits):
        return None
    reasons = tuple(refusal.reason(SHORT_OF_ROOM) for refusal in answer.refusals)
    return PluginStatus(StatusCode.UNRESOLVABLE if answer.is_unresolvable else StatusCode.UNSCHEDULABLE, reasons)


def _not_shared(attempt: PodAttempt, pod: Pod, charges: tuple[ClaimCharge, ...]) -> PluginStatus | None:
    by_name = {row.claim.metadata.name: row for row in attempt.claims}
    allocated = {claim.metadata.name: claim for claim in attempt.allocated}
    for charge in charges:
        claim, row = allocated.get(charge.claim), by_name.get(charge.claim)
        users = {pod.metadata.uid, row.user.uid} if row is not None else {pod.metadata.uid}
        conflict = sharing_conflict(claim, charge, users) if claim is not None else None
        if conflict is not None:
            return unresolvable(conflict)
    return None


def _sharing_with_group(demand: Demand, attempt: PodAttempt, pod: Pod) -> Demand:
    """Claims of the pod's group do not belong to the pod alone: its siblings may be there with them already."""
    shared = {
        f"{row.claim.metadata.namespace}/{row.claim.metadata.name}"
        for row in attempt.claims
        if row.user.uid != pod.metadata.uid
    }
    if not shared:
        return demand
    return replace(demand, exclusive_claims=tuple(name for name in demand.exclusive_claims if name not in shared))


def _over_budget(pod: Pod, charges: tuple[ClaimCharge, ...]) -> PluginStatus | None:
    problems = budget_problems(pod, charges)
    return unresolvable(*problems) if problems else None


def demand_by_node(
    attempt: PodAttempt, pod: Pod, handle: Handle, answer: Callable[[NodeState], Allocation | None]
) -> Callable[[NodeState], NodeDemand | None]:
    """For score, assume and the pod's status: what the pod asks of a node that passed Filter."""

    @lru_cache(maxsize=1024)
    def on_node(node: NodeState) -> NodeDemand | None:
        charges = charges_on(attempt, pod, node, handle, answer(node))
        return NodeDemand(pod_demand(pod, charges), charges) if charges else None

    return on_node
