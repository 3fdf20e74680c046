"""What one attempt knows about its pod's claims."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dray.allocator import Allocation, Question
from dray.api.resource import AllocationResult, ResourceClaim
from dray.scheduler.plugins.dynamic_resources.pod_claims import PodClaim

if TYPE_CHECKING:
    from dray.scheduler.plugins.dynamic_resources.extended_resources import ExtendedDemand


@dataclass(slots=True)
class Attempt:
    """`claims` are all claims of the pod; `to_allocate` those without devices, each once, in order.

    Filled in as the attempt goes on: `question` asks the allocator about `to_allocate`; `unavailable` are claims that some node
    turned the pod away for; `results` are the allocations that Reserve settled on, by claim UID.
    """

    claims: list[PodClaim]
    to_allocate: tuple[ResourceClaim, ...]
    allocated: tuple[ResourceClaim, ...]
    question: Question | None = None
    key: Hashable = None
    extended: "ExtendedDemand | None" = None
    unavailable: dict[str, ResourceClaim] = field(default_factory=dict)
    chosen: Allocation | None = None
    results: dict[str, AllocationResult] = field(default_factory=dict)
    made_claim: ResourceClaim | None = None
    """The claim for extended resources, once it is written."""
