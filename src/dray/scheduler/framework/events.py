"""Cluster events, and how plugins say which waiting pods an event may help."""

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from dray.api.core import Pod


class EventResource(enum.Enum):
    """The kind of object that an event is about. Waiting pods and pods on nodes are two kinds."""

    __hash__ = object.__hash__  # as for NodeFacet

    NODE = "Node"
    ASSIGNED_POD = "AssignedPod"
    UNSCHEDULED_POD = "UnscheduledPod"
    RESOURCE_CLAIM = "ResourceClaim"
    RESOURCE_SLICE = "ResourceSlice"
    DEVICE_CLASS = "DeviceClass"
    POD_GROUP = "PodGroup"
    WILDCARD = "*"


class Action(enum.Flag):
    ADD = enum.auto()
    DELETE = enum.auto()
    UPDATE_NODE_ALLOCATABLE = enum.auto()
    UPDATE_NODE_LABEL = enum.auto()
    UPDATE_NODE_TAINT = enum.auto()
    UPDATE_POD_LABEL = enum.auto()
    UPDATE_POD_SCALE_DOWN = enum.auto()
    UPDATE_POD_TOLERATION = enum.auto()
    UPDATE_POD_GATES = enum.auto()
    UPDATE_POD_CLAIMS = enum.auto()
    UPDATE_OTHER = enum.auto()
    UPDATE = (
        UPDATE_NODE_ALLOCATABLE
        | UPDATE_NODE_LABEL
        | UPDATE_NODE_TAINT
        | UPDATE_POD_LABEL
        | UPDATE_POD_SCALE_DOWN
        | UPDATE_POD_TOLERATION
        | UPDATE_POD_GATES
        | UPDATE_POD_CLAIMS
        | UPDATE_OTHER
    )


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    resource: EventResource
    action: Action
    label: str = ""

    def matches(self, other: "ClusterEvent") -> bool:
        """Does a plugin registered for `self` want to hear of `other`?"""
        if EventResource.WILDCARD in (self.resource, other.resource):
            return True
        return self.resource is other.resource and bool(self.action & other.action)


@dataclass(frozen=True, slots=True)
class ClusterChange:
    """One event with its objects: `old` is None for additions, `new` for deletions."""

    event: ClusterEvent
    old: Any = None
    new: Any = None
    final_state_unknown: bool = False


class Hint(enum.Enum):
    QUEUE = "Queue"
    SKIP = "QueueSkip"


HintFunction = Callable[[Pod, ClusterChange], Hint]


class Narrowing(Protocol):
    """Which waiting pods a change can concern, as pod UIDs; None means any of them."""

    def __call__(self, change: ClusterChange) -> Iterable[str] | None: ...


@dataclass(frozen=True, slots=True)
class EventRegistration:
    """A plugin's interest in an event. Without a hint every pod it rejected is tried again."""

    event: ClusterEvent
    hint: HintFunction | None = None
    narrow: Narrowing | None = None


# The events that carry no object worth asking hints about.
UNSCHEDULABLE_TIMEOUT = ClusterEvent(EventResource.WILDCARD, Action.UPDATE, "UnschedulableTimeout")
ASSIGNED_POD_ADDED = ClusterEvent(EventResource.ASSIGNED_POD, Action.ADD, "AssignedPodAdd")
ASSIGNED_POD_DELETED = ClusterEvent(EventResource.ASSIGNED_POD, Action.DELETE, "AssignedPodDelete")
