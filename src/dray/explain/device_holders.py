"""The claims that hold each device or share, and the pods that use those claims."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dray.api.dra.claim_users import user_names
from dray.api.dra.consumption import allocation_results, consumed_quantities, is_share
from dray.api.dra.pools import DeviceID, device_id
from dray.api.resource import DeviceRequestAllocationResult, ResourceClaim


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
    """An index over all allocated claims, built once."""

    def __init__(self, claims: Iterable[ResourceClaim]) -> None:
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
