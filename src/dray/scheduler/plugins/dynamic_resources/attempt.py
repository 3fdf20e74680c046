"""What one attempt knows about its pod's claims."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from dray.allocator import Question, TimeLimits
from dray.api.resource import AllocationResult, ResourceClaim
from dray.scheduler.nodes import NodeState
from dray.scheduler.plugins.dynamic_resources.extended_resources import ExtendedDemand
from dray.scheduler.plugins.dynamic_resources.pod_claims import PodClaim

NOTHING: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Variant:
    """What is to be allocated on nodes where devices serve the same extended resources.

    `to_allocate` are the pod's claims without devices, each once, in order, and last the claim for extended resources.
    """

    to_allocate: tuple[ResourceClaim, ...]
    question: Question | None
    extended: ExtendedDemand | None = None
    extended_claim: ResourceClaim | None = None


@dataclass(slots=True)
class Attempt:
    """`claims` are all claims of the pod; `delegated` its extended resources that devices serve where no device plugin does.

    Filled in as the attempt goes on: `unavailable` are claims that some node turned the pod away for; `chosen` is the variant of the
    node that was chosen, `results` the allocations that Reserve settled on, by claim UID; `reserved`
    the claims into which this attempt wrote its pod; `made` the claim that was created. `patience` says how long devices may be
    searched for.
    """

    claims: list[PodClaim]
    to_allocate: tuple[ResourceClaim, ...]
    allocated: tuple[ResourceClaim, ...]
    delegated: frozenset[str] = NOTHING
    leftover: ResourceClaim | None = None
    make_variant: Callable[[frozenset[str]], Variant] | None = None
    key: Hashable = None
    unavailable: dict[str, ResourceClaim] = field(default_factory=dict)
    variants: dict[frozenset[str], Variant] = field(default_factory=dict)
    chosen: Variant | None = None
    results: dict[str, AllocationResult] = field(default_factory=dict)
    reserved: set[str] = field(default_factory=set)
    made: ResourceClaim | None = None
    limits: TimeLimits = field(default_factory=TimeLimits)

    def variant(self, resources: frozenset[str]) -> Variant:
        variant = self.variants.get(resources)
        if variant is None:
            assert self.make_variant is not None
            variant = self.variants[resources] = self.make_variant(resources)
        return variant

    def on(self, node: NodeState) -> Variant:
        """The variant for this node: a device plugin that serves a resource comes before devices."""
        if not self.delegated:
            return self.variant(NOTHING)
        return self.variant(frozenset(name for name in self.delegated if not node.ledger.allocatable(name)))

    @property
    def asks_for_devices(self) -> bool:
        return bool(self.to_allocate or self.delegated)
