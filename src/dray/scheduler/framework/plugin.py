"""The extension points. A plugin implements the ones it needs; the runner finds them by their method names."""

import enum
from collections.abc import Hashable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from dray.allocator import NoFit
from dray.api.core import Pod
from dray.scheduler.framework.cycle_state import CycleState
from dray.scheduler.framework.events import EventRegistration
from dray.scheduler.framework.status import PluginStatus

if TYPE_CHECKING:
    from dray.scheduler.nodes import NodeState
    from dray.scheduler.snapshot import Snapshot


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
