"""PreFilter: sorts the pod's claims into allocated ones and ones to be allocated. `PodAttempt` holds what one attempt knows about them."""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field

from dray.allocator import Question, TimeLimits
from dray.api.core import Pod
from dray.api.reasons import Reason
from dray.api.resource import AllocationResult, DeviceRequest, ResourceClaim
from dray.scheduler.devices import DeviceState
from dray.scheduler.framework.status import PluginStatus, unresolvable
from dray.scheduler.nodes import NodeState
from dray.scheduler.plugins.dynamic_resources.extended_resources import ExtendedDemand, claim_for, demand_for
from dray.scheduler.plugins.dynamic_resources.pod_claims import ClaimNotReady, UsableClaim, claims_of
from dray.scheduler.pod_indexes import PodGroups

NOTHING: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class AllocationVariant:
    """What is to be allocated on nodes where devices serve the same extended resources.

    `to_allocate` are the pod's claims without devices, each once, in order, and last the claim for extended resources.
    """

    to_allocate: tuple[ResourceClaim, ...]
    question: Question | None
    extended: ExtendedDemand | None = None
    extended_claim: ResourceClaim | None = None


@dataclass(slots=True)
class PodAttempt:
    """`claims` are all claims of the pod; `delegated` its extended resources that devices serve where no device plugin does.

    With `checks_node_resources` the claims decide about the node's cpu and memory, not NodeResourcesFit.

    Filled in as the attempt goes on: `unavailable` are claims that some node turned the pod away for; `chosen` is the variant of the
    node that was chosen, `results` the allocations that Reserve settled on, by claim UID; `reserved`
    the claims into which this attempt wrote its pod; `made` the claim that was created. `patience` says how long devices may be
    searched for.
    """

    claims: list[UsableClaim]
    to_allocate: tuple[ResourceClaim, ...]
    allocated: tuple[ResourceClaim, ...]
    delegated: frozenset[str] = NOTHING
    checks_node_resources: bool = False
    leftover: ResourceClaim | None = None
    make_variant: Callable[[frozenset[str]], AllocationVariant] | None = None
    key: Hashable = None
    unavailable: dict[str, ResourceClaim] = field(default_factory=dict)
    variants: dict[frozenset[str], AllocationVariant] = field(default_factory=dict)
    chosen: AllocationVariant | None = None
    results: dict[str, AllocationResult] = field(default_factory=dict)
    reserved: set[str] = field(default_factory=set)
    made: ResourceClaim | None = None
    limits: TimeLimits = field(default_factory=TimeLimits)

    def variant(self, resources: frozenset[str]) -> AllocationVariant:
        variant = self.variants.get(resources)
        if variant is None:
            assert self.make_variant is not None
            variant = self.variants[resources] = self.make_variant(resources)
        return variant

    def on(self, node: NodeState) -> AllocationVariant:
        """The variant for this node: a device plugin that serves a resource comes before devices."""
        if not self.delegated:
            return self.variant(NOTHING)
        return self.variant(frozenset(name for name in self.delegated if not node.ledger.allocatable(name)))

    def class_names(self) -> Iterator[str]:
        for row in self.claims:
            for request in row.claim.spec.devices.requests:
                yield from (class_name for _, class_name in _classes(request))

    def claim_objects(self) -> list[ResourceClaim]:
        return [row.claim for row in self.claims]

    @property
    def asks_for_devices(self) -> bool:
        return bool(self.to_allocate or self.delegated)


def sort_claims(pod: Pod, devices: DeviceState, groups: PodGroups) -> PodAttempt | PluginStatus:
    try:
        claims = claims_of(pod, devices.claims, groups)
    except ClaimNotReady as problem:
        return problem.status()
    distinct = {row.claim.metadata.uid: row.claim for row in claims}
    allocated = tuple(claim for claim in distinct.values() if claim.status.allocation is not None)
    to_allocate = tuple(claim for claim in distinct.values() if claim.status.allocation is None)
    for claim in to_allocate:
        refused = _why_not_allocatable(claim, devices)
        if refused is not None:
            return refused
    return PodAttempt(claims, to_allocate, allocated)


def variants_of(attempt: PodAttempt, pod: Pod, devices: DeviceState) -> Callable[[frozenset[str]], AllocationVariant]:
    """Questions for the allocator, by the extended resources that devices have to serve."""

    def make(resources: frozenset[str]) -> AllocationVariant:
        claims, extended, claim = attempt.to_allocate, None, None
        if resources:
            extended = demand_for(pod, resources)
            claim = claim_for(pod, extended, devices.extended)
            claims = (*claims, claim)
        question = devices.allocator.question(claims) if claims else None
        return AllocationVariant(claims, question, extended, claim)

    return make


def _why_not_allocatable(claim: ResourceClaim, devices: DeviceState) -> PluginStatus | None:
    where = f"{claim.metadata.namespace}/{claim.metadata.name}"
    if claim.metadata.uid in devices.in_flight:
        return unresolvable(
            Reason("claim-being-allocated", f"resource claim {where} is in the process of being allocated")
        )
    for request in claim.spec.devices.requests:
        classes = list(_classes(request))
        if not classes:
            return unresolvable(
                Reason("unsupported", f"resource claim {where}, request {request.name}: unknown request type")
            )
        for name, class_name in classes:
            if class_name not in devices.classes:
                return unresolvable(
                    Reason("missing-class", f"request {name}: device class {class_name} does not exist")
                )
    return None


def _classes(request: DeviceRequest) -> Iterator[tuple[str, str]]:
    """(request or request/subrequest, class) for every way to serve the request."""
    if request.exactly is not None:
        yield request.name, request.exactly.device_class_name
    for alternative in request.first_available:
        yield f"{request.name}/{alternative.name}", alternative.device_class_name


def container_references(pod: Pod) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Which containers use which claims: it decides what devices take per container."""
    return tuple(
        (container.name, tuple(entry.name for entry in container.resources.claims))
        for container in (*pod.spec.init_containers, *pod.spec.containers)
        if container.resources.claims
    )


def entries_in_order(claims: list[UsableClaim]) -> tuple[str, ...]:
    return tuple(row.entry for row in claims)
