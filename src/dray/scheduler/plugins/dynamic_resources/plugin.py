"""The DynamicResources plugin: names its extension points, most of which live in files of their own."""

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from dray.accounting import pod_demand
from dray.allocator import Allocation, NoFit, TimeLimits
from dray.api.core import Pod
from dray.api.resource import ResourceClaim
from dray.scheduler.config import parse_duration
from dray.scheduler.framework.interface import (
    SKIP,
    CycleState,
    EventRegistration,
    NodeFacet,
    PluginStatus,
    PostFilterResult,
)
from dray.scheduler.handle import Handle
from dray.scheduler.node_demand import (
    DemandByNode,
    no_devices,
)
from dray.scheduler.nodes import NodeState
from dray.scheduler.plugins.dynamic_resources import filter as filtering
from dray.scheduler.plugins.dynamic_resources.decision_log import log as decisions
from dray.scheduler.plugins.dynamic_resources.filter import (
    SearchTurns,
    container_references,
    deadlines,
    entries_in_order,
    sort_claims,
    variants_of,
)
from dray.scheduler.plugins.dynamic_resources.node_allocatable import SHORT_OF_ROOM, demand_by_node
from dray.scheduler.plugins.dynamic_resources.pod_claims import (
    PodAttempt,
    census_of,
    delegated,
    pre_enqueue,
    registrations,
)
from dray.scheduler.plugins.dynamic_resources.post_filter import hypothetically_freed, post_filter
from dray.scheduler.plugins.dynamic_resources.pre_bind import (
    BindingProblem,
    bind_claims,
    bind_with_claim,
    clear_statuses,
    reserve,
    unreserve,
    wait_until_ready,
    waits_for_conditions,
    write_statuses,
)
from dray.scheduler.plugins.pod_spec_plugins import scaled_to_best
from dray.scheduler.snapshot import Snapshot

BEST_ALTERNATIVE = 8


def has_alternatives(attempt: PodAttempt) -> bool:
    claims = (*attempt.to_allocate, *attempt.allocated)
    return any(request.first_available for claim in claims for request in claim.spec.devices.requests)


def score_of(attempt: PodAttempt, allocation: Allocation | None) -> int:
    """Points for the alternatives chosen now, and for those of claims that have their devices already."""
    fresh = allocation.score if allocation is not None else 0
    return fresh + sum(_score_of_allocated(claim) for claim in attempt.allocated)


def _score_of_allocated(claim: ResourceClaim) -> int:
    assert claim.status.allocation is not None
    chosen = {result.request for result in claim.status.allocation.devices.results}
    return sum(
        BEST_ALTERNATIVE - index
        for request in claim.spec.devices.requests
        for index, alternative in enumerate(request.first_available)
        if f"{request.name}/{alternative.name}" in chosen
    )


DEFAULT_FILTER_TIMEOUT = "10s"
DEFAULT_BINDING_TIMEOUT = "600s"
MOST_SHORT_OF_ROOM = 10_000
LOOK_AGAIN_S = 0.05


class DynamicResources:
    name = "DynamicResources"
    score_depends_on = frozenset({NodeFacet.OBJECT, NodeFacet.DEVICES})

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        self._handle = handle
        # Switched off, the plugin lets every pod pass, whatever claims it names.
        self._is_on = handle.gates.enabled("DynamicResourceAllocation")
        filter_timeout_s = 0.0
        if handle.gates.enabled("DRASchedulerFilterTimeout"):
            filter_timeout_s = parse_duration(str(args.get("filterTimeout", DEFAULT_FILTER_TIMEOUT)))
        self._turns = SearchTurns(lambda: handle.clock.monotonic(), filter_timeout_s)
        self._binding_timeout_s = parse_duration(str(args.get("bindingTimeout", DEFAULT_BINDING_TIMEOUT)))
        self._charges_nodes = handle.gates.enabled("DRANodeAllocatableResources")
        self._serves_extended = handle.gates.enabled("DRAExtendedResource")
        # Pods whose devices would have taken more of a node than it had left: room helps them, not only devices.
        self._short_of_room: OrderedDict[str, None] = OrderedDict()

    # --- queue

    def pre_enqueue(self, pod: Pod) -> PluginStatus | None:
        return pre_enqueue(pod, self._handle.devices.claims, self._handle.groups) if self._is_on else None

    def events_to_register(self) -> Iterable[EventRegistration]:
        if not self._is_on:
            return ()
        handle = self._handle
        return registrations(handle.devices.claims, handle.groups, handle.claim_users, lambda: self._short_of_room)

    # --- filter

    def pre_filter(self, cycle: CycleState, pod: Pod, snapshot: Snapshot) -> PluginStatus | None:
        if not self._is_on:
            return SKIP
        self._short_of_room.pop(pod.metadata.uid, None)
        devices = self._handle.devices
        served = delegated(pod, devices.extended) if self._serves_extended else frozenset()
        if not pod.spec.resource_claims and not served:
            return SKIP
        attempt = sort_claims(pod, devices, self._handle.groups)
        if isinstance(attempt, PluginStatus):
            return attempt
        if not attempt.claims and not served:
            return SKIP
        decisions.say(5, "Pod resource claims", pod=pod, claims=attempt.claim_objects)
        attempt.limits = self._limits(cycle)
        attempt.delegated = served
        attempt.leftover = devices.extended_claim_of(pod.metadata.uid) if served else None
        attempt.make_variant = variants_of(attempt, pod, devices)
        takes_node_resources = self._takes_node_resources
        if self._charges_nodes:
            attempt.checks_node_resources = devices.replaces_spec_requests(attempt.class_names())
        attempt.key = self._key(attempt, pod, takes_node_resources)
        cycle.write(attempt)
        if takes_node_resources or served:
            on_node = demand_by_node(attempt, pod, self._handle, lambda node: self._allocation(attempt, node))
            census = census_of(devices) if served else no_devices
            cycle.write(
                DemandByNode(
                    served,
                    attempt.checks_node_resources,
                    attempt.key,
                    on_node if takes_node_resources else None,
                    census,
                )
            )
        return None

    def _limits(self, cycle: CycleState) -> TimeLimits:
        given = cycle.read(TimeLimits)
        if given is not None:
            return given
        return self._turns.in_one_piece() if cycle.turn is None else self._turns.take(cycle.turn)

    @property
    def _takes_node_resources(self) -> bool:
        return self._handle.devices.some_take_node_resources

    @staticmethod
    def _key(attempt: PodAttempt, pod: Pod, takes_node_resources: bool) -> Hashable:
        """What answers depend on, on the pod's side."""
        question = attempt.variant(attempt.delegated).question
        asked = (question.kind if question is not None else None, attempt.delegated)
        allocated = tuple((claim.metadata.uid, claim.metadata.resource_version) for claim in attempt.allocated)
        if not takes_node_resources:
            return (asked, allocated)
        return (
            asked,
            allocated,
            pod_demand(pod, ()),
            pod.spec.resources is not None and pod.metadata.uid,
            entries_in_order(attempt.claims),
            container_references(pod),
        )

    @property
    def filter_depends_on(self) -> frozenset[NodeFacet]:
        if self._takes_node_resources:
            return frozenset({NodeFacet.OBJECT, NodeFacet.DEVICES, NodeFacet.RESOURCES})
        return frozenset({NodeFacet.OBJECT, NodeFacet.DEVICES})

    def filter_shape(self, cycle: CycleState, pod: Pod) -> Hashable:
        attempt = cycle.expect(PodAttempt)
        # Which claims were unavailable is noted while nodes are asked, and readiness depends on the time.
        if attempt.leftover is not None:
            return None
        if attempt.allocated and (attempt.asks_for_devices or any(map(waits_for_conditions, attempt.allocated))):
            return None
        return attempt.key

    def reject(
        self, cycle: CycleState, pod: Pod, snapshot: Snapshot, candidates: int
    ) -> Iterable[tuple[int, PluginStatus]]:
        ruled_out = filtering.beyond_reach(cycle.expect(PodAttempt), snapshot, candidates)
        return [(ruled_out, filtering.NOT_AVAILABLE)] if ruled_out else []

    def filter(self, cycle: CycleState, pod: Pod, node: NodeState) -> PluginStatus | None:
        attempt = cycle.expect(PodAttempt)
        return filtering.filter_node(attempt, pod, node, self._handle, self._binding_timeout_s)

    def _allocation(self, attempt: PodAttempt, node: NodeState) -> Allocation | None:
        answer = filtering.answer_on(attempt, node)
        return answer if isinstance(answer, Allocation) else None

    async def post_filter(
        self, cycle: CycleState, pod: Pod, snapshot: Snapshot, rejections: Mapping[PluginStatus, int]
    ) -> PostFilterResult:
        attempt = cycle.read(PodAttempt)
        if any(status.has_reason(SHORT_OF_ROOM) for status in rejections):
            self._short_of_room[pod.metadata.uid] = None
            if len(self._short_of_room) > MOST_SHORT_OF_ROOM:
                self._short_of_room.popitem(last=False)
        if attempt is None:
            return PostFilterResult(PluginStatus(SKIP.code))
        return PostFilterResult(await post_filter(attempt, pod, self._handle))

    def no_fit_on(self, cycle: CycleState, node_name: str) -> NoFit | None:
        """What the allocator found on one node, for explanations."""
        attempt = cycle.read(PodAttempt)
        node = self._handle.snapshot.nodes.get(node_name)
        question = attempt.on(node).question if attempt is not None and node is not None else None
        if question is None or node is None:
            return None
        # Answered from memory, unless something has changed since: then not at any price.
        answer = question.on(node.node, deadlines(self._handle.clock.monotonic, LOOK_AGAIN_S)())
        return answer if isinstance(answer, NoFit) else None

    def hypothetically_without(self, pods: Iterable[Pod]) -> AbstractContextManager[bool]:
        """As if these pods had gone and their devices with them; for preemption."""
        return hypothetically_freed(pods, self._handle.devices)

    # --- score

    def pre_score(self, cycle: CycleState, pod: Pod, snapshot: Snapshot, feasible: int) -> PluginStatus | None:
        attempt = cycle.read(PodAttempt)
        return None if attempt is not None and has_alternatives(attempt) else SKIP

    def score_shape(self, cycle: CycleState, pod: Pod) -> Hashable:
        return cycle.expect(PodAttempt).key

    def score(self, cycle: CycleState, pod: Pod, node: NodeState) -> int:
        attempt = cycle.expect(PodAttempt)
        return score_of(attempt, self._allocation(attempt, node))

    def normalize(self, scores: Iterable[int]) -> Mapping[int, int]:
        return scaled_to_best(scores)

    # --- reserve and bind

    def reserve(self, cycle: CycleState, pod: Pod, node_name: str) -> PluginStatus | None:
        attempt = cycle.read(PodAttempt)
        node = self._handle.snapshot.nodes.get(node_name)
        if attempt is None or node is None:
            return None
        return reserve(attempt, self._handle, node, self._preferred(attempt, node) or self._allocation(attempt, node))

    def _preferred(self, attempt: PodAttempt, node: NodeState) -> Allocation | None:
        """The devices that a policy prefers on the chosen node.

        Where devices take cpu or memory of the node, the pod was counted with those that the filter found, and they stay.
        """
        prefer, question = self._handle.devices.preferred, attempt.on(node).question
        if prefer is None or question is None or self._takes_node_resources:
            return None
        return prefer(question, node)

    async def unreserve(self, cycle: CycleState, pod: Pod, node_name: str) -> None:
        attempt = cycle.read(PodAttempt)
        if attempt is None:
            return
        await unreserve(attempt, pod, self._handle)
        await clear_statuses(cycle, pod, self._handle)

    async def pre_bind(self, cycle: CycleState, pod: Pod, node_name: str) -> PluginStatus | None:
        attempt = cycle.read(PodAttempt)
        if attempt is None:
            return None
        try:
            if not await bind_with_claim(attempt, cycle, pod, node_name, self._handle):
                await bind_claims(attempt, pod, self._handle)
            await write_statuses(cycle, pod, node_name, self._handle)
            if self._handle.devices.features.binds_with_conditions:
                await self._wait(attempt, pod, node_name)
        except BindingProblem as problem:
            return problem.status()
        for uid in attempt.results:
            self._handle.devices.stored(uid)
        return None

    async def _wait(self, attempt: PodAttempt, pod: Pod, node_name: str) -> None:
        known = self._handle.devices.claims
        bound = [row.claim for row in attempt.claims] + ([attempt.made] if attempt.made is not None else [])
        claims = [known.get(claim.metadata.namespace, claim.metadata.name) for claim in bound]
        present = [claim for claim in claims if claim is not None]
        await wait_until_ready(present, pod, node_name, self._handle, self._binding_timeout_s)
