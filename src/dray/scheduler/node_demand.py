"""The amounts that a pod with its claims needs on each node; DynamicResources computes them and the resource plugins read them."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from dray.accounting import ClaimCharge, Demand, claim_statuses
from dray.api.core import NodeAllocatableResourceClaimStatus
from dray.scheduler.nodes import NodeState

ClaimStatuses = tuple[NodeAllocatableResourceClaimStatus, ...]


@dataclass(frozen=True, slots=True)
class NodeDemand:
    """Everything that the pod needs on one node, including the amounts that its devices take there."""

    demand: Demand
    charges: tuple[ClaimCharge, ...]

    @property
    def statuses(self) -> ClaimStatuses:
        return claim_statuses(self.charges)


def no_devices(resource: str, node: NodeState) -> tuple[int, int]:
    return 0, 0


@dataclass(frozen=True, slots=True)
class DemandByNode:
    """`delegated` are the extended resources that devices serve where no device plugin does.

    With `checks_node_resources` the claims decide whether cpu, memory, storage and huge pages suffice: pools may serve what the
    spec asks for. `on_node` says what the pod asks of a node with its devices, None if they take nothing there; it is None itself when no
    device of this attempt can take anything. Pods with equal `key` and equal spec get equal amounts. `census` counts the devices
    behind a delegated resource on a node: all, and those in use.
    """

    delegated: frozenset[str] = frozenset()
    checks_node_resources: bool = False
    key: Hashable = None
    on_node: Callable[[NodeState], NodeDemand | None] | None = None
    census: Callable[[str, NodeState], tuple[int, int]] = no_devices
