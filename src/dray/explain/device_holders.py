"""The claims that hold each device or share, and the pods that use those claims."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dray.api.core import Pod
from dray.api.dra.claim_users import user_names
from dray.api.dra.consumption import allocation_results, consumed_quantities, is_share
from dray.api.dra.pod_phase import is_finished
from dray.api.dra.pools import DeviceID, device_id
from dray.api.resource import DeviceRequestAllocationResult, ResourceClaim, ResourceClaimConsumerReference


@dataclass(frozen=True, slots=True)
class DeviceHolder:
    """A claim that holds a device, or a share of it, and the pods for which it is reserved."""

    claim: str
    pods: tuple[str, ...]
    consumed: tuple[tuple[str, str], ...] = ()
    is_share: bool = False
    has_admin_access: bool = False

    def __str__(self) -> str:
        users = f" (pod {', '.join(self.pods)})" if self.pods else " (no pod)"
        amounts = ", ".join(f"{amount} {name}" for name, amount in self.consumed)
        return f"claim {self.claim}{users}" + (f": {amounts}" if amounts else "")

    def document(self) -> dict[str, object]:
        return {
            "claim": self.claim,
            "pods": list(self.pods),
            "consumed": dict(self.consumed),
            "share": self.is_share,
            "adminAccess": self.has_admin_access,
        }


class DeviceHolders:
    """An index over all allocated claims, built once. `pods` are those that may use them, as far as they are known."""

    def __init__(self, claims: Iterable[ResourceClaim], pods: Iterable[Pod] = ()) -> None:
        self._pods_by_uid = {pod.metadata.uid: pod for pod in pods}
        # A dump may lack the pods of a namespace; only where some are placed, one that is missing is gone.
        self._known_namespaces = {pod.metadata.namespace for pod in self._pods_by_uid.values() if pod.spec.node_name}
        self._by_device: dict[DeviceID, list[DeviceHolder]] = {}
        self._by_pool: dict[tuple[str, str], dict[str, ResourceClaim]] = {}
        self._results: dict[DeviceID, list[DeviceRequestAllocationResult]] = {}
        for claim in claims:
            for result in allocation_results(claim):
                device = device_id(result)
                self._by_device.setdefault(device, []).append(_holder(claim, result))
                self._by_pool.setdefault((result.driver, result.pool), {})[_name(claim)] = claim
                self._results.setdefault(device, []).append(result)

    def of(self, device_id: DeviceID, *, with_admins: bool = False) -> Sequence[DeviceHolder]:
        return [row for row in self._by_device.get(device_id, ()) if with_admins or not row.has_admin_access]

    def devices(self) -> Iterable[DeviceID]:
        return self._by_device.keys()

    def consumed(self, device_id: DeviceID) -> dict[str, str]:
        """The sum over all shares of a device, by capacity."""
        sums = consumed_quantities(self._results.get(device_id, ()))
        return {name: str(amount) for name, amount in sums.items()}

    def use_of(self, claim: ResourceClaim) -> str:
        """A clause that goes on from the name of the claim: who uses it, and whether that is about to end by itself."""
        users = ", ".join(user_names(claim))
        if not users:
            return ", which no pod uses"
        states = {self._state_of(claim, user) for user in claim.status.reserved_for}
        if len(states) != 1 or states == {""}:
            return f", which pod {users} uses"
        return f": it is reserved for pod {users}, which {states.pop()}"

    def _state_of(self, claim: ResourceClaim, user: ResourceClaimConsumerReference) -> str:
        """Empty for a pod that goes on, for one of which nothing is known, and for other users than pods."""
        pod = self._pods_by_uid.get(user.uid)
        if pod is None:
            is_gone = user.resource == "pods" and claim.metadata.namespace in self._known_namespaces
            return "is gone; see that the claim controller runs" if is_gone else ""
        if is_finished(pod):
            return "has ended; see that the claim controller runs"
        return "is being deleted; wait for it" if pod.metadata.deletion_timestamp is not None else ""

    def claims_in(self, pools: Iterable[tuple[str, str]]) -> list[ResourceClaim]:
        found: dict[str, ResourceClaim] = {}
        for pool in pools:
            found |= self._by_pool.get(pool, {})
        return list(found.values())


def _holder(claim: ResourceClaim, result: DeviceRequestAllocationResult) -> DeviceHolder:
    return DeviceHolder(
        _name(claim),
        tuple(user_names(claim)),
        tuple(sorted((name, str(amount)) for name, amount in result.consumed_capacity.items())),
        is_share(result),
        bool(result.admin_access),
    )


def _name(claim: ResourceClaim) -> str:
    return f"{claim.metadata.namespace}/{claim.metadata.name}"
