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

On the node: `qos_class`, `pod_cgroup`, `container_cgroup`, `oom_score_adj`, each by an `Enforcement` (Kubernetes' rules
of today, or the KEP's, which is the default). Whole clusters: `ClusterLedger`, a `NodeLedger` per node.

Bad input raises a subclass of `AccountingError` and changes nothing.
"""

from dray.accounting.budget import budget_problems
from dray.accounting.charges import ClaimCharge, Policy, charges_in_status, claim_statuses
from dray.accounting.claim_state import ClaimState
from dray.accounting.container_amounts import RequestOptions
from dray.accounting.demand import SCHEDULING, SCHEDULING_WITHOUT_CLAIMS, Demand, PodRef, pod_demand
from dray.accounting.device_charges import (
    AllocatedClaim,
    DeviceLookup,
    claim_charges,
    claim_charges_of_published,
    manages_node_resources,
)
from dray.accounting.devices import DeviceIndex, DeviceNeed, IndexedDevice, device_needs
from dray.accounting.enforcement import (
    CgroupValues,
    Enforcement,
    container_cgroup,
    oom_score_adj,
    pod_cgroup,
    qos_class,
)
from dray.accounting.errors import AccountingError
from dray.accounting.fit import DoesNotFit, Fits, SharedClaim, Shortage, sharing_conflict
from dray.accounting.ledger_rows import Row
from dray.accounting.node_ledger import ClusterLedger, NodeLedger
from dray.accounting.pod_requests import pod_limits, pod_requests
from dray.accounting.policies import check_compatibility
from dray.accounting.resources import as_quantity
from dray.api.dra.qos import QosClass

__all__ = [
    "SCHEDULING",
    "SCHEDULING_WITHOUT_CLAIMS",
    "AccountingError",
    "AllocatedClaim",
    "CgroupValues",
    "ClaimCharge",
    "ClaimState",
    "ClusterLedger",
    "Demand",
    "DeviceIndex",
    "DeviceLookup",
    "DeviceNeed",
    "DoesNotFit",
    "Enforcement",
    "Fits",
    "IndexedDevice",
    "NodeLedger",
    "PodRef",
    "Policy",
    "QosClass",
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
    "container_cgroup",
    "device_needs",
    "manages_node_resources",
    "oom_score_adj",
    "pod_cgroup",
    "pod_demand",
    "pod_limits",
    "pod_requests",
    "qos_class",
    "sharing_conflict",
]
