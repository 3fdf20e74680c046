"""Pods that have a node, as a ledger counts them: the amounts in their status, or else the devices of their claims."""

from collections.abc import Mapping, Sequence

from dray.accounting.charges import ClaimCharge, charges_in_status, claim_statuses
from dray.accounting.device_backed import AllocatedClaim, Inventory, claim_charges_of_published, claim_names
from dray.accounting.errors import AccountingError
from dray.api.core import Pod
from dray.api.resource import ResourceClaim

_GONE = ("Succeeded", "Failed")
ClaimsByName = Mapping[tuple[str, str], ResourceClaim]
"""Claims by namespace and name."""


def takes_from_node(pod: Pod) -> bool:
    """Bound and not over."""
    return bool(pod.spec.node_name) and pod.status.phase not in _GONE


def charges_of_placed(pod: Pod, claims: ClaimsByName, inventory: Inventory) -> tuple[Sequence[ClaimCharge], str]:
    """What the claims of a bound pod take from its node, and what is odd about it (empty: nothing)."""
    written = pod.status.node_allocatable_resource_claim_statuses
    try:
        found = claim_charges_of_published(pod, _allocated(pod, claims), inventory)
    except AccountingError as problem:
        return charges_in_status(written), str(problem)
    if not written:
        return found, (
            "claims take from the node, but the pod's status does not say so; "
            "a scheduler overlooks them until the pod is created again"
            if found
            else ""
        )
    # The same amounts with the devices behind them tell more than the status alone.
    if claim_statuses(found) == tuple(sorted(written, key=lambda status: status.resource_claim_name)):
        return found, ""
    odd = "its status and the devices of its claims differ; the status counts" if found else ""
    return charges_in_status(written), odd


def _allocated(pod: Pod, claims: ClaimsByName) -> dict[str, AllocatedClaim]:
    allocated = {}
    for name, claim_name in claim_names(pod).items():
        claim = claims.get((pod.metadata.namespace, claim_name))
        if claim is not None and claim.status.allocation is not None:
            allocated[name] = AllocatedClaim(claim, claim.status.allocation)
    return allocated
