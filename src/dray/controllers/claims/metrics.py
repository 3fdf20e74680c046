"""Metrics of the claim controller, under today's names and under those of KEP-4381."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from dray.api.core import Pod
from dray.api.dra.claim_users import GROUP_API
from dray.api.dra.pod_claims import ClaimOwner, owner_kind
from dray.api.resource import EXTENDED_RESOURCE_CLAIM_ANNOTATION, POD_CLAIM_NAME_ANNOTATION, ResourceClaim
from dray.client import Informer
from dray.telemetry import Registry, Sample

CREATES = "dynamic_resource_allocation_resourceclaim_creates_total"
CLAIMS_GAUGE = "dynamic_resource_allocation_resource_claims"


class ClaimMetrics:
    """Counters are kept; gauges are computed from the informer when somebody looks."""

    def __init__(self, registry: Registry, claims: Informer[ResourceClaim]) -> None:
        self._claims = claims
        labels = ("status", "admin_access", "owner_api_group", "owner_api_kind")
        self._creates = registry.counter(CREATES, "Number of ResourceClaims creation requests", labels)
        self._kep_creates = registry.counter(
            "resourceclaim_controller_create_total", "Number of ResourceClaims creation requests"
        )
        self._kep_failures = registry.counter(
            "resourceclaim_controller_create_failures_total", "Number of ResourceClaims creation request failures"
        )
        registry.computed_gauge(CLAIMS_GAUGE, "Number of ResourceClaims", self._by_state)
        registry.computed_gauge(
            "resourceclaim_controller_resource_claims", "Number of ResourceClaims", lambda: [({}, len(claims))]
        )
        registry.computed_gauge(
            "resourceclaim_controller_allocated_resource_claims",
            "Number of allocated ResourceClaims",
            lambda: [({}, sum(claim.status.allocation is not None for claim in claims))],
        )

    def created(self, owner: ClaimOwner, *, success: bool, admin_access: str) -> None:
        group = "" if isinstance(owner, Pod) else GROUP_API
        self._creates.inc("success" if success else "failure", admin_access, group, owner_kind(owner))
        self._kep_creates.inc()
        if not success:
            self._kep_failures.inc()

    def _by_state(self) -> Iterable[Sample]:
        counts = Counter(
            (_text(claim.status.allocation is not None), self.admin_access(claim), source(claim))
            for claim in self._claims
        )
        for (allocated, admin_access, made_by), count in sorted(counts.items()):
            yield {"allocated": allocated, "admin_access": admin_access, "source": made_by}, count

    @staticmethod
    def admin_access(claim: ResourceClaim | None) -> str:
        """Alternatives of a prioritized list cannot ask for it."""
        requests = claim.spec.devices.requests if claim is not None else ()
        return _text(any(request.exactly and request.exactly.admin_access for request in requests))


def source(claim: ResourceClaim) -> str:
    annotations = claim.metadata.annotations
    if POD_CLAIM_NAME_ANNOTATION in annotations:
        return "resource_claim_template"
    return "extended_resource" if annotations.get(EXTENDED_RESOURCE_CLAIM_ANNOTATION) == "true" else ""


def _text(value: bool) -> str:
    return "true" if value else "false"
