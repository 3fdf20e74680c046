"""Score of the policy `least-fragmentation`: nodes and devices on which a pod adds the least waste for the mix of pods seen so far."""

from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from dray.allocator import Allocation, Question
from dray.allocator.policies import Score
from dray.allocator.requests import Option, Problem
from dray.allocator.search_input import SearchInput
from dray.api import codec
from dray.api.core import Pod
from dray.api.resource import ResourceClaim
from dray.scheduler.framework.filtering import EVERY_NODE, ChangeReader, positions
from dray.scheduler.framework.interface import CycleState, NodeFacet, PluginStatus
from dray.scheduler.handle import Handle
from dray.scheduler.nodes import NodeState
from dray.scheduler.packing import Fragmentation, PodShape, Room
from dray.scheduler.plugins.dynamic_resources.filter import deadlines
from dray.scheduler.plugins.dynamic_resources.pod_claims import ClaimNotReady, PodAttempt, claims_of
from dray.scheduler.snapshot import Snapshot

# Pods that the mix remembers; beyond that the ones seen longest ago go.
MOST_PODS = 20_000
# Shapes that the mix is measured by, the most common ones; a cluster may have thousands that come once.
MOST_SHAPES = 512
# The mix is measured anew when it has grown by this part.
GROWTH = 0.25
# Longest search for the preferred devices on the chosen node; after that the first that fit are taken.
PREFERENCE_S = 0.05

ShapeKey = tuple[int, int, tuple[bytes, ...]]
"""Milli-cpu, memory in bytes, and the specs of the claims that need devices."""


ProblemOf = Callable[[tuple[ResourceClaim, ...]], Problem | None]

ExpectedPod = tuple[Pod, tuple[ResourceClaim, ...]]
"""A pod of a given mix, with its claims."""


class PodMix:
    """The pods that wait or have waited, by shape: what the cluster will probably be asked for next."""

    def __init__(self) -> None:
        self._shape_of: OrderedDict[str, ShapeKey] = OrderedDict()
        self._claims: dict[ShapeKey, tuple[ResourceClaim, ...]] = {}
        self._counts: Counter[ShapeKey] = Counter()
        self._seen = 0
        self._measured_at = -1

    def see(self, uid: str, key: ShapeKey, claims: tuple[ResourceClaim, ...]) -> None:
        if uid in self._shape_of:
            return
        self._shape_of[uid] = key
        self._counts[key] += 1
        self._claims[key] = claims
        self._seen += 1
        if len(self._shape_of) > MOST_PODS:
            _, oldest = self._shape_of.popitem(last=False)
            self._counts[oldest] -= 1
            if not self._counts[oldest]:
                del self._counts[oldest], self._claims[oldest]

    def knows(self, uid: str) -> bool:
        return uid in self._shape_of

    @property
    def has_grown(self) -> bool:
        """Is what was measured out of date?"""
        return self._measured_at < 0 or self._seen - self._measured_at >= max(GROWTH * len(self._shape_of), 1)

    def shapes(self, problem_of: ProblemOf) -> dict[ShapeKey, tuple[PodShape, int]]:
        """Only now are the problems made: a claim may come before the class that it names."""
        self._measured_at = self._seen
        return {
            key: (PodShape(key[0], key[1], problem_of(self._claims[key])), count)
            for key, count in self._counts.most_common(MOST_SHAPES)
        }


class DevicePacking:
    """Learns the mix from the pods that enter the queue, after those that the argument `mix` names, and gives a node the more points the less waste the pod adds there.

    Only the nodes that changed are measured again, and nodes with equal room share their scores.
    """

    name = "DevicePacking"
    score_depends_on = frozenset({NodeFacet.OBJECT, NodeFacet.RESOURCES, NodeFacet.DEVICES})

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        self._handle = handle
        self._mix = PodMix()
        self._expected: tuple[ExpectedPod, ...] = tuple(args.get("mix", ()))
        self._shapes: dict[ShapeKey, PodShape] = {}
        self._fragmentation = Fragmentation(())
        # By position of the node; when positions move, every node counts as changed.
        self._rooms: dict[int, Room] = {}
        self._reader = ChangeReader(handle.snapshot.log, self.score_depends_on)
        self._now: PodShape | None = None
        handle.devices.preferred = self.preferred

    # --- the mix

    def pre_enqueue(self, pod: Pod) -> PluginStatus | None:
        """Every pod may pass; it is counted when it comes for the first time."""
        if not self._mix.knows(pod.metadata.uid):
            try:
                usable = claims_of(pod, self._handle.devices.claims, self._handle.groups)
            except ClaimNotReady:
                return None
            distinct = {row.claim.metadata.uid: row.claim for row in usable}
            self._see(pod, tuple([claim for claim in distinct.values() if claim.status.allocation is None]))
        return None

    def _see(self, pod: Pod, claims: tuple[ResourceClaim, ...]) -> None:
        self._mix.see(pod.metadata.uid, self._key(pod, claims), claims)

    def _problem_of(self, claims: tuple[ResourceClaim, ...]) -> Problem | None:
        return self._handle.devices.allocator.question(claims).problem if claims else None

    def _key(self, pod: Pod, claims: Sequence[ResourceClaim]) -> ShapeKey:
        demand = self._handle.snapshot.demand_of(pod)
        return demand.milli_cpu, demand.memory, tuple([codec.encode(claim.spec) for claim in claims])

    def _measure(self) -> None:
        for pod, claims in self._expected:
            self._see(pod, claims)
        self._expected = ()
        counted = self._mix.shapes(self._problem_of)
        self._shapes = {key: shape for key, (shape, _) in counted.items()}
        self._fragmentation = Fragmentation(counted.values())
        self._rooms.clear()

    # --- the score

    def pre_score(self, cycle: CycleState, pod: Pod, snapshot: Snapshot, feasible: int) -> PluginStatus | None:
        self._catch_up(snapshot)
        attempt = cycle.read(PodAttempt)
        question = attempt.variant(attempt.delegated).question if attempt is not None else None
        key = self._key(pod, question.claims if question is not None else ())
        shape = self._shapes.get(key)
        if shape is None:
            problem = question.problem if question is not None else None
            shape = self._shapes[key] = PodShape(key[0], key[1], problem)
        self._now = shape
        return None

    def _catch_up(self, snapshot: Snapshot) -> None:
        if self._mix.has_grown:
            self._measure()
        changed = self._reader.changed()
        if changed == EVERY_NODE:
            self._rooms.clear()
        elif changed:
            for position in positions(changed & snapshot.nodes.everything):
                self._rooms.pop(position, None)

    def score_shape(self, cycle: CycleState, pod: Pod) -> Hashable:
        # A shape is made anew when the mix is measured anew.
        return self._now

    def score(self, cycle: CycleState, pod: Pod, node: NodeState) -> int:
        shape, room = self._now, self._rooms.get(node.position) or self._measured(node)
        assert shape is not None
        known = room.scores.get(shape)
        return known if known is not None else self._fragmentation.score(room, shape)

    def _measured(self, node: NodeState) -> Room:
        devices, ledger = self._handle.devices, node.ledger
        bins = self._fragmentation.bins_on(devices.inventory.pools_on(node.node), devices.ledger)
        room = self._rooms[node.position] = self._fragmentation.room(
            ledger.allocatable_milli_cpu - ledger.milli_cpu, ledger.allocatable_memory - ledger.memory, bins
        )
        return room

    # --- the devices

    def preferred(self, question: Question, node: NodeState) -> Allocation | None:
        # Where only one node fits, nothing has been scored.
        self._catch_up(self._handle.snapshot)
        deadline = deadlines(self._handle.clock.monotonic, PREFERENCE_S)()

        def waste(given: SearchInput, option: Option) -> list[Score]:
            ledger = node.ledger
            cpu = ledger.allocatable_milli_cpu - ledger.milli_cpu
            memory = ledger.allocatable_memory - ledger.memory
            found = self._fragmentation.waste_by_device(given.node, given.ledger, option, cpu, memory)
            return [(found.get(position, float("inf")),) for position in range(given.node.size)]

        return question.in_order_of(waste, node.node, deadline)
