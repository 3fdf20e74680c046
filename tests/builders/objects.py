"""The same kinds as structs, for tests of the rooms that take structs. Further keywords are fields of the spec."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from dray.api.core import (
    Affinity,
    Container,
    ContainerResourceClaim,
    Node,
    NodeSpec,
    NodeStatus,
    Pod,
    PodResourceClaim,
    PodResourceClaimStatus,
    PodSpec,
    ResourceRequirements,
    Taint,
    Toleration,
)
from dray.api.meta import ObjectMeta, OwnerReference
from dray.api.quantity import Quantity
from dray.api.resource import (
    AllocationResult,
    CapacityRequirements,
    CELDeviceSelector,
    Device,
    DeviceClaim,
    DeviceClass,
    DeviceClassSpec,
    DeviceConstraint,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimSpec,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)

DRIVER = "gpu.example.com"


NAMESPACE = "default"


def quantities(amounts: Mapping[str, str]) -> dict[str, Quantity]:
    return {name: Quantity.parse(amount) for name, amount in amounts.items()}


def a_node(
    name: str = "node-1",
    *,
    cpu: str = "8",
    memory: str = "32Gi",
    pods: str = "110",
    labels: Mapping[str, str] | None = None,
    taints: tuple[Taint, ...] = (),
    unschedulable: bool = False,
    extra: Mapping[str, str] | None = None,
) -> Node:
    allocatable = quantities({"cpu": cpu, "memory": memory, "pods": pods, **(extra or {})})
    return Node(
        metadata=ObjectMeta(name=name, labels={"kubernetes.io/hostname": name, **(labels or {})}),
        spec=NodeSpec(taints=taints, unschedulable=unschedulable),
        status=NodeStatus(allocatable=allocatable),
    )


def a_slice(node: str | None = "node-1", devices: int | tuple[Device, ...] = 2, **spec: Any) -> ResourceSlice:
    if isinstance(devices, int):
        devices = tuple(Device(name=f"gpu-{index}") for index in range(devices))
    pool = node or "shared"
    where: dict[str, Any] = {"node_name": node} if node else {"all_nodes": True}
    driver = spec.pop("driver", DRIVER)
    generation = spec.pop("generation", 1)
    return ResourceSlice(
        metadata=ObjectMeta(name=f"{pool}-{driver}"),
        spec=ResourceSliceSpec(
            driver=driver,
            pool=ResourcePool(name=pool, generation=generation, resource_slice_count=1),
            devices=devices,
            **{**where, **spec},
        ),
    )


def a_class(name: str = "gpu", expression: str = "", **spec: Any) -> DeviceClass:
    selectors = (DeviceSelector(cel=CELDeviceSelector(expression=expression)),) if expression else ()
    return DeviceClass(metadata=ObjectMeta(name=name), spec=DeviceClassSpec(selectors=selectors, **spec))


def a_request(
    name: str = "req",
    count: int = 1,
    device_class: str = "gpu",
    expression: str = "",
    capacity: Mapping[str, str] | None = None,
    mode: str = "ExactCount",
    **exactly: Any,
) -> DeviceRequest:
    return DeviceRequest(
        name=name,
        exactly=ExactDeviceRequest(
            device_class_name=device_class,
            allocation_mode=mode,
            count=count if mode == "ExactCount" else 0,
            selectors=(DeviceSelector(cel=CELDeviceSelector(expression=expression)),) if expression else (),
            capacity=CapacityRequirements(requests=quantities(capacity)) if capacity else None,
            **exactly,
        ),
    )


def alternatives(name: str, *subrequests: DeviceSubRequest) -> DeviceRequest:
    return DeviceRequest(name=name, first_available=subrequests)


def an_alternative(
    name: str, device_class: str, count: int = 1, capacity: Mapping[str, str] | None = None
) -> DeviceSubRequest:
    return DeviceSubRequest(
        name=name,
        device_class_name=device_class,
        allocation_mode="ExactCount",
        count=count,
        capacity=CapacityRequirements(requests=quantities(capacity)) if capacity else None,
    )


def a_claim(
    name: str = "claim",
    *requests: DeviceRequest,
    owner: Pod | None = None,
    constraints: tuple[DeviceConstraint, ...] = (),
    **metadata: Any,
) -> ResourceClaim:
    owners: tuple[OwnerReference, ...] = ()
    if owner is not None:
        reference = OwnerReference(
            api_version="v1", kind="Pod", name=owner.metadata.name, uid=owner.metadata.uid, controller=True
        )
        owners = (reference,)
    return ResourceClaim(
        metadata=ObjectMeta(name=name, namespace=NAMESPACE, owner_references=owners, **metadata),
        spec=ResourceClaimSpec(devices=DeviceClaim(requests=requests or (a_request(),), constraints=constraints)),
    )


def a_pod(
    name: str = "pod",
    *claims: str,
    cpu: str = "",
    memory: str = "",
    requests: Mapping[str, str] | None = None,
    priority: int | None = None,
    tolerations: tuple[Toleration, ...] = (),
    affinity: Affinity | None = None,
    labels: Mapping[str, str] | None = None,
    scheduler: str = "default-scheduler",
    containers: tuple[Container, ...] = (),
    **spec: Any,
) -> Pod:
    """`claims` are names of claims; one that starts with `template:` is made from a template and not named yet."""
    amounts = {"cpu": cpu, "memory": memory, **(requests or {})}
    uses = tuple(ContainerResourceClaim(name=claim.removeprefix("template:")) for claim in claims)
    container = Container(
        name="main",
        resources=ResourceRequirements(
            requests=quantities({key: value for key, value in amounts.items() if value}), claims=uses
        ),
    )
    return Pod(
        metadata=ObjectMeta(name=name, namespace=NAMESPACE, uid=f"uid-{name}", labels=dict(labels or {})),
        spec=PodSpec(
            containers=containers or (container,),
            scheduler_name=scheduler,
            resource_claims=tuple(_entry(claim) for claim in claims),
            priority=priority,
            tolerations=tolerations,
            affinity=affinity,
            **spec,
        ),
    )


def _entry(claim: str) -> PodResourceClaim:
    if claim.startswith("template:"):
        return PodResourceClaim(name=claim.removeprefix("template:"), resource_claim_template_name="template")
    return PodResourceClaim(name=claim, resource_claim_name=claim)


def with_claim_status(pod: Pod, **names: str | None) -> Pod:
    statuses = tuple(
        PodResourceClaimStatus(name=entry, resource_claim_name=claim_name) for entry, claim_name in names.items()
    )
    return replace(pod, status=replace(pod.status, resource_claim_statuses=statuses))


def allocated(claim: ResourceClaim, allocation: AllocationResult, *users: Pod) -> ResourceClaim:
    reserved = tuple(
        ResourceClaimConsumerReference(resource="pods", name=pod.metadata.name, uid=pod.metadata.uid) for pod in users
    )
    return replace(claim, status=replace(claim.status, allocation=allocation, reserved_for=reserved))


def template_pod(name: str, *requests: DeviceRequest, **pod: Any) -> tuple[Pod, ResourceClaim]:
    """A pod and the claim a controller has made for it from a template."""
    made = with_claim_status(a_pod(name, "template:dev", **pod), dev=f"{name}-dev")
    return made, a_claim(f"{name}-dev", *requests, owner=made)
