"""What the claims of a pod take from each node, as the claim plugin tells it to the resource plugins."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from dray.accounting import ClaimCharge, Demand, claim_statuses
from dray.api.core import NodeAllocatableResourceClaimStatus
from dray.scheduler.nodes import NodeState

ClaimStatuses = tuple[NodeAllocatableResourceClaimStatus, ...]


@dataclass(frozen=True, slots=True)
class NodeDemand:
    """All that the pod asks of one node, including what its devices there take."""

    demand: Demand
    charges: tuple[ClaimCharge, ...]

    @property
    def statuses(self) -> ClaimStatuses:
        return claim_statuses(self.charges)


def no_devices(resource: str, node: NodeState) -> tuple[int, int]:
    return 0, 0


@dataclass(frozen=True, slots=True)
class DeviceDemands:
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
