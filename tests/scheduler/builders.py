"""Small clusters for scheduler tests: objects with only what a case is about, and a world to try them in."""

import asyncio
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
    PodStatus,
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
from dray.clock import SimulatedClock
from dray.features import FeatureGates
from dray.scheduler.config import SchedulerConfig
from dray.scheduler.scheduler import Scheduler
from dray.sim.memory_cluster import (
    MemoryCluster,
    RecordedEvent,
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


class World:
    """A scheduler over a cluster in memory, on simulated time."""

    def __init__(
        self,
        *objects: Any,
        gates: FeatureGates | None = None,
        config: SchedulerConfig | None = None,
        at_once: bool = True,
        plugins: Any = None,
    ) -> None:
        self.clock = SimulatedClock()
        self.cluster = MemoryCluster(at_once=at_once)
        self.scheduler = Scheduler(self.cluster, self.clock, gates=gates, config=config, registry=plugins)
        self.apply(*objects)
        self.cluster.watch(self.scheduler.cluster)

    def apply(self, *objects: Any) -> None:
        self.cluster.apply(*objects)

    async def attempt(self) -> bool:
        """One attempt with everything that follows from it."""
        tried = await self.scheduler.schedule_next()
        await self.finish()
        return tried

    async def settle(self, seconds: float = 0.0) -> None:
        """Try pods until none is ready; then let time pass and try again."""
        for _ in range(int(seconds) + 1):
            while await self.attempt():
                pass
            if seconds:
                await self.clock.advance(1.0)
                self.scheduler.queue.flush_backoff(self.clock.monotonic())
        self.check()

    async def finish(self, seconds: float = 0.0) -> None:
        if seconds:
            await self.clock.advance(seconds)
        for _ in range(50):
            if not self.scheduler.running:
                return
            await asyncio.sleep(0)
            if not self.at_rest():
                await self.clock.advance(0.01)

    def at_rest(self) -> bool:
        return not self.scheduler.running

    def pod(self, name: str = "pod") -> Pod:
        found: Pod = self.cluster.get(Pod, name, NAMESPACE)
        return found

    def claim(self, name: str = "claim") -> ResourceClaim:
        found: ResourceClaim = self.cluster.get(ResourceClaim, name, NAMESPACE)
        return found

    def node_of(self, name: str = "pod") -> str:
        return self.pod(name).spec.node_name

    def devices_of(self, claim: str = "claim") -> list[str]:
        allocation = self.claim(claim).status.allocation
        return [f"{row.pool}/{row.device}" for row in allocation.devices.results] if allocation is not None else []

    def message(self, name: str = "pod") -> str:
        """What the pod's condition says about why it waits."""
        conditions = {row.type: row for row in self.pod(name).status.conditions}
        return conditions["PodScheduled"].message if "PodScheduled" in conditions else ""

    def reason(self, name: str = "pod") -> str:
        conditions = {row.type: row for row in self.pod(name).status.conditions}
        return conditions["PodScheduled"].reason if "PodScheduled" in conditions else ""

    def events(self, reason: str = "") -> list[RecordedEvent]:
        return [event for event in self.cluster.events if not reason or event.reason == reason]

    def where(self, name: str = "pod") -> str:
        """The queue that holds the pod."""
        entry = self.scheduler.queue.get(f"uid-{name}")
        return entry.where.value if entry is not None else ""

    def requested(self, node: str = "node-1") -> dict[str, int]:
        state = self.scheduler.handle.snapshot.nodes.get(node)
        assert state is not None
        return {name: state.ledger.requested(name) for name in ("cpu", "memory")}

    def check(self) -> None:
        """What must always hold."""
        self.scheduler.handle.snapshot.check()
        self.scheduler.handle.devices.check()
        held: dict[tuple[str, str, str], str] = {}
        for claim in self.cluster.all(ResourceClaim):
            allocation = claim.status.allocation
            for row in allocation.devices.results if allocation is not None else ():
                if row.share_id is None and not row.admin_access:
                    key = (row.driver, row.pool, row.device)
                    assert held.setdefault(key, claim.metadata.name) == claim.metadata.name, f"{key} is given twice"


def template_pod(name: str, *requests: DeviceRequest, **pod: Any) -> tuple[Pod, ResourceClaim]:
    """A pod and the claim a controller has made for it from a template."""
    made = with_claim_status(a_pod(name, "template:dev", **pod), dev=f"{name}-dev")
    return made, a_claim(f"{name}-dev", *requests, owner=made)


EMPTY_STATUS = PodStatus()
