"""The writes that scheduling needs, as a small interface: a client behind it in a cluster, plain memory in a simulation."""

from typing import Any, Protocol

from dray.api.core import Pod
from dray.api.resource import ResourceClaim, ResourceClaimConsumerReference


class ClusterWriter(Protocol):
    """Refusals raise `dray.client.errors.ApiError`, an unreachable server `ServerUnreachable`."""

    async def get_claim(self, namespace: str, name: str) -> ResourceClaim | None: ...

    async def create_claim(self, claim: ResourceClaim) -> ResourceClaim: ...

    async def update_claim(self, claim: ResourceClaim) -> ResourceClaim: ...

    async def update_claim_status(self, claim: ResourceClaim) -> ResourceClaim: ...

    async def unreserve_claim(self, claim: ResourceClaim, user: ResourceClaimConsumerReference) -> ResourceClaim:
        """Take the user, and nobody else, out of `reservedFor`; the claim's UID is a precondition."""
        ...

    async def delete_claim(self, claim: ResourceClaim) -> None: ...

    async def patch_pod_status(self, pod: Pod, status: dict[str, Any], *, strategic: bool = True) -> None:
        """Only the given fields of `status` change; the pod's UID is a precondition."""
        ...

    async def is_assigned(self, pod: Pod) -> bool:
        """Does this very pod have a node by now, whoever gave it?"""
        ...

    async def bind(self, pod: Pod, node_name: str) -> None: ...

    async def evict(self, victim: Pod, preemptor: Pod) -> None:
        """Mark the victim as disrupted and delete it; its UID is a precondition."""
        ...

    def event(self, pod: Pod, event_type: str, reason: str, action: str, message: str) -> None:
        """Tell people; never waits and never fails."""
        ...
