"""From two versions of an object to the events that plugins may care about."""

from collections.abc import Iterator

from dray.api.core import Node, Pod
from dray.scheduler.framework.events import Action, ClusterChange, ClusterEvent, EventResource

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
