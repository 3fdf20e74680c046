"""The answers to "does it fit?": what is short, and which claim may not be shared."""

from collections.abc import Collection, Hashable
from dataclasses import dataclass

from dray.accounting.charges import ClaimCharge
from dray.accounting.resources import PODS, as_quantity
from dray.api.reasons import PlainValue, Reason
from dray.api.resource import ResourceClaim


@dataclass(frozen=True, slots=True)
class Shortage:
    """One thing that is short: `asked` does not fit beside `used` of `capacity` (ledger units)."""

    resource: str
    asked: int
    used: int
    capacity: int
    # The pool's claim, if it is a pool that is short.
    claim: str = ""

    @property
    def is_unresolvable(self) -> bool:
        """It would not fit on the empty node either."""
        return self.resource != PODS and self.asked > self.capacity

    @property
    def in_short(self) -> Hashable:
        """Equal where reasons are equal, and whether they are resolvable: how full the node is does not matter."""
        return self.resource, self.asked, self.claim, self.is_unresolvable

    def reason(self, code: str = "node-resources") -> Reason:
        """`code` tells who asks for the room; a node that holds all the pods it may has a code of its own."""
        facts: dict[str, PlainValue] = {"resource": self.resource, "asked": self.asked}
        if self.claim:
            facts["claim"] = self.claim
        return Reason("too-many-pods" if self.resource == PODS else code, self.message, facts)

    @property
    def message(self) -> str:
        """Kubernetes' words, which users know; pools have no precedent."""
        if self.resource == PODS:
            return "Too many pods"
        if self.claim:
            return f"Insufficient {self.resource} in claim {self.claim}"
        return f"Insufficient {self.resource}"

    @property
    def detail(self) -> str:
        asked, used, capacity = (
            as_quantity(self.resource, amount) for amount in (self.asked, self.used, self.capacity)
        )
        return f"{self.message}: {asked} asked, {used} of {capacity} in use"


@dataclass(frozen=True, slots=True)
class SharedClaim:
    """A claim whose amounts belong to another pod already."""

    claim: str
    is_unresolvable: bool = True

    @property
    def in_short(self) -> Hashable:
        return self.claim

    def reason(self, code: str = "") -> Reason:
        """Ignores `code`: this reason has a code of its own."""
        return sharing_reason(self.claim.rpartition("/")[2])

    @property
    def message(self) -> str:
        return self.reason().text

    @property
    def detail(self) -> str:
        return self.message


def sharing_reason(claim_name: str) -> Reason:
    text = f"node allocatable resource claim {claim_name} has a mapped device and cannot be shared across pods"
    return Reason("claim-shared", text, {"claim": claim_name})


Refusal = Shortage | SharedClaim


@dataclass(frozen=True, slots=True)
class Fits:
    """It fits."""


@dataclass(frozen=True, slots=True)
class DoesNotFit:
    """Why not: everything that is short, in the order cpu, memory, storage, the rest."""

    refusals: tuple[Refusal, ...]

    @property
    def in_short(self) -> Hashable:
        """Equal for nodes that refuse with equal reasons."""
        return tuple([refusal.in_short for refusal in self.refusals])

    @property
    def reasons(self) -> tuple[Reason, ...]:
        return tuple(refusal.reason() for refusal in self.refusals)

    @property
    def messages(self) -> tuple[str, ...]:
        return tuple(refusal.message for refusal in self.refusals)

    @property
    def is_unresolvable(self) -> bool:
        """UnschedulableAndUnresolvable: evicting pods would not help."""
        return any(refusal.is_unresolvable for refusal in self.refusals)


FITS = Fits()


def sharing_conflict(claim: ResourceClaim, charge: ClaimCharge, consumer_uids: Collection[str]) -> Reason | None:
    """Why the consumer may not use an allocated claim; None if it may.

    `consumer_uids` are the pod's UID and, for a member of a pod group, the group's. Mapped amounts belong to one
    consumer; overhead is charged to each, and a pool is made for sharing.
    """
    reserved_for = claim.status.reserved_for
    if charge.is_shareable or not reserved_for or any(user.uid in consumer_uids for user in reserved_for):
        return None
    return sharing_reason(claim.metadata.name)
