"""PreFilter and Filter: which of the pod's claims are to be allocated, and whether a node can serve them.

Searches for devices have a deadline and let others work in between.
"""

from collections.abc import Callable, Iterator

from dray.allocator import TIMED_OUT, Allocation, Answer, Deadline, Failure, NoFit, Paused, TimeLimits
from dray.api.core import Pod
from dray.api.matching import matches_node, only_names
from dray.api.reasons import Reason
from dray.api.resource import ResourceClaim
from dray.scheduler.devices import DeviceState
from dray.scheduler.framework.interface import (
    LACKS_DEVICES,
    AttemptUnfinished,
    PluginStatus,
    StatusCode,
    error,
    unresolvable,
)
from dray.scheduler.handle import Handle
from dray.scheduler.nodes import NodeState
from dray.scheduler.plugins.dynamic_resources.decision_log import log, log_answer
from dray.scheduler.plugins.dynamic_resources.node_allocatable import why_no_room
from dray.scheduler.plugins.dynamic_resources.pod_claims import (
    AllocationVariant,
    ClaimNotReady,
    PodAttempt,
    UsableClaim,
    claim_for,
    claims_of,
    classes_of,
    demand_for,
)
from dray.scheduler.plugins.dynamic_resources.pre_bind import BindingProgress, binding_state
from dray.scheduler.snapshot import PodGroups, Snapshot


def sort_claims(pod: Pod, devices: DeviceState, groups: PodGroups) -> PodAttempt | PluginStatus:
    try:
        claims = claims_of(pod, devices.claims, groups)
    except ClaimNotReady as problem:
        return problem.status()
    distinct = {row.claim.metadata.uid: row.claim for row in claims}
    allocated = tuple(claim for claim in distinct.values() if claim.status.allocation is not None)
    to_allocate = tuple(claim for claim in distinct.values() if claim.status.allocation is None)
    for claim in to_allocate:
        refused = _why_not_allocatable(claim, devices)
        if refused is not None:
            return refused
    return PodAttempt(claims, to_allocate, allocated)


def variants_of(attempt: PodAttempt, pod: Pod, devices: DeviceState) -> Callable[[frozenset[str]], AllocationVariant]:
    """Questions for the allocator, by the extended resources that devices have to serve."""

    def make(resources: frozenset[str]) -> AllocationVariant:
        claims, extended, claim = attempt.to_allocate, None, None
        if resources:
            extended = demand_for(pod, resources)
            claim = claim_for(pod, extended, devices.extended)
            claims = (*claims, claim)
        question = devices.allocator.question(claims) if claims else None
        return AllocationVariant(claims, question, extended, claim)

    return make


def _why_not_allocatable(claim: ResourceClaim, devices: DeviceState) -> PluginStatus | None:
    where = f"{claim.metadata.namespace}/{claim.metadata.name}"
    if claim.metadata.uid in devices.in_flight:
        return unresolvable(
            Reason("claim-being-allocated", f"resource claim {where} is in the process of being allocated")
        )
    for request in claim.spec.devices.requests:
        classes = list(classes_of(request))
        if not classes:
            return unresolvable(
                Reason("unsupported", f"resource claim {where}, request {request.name}: unknown request type")
            )
        for name, class_name in classes:
            if class_name not in devices.classes:
                return unresolvable(
                    Reason("missing-class", f"request {name}: device class {class_name} does not exist")
                )
    return None


def container_references(pod: Pod) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Which containers use which claims: it decides what devices take per container."""
    return tuple(
        (container.name, tuple(entry.name for entry in container.resources.claims))
        for container in (*pod.spec.init_containers, *pod.spec.containers)
        if container.resources.claims
    )


def entries_in_order(claims: list[UsableClaim]) -> tuple[str, ...]:
    return tuple(row.entry for row in claims)


# Watches, leases and bindings wait so long at most; most searches take a hundredth of it.
TURN_S = 0.01
# All nodes of an attempt together have so many times the time that one node has.
NODES_IN_AN_ATTEMPT = 2

Now = Callable[[], float]
"""Seconds on a clock that never goes back."""


def deadlines(now: Now, timeout_s: float) -> Callable[[], Deadline | None]:
    """Gives deadlines that are up `timeout_s` after they were given; 0 means never."""

    def deadline() -> Deadline | None:
        if not timeout_s:
            return None
        end = now() + timeout_s
        return lambda: now() > end

    return deadline


class SearchTurn:
    """Begins when it is first asked about, so that every turn gets something done."""

    __slots__ = ("_end", "_now")

    def __init__(self, now: Now) -> None:
        self._now = now
        self._end: float | None = None

    def __call__(self) -> bool:
        now = self._now()
        if self._end is None:
            self._end = now + TURN_S
        return now > self._end


class SearchTurns:
    """The time limits of the attempt under way; all its turns share one."""

    def __init__(self, now: Now, timeout_s: float) -> None:
        self._now = now
        self._timeout_s = timeout_s
        self._limits = TimeLimits()

    def in_one_piece(self) -> TimeLimits:
        together = deadlines(self._now, NODES_IN_AN_ATTEMPT * self._timeout_s)
        return TimeLimits(deadlines(self._now, self._timeout_s), whole_attempt=together)

    def take(self, turn: int) -> TimeLimits:
        if turn == 0:
            self._limits = self.in_one_piece()
        self._limits.turn_is_over = SearchTurn(self._now)
        return self._limits


CANNOT_ALLOCATE = unresolvable(Reason(LACKS_DEVICES, "cannot allocate all claims"))
NOT_AVAILABLE = unresolvable(Reason("claim-elsewhere", "resourceclaim not available on the node"))
LEFTOVER = unresolvable(Reason("left-over-claim", "cannot schedule extended resource claim"))
TIMED_OUT_HERE = PluginStatus(
    StatusCode.UNRESOLVABLE, (Reason("timeout", "timed out trying to allocate devices"),), is_transient=True
)


def answer_on(attempt: PodAttempt, node: NodeState) -> Answer | None:
    """What the allocator says about this node; None if there is nothing to allocate."""
    question = attempt.on(node).question
    try:
        return question.on(node.node, limits=attempt.limits) if question is not None else None
    except Paused as pause:
        raise AttemptUnfinished from pause


def filter_node(
    attempt: PodAttempt, pod: Pod, node: NodeState, handle: Handle, binding_timeout_s: float
) -> PluginStatus | None:
    if attempt.leftover is not None and attempt.on(node).extended is not None:
        return LEFTOVER
    unavailable = list(unavailable_claims(attempt, node, handle, binding_timeout_s))
    answer = answer_on(attempt, node)
    handle.steps += answer.steps if answer is not None else 0
    if log.shows(5):
        log_answer(pod, node, attempt.on(node).question, answer, handle.devices)
    refused = as_status(answer, node)
    if refused is not None:
        return refused
    allocation = answer if isinstance(answer, Allocation) else None
    if handle.devices.some_take_node_resources and not unavailable:
        refused = why_no_room(attempt, pod, node, handle, allocation)
        if refused is not None:
            return refused
    if unavailable:
        log.say(5, NOT_AVAILABLE.message, pod=pod, node=node.name, claims=unavailable)
        attempt.unavailable.update((claim.metadata.uid, claim) for claim in unavailable)
        return NOT_AVAILABLE
    return None


def as_status(answer: Answer | None, node: NodeState) -> PluginStatus | None:
    match answer:
        case NoFit():
            return CANNOT_ALLOCATE
        case Failure() if answer.code == TIMED_OUT:
            # Only this node is ruled out: another one may still serve. Trying again without some pods would take as long.
            return TIMED_OUT_HERE
        case Failure(for_this_node_only=True):
            return unresolvable(answer.reason)
        case Failure():
            return error(answer.reason)
    return None


def unavailable_claims(
    attempt: PodAttempt, node: NodeState, handle: Handle, binding_timeout_s: float
) -> Iterator[ResourceClaim]:
    """Allocated claims that this node cannot reach, or whose devices did not become ready."""
    for claim in attempt.allocated:
        allocation = claim.status.allocation
        if allocation is None:
            continue
        if not matches_node(allocation.node_selector, node.node) or _has_failed(claim, handle, binding_timeout_s):
            yield claim


def _has_failed(claim: ResourceClaim, handle: Handle, binding_timeout_s: float) -> bool:
    if not handle.devices.features.binds_with_conditions:
        return False
    state = binding_state(claim, handle.clock.now(), binding_timeout_s)
    return state.binding in (BindingProgress.FAILED, BindingProgress.TIMED_OUT)


def beyond_reach(attempt: PodAttempt, snapshot: Snapshot, candidates: int) -> int:
    """Nodes that a claim's node selector rules out by name alone, so that none of them needs to be asked.

    Only where nothing is to be allocated: otherwise the allocator's answer for a node comes first.
    """
    if attempt.asks_for_devices:
        return 0
    ruled_out = 0
    for claim in attempt.allocated:
        assert claim.status.allocation is not None
        names = only_names(claim.status.allocation.node_selector)
        if names is not None:
            elsewhere = candidates & ~snapshot.nodes.mask_of(names)
            if elsewhere:
                attempt.unavailable[claim.metadata.uid] = claim
                ruled_out |= elsewhere
    return ruled_out
