"""The writes that scheduling needs, as a small interface, the same writes through a client, and how many pods are bound at once."""

from dataclasses import dataclass
from typing import Any, Protocol

from dray.api.core import Pod
from dray.api.resource import ResourceClaim, ResourceClaimConsumerReference
from dray.client import CLAIMS, PODS, ApiError, Client, EventRecorder, reference_to
from dray.client.rest import MERGE_PATCH, STRATEGIC_PATCH
from dray.clock import rfc3339

MOST_BINDINGS = 32
FEW_BINDINGS = 5
LONG = 4 * MOST_BINDINGS


@dataclass(slots=True)
class BindingLimit:
    """Limits how many pods are bound at once, and says when their writes go before those of others.

    While few pods wait, all of them may be bound at once: writes that reach a server together cost it less. When many wait, binding
    more of them at once binds none sooner; each takes longer, and a pod with a higher priority that comes later finds them ahead of it.
    Then few are bound at once, and the server is asked to let their writes go first.
    """

    is_long: bool = False

    def look(self, ready: int, coming: int) -> None:
        """`ready` pods can be scheduled now, `coming` pods will be soon. A long backlog counts as long until it has been worked off."""
        waiting = ready + coming
        if waiting >= LONG:
            self.is_long = True
        elif waiting < FEW_BINDINGS:
            self.is_long = False

    @property
    def most_bindings(self) -> int:
        return FEW_BINDINGS if self.is_long else MOST_BINDINGS


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


class ClientWriter:
    """Events are recorded under the scheduler name of their pod, one recorder each.

    Behind a long backlog the server is asked to put what binds a pod before the writes of others.
    """

    def __init__(self, client: Client, backlog: BindingLimit) -> None:
        self._backlog = backlog
        self._client = client
        self._urgent = client.urgent()
        self._recorders: dict[str, EventRecorder] = {}

    @property
    def _for_binding(self) -> Client:
        return self._urgent if self._backlog.is_long else self._client

    async def get_claim(self, namespace: str, name: str) -> ResourceClaim | None:
        return await self._client.find(CLAIMS, name, namespace)

    async def create_claim(self, claim: ResourceClaim) -> ResourceClaim:
        return await self._client.create(CLAIMS, claim)

    async def update_claim(self, claim: ResourceClaim) -> ResourceClaim:
        return await self._for_binding.update(CLAIMS, claim)

    async def update_claim_status(self, claim: ResourceClaim) -> ResourceClaim:
        return await self._for_binding.update_status(CLAIMS, claim)

    async def unreserve_claim(self, claim: ResourceClaim, user: ResourceClaimConsumerReference) -> ResourceClaim:
        metadata = claim.metadata
        return await self._client.patch(
            CLAIMS,
            metadata.name,
            {"status": {"reservedFor": [{"$patch": "delete", "uid": user.uid}]}},
            metadata.namespace,
            patch_type=STRATEGIC_PATCH,
            subresource="status",
            uid=metadata.uid,
        )

    async def delete_claim(self, claim: ResourceClaim) -> None:
        try:
            await self._client.delete(CLAIMS, claim.metadata.name, claim.metadata.namespace, uid=claim.metadata.uid)
        except ApiError as problem:
            if not problem.is_not_found:
                raise

    async def patch_pod_status(self, pod: Pod, status: dict[str, Any], *, strategic: bool = True) -> None:
        await self._for_binding.patch(
            PODS,
            pod.metadata.name,
            {"status": status},
            pod.metadata.namespace,
            patch_type=STRATEGIC_PATCH if strategic else MERGE_PATCH,
            subresource="status",
            uid=pod.metadata.uid,
        )

    async def is_assigned(self, pod: Pod) -> bool:
        current = await self._client.find(PODS, pod.metadata.name, pod.metadata.namespace)
        return current is not None and current.metadata.uid == pod.metadata.uid and bool(current.spec.node_name)

    async def bind(self, pod: Pod, node_name: str) -> None:
        await self._for_binding.bind(pod, node_name)

    async def evict(self, victim: Pod, preemptor: Pod) -> None:
        scheduler = preemptor.spec.scheduler_name
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": f"{scheduler}: preempting to accommodate a higher priority pod",
            "lastTransitionTime": rfc3339(self._client.clock.now()),
        }
        await self.patch_pod_status(victim, {"conditions": [condition]})
        await self._client.delete(PODS, victim.metadata.name, victim.metadata.namespace, uid=victim.metadata.uid)

    def event(self, pod: Pod, event_type: str, reason: str, action: str, message: str) -> None:
        scheduler = pod.spec.scheduler_name
        recorder = self._recorders.get(scheduler)
        if recorder is None:
            recorder = self._recorders[scheduler] = EventRecorder(self._client, scheduler)
        recorder.event(reference_to(PODS, pod), event_type, reason, message, action=action)

    async def flush(self) -> None:
        for recorder in self._recorders.values():
            await recorder.flush()
