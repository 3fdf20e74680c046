"""The answers to "does it fit?"."""

from dataclasses import dataclass

from dray.accounting.resources import PODS, as_quantity


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
        """No matter who leaves, it will not fit."""
        return self.resource != PODS and self.asked > self.capacity

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
    def message(self) -> str:
        return sharing_message(self.claim.rpartition("/")[2])

    @property
    def detail(self) -> str:
        return self.message


def sharing_message(claim_name: str) -> str:
    return f"node allocatable resource claim {claim_name} has a mapped device and cannot be shared across pods"


Reason = Shortage | SharedClaim


@dataclass(frozen=True, slots=True)
class Fits:
    """It fits."""


@dataclass(frozen=True, slots=True)
class NoFit:
    """Why not: everything that is short, in the order cpu, memory, storage, the rest."""

    reasons: tuple[Reason, ...]

    @property
    def messages(self) -> tuple[str, ...]:
        return tuple(reason.message for reason in self.reasons)

    @property
    def is_unresolvable(self) -> bool:
        """UnschedulableAndUnresolvable: evicting pods would not help."""
        return any(reason.is_unresolvable for reason in self.reasons)


FITS = Fits()
