"""Score: nodes that serve earlier alternatives of prioritized lists are better."""

from dray.allocator import Allocation
from dray.api.resource import ResourceClaim
from dray.scheduler.plugins.dynamic_resources.pre_filter import Attempt

BEST_ALTERNATIVE = 8


def has_alternatives(attempt: Attempt) -> bool:
    claims = (*attempt.to_allocate, *attempt.allocated)
    return any(request.first_available for claim in claims for request in claim.spec.devices.requests)


def score_of(attempt: Attempt, allocation: Allocation | None) -> int:
    """Points for the alternatives chosen now, and for those of claims that have their devices already."""
    fresh = allocation.score if allocation is not None else 0
    return fresh + sum(_score_of_allocated(claim) for claim in attempt.allocated)


def _score_of_allocated(claim: ResourceClaim) -> int:
    assert claim.status.allocation is not None
    chosen = {result.request for result in claim.status.allocation.devices.results}
    return sum(
        BEST_ALTERNATIVE - index
        for request in claim.spec.devices.requests
        for index, alternative in enumerate(request.first_available)
        if f"{request.name}/{alternative.name}" in chosen
    )
