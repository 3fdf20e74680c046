"""One ledger: what a pod asks of a node, through its spec and through its claims (KEP-5517).

Here: the formula for a pod's requests and limits, amounts of allocated devices, the four accounting policies, the
node's ledger, the pod-level budget, sharing rules, QoS class, cgroup values and OOM score. Not here: choosing devices
(`dray.allocator`), plugins and queues (`dray.scheduler`), writing cgroups (`dray.kubelet`).

The path of a pod through this room:

    inventory = Inventory(DeviceIndex(slices), classes_by_name)         # index: apply(slice), drop(slice name)
    charges = claim_charges(pod, {pod_claim_name: AllocatedClaim(claim, allocation)}, inventory)
    check_compatibility(charges)                                        # raises IncompatiblePolicies
    budget_problems(pod, charges)                                       # messages, empty if the pod-level budget holds
    sharing_conflict(claim, charge, {pod.metadata.uid})                 # message or None
    demand = pod_demand(pod, charges)                                   # or pod_demand(pod): from the pod's status
    ledger.fits(demand)                                                 # Fits | NoFit(reasons, messages, is_unresolvable)
    ledger.assume(PodRef.of(pod), demand); ledger.forget(...); ledger.add(...); ledger.remove(...)
    claim_statuses(charges)                                             # pod.status.nodeAllocatableResourceClaimStatuses

Bad input raises a subclass of `AccountingError` and changes nothing.
"""

from dray.accounting.ask import RequestOptions
from dray.accounting.budget import budget_problems
from dray.accounting.charges import ClaimCharge, Policy, charges_in_status, claim_statuses
from dray.accounting.claim_state import ClaimState
from dray.accounting.cluster_ledger import ClusterLedger
from dray.accounting.demand import SCHEDULING, Demand, pod_demand
from dray.accounting.device_backed import (
    AllocatedClaim,
    Inventory,
    claim_charges,
    claim_charges_of_published,
)
from dray.accounting.devices import DeviceIndex, DeviceNeed, PublishedDevice, device_needs
from dray.accounting.errors import AccountingError
from dray.accounting.fit import Fits, NoFit, SharedClaim, Shortage
from dray.accounting.node_ledger import NodeLedger
from dray.accounting.pod_ref import PodRef
from dray.accounting.pod_requests import pod_limits, pod_requests
from dray.accounting.policies import check_compatibility
from dray.accounting.resources import as_quantity
from dray.accounting.sharing import sharing_conflict
from dray.accounting.why import Row

__all__ = [
    "SCHEDULING",
    "AccountingError",
    "AllocatedClaim",
    "ClaimCharge",
    "ClaimState",
    "ClusterLedger",
    "Demand",
    "DeviceIndex",
    "DeviceNeed",
    "Fits",
    "Inventory",
    "NoFit",
    "NodeLedger",
    "PodRef",
    "Policy",
    "PublishedDevice",
    "RequestOptions",
    "Row",
    "SharedClaim",
    "Shortage",
    "as_quantity",
    "budget_problems",
    "charges_in_status",
    "check_compatibility",
    "claim_charges",
    "claim_charges_of_published",
    "claim_statuses",
    "device_needs",
    "pod_demand",
    "pod_limits",
    "pod_requests",
    "sharing_conflict",
]
