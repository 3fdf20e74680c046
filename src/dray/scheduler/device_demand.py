"""What the DynamicResources plugin tells the resource plugins about one attempt."""

from dataclasses import dataclass, field

from dray.accounting.demand import Demand
from dray.api.core import NodeAllocatableResourceClaimStatus

ClaimStatuses = tuple[NodeAllocatableResourceClaimStatus, ...]


@dataclass(slots=True)
class DeviceDemands:
    """`delegated` are the extended resources that devices serve where no device plugin does.

    `by_node` holds, for nodes where the pod's devices take cpu, memory or huge pages, all that the pod asks of that node;
    `statuses_by_node` the same as the pod's status will say it.
    """

    delegated: frozenset[str] = frozenset()
    by_node: dict[str, Demand] = field(default_factory=dict)
    statuses_by_node: dict[str, ClaimStatuses] = field(default_factory=dict)
