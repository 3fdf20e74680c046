"""The amounts that one claim takes from its pod's node, and their form in the pod's status."""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec

from dray.accounting.errors import NegativeAmount, UnknownPolicy
from dray.api.core import (
    NodeAllocatableAccounting,
    NodeAllocatableMappedQuantity,
    NodeAllocatableOverheadQuantity,
    NodeAllocatableResourceClaimStatus,
)
from dray.api.quantity import Quantity


class Policy(StrEnum):
    """The policy that combines a claim's amount with the requests in the pod's spec."""

    ADD_PER_CLAIM = "AddPerClaim"
    ADD_PER_REFERENCE = "AddPerReference"
    MAX = "Max"
    CONSUME_FROM = "ConsumeFrom"

    @classmethod
    def named(cls, text: str) -> "Policy":
        try:
            return cls(text)
        except ValueError:
            known = ", ".join(cls)
            raise UnknownPolicy(f"accounting policy {text!r} is not known, it must be one of {known}") from None


class DeviceShare(NamedTuple):
    """The part of a claim's amount that comes from one device."""

    driver: str
    pool: str
    device: str
    nanos: int

    @property
    def device_id(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


# msgspec structs without garbage collection instead of dataclasses: they are made for every pod with claims, and kept
# with it (benchmark: demand-3-containers-2-claims, memory-per-pod).
class MappedAmount(msgspec.Struct, frozen=True, gc=False):
    """An amount of one resource that a claim maps to, by one policy."""

    resource: str
    quantity: Quantity
    policy: Policy = Policy.ADD_PER_CLAIM
    # Kubernetes 1.37 writes amounts of its own spelling under `mapping`, the KEP under `resources`.
    in_mapping_list: bool = False
    shares: tuple[DeviceShare, ...] = ()


class OverheadAmount(msgspec.Struct, frozen=True, gc=False):
    """The overhead of a claim's devices: for each pod, and for each container that uses them."""

    resource: str
    per_pod: Quantity | None = None
    per_container: Quantity | None = None
    pod_shares: tuple[DeviceShare, ...] = ()
    container_shares: tuple[DeviceShare, ...] = ()


class ClaimCharge(msgspec.Struct, frozen=True, gc=False):
    """The amounts that one claim adds to one pod. `containers` reference the claim; a claim without any counts all the same."""

    claim: str
    containers: tuple[str, ...] = ()
    mapped: tuple[MappedAmount, ...] = ()
    overhead: tuple[OverheadAmount, ...] = ()

    @property
    def is_shareable(self) -> bool:
        """May several pods use the claim? Pools and overhead, yes; amounts mapped to one pod, no.

        A claim with a pool may add amounts beside it: those that come once per claim are held as long as anybody uses the pool, those
        that come per reference are each pod's own.
        """
        pooled = [amount for amount in self.mapped if amount.policy is Policy.CONSUME_FROM]
        if len(pooled) == len(self.mapped):
            return True
        if not pooled:
            return False
        held = self.held_with_pool()
        return all(
            amount.policy is Policy.ADD_PER_REFERENCE
            for amount in self.mapped
            if amount.policy is not Policy.CONSUME_FROM and amount not in held
        )

    def held_with_pool(self) -> tuple[MappedAmount, ...]:
        """Amounts that the claim of a pool adds once, however many pods share it; none where the claim is no pool."""
        pooled = {amount.resource for amount in self.mapped if amount.policy is Policy.CONSUME_FROM}
        if not pooled:
            return ()
        return tuple(
            amount for amount in self.mapped if amount.policy is Policy.ADD_PER_CLAIM and amount.resource not in pooled
        )


def are_additive(charges: Iterable[ClaimCharge]) -> bool:
    """Nothing but sums: the amounts do not depend on what the containers ask for."""
    for charge in charges:
        for amount in charge.mapped:
            policy = amount.policy
            if policy is Policy.MAX or policy is Policy.CONSUME_FROM:
                return False
    return True


def added_amounts(charges: Iterable[ClaimCharge]) -> dict[str, int]:
    """The sum that the claims add, in nano-units: all overhead, and the mapped amounts of the two Add policies."""
    added: dict[str, int] = {}
    for charge in charges:
        references = len(charge.containers)
        for amount in charge.mapped:
            if amount.policy is Policy.ADD_PER_CLAIM:
                added[amount.resource] = added.get(amount.resource, 0) + amount.quantity.nanos
            elif amount.policy is Policy.ADD_PER_REFERENCE:
                # Unreferenced devices are taken all the same.
                nanos = amount.quantity.nanos * max(1, references)
                added[amount.resource] = added.get(amount.resource, 0) + nanos
        for overhead in charge.overhead:
            nanos = overhead.per_pod.nanos if overhead.per_pod is not None else 0
            if overhead.per_container is not None:
                nanos += overhead.per_container.nanos * references
            added[overhead.resource] = added.get(overhead.resource, 0) + nanos
    return added


def charges_in_status(statuses: Sequence[NodeAllocatableResourceClaimStatus]) -> tuple[ClaimCharge, ...]:
    """The charges that a scheduler has written into a pod's status."""
    return tuple(map(_charge_in_status, statuses))


def _charge_in_status(status: NodeAllocatableResourceClaimStatus) -> ClaimCharge:
    mapped = [
        MappedAmount(entry.name, entry.quantity, in_mapping_list=True)
        for entry in status.mapping
        if entry.quantity is not None
    ]
    if status.resources:
        mapped += [MappedAmount(name, quantity) for name, quantity in status.resources.items()]
    if status.accounting:
        explicit = {entry.name for entry in status.accounting}
        mapped = [amount for amount in mapped if amount.resource not in explicit]
        mapped += [
            MappedAmount(entry.name, entry.quantity, Policy.named(entry.accounting_policy))
            for entry in status.accounting
        ]
    overhead = tuple(OverheadAmount(entry.name, entry.per_pod, entry.per_container) for entry in status.overhead)
    return ClaimCharge(status.resource_claim_name, status.containers, tuple(mapped), overhead)


def claim_statuses(charges: Iterable[ClaimCharge]) -> tuple[NodeAllocatableResourceClaimStatus, ...]:
    """The charges as a pod's status keeps them: sorted by claim, without claims that take nothing."""
    written = [_status_of(charge) for charge in charges if charge.mapped or charge.overhead]
    return tuple(sorted(written, key=lambda status: status.resource_claim_name))


def _status_of(charge: ClaimCharge) -> NodeAllocatableResourceClaimStatus:
    explicit = {amount.resource for amount in charge.mapped if amount.policy is not Policy.ADD_PER_CLAIM}
    return NodeAllocatableResourceClaimStatus(
        resource_claim_name=charge.claim,
        containers=charge.containers,
        resources=_summed(amount for amount in charge.mapped if not amount.in_mapping_list),
        mapping=tuple(
            NodeAllocatableMappedQuantity(name=name, quantity=quantity)
            for name, quantity in _summed(amount for amount in charge.mapped if amount.in_mapping_list).items()
        ),
        overhead=tuple(
            NodeAllocatableOverheadQuantity(
                name=entry.resource, per_pod=entry.per_pod, per_container=entry.per_container
            )
            for entry in sorted(charge.overhead, key=lambda entry: entry.resource)
        ),
        accounting=tuple(
            NodeAllocatableAccounting(name=amount.resource, quantity=amount.quantity, accounting_policy=amount.policy)
            for amount in sorted(charge.mapped, key=lambda amount: (amount.resource, amount.policy))
            if amount.resource in explicit
        ),
    )


def _summed(amounts: Iterable[MappedAmount]) -> dict[str, Quantity]:
    sums: dict[str, Quantity] = {}
    for amount in amounts:
        sums[amount.resource] = sums.get(amount.resource, Quantity.ZERO) + amount.quantity
    return dict(sorted(sums.items()))


def refuse_negative(charges: Iterable[ClaimCharge]) -> None:
    """A status that somebody wrote by hand must not give resources back to the node."""
    for charge in charges:
        for amount in charge.mapped:
            _refuse_negative(charge, amount.resource, amount.quantity)
        for entry in charge.overhead:
            _refuse_negative(charge, entry.resource, entry.per_pod)
            _refuse_negative(charge, entry.resource, entry.per_container)


def _refuse_negative(charge: ClaimCharge, resource: str, quantity: Quantity | None) -> None:
    if quantity is not None and quantity.nanos < 0:
        raise NegativeAmount(f"claim {charge.claim}: {resource} {quantity} is below zero")
