"""The entry point: which devices serve the claims of a pod, on one node or on many. Answers are kept until they are outdated."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

from dray.allocator.first_fit import first_fit
from dray.allocator.inventory import Inventory, NodePools
from dray.allocator.ledger import Ledger
from dray.allocator.matches import NodeMatches
from dray.allocator.policies import POLICIES, Policy
from dray.allocator.question_cache import NodeOutcome, QuestionCache, kind_of_node
from dray.allocator.reasons import Explanation
from dray.allocator.requests import Problem, claim_mark
from dray.allocator.results import Allocation, Answer
from dray.allocator.rules.constraints import ConstraintScope
from dray.allocator.search import Interrupted, Paused, Search, SearchTimedOut
from dray.allocator.search_input import SearchInput
from dray.allocator.selectors import Selectors
from dray.allocator.types import INVALID_POOLS, TIMED_OUT, Deadline, Failure, FatalError, Features, NoFit
from dray.api import codec
from dray.api.core import Node
from dray.api.reasons import Reason
from dray.api.resource import DeviceClass, ResourceClaim, ResourceSlice

# InterchangeableDevices of pods whose questions are kept, each with a outcome per node; beyond that the ones asked longest ago go.
MOST_QUESTIONS = 64
# Interrupted searches that are kept, and the failed states that they may remember together (some 400 bytes each).
MOST_INTERRUPTED = 64
MOST_STATES = 200_000
# Steps after which an answer is worth keeping for other nodes, even if there are none yet.
MANY_STEPS = 1000


def _forever() -> None:
    return None


class TimeLimits:
    """The time limit for the searches of one scheduling attempt, over all its nodes and all its turns.

    Each node has its own deadline, and all of them together have one: `whole_attempt` gives it when the first search begins.
    When a search on a node passes either, other nodes of the same kind are not searched either.
    `turn_is_over` says when the caller wants to do other work: the search raises `Paused`, and continues when it is asked again.
    """

    __slots__ = ("_attempt", "_deadlines", "_new_deadline", "_too_slow", "_whole_attempt", "turn_is_over")

    def __init__(
        self,
        new_deadline: Callable[[], Deadline | None] = _forever,
        turn_is_over: Deadline | None = None,
        whole_attempt: Callable[[], Deadline | None] = _forever,
    ) -> None:
        self._new_deadline = new_deadline
        self._whole_attempt = whole_attempt
        self._attempt: Deadline | None = None
        self._deadlines: dict[str, Deadline | None] = {}
        self._too_slow: set[Hashable] = set()
        self.turn_is_over = turn_is_over

    @property
    def has_too_slow_nodes(self) -> bool:
        return bool(self._too_slow)

    def deadline_on(self, node_name: str) -> Deadline | None:
        if node_name not in self._deadlines:
            if not self._deadlines:
                self._attempt = self._whole_attempt()
            self._deadlines[node_name] = _either(self._new_deadline(), self._attempt)
        return self._deadlines[node_name]

    def mark_too_slow(self, kind_of_node: Hashable) -> None:
        self._too_slow.add(kind_of_node)

    def is_too_slow(self, kind_of_node: Hashable) -> bool:
        return kind_of_node in self._too_slow


def _either(one: Deadline | None, other: Deadline | None) -> Deadline | None:
    if one is None or other is None:
        return one or other
    return lambda: one() or other()


class Allocator:
    """Answers questions about one inventory and one ledger, which others keep up to date."""

    def __init__(
        self,
        inventory: Inventory,
        ledger: Ledger,
        classes: Iterable[DeviceClass] = (),
        policy: str = "first-fit",
    ) -> None:
        """`policy` is a name of POLICIES; KeyError for any other."""
        self.policy = POLICIES[policy]
        self.inventory = inventory
        self.ledger = ledger
        self.features = inventory.features
        self.selectors = Selectors(self.features)
        self._classes: dict[str, DeviceClass] = {one.metadata.name: one for one in classes}
        self._caches: dict[Hashable, QuestionCache] = {}
        # Searches to continue, oldest first, each by its question and node.
        self._interrupted: list[tuple[QuestionCache, str]] = []

    @property
    def classes(self) -> Mapping[str, DeviceClass]:
        return self._classes

    def apply_class(self, device_class: DeviceClass) -> None:
        known = self._classes.get(device_class.metadata.name)
        self._classes[device_class.metadata.name] = device_class
        if known is None or known.spec != device_class.spec:
            self._caches.clear()

    def remove_class(self, name: str) -> None:
        if self._classes.pop(name, None) is not None:
            self._caches.clear()

    def question(self, claims: Sequence[ResourceClaim]) -> Question:
        """The claims of one pod that still need devices, in the order of the pod's spec."""
        key = tuple([codec.encode(claim.spec) for claim in claims])
        cache = self._caches.pop(key, None)
        if cache is None:
            if len(self._caches) >= MOST_QUESTIONS:
                del self._caches[next(iter(self._caches))]
            cache = QuestionCache(claims, self._classes, self.features, self.selectors)
        self._caches[key] = cache
        return Question(self, claims, cache)

    def keep_interrupted(self, cache: QuestionCache, node_name: str, search: Search) -> None:
        """Keeps a search so that it can continue later. What all of them remember is limited: the oldest ones go first."""
        kept = [(each, name) for each, name in self._interrupted if name in each.interrupted]
        cache.interrupted[node_name] = search
        kept.append((cache, node_name))
        states = sum([each.interrupted[name].remembered_states for each, name in kept])
        while len(kept) > MOST_INTERRUPTED or (states > MOST_STATES and len(kept) > 1):
            oldest, name = kept.pop(0)
            states -= oldest.interrupted.pop(name).remembered_states
        self._interrupted = kept

    def fresh_question(self, claims: Sequence[ResourceClaim]) -> Question:
        """The same, with nothing remembered of claims like these."""
        return Question(self, claims, QuestionCache(claims, self._classes, self.features, self.selectors))


class Question:
    """Which devices serve these claims? Ask it of as many nodes as you like."""

    __slots__ = ("_allocator", "_cache", "_claims")

    def __init__(self, allocator: Allocator, claims: Sequence[ResourceClaim], cache: QuestionCache) -> None:
        self._allocator = allocator
        self._claims = claims
        self._cache = cache

    @property
    def claims(self) -> Sequence[ResourceClaim]:
        return self._claims

    @property
    def kind(self) -> Hashable:
        """The same for all questions about claims with equal specs, until a class changes."""
        return self._cache

    @property
    def problem(self) -> Problem | None:
        """The requests spelled out; None if something is wrong with the claims or their classes."""
        return self._cache.problem

    @property
    def scopes(self) -> Sequence[ConstraintScope]:
        return self._cache.scopes

    def on(self, node: Node, deadline: Deadline | None = None, limits: TimeLimits | None = None) -> Answer:
        """Raises `Paused` when the turn of `limits` is over; then ask again, with the same limits."""
        cache, allocator = self._cache, self._allocator
        if cache.failure is not None:
            return self._failed(cache.failure, 0)
        cache.catch_up(allocator.inventory, allocator.ledger)
        outcome = cache.current.get(node.metadata.name)
        if outcome is None or outcome.node.node is not node:
            try:
                pools = allocator.inventory.pools_on(node)
                if outcome is None or outcome.node is not pools:
                    limits = limits or TimeLimits(lambda: deadline)
                    outcome = cache.current[pools.name] = self._search(pools, limits)
            except FatalError as problem:
                return self._failed(problem, 0)
            except SearchTimedOut as late:
                text = "filter operation aborted: deadline exceeded"
                return Failure(Reason(TIMED_OUT, text), for_this_node_only=True, steps=late.steps)
        return outcome.allocation or self._answer(outcome)

    def in_order_of(self, policy: Policy, node: Node, deadline: Deadline | None = None) -> Allocation | None:
        """The devices on one node, tried in the order of `policy`; None if there are none, or not in time. Nothing is kept."""
        problem, allocator = self._cache.problem, self._allocator
        if problem is None:
            return None
        pools = allocator.inventory.pools_on(node)
        try:
            search = Search(SearchInput(problem, pools, allocator.ledger, self._cache.scopes, policy))
            solution = search.run(deadline)
            found = Allocation(problem, pools, solution, search.steps) if solution is not None else None
            if found is not None and not pools.is_local:
                found.check_node_selectors([claim.metadata.name for claim in self._claims])
        except (FatalError, Interrupted):
            return None
        return found

    def on_nodes(self, nodes: Iterable[Node], deadline: Deadline | None = None) -> Iterator[tuple[Node, Answer]]:
        """Each node with its answer. Nodes that differ in names only share one search."""
        limits = TimeLimits(lambda: deadline)
        for node in nodes:
            yield node, self.on(node, limits=limits)

    def fitting(
        self, nodes: Iterable[Node], limit: int, deadline: Callable[[], Deadline] | None = None
    ) -> tuple[list[Allocation], list[tuple[Node, NoFit | Failure]]]:
        """The first `limit` nodes that fit, in the given order, and the nodes before them that do not.

        A failure that concerns all nodes ends the loop and is the last of the second list. `deadline()` gives each kind of
        node that has to be searched a deadline of its own.
        """
        limits = TimeLimits(deadline) if deadline is not None else TimeLimits()
        fits: list[Allocation] = []
        misses: list[tuple[Node, NoFit | Failure]] = []
        for node in nodes:
            answer = self.on(node, limits=limits)
            if isinstance(answer, Allocation):
                fits.append(answer)
                if len(fits) >= limit:
                    break
                continue
            misses.append((node, answer))
            if isinstance(answer, Failure) and not answer.for_this_node_only:
                break
        return fits, misses

    def census(self, node: Node) -> tuple[int, int]:
        """Devices within the node's reach that the first request can see, and how many of them are in use."""
        problem, ledger = self._cache.problem, self._allocator.ledger
        if problem is None:
            return 0, 0
        pools = self._allocator.inventory.pools_on(node)
        matches = NodeMatches(problem.options[0].device_filter, pools, 0)
        matches.ask_all()
        matching, in_use = matches.yes & ~pools.unreachable, 0
        for view, offset in zip(pools.pools, pools.offsets, strict=True):
            taken = ledger.taken(view)
            in_use |= (taken.dedicated | taken.shared) << offset
        return matching.bit_count(), (matching & in_use).bit_count()

    # --- inside ------------------------------------------------------------------------------------------------------

    def _search(self, pools: NodePools, limits: TimeLimits) -> NodeOutcome:
        cache = self._cache
        problem = cache.problem
        assert problem is not None
        steps = 0
        policy = self._allocator.policy
        if problem.is_simple and pools.is_plain and policy is None:
            try:
                found, is_final, steps = first_fit(problem, pools, self._allocator.ledger)
            except FatalError as failure:
                return NodeOutcome(pools, None, failure, steps)
            if is_final:
                return NodeOutcome(pools, found, None, steps)
        # A question that is asked of one node only need not recognise another.
        kind = self._kind(pools) if cache.current or limits.has_too_slow_nodes else None
        if kind is not None:
            if kind in cache.by_kind_of_node:
                return NodeOutcome(pools, cache.by_kind_of_node[kind], None, 0)
            if limits.is_too_slow(kind):
                raise SearchTimedOut(0)
        search = cache.interrupted.pop(pools.name, None)
        if search is None or search.given.node is not pools:
            if limits.turn_is_over is not None and limits.turn_is_over():
                raise Paused(0)
            try:
                search = Search(SearchInput(problem, pools, self._allocator.ledger, cache.scopes, policy))
            except FatalError as failure:
                return NodeOutcome(pools, None, failure, steps)
        try:
            solution = search.run(limits.deadline_on(pools.name), limits.turn_is_over)
        except FatalError as failure:
            return NodeOutcome(pools, None, failure, search.steps)
        except Interrupted as interruption:
            self._allocator.keep_interrupted(cache, pools.name, search)
            if isinstance(interruption, SearchTimedOut):
                limits.mark_too_slow(kind if kind is not None else self._kind(pools))
            raise
        if kind is None and search.steps > MANY_STEPS:
            kind = self._kind(pools)
        if kind is not None:
            cache.remember(kind, solution)
        return NodeOutcome(pools, solution, None, search.steps)

    def _kind(self, pools: NodePools) -> Hashable:
        """The properties that this node shares with others; None if no answer can be shared."""
        cache = self._cache
        assert cache.problem is not None
        return kind_of_node(cache.problem, pools, self._allocator.ledger, cache.scopes)

    def _answer(self, outcome: NodeOutcome) -> Answer:
        problem = self._cache.problem
        assert problem is not None
        if outcome.failure is not None:
            return self._failed(outcome.failure, outcome.steps)
        if outcome.solution is not None:
            allocation = Allocation(problem, outcome.node, outcome.solution, outcome.steps)
            if not outcome.node.is_local:
                try:
                    allocation.check_node_selectors([claim.metadata.name for claim in self._claims])
                except FatalError as failure:
                    return self._failed(failure, outcome.steps)
            outcome.allocation = allocation
            return allocation
        if outcome.node.invalid:
            return Failure(
                Reason(INVALID_POOLS, "invalid resource pools were encountered"),
                for_this_node_only=True,
                steps=outcome.steps,
            )
        explanation = Explanation(problem, outcome.node, self._allocator.ledger, self._cache.scopes, self.with_names)
        return NoFit(explanation, outcome.steps)

    def _failed(self, problem: FatalError, steps: int) -> Failure:
        return Failure(Reason(problem.code, self.with_names(problem.message)), steps=steps)

    def with_names(self, text: str) -> str:
        """Replaces the marks for the first, second, ... claim in a message by the names of this pod's claims."""
        if "\0" in text:
            for index, claim in enumerate(self._claims):
                text = text.replace(claim_mark(index), f"{claim.metadata.namespace}/{claim.metadata.name}")
        return text


def allocate_on(
    node: Node,
    claims: Sequence[ResourceClaim],
    *,
    slices: Iterable[ResourceSlice],
    classes: Iterable[DeviceClass],
    allocated: Iterable[ResourceClaim] = (),
    features: Features | None = None,
    deadline: Deadline | None = None,
    policy: str = "first-fit",
) -> Answer:
    """One node, one answer, nothing kept."""
    inventory = Inventory(features)
    for published in slices:
        inventory.apply_slice(published)
    ledger = Ledger(inventory.features, allocated)
    return Allocator(inventory, ledger, classes, policy).fresh_question(claims).on(node, deadline)
