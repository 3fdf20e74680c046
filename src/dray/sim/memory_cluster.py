"""A cluster in memory: the API server's part of scheduling, for simulations and tests.

Writes answer as an API server would (revisions, conflicts, a device is given once, no node is overbooked) and are shown to
every scheduler that watches, at once or when `deliver` is called.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from dray.accounting import DoesNotFit, NodeLedger, PodRef, pod_demand
from dray.api.codec import to_document, to_object
from dray.api.core import Node, Pod
from dray.api.dra.claim_users import with_users
from dray.api.dra.pod_phase import is_on_node
from dray.api.meta import DEVICES_HELD, Status, StatusCause, StatusDetails
from dray.api.resource import (
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceSlice,
)
from dray.client.errors import ApiError
from dray.scheduler.event_handlers import ClusterEventHandlers

if TYPE_CHECKING:
    from dray.sim.memory_cluster_guard import GuardPlan, MemoryClusterGuard

Key = tuple[str, str, str]
ApiObject = Pod | Node | ResourceClaim | ResourceSlice | DeviceClass | DeviceTaintRule


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    namespace: str
    name: str
    type: str
    reason: str
    action: str
    message: str


def conflict(message: str) -> ApiError:
    return ApiError(409, "Conflict", message)


def devices_held(message: str) -> ApiError:
    """The answer of an API server where another claim holds a device."""
    details = StatusDetails(causes=(StatusCause(reason=DEVICES_HELD, message=message),))
    return ApiError.from_status(Status(status="Failure", code=409, reason="Conflict", message=message, details=details))


def not_found(kind: str, name: str) -> ApiError:
    return ApiError(404, "NotFound", f'{kind} "{name}" not found')


class MemoryCluster:
    def __init__(self, *, at_once: bool = True, guard: MemoryClusterGuard | None = None) -> None:
        self.revision = 0
        self.events: list[RecordedEvent] = []
        self.writes: list[str] = []
        self.fault: Callable[[str, str], ApiError | None] = lambda verb, name: None
        """Asked before each write; an error it gives is raised instead of writing."""
        self._objects: dict[Key, ApiObject] = {}
        self._guard = guard
        # Writes of slices and claims that the guard gets to know when it is first asked; an explanation never asks it.
        self._unrecorded: list[tuple[Any, Any]] = []
        self._watchers: list[tuple[ClusterEventHandlers, deque[tuple[Any, Any]]]] = []
        self._at_once = at_once
        self._uids = 0

    # --- what a user or controller does

    def watch(self, cluster: ClusterEventHandlers) -> None:
        """Show everything that is there, and then every change."""
        queue: deque[tuple[Any, Any]] = deque()
        self._watchers.append((cluster, queue))
        for obj in self._objects.values():
            _show(cluster, None, obj)

    def unwatch(self, cluster: ClusterEventHandlers) -> None:
        self._watchers = [row for row in self._watchers if row[0] is not cluster]

    def deliver(self) -> None:
        for cluster, queue in self._watchers:
            while queue:
                _show(cluster, *queue.popleft())

    def apply(self, *objects: Any) -> None:
        """Create or replace, giving UID and revision."""
        for obj in objects:
            known = self._objects.get(_key(obj))
            uid = obj.metadata.uid or (known.metadata.uid if known is not None else self._new_uid(obj))
            self._store(replace(obj, metadata=replace(obj.metadata, uid=uid)))

    def _new_uid(self, obj: Any) -> str:
        self._uids += 1
        return f"{obj.metadata.name}-uid-{self._uids}"

    def get(self, kind: type[Any], name: str, namespace: str = "") -> Any:
        return self._objects.get((kind.__name__, namespace, name))

    def everything(self) -> list[Any]:
        return list(self._objects.values())

    def all(self, kind: type[Any]) -> list[Any]:
        return [obj for key, obj in self._objects.items() if key[0] == kind.__name__]

    def delete(self, obj: Any) -> None:
        known = self._objects.pop(_key(obj), None)
        if known is not None:
            self.revision += 1
            self._record(known, None)
            self._tell(known, None)

    def _store(self, obj: Any, plan: GuardPlan | None = None) -> Any:
        self.revision += 1
        key = _key(obj)
        stored = replace(obj, metadata=replace(obj.metadata, resource_version=str(self.revision)))
        old = self._objects.get(key)
        self._objects[key] = stored
        if plan is None:
            self._record(old, stored)
        else:
            self._asked_guard().keep(plan)
        self._tell(old, stored)
        return stored

    def _record(self, old: Any, new: Any) -> None:
        if self._guard is not None:
            self._guard.record(old, new)
        elif isinstance(old if new is None else new, (ResourceSlice, ResourceClaim)):
            self._unrecorded.append((old, new))

    def _asked_guard(self) -> MemoryClusterGuard:
        if self._guard is None:
            from dray.sim.memory_cluster_guard import MemoryClusterGuard

            self._guard = MemoryClusterGuard()
            for old, new in self._unrecorded:
                self._guard.record(old, new)
            self._unrecorded.clear()
        return self._guard

    def _tell(self, old: Any, new: Any) -> None:
        for _, queue in self._watchers:
            queue.append((old, new))
        if self._at_once:
            self.deliver()

    # --- ClusterWriter

    def _begin(self, verb: str, name: str) -> None:
        self.writes.append(f"{verb} {name}")
        problem = self.fault(verb, name)
        if problem is not None:
            raise problem

    async def get_claim(self, namespace: str, name: str) -> ResourceClaim | None:
        self._begin("get claim", name)
        found: ResourceClaim | None = self.get(ResourceClaim, name, namespace)
        return found

    async def create_claim(self, claim: ResourceClaim) -> ResourceClaim:
        self._begin("create claim", claim.metadata.generate_name or claim.metadata.name)
        self._uids += 1
        name = claim.metadata.name or f"{claim.metadata.generate_name}{self._uids}"
        metadata = replace(claim.metadata, name=name, uid=f"{name}-uid-{self._uids}")
        stored: ResourceClaim = self._store(replace(claim, metadata=metadata))
        return stored

    async def update_claim(self, claim: ResourceClaim) -> ResourceClaim:
        self._begin("update claim", claim.metadata.name)
        known = self._unchanged(claim)
        stored: ResourceClaim = self._store(replace(claim, status=known.status))
        return stored

    async def update_claim_status(self, claim: ResourceClaim) -> ResourceClaim:
        self._begin("update claim status", claim.metadata.name)
        known = self._unchanged(claim)
        plan = self._asked_guard().plan(known, claim)
        if isinstance(plan, str):
            raise devices_held(plan)
        stored: ResourceClaim = self._store(replace(known, status=claim.status), plan)
        return stored

    async def unreserve_claim(self, claim: ResourceClaim, user: ResourceClaimConsumerReference) -> ResourceClaim:
        self._begin("unreserve claim", claim.metadata.name)
        known: ResourceClaim | None = self.get(ResourceClaim, claim.metadata.name, claim.metadata.namespace)
        if known is None or known.metadata.uid != claim.metadata.uid:
            raise not_found("resourceclaims.resource.k8s.io", claim.metadata.name)
        users = tuple(other for other in known.status.reserved_for if other.uid != user.uid)
        stored: ResourceClaim = self._store(with_users(known, users))
        return stored

    async def delete_claim(self, claim: ResourceClaim) -> None:
        self._begin("delete claim", claim.metadata.name)
        self.delete(claim)

    def _unchanged(self, claim: ResourceClaim) -> ResourceClaim:
        known: ResourceClaim | None = self.get(ResourceClaim, claim.metadata.name, claim.metadata.namespace)
        if known is None:
            raise not_found("resourceclaims.resource.k8s.io", claim.metadata.name)
        if known.metadata.resource_version != claim.metadata.resource_version:
            raise conflict(f"claim {claim.metadata.name}: the object has been modified")
        return known

    async def patch_pod_status(self, pod: Pod, status: dict[str, Any], *, strategic: bool = True) -> None:
        self._begin("patch pod status", pod.metadata.name)
        document = to_document(self._pod(pod))
        merged = {**document.get("status", {}), **status}
        if strategic and "conditions" in status:
            named = {row["type"]: row for row in document.get("status", {}).get("conditions", [])}
            named |= {row["type"]: row for row in status["conditions"]}
            merged["conditions"] = list(named.values())
        document["status"] = {field: value for field, value in merged.items() if value is not None}
        self._store(to_object(document, Pod))

    async def is_assigned(self, pod: Pod) -> bool:
        current: Pod | None = self.get(Pod, pod.metadata.name, pod.metadata.namespace)
        return current is not None and current.metadata.uid == pod.metadata.uid and bool(current.spec.node_name)

    async def bind_with_claim(
        self, pod: Pod, node_name: str, before: ResourceClaim, after: ResourceClaim
    ) -> ResourceClaim | None:
        return None

    async def bind(self, pod: Pod, node_name: str) -> None:
        self._begin("bind", pod.metadata.name)
        known = self._pod(pod)
        if known.spec.node_name:
            raise conflict(f"pod {pod.metadata.name} is already assigned to node {known.spec.node_name}")
        if len(self._watchers) > 1:
            self._refuse_overbooking(known, node_name)
        self._store(replace(known, spec=replace(known.spec, node_name=node_name)))

    def _refuse_overbooking(self, pod: Pod, node_name: str) -> None:
        """One scheduler alone never does that; two may, each with a pod that would fit without the other's."""
        answer = self.ledger_of(node_name).fits(pod_demand(pod))
        if isinstance(answer, DoesNotFit):
            raise conflict(f"node {node_name}: {'; '.join(refusal.detail for refusal in answer.refusals)}")

    def ledger_of(self, node_name: str) -> NodeLedger:
        """The amounts that the pods on this node take: a slow, plain sum."""
        node: Node | None = self.get(Node, node_name)
        ledger = NodeLedger(node_name, node.status.allocatable if node is not None else None)
        for pod in self.all(Pod):
            if pod.spec.node_name == node_name and is_on_node(pod):
                ledger.add(PodRef.of(pod), pod_demand(pod))
        return ledger

    async def evict(self, victim: Pod, preemptor: Pod) -> None:
        self._begin("evict", victim.metadata.name)
        self.delete(self._pod(victim))
        self.release_claims_of(victim)

    def release_claims_of(self, pod: Pod) -> None:
        """The claim controller's part when a pod is gone: reservations, allocations and generated claims go."""
        for claim in self.all(ResourceClaim):
            users = tuple(user for user in claim.status.reserved_for if user.uid != pod.metadata.uid)
            if any(owner.uid == pod.metadata.uid for owner in claim.metadata.owner_references):
                self.delete(claim)
            elif users != claim.status.reserved_for:
                allocation = claim.status.allocation if users else None
                status = replace(claim.status, reserved_for=users, allocation=allocation)
                self._store(replace(claim, status=status))

    def _pod(self, pod: Pod) -> Pod:
        known: Pod | None = self.get(Pod, pod.metadata.name, pod.metadata.namespace)
        if known is None or known.metadata.uid != pod.metadata.uid:
            raise not_found("pods", pod.metadata.name)
        return known

    def event(self, pod: Pod, event_type: str, reason: str, action: str, message: str) -> None:
        self.events.append(
            RecordedEvent(pod.metadata.namespace, pod.metadata.name, event_type, reason, action, message)
        )


def _key(obj: Any) -> Key:
    return type(obj).__name__, obj.metadata.namespace, obj.metadata.name


def _show(cluster: ClusterEventHandlers, old: Any, new: Any) -> None:
    """Hand a change to the scheduler's cluster as a watch would."""
    setter, remover, is_told_of_old = _WATCHED[type(old if new is None else new).__name__]
    if new is None:
        getattr(cluster, remover)(old)
    elif is_told_of_old:
        getattr(cluster, setter)(new, old)
    else:
        getattr(cluster, setter)(new)


_WATCHED = {
    "Pod": ("set_pod", "remove_pod", False),
    "Node": ("set_node", "remove_node", False),
    "Namespace": ("set_namespace", "remove_namespace", False),
    "ResourceClaim": ("set_claim", "remove_claim", False),
    "ResourceSlice": ("set_slice", "remove_slice", True),
    "DeviceClass": ("set_class", "remove_class", True),
    "DeviceTaintRule": ("set_taint_rule", "remove_taint_rule", True),
    "PodGroup": ("set_pod_group", "remove_pod_group", False),
}
