"""The claims that hold each device or share, and the pods that use those claims."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dray.allocator import DeviceID
from dray.api.quantity import Quantity
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
        self._consumed: dict[DeviceID, dict[str, Quantity]] = {}
        for claim in claims:
            if claim.status.allocation is None:
                continue
            for result in claim.status.allocation.devices.results:
                device_id = DeviceID(result.driver, result.pool, result.device)
                self._by_device.setdefault(device_id, []).append(_holder(claim, result))
                self._by_pool.setdefault((result.driver, result.pool), {})[_name(claim)] = claim
                sums = self._consumed.setdefault(device_id, {})
                for name, amount in result.consumed_capacity.items():
                    sums[name] = sums[name] + amount if name in sums else amount

    def of(self, device_id: DeviceID, *, with_admins: bool = False) -> Sequence[DeviceHolder]:
        return [row for row in self._by_device.get(device_id, ()) if with_admins or not row.has_admin_access]

    def devices(self) -> Iterable[DeviceID]:
        return self._by_device.keys()

    def consumed(self, device_id: DeviceID) -> dict[str, str]:
        """What all shares of a device take together, by capacity."""
        return {name: str(amount) for name, amount in self._consumed.get(device_id, {}).items()}

    def claims_in(self, pools: Iterable[tuple[str, str]]) -> list[ResourceClaim]:
        found: dict[str, ResourceClaim] = {}
        for pool in pools:
            found |= self._by_pool.get(pool, {})
        return list(found.values())


def _holder(claim: ResourceClaim, result: DeviceRequestAllocationResult) -> DeviceHolder:
    namespace = claim.metadata.namespace
    return DeviceHolder(
        _name(claim),
        tuple(f"{namespace}/{user.name}" for user in claim.status.reserved_for),
        tuple(sorted((name, str(amount)) for name, amount in result.consumed_capacity.items())),
        result.share_id is not None,
        bool(result.admin_access),
    )


def _name(claim: ResourceClaim) -> str:
    return f"{claim.metadata.namespace}/{claim.metadata.name}"
