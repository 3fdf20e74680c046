"""PreFilter: sort the pod's claims into those with devices and those to be allocated."""

from collections.abc import Callable, Iterator

from dray.api.core import Pod
from dray.api.reasons import Reason
from dray.api.resource import DeviceRequest, ResourceClaim
from dray.scheduler.devices import DeviceState
from dray.scheduler.framework.status import PluginStatus, unresolvable
from dray.scheduler.plugins.dynamic_resources.attempt import Attempt, Variant
from dray.scheduler.plugins.dynamic_resources.extended_resources import claim_for, demand_for
from dray.scheduler.plugins.dynamic_resources.pod_claims import ClaimNotReady, PodClaim, claims_of
from dray.scheduler.pod_groups import PodGroups


def sort_claims(pod: Pod, devices: DeviceState, groups: PodGroups) -> Attempt | PluginStatus:
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
    return Attempt(claims, to_allocate, allocated)


def variants_of(attempt: Attempt, pod: Pod, devices: DeviceState) -> Callable[[frozenset[str]], Variant]:
    """Questions for the allocator, by the extended resources that devices have to serve."""

    def make(resources: frozenset[str]) -> Variant:
        claims, extended, claim = attempt.to_allocate, None, None
        if resources:
            extended = demand_for(pod, resources)
            claim = claim_for(pod, extended, devices.extended)
            claims = (*claims, claim)
        question = devices.allocator.question(claims) if claims else None
        return Variant(claims, question, extended, claim)

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


def entries_in_order(claims: list[PodClaim]) -> tuple[str, ...]:
    return tuple(row.entry for row in claims)
