"""The pod's claims: which they are, whether they can be used yet (PreEnqueue), and which events may help a pod that waits for them.

Extended resources that devices serve become one claim per pod, made by the scheduler (KEP-5004). `PodAttempt` holds what one attempt to
schedule the pod knows about its claims.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field

from msgspec.structs import replace

from dray.accounting.resources import is_node_allocatable
from dray.allocator import Question, TimeLimits
from dray.api.core import Container, ContainerExtendedResourceRequest, Pod, PodResourceClaim
from dray.api.dra.claim_users import consumer_reference, is_owned_by
from dray.api.dra.pod_claims import ClaimSource, claim_of_entry
from dray.api.meta import ObjectMeta, OwnerReference
from dray.api.reasons import Reason
from dray.api.resource import (
    EXTENDED_RESOURCE_CLAIM_ANNOTATION,
    AllocationResult,
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimSpec,
)
from dray.api.workloads import PodGroup
from dray.scheduler.devices import AssumedClaims, DeviceState, ExtendedClasses
from dray.scheduler.framework.interface import (
    Action,
    ClusterChange,
    ClusterEvent,
    EventRegistration,
    EventResource,
    Hint,
    PluginStatus,
    unresolvable,
)
from dray.scheduler.nodes import NodeState
from dray.scheduler.snapshot import ClaimUsers, PodGroups, named_claims

IN_MEMORY_NAME = "<extended-resources>"


@dataclass(frozen=True, slots=True)
class ExtendedRequest:
    """One request of the claim, for one container and one resource."""

    name: str
    container: str
    resource: str
    count: int


@dataclass(frozen=True, slots=True)
class ExtendedDemand:
    """What devices must serve on nodes that lack a device plugin for `resources`."""

    requests: tuple[ExtendedRequest, ...]
    mappings: tuple[ContainerExtendedResourceRequest, ...]

    @property
    def resources(self) -> frozenset[str]:
        return frozenset(row.resource for row in self.requests)


def extended_requests(container: Container) -> dict[str, int]:
    """Extended resources by name with their counts; a limit alone counts as a request."""
    asked = {**container.resources.limits, **container.resources.requests}
    return {
        name: quantity.value()
        for name, quantity in asked.items()
        if "/" in name and not is_node_allocatable(name) and quantity.value() > 0
    }


def census_of(devices: DeviceState) -> Callable[[str, NodeState], tuple[int, int]]:
    """Counts the devices that could serve an extended resource on a node, and those of them in use."""
    questions: dict[str, Question | None] = {}

    def count(resource: str, node: NodeState) -> tuple[int, int]:
        if resource not in questions:
            device_class = devices.extended.serving(resource)
            questions[resource] = (
                devices.allocator.question((_one_of(device_class),)) if device_class is not None else None
            )
        question = questions[resource]
        return question.census(node.node) if question is not None else (0, 0)

    return count


def _one_of(device_class: DeviceClass) -> ResourceClaim:
    exactly = ExactDeviceRequest(device_class_name=device_class.metadata.name, allocation_mode="ExactCount", count=1)
    request = DeviceRequest(name="one", exactly=exactly)
    return ResourceClaim(spec=ResourceClaimSpec(devices=DeviceClaim(requests=(request,))))


def delegated(pod: Pod, classes: ExtendedClasses) -> frozenset[str]:
    """Extended resources of the pod that some device class serves."""
    names = {name for container in _containers(pod) for name in extended_requests(container)}
    return frozenset(name for name in names if classes.serving(name) is not None)


def _containers(pod: Pod) -> tuple[Container, ...]:
    return (*pod.spec.init_containers, *pod.spec.containers)


def _is_short_lived(index: int, pod: Pod) -> bool:
    inits = pod.spec.init_containers
    return index < len(inits) and inits[index].restart_policy != "Always"


def demand_for(pod: Pod, resources: frozenset[str]) -> ExtendedDemand:
    """Requests for those of the pod's resources that devices serve.

    Init containers use the devices of containers that start after them; only what is missing is asked for on top.
    """
    requests: list[ExtendedRequest] = []
    mappings: list[ContainerExtendedResourceRequest] = []
    for resource in sorted(resources):
        lasting = list(_lasting_requests(pod, resource))
        extra = _extra_for_inits(pod, resource)
        requests += [*lasting, *([extra] if extra is not None else [])]
        mappings += _mappings(pod, resource, lasting, extra)
    requests.sort(key=lambda row: row.name)
    return ExtendedDemand(tuple(requests), tuple(mappings))


def _request_name(index: int, container: Container, resource: str) -> str:
    return f"container-{index}-request-{sorted(container.resources.requests or container.resources.limits).index(resource)}"


def _lasting_requests(pod: Pod, resource: str) -> Iterator[ExtendedRequest]:
    for index, container in enumerate(_containers(pod)):
        count = extended_requests(container).get(resource, 0)
        if count and not _is_short_lived(index, pod):
            yield ExtendedRequest(_request_name(index, container, resource), container.name, resource, count)


def _extra_for_inits(pod: Pod, resource: str) -> ExtendedRequest | None:
    containers = _containers(pod)
    best: ExtendedRequest | None = None
    for index, container in enumerate(pod.spec.init_containers):
        if not _is_short_lived(index, pod):
            continue
        later = sum(
            extended_requests(other).get(resource, 0)
            for position, other in enumerate(containers)
            if position > index and not _is_short_lived(position, pod)
        )
        missing = extended_requests(container).get(resource, 0) - later
        if missing > (best.count if best is not None else 0):
            best = ExtendedRequest(_request_name(index, container, resource), container.name, resource, missing)
    return best


def _mappings(
    pod: Pod, resource: str, lasting: list[ExtendedRequest], extra: ExtendedRequest | None
) -> Iterator[ContainerExtendedResourceRequest]:
    for row in lasting:
        yield _mapping(row.container, resource, row.name)
    for index, container in enumerate(pod.spec.init_containers):
        wanted = extended_requests(container).get(resource, 0)
        if not wanted or not _is_short_lived(index, pod):
            continue
        for row in [*lasting, *([extra] if extra is not None else [])]:
            if wanted <= 0:
                break
            yield _mapping(container.name, resource, row.name)
            wanted -= row.count


def _mapping(container: str, resource: str, request: str) -> ContainerExtendedResourceRequest:
    return ContainerExtendedResourceRequest(container_name=container, resource_name=resource, request_name=request)


def claim_for(pod: Pod, demand: ExtendedDemand, classes: ExtendedClasses) -> ResourceClaim:
    """The claim as it will be created; until then it has a name that no stored claim can have."""
    metadata = pod.metadata
    owner = OwnerReference(
        api_version="v1", kind="Pod", name=metadata.name, uid=metadata.uid, controller=True, block_owner_deletion=True
    )
    return ResourceClaim(
        metadata=ObjectMeta(
            name=f"{IN_MEMORY_NAME}{metadata.uid}",
            namespace=metadata.namespace,
            uid=f"{IN_MEMORY_NAME}{metadata.uid}",
            generate_name=f"{metadata.name}-extended-resources-",
            annotations={EXTENDED_RESOURCE_CLAIM_ANNOTATION: "true"},
            owner_references=(owner,),
        ),
        spec=ResourceClaimSpec(
            devices=DeviceClaim(requests=tuple(_device_request(row, classes) for row in demand.requests))
        ),
    )


def _device_request(row: ExtendedRequest, classes: ExtendedClasses) -> DeviceRequest:
    serving = classes.serving(row.resource)
    assert serving is not None, f"no class serves {row.resource}"
    return DeviceRequest(
        name=row.name,
        exactly=ExactDeviceRequest(
            device_class_name=serving.metadata.name, allocation_mode="ExactCount", count=row.count
        ),
    )


def to_create(claim: ResourceClaim) -> ResourceClaim:
    """What is sent to the API server, which gives name and UID."""
    metadata = replace(claim.metadata, name="", uid="")
    return ResourceClaim(metadata=metadata, spec=claim.spec)


@dataclass(frozen=True, slots=True)
class UsableClaim:
    """One entry of `spec.resourceClaims`, the claim behind it, and for whom it is reserved: the pod, or its group."""

    entry: str
    claim: ResourceClaim
    user: ResourceClaimConsumerReference


class ClaimNotReady(Exception):
    """Some claim of the pod is missing or unusable."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.reason = Reason(code, text)

    def status(self) -> PluginStatus:
        return unresolvable(self.reason)


def claim_name(pod: Pod, entry: PodResourceClaim) -> str | None:
    """The name of the claim for an entry; None if it was deliberately not made."""
    claim = claim_of_entry(pod, entry)
    if claim.claim_name:
        return claim.claim_name
    where = f"{pod.metadata.namespace}/{pod.metadata.name}"
    if claim.source is ClaimSource.UNKNOWN:
        text = f'pod "{where}", spec.resourceClaim "{entry.name}": none of the supported fields are set'
        raise ClaimNotReady("claim-source", text)
    if claim.is_generated and not claim.is_recorded:
        raise ClaimNotReady("claim-not-created", f'pod "{where}": ResourceClaim not created yet')
    return None


def _usable_claim(
    pod: Pod, entry: PodResourceClaim, name: str, claims: AssumedClaims, group: PodGroup | None
) -> ResourceClaim:
    namespace = pod.metadata.namespace
    claim = claims.get(namespace, name)
    if claim is None:
        raise ClaimNotReady("claim-missing", f'could not find ResourceClaim "{namespace}/{name}"')
    if claim.metadata.deletion_timestamp is not None:
        raise ClaimNotReady("claim-being-deleted", f'resourceclaim "{name}" is being deleted')
    owner = pod if group is None else group
    if not entry.resource_claim_name and not is_owned_by(claim, owner):
        why = "Pod is not owner" if group is None else f"neither Pod nor PodGroup {group.metadata.name} is the owner"
        raise ClaimNotReady(
            "claim-not-owned",
            f"ResourceClaim {namespace}/{name} was not created for Pod {namespace}/{pod.metadata.name} ({why})",
        )
    return claim


def claims_of(pod: Pod, claims: AssumedClaims, groups: PodGroups) -> list[UsableClaim]:
    """All claims of the pod in the order of its spec. Raises `ClaimNotReady` at the first that cannot be used."""
    found = []
    for entry in pod.spec.resource_claims:
        name = claim_name(pod, entry)
        if name is not None:
            group = groups.sharing(pod, entry)
            claim = _usable_claim(pod, entry, name, claims, group)
            found.append(UsableClaim(entry.name, claim, consumer_reference(pod if group is None else group)))
    return found


def pre_enqueue(pod: Pod, claims: AssumedClaims, groups: PodGroups) -> PluginStatus | None:
    if not pod.spec.resource_claims:
        return None
    try:
        claims_of(pod, claims, groups)
    except ClaimNotReady as problem:
        return problem.status()
    return None


def registrations(
    claims: AssumedClaims, groups: PodGroups, users: ClaimUsers, short_of_room: Callable[[], Iterable[str]]
) -> Iterable[EventRegistration]:
    """`short_of_room` gives the UIDs of pods whose devices would have taken more of a node than it had left."""
    hints = _Hints(claims, groups, users)
    node = Action.ADD | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_ALLOCATABLE | Action.UPDATE_NODE_TAINT
    changed = Action.ADD | Action.UPDATE
    return [
        EventRegistration(ClusterEvent(EventResource.NODE, node)),
        EventRegistration(ClusterEvent(EventResource.RESOURCE_SLICE, changed)),
        EventRegistration(ClusterEvent(EventResource.DEVICE_CLASS, changed)),
        EventRegistration(ClusterEvent(EventResource.POD_GROUP, changed)),
        EventRegistration(
            ClusterEvent(EventResource.UNSCHEDULED_POD, Action.UPDATE_POD_CLAIMS),
            hints.pod_changed,
            hints.only_that_pod,
        ),
        EventRegistration(
            ClusterEvent(EventResource.RESOURCE_CLAIM, changed | Action.DELETE),
            hints.own_claim_changed,
            hints.users_of_claim,
        ),
        EventRegistration(
            ClusterEvent(EventResource.RESOURCE_CLAIM, Action.UPDATE | Action.DELETE),
            hints.devices_freed,
            hints.anybody_if_freed,
        ),
        # A pod whose devices bring along too much cpu waits for ordinary pods to leave, too.
        EventRegistration(
            ClusterEvent(EventResource.ASSIGNED_POD, Action.DELETE | Action.UPDATE_POD_SCALE_DOWN),
            narrow=lambda change: list(short_of_room()),
        ),
        EventRegistration(
            ClusterEvent(EventResource.UNSCHEDULED_POD, Action.UPDATE_POD_SCALE_DOWN), narrow=hints.only_that_pod
        ),
    ]


class _Hints:
    def __init__(self, claims: AssumedClaims, groups: PodGroups, users: ClaimUsers) -> None:
        self._claims = claims
        self._groups = groups
        self._users = users

    def only_that_pod(self, change: ClusterChange) -> Iterable[str]:
        return (change.new.metadata.uid,)

    def pod_changed(self, pod: Pod, change: ClusterChange) -> Hint:
        if change.new.metadata.uid != pod.metadata.uid:
            return Hint.SKIP
        return Hint.QUEUE if self._are_ready(change.new) else Hint.SKIP

    def _are_ready(self, pod: Pod) -> bool:
        try:
            claims_of(pod, self._claims, self._groups)
        except ClaimNotReady:
            return False
        return True

    def users_of_claim(self, change: ClusterChange) -> Iterable[str]:
        return self._users.of(change.new if change.new is not None else change.old)

    def own_claim_changed(self, pod: Pod, change: ClusterChange) -> Hint:
        old: ResourceClaim | None = change.old
        new: ResourceClaim | None = change.new
        if new is None or not self._are_ready(pod):
            return Hint.SKIP
        if (new.metadata.namespace, new.metadata.name) not in named_claims(pod) and not is_owned_by(new, pod):
            return Hint.SKIP
        if old is not None and old.status == new.status:
            return Hint.SKIP
        return Hint.QUEUE

    def anybody_if_freed(self, change: ClusterChange) -> Iterable[str] | None:
        """Freed devices may help anybody but pods whose claims are missing."""
        return None if is_release(change) else ()

    def devices_freed(self, pod: Pod, change: ClusterChange) -> Hint:
        if not is_release(change):
            return Hint.SKIP
        return Hint.QUEUE if change.new is None or self._are_ready(pod) else Hint.SKIP


def is_release(change: ClusterChange) -> bool:
    """Did this free devices, or may it have?"""
    if change.final_state_unknown:
        return True
    before = change.old.status.allocation if change.old is not None else None
    after = change.new.status.allocation if change.new is not None else None
    return before is not None and after is None


# --- one attempt -----------------------------------------------------------------------------------------------------

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
                yield from (class_name for _, class_name in classes_of(request))

    def claim_objects(self) -> list[ResourceClaim]:
        return [row.claim for row in self.claims]

    @property
    def asks_for_devices(self) -> bool:
        return bool(self.to_allocate or self.delegated)


def classes_of(request: DeviceRequest) -> Iterator[tuple[str, str]]:
    """(request or request/subrequest, class) for every way to serve the request."""
    if request.exactly is not None:
        yield request.name, request.exactly.device_class_name
    for alternative in request.first_available:
        yield f"{request.name}/{alternative.name}", alternative.device_class_name
