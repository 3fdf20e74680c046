"""The entry point: one question, asked of one node or many, with everything remembered that still holds."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

from dray.allocator.attempt import Attempt, Sight
from dray.allocator.first_fit import first_fit
from dray.allocator.inventory import Inventory, NodePools
from dray.allocator.ledger import Ledger
from dray.allocator.node_kinds import kind_of_node
from dray.allocator.patience import Patience
from dray.allocator.policies import POLICIES
from dray.allocator.reasons import Explanation
from dray.allocator.requests import Option, Problem, claim_mark
from dray.allocator.results import Allocation, Answer
from dray.allocator.rules.constraints import Scope, scopes_of
from dray.allocator.search import Interrupted, Paused, Search, TimedOut
from dray.allocator.selectors import Selectors
from dray.allocator.types import (
    INVALID_POOLS,
    TIMED_OUT,
    Deadline,
    Failure,
    FatalError,
    Features,
    NoFit,
)
from dray.api import codec
from dray.api.core import Node
from dray.api.resource import DeviceClass, ResourceClaim, ResourceSlice

# Kinds of pods whose questions are kept, each with a verdict per node; beyond that the ones asked longest ago go.
MOST_QUESTIONS = 64
# Steps after which an answer is worth keeping for other nodes, even if there are none yet.
MANY_STEPS = 1000
# Kinds of nodes whose answer a question keeps.
MOST_KINDS_OF_NODES = 8192

Solution = list[tuple[Option, int]]


class Verdict:
    """What was found on one node: a solution, an error, or neither."""

    __slots__ = ("allocation", "failure", "node", "solution", "steps")

    def __init__(self, node: NodePools, solution: Solution | None, failure: FatalError | None, steps: int) -> None:
        self.node = node
        self.solution = solution
        self.failure = failure
        self.steps = steps
        self.allocation: Allocation | None = None


class Inquiry:
    """What claims with one spec have taught us so far; shared by all pods that ask the same."""

    __slots__ = (
        "_inventory_seen",
        "_ledger_seen",
        "by_kind_of_node",
        "current",
        "failure",
        "interrupted",
        "problem",
        "scopes",
    )

    def __init__(
        self,
        claims: Sequence[ResourceClaim],
        classes: Mapping[str, DeviceClass],
        features: Features,
        selectors: Selectors,
    ) -> None:
        self.failure: FatalError | None = None
        self.problem: Problem | None = None
        self.scopes: list[Scope] = []
        # Verdicts by node that nothing has touched since; `catch_up` sees to it.
        self.current: dict[str, Verdict] = {}
        # Searches that can go on as long as nothing touches their node.
        self.interrupted: dict[str, Search] = {}
        self._inventory_seen = self._ledger_seen = 0
        self.by_kind_of_node: dict[Hashable, Solution | None] = {}
        try:
            self.problem = Problem(claims, classes, features, selectors)
        except FatalError as problem:
            self.failure = problem
        else:
            for claim in self.problem.claims:
                self.scopes += scopes_of(claim, features.list_type_attributes)

    def catch_up(self, inventory: Inventory, ledger: Ledger) -> None:
        """Verdicts of nodes on which something changed are no longer current; costs what changed."""
        if not self.current and not self.interrupted:
            self._inventory_seen, self._ledger_seen = inventory.changes.end, ledger.changes.end
            return
        if inventory.changes.end != self._inventory_seen:
            nodes = inventory.changes.since(self._inventory_seen)
            self._inventory_seen = inventory.changes.end
            self._drop(nodes)
        if ledger.changes.end != self._ledger_seen:
            pools = ledger.changes.since(self._ledger_seen)
            self._ledger_seen = ledger.changes.end
            for pool_id in set(pools) if pools is not None else ():
                self._drop(inventory.nodes_of(pool_id))
            if pools is None:
                self._drop(None)

    def _drop(self, nodes: Iterable[str | None] | None) -> None:
        if nodes is None or None in (nodes := set(nodes)):
            self.current.clear()
            self.interrupted.clear()
            return
        for name in nodes:
            self.current.pop(name or "", None)
            self.interrupted.pop(name or "", None)

    def remember(self, kind: Hashable, solution: Solution | None) -> None:
        if len(self.by_kind_of_node) >= MOST_KINDS_OF_NODES:
            self.by_kind_of_node.clear()
        self.by_kind_of_node[kind] = solution


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
        self._inquiries: dict[Hashable, Inquiry] = {}
        self._interrupted: Inquiry | None = None

    @property
    def classes(self) -> Mapping[str, DeviceClass]:
        return self._classes

    def apply_class(self, device_class: DeviceClass) -> None:
        known = self._classes.get(device_class.metadata.name)
        self._classes[device_class.metadata.name] = device_class
        if known is None or known.spec != device_class.spec:
            self._inquiries.clear()

    def remove_class(self, name: str) -> None:
        if self._classes.pop(name, None) is not None:
            self._inquiries.clear()

    def question(self, claims: Sequence[ResourceClaim]) -> Question:
        """The claims of one pod that still need devices, in the order of the pod's spec."""
        key = tuple([codec.encode(claim.spec) for claim in claims])
        inquiry = self._inquiries.pop(key, None)
        if inquiry is None:
            if len(self._inquiries) >= MOST_QUESTIONS:
                del self._inquiries[next(iter(self._inquiries))]
            inquiry = Inquiry(claims, self._classes, self.features, self.selectors)
        self._inquiries[key] = inquiry
        return Question(self, claims, inquiry)

    def keep_interrupted(self, inquiry: Inquiry, node_name: str, search: Search) -> None:
        """To go on with it later. Only one is kept: what such a search remembers may be large."""
        if self._interrupted is not None:
            self._interrupted.interrupted.clear()
        self._interrupted = inquiry
        inquiry.interrupted[node_name] = search

    def fresh_question(self, claims: Sequence[ResourceClaim]) -> Question:
        """The same, with nothing remembered of claims like these."""
        return Question(self, claims, Inquiry(claims, self._classes, self.features, self.selectors))


class Question:
    """Which devices serve these claims? Ask it of as many nodes as you like."""

    __slots__ = ("_allocator", "_claims", "_inquiry")

    def __init__(self, allocator: Allocator, claims: Sequence[ResourceClaim], inquiry: Inquiry) -> None:
        self._allocator = allocator
        self._claims = claims
        self._inquiry = inquiry

    @property
    def claims(self) -> Sequence[ResourceClaim]:
        return self._claims

    @property
    def kind(self) -> Hashable:
        """The same for all questions about claims with equal specs, until a class changes."""
        return self._inquiry

    @property
    def problem(self) -> Problem | None:
        """The requests spelled out; None if something is wrong with the claims or their classes."""
        return self._inquiry.problem

    @property
    def scopes(self) -> Sequence[Scope]:
        return self._inquiry.scopes

    def on(self, node: Node, deadline: Deadline | None = None, patience: Patience | None = None) -> Answer:
        """Raises `Paused` if the patience has turns and this one is over; then ask again, with the same patience."""
        inquiry, allocator = self._inquiry, self._allocator
        if inquiry.failure is not None:
            return self._failed(inquiry.failure, 0)
        inquiry.catch_up(allocator.inventory, allocator.ledger)
        verdict = inquiry.current.get(node.metadata.name)
        if verdict is None or verdict.node.node is not node:
            try:
                pools = allocator.inventory.pools_on(node)
                if verdict is None or verdict.node is not pools:
                    patience = patience or Patience(lambda: deadline)
                    verdict = inquiry.current[pools.name] = self._search(pools, patience)
            except FatalError as problem:
                return self._failed(problem, 0)
            except TimedOut as late:
                text = "filter operation aborted: deadline exceeded"
                return Failure(TIMED_OUT, text, for_this_node_only=True, steps=late.steps)
        return verdict.allocation or self._answer(verdict)

    def on_nodes(self, nodes: Iterable[Node], deadline: Deadline | None = None) -> Iterator[tuple[Node, Answer]]:
        """Each node with its answer. Nodes that differ in names only share one search."""
        patience = Patience(lambda: deadline)
        for node in nodes:
            yield node, self.on(node, patience=patience)

    def fitting(
        self, nodes: Iterable[Node], limit: int, deadline: Callable[[], Deadline] | None = None
    ) -> tuple[list[Allocation], list[tuple[Node, NoFit | Failure]]]:
        """The first `limit` nodes that fit, in the given order, and the nodes before them that do not.

        A failure that concerns all nodes ends the walk and is the last of the second list. `deadline()` gives each kind of
        node that has to be searched a deadline of its own.
        """
        patience = Patience(deadline) if deadline is not None else Patience()
        fits: list[Allocation] = []
        misses: list[tuple[Node, NoFit | Failure]] = []
        for node in nodes:
            answer = self.on(node, patience=patience)
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
        problem, ledger = self._inquiry.problem, self._allocator.ledger
        if problem is None:
            return 0, 0
        pools = self._allocator.inventory.pools_on(node)
        sight = Sight(problem.options[0].screen, pools, 0)
        sight.ask_all()
        matching, in_use = sight.yes & ~pools.unreachable, 0
        for view, offset in zip(pools.pools, pools.offsets, strict=True):
            taken = ledger.taken(view)
            in_use |= (taken.dedicated | taken.shared) << offset
        return matching.bit_count(), (matching & in_use).bit_count()

    # --- inside ------------------------------------------------------------------------------------------------------

    def _search(self, pools: NodePools, patience: Patience) -> Verdict:
        inquiry = self._inquiry
        problem = inquiry.problem
        assert problem is not None
        steps = 0
        policy = self._allocator.policy
        if problem.is_simple and pools.is_plain and policy is None:
            try:
                found, is_final, steps = first_fit(problem, pools, self._allocator.ledger)
            except FatalError as failure:
                return Verdict(pools, None, failure, steps)
            if is_final:
                return Verdict(pools, found, None, steps)
        # A question that is asked of one node only need not recognise another.
        kind = self._kind(pools) if inquiry.current or patience.has_given_up else None
        if kind is not None:
            if kind in inquiry.by_kind_of_node:
                return Verdict(pools, inquiry.by_kind_of_node[kind], None, 0)
            if patience.is_hopeless(kind):
                raise TimedOut(0)
        search = inquiry.interrupted.pop(pools.name, None)
        if search is None or search.attempt.node is not pools:
            if patience.turn_is_over is not None and patience.turn_is_over():
                raise Paused(0)
            try:
                search = Search(Attempt(problem, pools, self._allocator.ledger, inquiry.scopes, policy))
            except FatalError as failure:
                return Verdict(pools, None, failure, steps)
        try:
            solution = search.run(patience.deadline_on(pools.name), patience.turn_is_over)
        except FatalError as failure:
            return Verdict(pools, None, failure, search.steps)
        except Interrupted as interruption:
            self._allocator.keep_interrupted(inquiry, pools.name, search)
            if isinstance(interruption, TimedOut):
                patience.give_up(kind if kind is not None else self._kind(pools))
            raise
        if kind is None and search.steps > MANY_STEPS:
            kind = self._kind(pools)
        if kind is not None:
            inquiry.remember(kind, solution)
        return Verdict(pools, solution, None, search.steps)

    def _kind(self, pools: NodePools) -> Hashable:
        """What this node has in common with others; None if nothing that can be relied on."""
        inquiry = self._inquiry
        assert inquiry.problem is not None
        return kind_of_node(inquiry.problem, pools, self._allocator.ledger, inquiry.scopes)

    def _answer(self, verdict: Verdict) -> Answer:
        problem = self._inquiry.problem
        assert problem is not None
        if verdict.failure is not None:
            return self._failed(verdict.failure, verdict.steps)
        if verdict.solution is not None:
            allocation = Allocation(problem, verdict.node, verdict.solution, verdict.steps)
            if not verdict.node.is_local:
                try:
                    allocation.check_node_selectors([claim.metadata.name for claim in self._claims])
                except FatalError as failure:
                    return self._failed(failure, verdict.steps)
            verdict.allocation = allocation
            return allocation
        if verdict.node.invalid:
            return Failure(
                INVALID_POOLS,
                "invalid resource pools were encountered",
                for_this_node_only=True,
                steps=verdict.steps,
            )
        explanation = Explanation(problem, verdict.node, self._allocator.ledger, self._inquiry.scopes, self.with_names)
        return NoFit(explanation, verdict.steps)

    def _failed(self, problem: FatalError, steps: int) -> Failure:
        return Failure(problem.code, self.with_names(problem.message), steps=steps)

    def with_names(self, text: str) -> str:
        """Puts this pod's claims where a message speaks of the first, second, ... claim."""
        if "\0" in text:
            for index, claim in enumerate(self._claims):
                text = text.replace(claim_mark(index), f"{claim.metadata.namespace}/{claim.metadata.name}")
        return text


def allocate(
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
