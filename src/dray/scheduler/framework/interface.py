"""What the framework and its plugins say to each other: the extension points, the statuses that plugins answer with, the state of one cycle, and cluster events.

A plugin implements the extension points that it needs; the runner finds them by their method names.
"""

import enum
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import msgspec

from dray.allocator import NoFit
from dray.api.core import Pod
from dray.api.reasons import Reason

if TYPE_CHECKING:
    from dray.scheduler.nodes import NodeState
    from dray.scheduler.snapshot import Snapshot

FILTER = "filter"
"""The code of a reason that its plugin gives as plain text."""

LACKS_DEVICES = "devices"
"""The code of a refusal that removing pods may lift, since it frees their devices, although it is UNRESOLVABLE."""


class StatusCode(enum.Enum):
    # Members are equal only to themselves. The hash of an Enum is worked out in Python.
    __hash__ = object.__hash__

    SUCCESS = "Success"
    ERROR = "Error"
    UNSCHEDULABLE = "Unschedulable"
    UNRESOLVABLE = "UnschedulableAndUnresolvable"
    WAIT = "Wait"
    SKIP = "Skip"


@dataclass(frozen=True, slots=True)
class PluginStatus:
    """A plugin's answer other than a plain yes; `plugin` is filled in by the runner.

    UNRESOLVABLE means that removing other pods from the node would not help. An answer that `is_transient` holds for one attempt
    only, even if nothing changes: another attempt may come to another answer.
    """

    code: StatusCode
    reasons: tuple[Reason, ...] = ()
    plugin: str = ""
    is_transient: bool = False
    _hash: int = field(default=0, init=False, compare=False, repr=False)

    def __hash__(self) -> int:
        """Worked out once: a status stands for many nodes, and is looked up for each of them."""
        if not self._hash:
            object.__setattr__(self, "_hash", hash((self.code, self.reasons, self.plugin, self.is_transient)))
        return self._hash

    @property
    def is_rejected(self) -> bool:
        return self.code is StatusCode.UNSCHEDULABLE or self.code is StatusCode.UNRESOLVABLE

    @property
    def message(self) -> str:
        return ", ".join(reason.text for reason in self.reasons)

    @property
    def reason_code(self) -> str:
        """The code of the first reason, which decides how the refusal is explained."""
        return self.reasons[0].code if self.reasons else FILTER

    def has_reason(self, code: str) -> bool:
        return any(reason.code == code for reason in self.reasons)

    def by(self, plugin: str) -> "PluginStatus":
        return self if self.plugin else PluginStatus(self.code, self.reasons, plugin, self.is_transient)

    def as_one_reason(self, where: str) -> Reason:
        """All reasons as one whose text says first where the answer came from."""
        return Reason(self.reason_code, f"{where}: {self.message}")


SKIP = PluginStatus(StatusCode.SKIP)


def unschedulable(*reasons: Reason | str) -> PluginStatus:
    return PluginStatus(StatusCode.UNSCHEDULABLE, tuple(map(_as_reason, reasons)))


def unresolvable(*reasons: Reason | str) -> PluginStatus:
    return PluginStatus(StatusCode.UNRESOLVABLE, tuple(map(_as_reason, reasons)))


def error(reason: Reason | str) -> PluginStatus:
    return PluginStatus(StatusCode.ERROR, (_as_reason(reason),))


def _as_reason(reason: Reason | str) -> Reason:
    return reason if isinstance(reason, Reason) else Reason(FILTER, reason)


def status_word(status: PluginStatus | None) -> str:
    """The code as metrics write it; no status means success."""
    return "Success" if status is None else status.code.value


T = TypeVar("T")


class CycleState:
    """Values keyed by their type: a plugin writes its own value type and reads those of others."""

    __slots__ = ("_values", "is_sampled", "skipped_filters", "skipped_scores", "turn")

    def __init__(self, turn: int | None = None) -> None:
        """`turn` counts from 0 where an attempt may raise `AttemptUnfinished` and is repeated; None: it runs to its end."""
        self.turn = turn
        # Whether the time of each plugin is recorded in this attempt.
        self.is_sampled = False
        self._values: dict[type[Any], Any] = {}
        self.skipped_filters: set[str] = set()
        self.skipped_scores: set[str] = set()

    def write(self, value: object) -> None:
        self._values[type(value)] = value

    def read(self, kind: type[T]) -> T | None:
        return self._values.get(kind)

    def expect(self, kind: type[T]) -> T:
        """The value another step of this attempt must have written."""
        value = self._values.get(kind)
        if value is None:
            raise LookupError(f"{kind.__name__} was not written in this scheduling attempt")
        return value  # type: ignore[no-any-return]

    def fork(self) -> "CycleState":
        """A copy for a dry run; values themselves are shared and replaced, never changed in place."""
        copy = CycleState()
        copy._values = dict(self._values)
        copy.skipped_filters = set(self.skipped_filters)
        copy.skipped_scores = set(self.skipped_scores)
        return copy


@dataclass(slots=True)
class DefaultBinding:
    """In the state of a cycle while PreBind has one plugin and Bind is the default: that plugin may bind the pod with its last write."""

    is_done: bool = False


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


class ClusterChange(msgspec.Struct, frozen=True):
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
    """Which waiting pods a change can concern, as pod UIDs; None means any that the plugin rejected in an attempt, but none at its gate."""

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


class NodeFacet(enum.Enum):
    """The parts of a node that change independently: a cached answer lasts until a part that it depends on changes."""

    # Members are equal only to themselves. The hash of an Enum is worked out in Python, a hundred times for each pod.
    __hash__ = object.__hash__

    OBJECT = "object"  # labels, taints, unschedulable, allocatable
    RESOURCES = "resources"  # what its pods request, and how many there are
    PODS = "pods"  # which pods, with their labels and ports
    DEVICES = "devices"  # what it can reach, and what of that is free


class AttemptUnfinished(Exception):
    """A filter needs more time than other tasks should wait: the attempt stops, other tasks run, and the attempt is repeated.

    Raised only in a cycle that has turns. The plugin keeps what it has found so far, so that every turn gets further.
    """


class Plugin(Protocol):
    name: str


@runtime_checkable
class PreEnqueuePlugin(Protocol):
    name: str

    def pre_enqueue(self, pod: Pod) -> PluginStatus | None: ...


@runtime_checkable
class QueueSortPlugin(Protocol):
    name: str

    def sort_key(self, pod: Pod, queued_at: float) -> tuple[float, ...]: ...


@runtime_checkable
class EnqueuePlugin(Protocol):
    name: str

    def events_to_register(self) -> Iterable[EventRegistration]: ...


@dataclass(frozen=True, slots=True)
class NodeNames:
    """A PreFilter answer that rules out every other node without asking about it."""

    names: frozenset[str]


@runtime_checkable
class PreFilterPlugin(Protocol):
    name: str

    def pre_filter(self, cycle: CycleState, pod: Pod, snapshot: "Snapshot") -> PluginStatus | NodeNames | None: ...


@runtime_checkable
class FilterPlugin(Protocol):
    name: str

    def filter(self, cycle: CycleState, pod: Pod, node: "NodeState") -> PluginStatus | None: ...


NodeQuestion = Callable[["NodeState"], PluginStatus | None]
"""What a filter says about one node."""


@runtime_checkable
class PreparedFilter(Protocol):
    """A filter that works out once for each attempt what does not depend on the node; the answers are those of `filter`."""

    name: str

    def filter_of(self, cycle: CycleState, pod: Pod) -> NodeQuestion: ...


@runtime_checkable
class BulkFilterPlugin(Protocol):
    """A filter that can turn away many nodes at once, before any of them is asked about one by one."""

    name: str

    def reject(
        self, cycle: CycleState, pod: Pod, snapshot: "Snapshot", candidates: int
    ) -> Iterable[tuple[int, PluginStatus]]: ...


@runtime_checkable
class RememberedFilter(Protocol):
    """A filter whose answer follows from the pod's shape and some facets of the node, and so can be remembered."""

    name: str
    filter_depends_on: frozenset[NodeFacet]

    def filter_shape(self, cycle: CycleState, pod: Pod) -> Hashable | None:
        """Pods of equal shape get equal answers; None means this answer must not be remembered."""
        ...


@dataclass(frozen=True, slots=True)
class PostFilterResult:
    """`nominated_node` is where the pod will fit soon; empty takes an earlier nomination back, None leaves it alone."""

    status: PluginStatus
    nominated_node: str | None = None


@runtime_checkable
class PostFilterPlugin(Protocol):
    name: str

    async def post_filter(
        self, cycle: CycleState, pod: Pod, snapshot: "Snapshot", rejections: Mapping[PluginStatus, int]
    ) -> PostFilterResult: ...


@runtime_checkable
class PreScorePlugin(Protocol):
    name: str

    def pre_score(self, cycle: CycleState, pod: Pod, snapshot: "Snapshot", feasible: int) -> PluginStatus | None: ...


@runtime_checkable
class ScorePlugin(Protocol):
    name: str

    def score(self, cycle: CycleState, pod: Pod, node: "NodeState") -> int: ...


@runtime_checkable
class BulkScorePlugin(Protocol):
    """A score that is worked out for all nodes at once: masks of nodes by score, instead of `score`."""

    name: str

    def scores(self, cycle: CycleState, pod: Pod, snapshot: "Snapshot", feasible: int) -> dict[int, int]: ...


@runtime_checkable
class RememberedScore(Protocol):
    name: str
    score_depends_on: frozenset[NodeFacet]

    def score_shape(self, cycle: CycleState, pod: Pod) -> Hashable | None: ...


@runtime_checkable
class NormalizePlugin(Protocol):
    name: str

    def normalize(self, scores: Iterable[int]) -> Mapping[int, int]:
        """Each raw score that occurs, with the score from 0 to 100 that takes its place."""
        ...


@runtime_checkable
class ReservePlugin(Protocol):
    name: str

    def reserve(self, cycle: CycleState, pod: Pod, node_name: str) -> PluginStatus | None: ...

    async def unreserve(self, cycle: CycleState, pod: Pod, node_name: str) -> None:
        """Undo `reserve` and `pre_bind`, as far as they got. Must not fail."""
        ...


@runtime_checkable
class PermitPlugin(Protocol):
    name: str

    def permit(self, cycle: CycleState, pod: Pod, node_name: str) -> tuple[PluginStatus | None, float]:
        """Yes, no, or WAIT with the seconds to wait at most."""
        ...


@runtime_checkable
class PreBindPlugin(Protocol):
    name: str

    async def pre_bind(self, cycle: CycleState, pod: Pod, node_name: str) -> PluginStatus | None: ...


@runtime_checkable
class BindPlugin(Protocol):
    name: str

    async def bind(self, cycle: CycleState, pod: Pod, node_name: str) -> PluginStatus | None: ...


@runtime_checkable
class PostBindPlugin(Protocol):
    name: str

    def post_bind(self, cycle: CycleState, pod: Pod, node_name: str) -> None: ...


@runtime_checkable
class DeviceFreeingPlugin(Protocol):
    """A plugin that can count the devices of given pods as free for a moment; preemption asks it."""

    name: str

    def hypothetically_without(self, pods: Iterable[Pod]) -> AbstractContextManager[bool]: ...


@runtime_checkable
class DeviceExplainingPlugin(Protocol):
    """A plugin that can say in detail what the allocator found on a node."""

    name: str

    def no_fit_on(self, cycle: CycleState, node_name: str) -> NoFit | None: ...


@dataclass(frozen=True, slots=True)
class ExtensionPoint:
    """`field` is its name in KubeSchedulerConfiguration, `attribute` in `PluginsByPoint`."""

    field: str
    attribute: str
    methods: tuple[str, ...]

    def is_implemented_by(self, plugin: object) -> bool:
        return any(hasattr(plugin, method) for method in self.methods)


EXTENSION_POINTS = (
    ExtensionPoint("preEnqueue", "pre_enqueue", ("pre_enqueue",)),
    ExtensionPoint("queueSort", "queue_sort", ("sort_key",)),
    ExtensionPoint("preFilter", "pre_filter", ("pre_filter",)),
    ExtensionPoint("filter", "filter", ("filter",)),
    ExtensionPoint("postFilter", "post_filter", ("post_filter",)),
    ExtensionPoint("preScore", "pre_score", ("pre_score",)),
    # Scores come one by one or, as `scores`, for all nodes at once.
    ExtensionPoint("score", "score", ("score", "scores")),
    ExtensionPoint("reserve", "reserve", ("reserve",)),
    ExtensionPoint("permit", "permit", ("permit",)),
    ExtensionPoint("preBind", "pre_bind", ("pre_bind",)),
    ExtensionPoint("bind", "bind", ("bind",)),
    ExtensionPoint("postBind", "post_bind", ("post_bind",)),
)
