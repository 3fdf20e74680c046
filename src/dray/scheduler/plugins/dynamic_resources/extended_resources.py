"""Extended resources that devices serve: one claim per pod, made by the scheduler (KEP-5004)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from dray.accounting.resources import is_node_allocatable
from dray.allocator import Question
from dray.api.core import Container, ContainerExtendedResourceRequest, Pod
from dray.api.meta import ObjectMeta, OwnerReference
from dray.api.resource import (
    EXTENDED_RESOURCE_CLAIM_ANNOTATION,
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from dray.scheduler.devices import DeviceState, ExtendedClasses
from dray.scheduler.nodes import NodeState

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
