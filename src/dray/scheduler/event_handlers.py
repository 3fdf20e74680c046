"""Applies changes of the cluster to the snapshot, tells which events they are, then wakes the waiting pods that they may help."""

from collections.abc import Callable, Iterator, Mapping

from dray.api.core import Namespace, Node, Pod
from dray.api.dra.pod_phase import is_finished
from dray.api.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from dray.api.workloads import PodGroup
from dray.scheduler.framework.interface import (
    ASSIGNED_POD_ADDED,
    ASSIGNED_POD_DELETED,
    Action,
    ClusterChange,
    ClusterEvent,
    EventResource,
)
from dray.scheduler.framework.profile import SchedulingProfile
from dray.scheduler.handle import Handle
from dray.scheduler.queue import SchedulingQueue

NODE_ADDED = ClusterEvent(EventResource.NODE, Action.ADD, "NodeAdd")
NODE_DELETED = ClusterEvent(EventResource.NODE, Action.DELETE, "NodeDelete")
SLICE_ADDED = ClusterEvent(EventResource.RESOURCE_SLICE, Action.ADD, "ResourceSliceAdd")
SLICE_UPDATED = ClusterEvent(EventResource.RESOURCE_SLICE, Action.UPDATE_OTHER, "ResourceSliceUpdate")
SLICE_DELETED = ClusterEvent(EventResource.RESOURCE_SLICE, Action.DELETE, "ResourceSliceDelete")
CLASS_ADDED = ClusterEvent(EventResource.DEVICE_CLASS, Action.ADD, "DeviceClassAdd")
CLASS_UPDATED = ClusterEvent(EventResource.DEVICE_CLASS, Action.UPDATE_OTHER, "DeviceClassUpdate")
POD_GROUP_SET = ClusterEvent(EventResource.POD_GROUP, Action.ADD, "PodGroupAdd")
CLAIM_ADDED = ClusterEvent(EventResource.RESOURCE_CLAIM, Action.ADD, "ResourceClaimAdd")
CLAIM_UPDATED = ClusterEvent(EventResource.RESOURCE_CLAIM, Action.UPDATE_OTHER, "ResourceClaimUpdate")
CLAIM_DELETED = ClusterEvent(EventResource.RESOURCE_CLAIM, Action.DELETE, "ResourceClaimDelete")


def node_actions(old: Node, new: Node) -> Action:
    actions = Action(0)
    if old.status.allocatable != new.status.allocatable:
        actions |= Action.UPDATE_NODE_ALLOCATABLE
    if old.metadata.labels != new.metadata.labels:
        actions |= Action.UPDATE_NODE_LABEL
    if old.spec.taints != new.spec.taints or old.spec.unschedulable != new.spec.unschedulable:
        actions |= Action.UPDATE_NODE_TAINT
    if old.status.declared_features != new.status.declared_features:
        actions |= Action.UPDATE_NODE_LABEL
    return actions


def node_change(old: Node, new: Node) -> ClusterChange | None:
    actions = node_actions(old, new)
    return ClusterChange(ClusterEvent(EventResource.NODE, actions, "NodeUpdate"), old, new) if actions else None


_POD_CHANGES = (
    (Action.UPDATE_POD_LABEL, "PodLabelUpdate", lambda pod: pod.metadata.labels),
    (Action.UPDATE_POD_TOLERATION, "PodTolerationUpdate", lambda pod: pod.spec.tolerations),
    (Action.UPDATE_POD_GATES, "PodSchedulingGatesEliminated", lambda pod: pod.spec.scheduling_gates),
    (
        Action.UPDATE_POD_CLAIMS,
        "PodGeneratedResourceClaimUpdate",
        lambda pod: (pod.status.resource_claim_statuses, pod.status.extended_resource_claim_status),
    ),
    (
        Action.UPDATE_POD_SCALE_DOWN,
        "PodScaleDown",
        lambda pod: tuple(container.resources for container in pod.spec.containers),
    ),
)


def pod_changes(resource: EventResource, old: Pod, new: Pod) -> Iterator[ClusterChange]:
    for action, label, part in _POD_CHANGES:
        if part(old) != part(new):
            yield ClusterChange(ClusterEvent(resource, action, label), old, new)


class ClusterEventHandlers:
    """Each method takes one watch event. Objects may come in any order."""

    def __init__(self, handle: Handle, queue: SchedulingQueue, profiles: Mapping[str, SchedulingProfile]) -> None:
        self._handle = handle
        self._queue = queue
        self._profiles = profiles
        self._unscheduled: dict[str, Pod] = {}
        self.on_pod_gone: Callable[[str], None] = lambda uid: None

    def _move(self, event: ClusterEvent, old: object = None, new: object = None) -> None:
        self._queue.move(ClusterChange(event, old, new), self._now())

    def _now(self) -> float:
        return self._handle.clock.monotonic()

    # --- pods

    def unscheduled(self, uid: str) -> Pod | None:
        """A pod that waits for a node, as last seen."""
        return self._unscheduled.get(uid)

    def set_pod(self, pod: Pod) -> None:
        if is_finished(pod):
            self.remove_pod(pod)
        elif pod.spec.node_name:
            self._set_assigned(pod)
        elif pod.spec.scheduler_name in self._profiles:
            self._set_unscheduled(pod)

    def _set_unscheduled(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        old = self._unscheduled.get(uid)
        self._unscheduled[uid] = pod
        self._handle.claim_users.set(pod)
        if self._handle.snapshot.is_assumed(uid):
            return
        if pod.status.nominated_node_name and self._handle.nominations.node_of(uid) is None:
            self._handle.nominations.nominate(pod, pod.status.nominated_node_name)
        if old is None:
            self._queue.add(pod, self._now())
        else:
            self._queue.update(old, pod, self._now(), pod_changes(EventResource.UNSCHEDULED_POD, old, pod))

    def _set_assigned(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        self._leave_queue(uid)
        before = self._handle.snapshot.placed(uid)
        was_assumed = self._handle.snapshot.is_assumed(uid)
        self._handle.snapshot.set_pod(pod)
        if before is None or was_assumed:
            self._move(ASSIGNED_POD_ADDED, new=pod)
            return
        for change in pod_changes(EventResource.ASSIGNED_POD, before.pod, pod):
            self._queue.move(change, self._now())

    def _leave_queue(self, uid: str) -> None:
        if self._unscheduled.pop(uid, None) is not None:
            self._handle.claim_users.remove(uid)
            self._handle.nominations.withdraw(uid)
            self._queue.delete(uid)
            self.on_pod_gone(uid)

    def remove_pod(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        self._leave_queue(uid)
        if self._handle.snapshot.placed(uid) is None:
            return
        # A pod that is still being bound gives its place back when its binding fails.
        if not self._handle.snapshot.is_assumed(uid) or pod.spec.node_name:
            self._handle.snapshot.remove_pod(uid)
            self._move(ASSIGNED_POD_DELETED, old=pod)

    # --- nodes and namespaces

    def set_node(self, node: Node) -> None:
        known = self._handle.snapshot.nodes.get(node.metadata.name)
        old = known.node if known is not None else None
        if old is None:
            self._handle.snapshot.set_node(node)
            self._move(NODE_ADDED, new=node)
            return
        change = node_change(old, node)
        if change is not None:
            self._handle.snapshot.set_node(node)
            self._queue.move(change, self._now())

    def remove_node(self, node: Node) -> None:
        self._handle.snapshot.remove_node(node.metadata.name)
        self._handle.devices.inventory.forget_node(node.metadata.name)
        self._move(NODE_DELETED, old=node)

    def set_namespace(self, namespace: Namespace) -> None:
        self._handle.snapshot.namespace_labels[namespace.metadata.name] = namespace.metadata.labels

    def remove_namespace(self, namespace: Namespace) -> None:
        self._handle.snapshot.namespace_labels.pop(namespace.metadata.name, None)

    def set_pod_group(self, group: PodGroup) -> None:
        self._handle.groups.set(group)
        self._move(POD_GROUP_SET, new=group)

    def remove_pod_group(self, group: PodGroup) -> None:
        self._handle.groups.remove(group)

    # --- devices

    def set_slice(self, published: ResourceSlice, old: ResourceSlice | None = None) -> None:
        if old is not None and old.spec == published.spec:
            return
        self._handle.devices.set_slice(published)
        self._move(SLICE_ADDED if old is None else SLICE_UPDATED, old, published)

    def remove_slice(self, published: ResourceSlice) -> None:
        self._handle.devices.remove_slice(published.metadata.name)
        self._move(SLICE_DELETED, old=published)

    def set_taint_rule(self, rule: DeviceTaintRule, old: DeviceTaintRule | None = None) -> None:
        """A taint rule counts as a change of the slices whose devices it taints."""
        if old is None or old.spec != rule.spec:
            self._handle.devices.set_taint_rule(rule)
            self._move(SLICE_UPDATED, new=rule)

    def remove_taint_rule(self, rule: DeviceTaintRule) -> None:
        self._handle.devices.remove_taint_rule(rule.metadata.name)
        self._move(SLICE_UPDATED, old=rule)

    def set_class(self, device_class: DeviceClass, old: DeviceClass | None = None) -> None:
        if old is None or old.spec != device_class.spec:
            self._handle.devices.set_class(device_class)
            self._move(CLASS_ADDED if old is None else CLASS_UPDATED, old, device_class)

    def remove_class(self, device_class: DeviceClass) -> None:
        self._handle.devices.remove_class(device_class.metadata.name)

    def set_claim(self, claim: ResourceClaim) -> None:
        self._handle.devices.claims.watched(claim)

    def remove_claim(self, claim: ResourceClaim) -> None:
        self._handle.devices.claims.gone(claim)

    def claim_changed(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        """Called by the assumed claims, so that our own writes count as well, and only once."""
        if old is None:
            self._move(CLAIM_ADDED, new=new)
        elif new is None:
            self._move(CLAIM_DELETED, old=old)
        else:
            self._move(CLAIM_UPDATED, old, new)
