"""The allocator's cache for one question: answers per node and per kind of node, and searches that were interrupted."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence

from dray.allocator.device_kinds import pattern_of
from dray.allocator.inventory import Inventory, NodePools
from dray.allocator.ledger import Ledger
from dray.allocator.requests import Option, Problem
from dray.allocator.results import Allocation
from dray.allocator.rules.constraints import ConstraintScope, scopes_of
from dray.allocator.search import Search
from dray.allocator.selectors import Selectors
from dray.allocator.types import FatalError, Features
from dray.api.resource import DeviceClass, ResourceClaim

# InterchangeableDevices of nodes whose answer a question keeps.
MOST_KINDS_OF_NODES = 8192


Solution = list[tuple[Option, int]]


class NodeOutcome:
    """The result on one node: a solution, an error, or neither."""

    __slots__ = ("allocation", "failure", "node", "solution", "steps")

    def __init__(self, node: NodePools, solution: Solution | None, failure: FatalError | None, steps: int) -> None:
        self.node = node
        self.solution = solution
        self.failure = failure
        self.steps = steps
        self.allocation: Allocation | None = None


class QuestionCache:
    """Everything known about claims with one spec. Pods whose claims have equal specs share it."""

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
        self.scopes: list[ConstraintScope] = []
        # Verdicts by node that nothing has touched since; `catch_up` sees to it.
        self.current: dict[str, NodeOutcome] = {}
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


def kind_of_node(problem: Problem, node: NodePools, ledger: Ledger, scopes: Sequence[ConstraintScope]) -> Hashable:
    """Equal for nodes on which the search would take the same steps; None: not worth comparing."""
    if problem.has_all and (node.incomplete or node.invalid):
        return None
    parts: list[Hashable] = [node.unreachable, node.declares_operations]
    for view in node.pools:
        shape = view.shape
        taken = ledger.taken(view)
        parts += [shape.base, taken.dedicated, taken.shared]
        for device_filter in problem.filters:
            parts.append(device_filter.matches_by_shape.get(shape) or device_filter.matches(shape))
        if taken.consumed:
            parts.append(taken.consumed_key)
        if view.counters is not None and shape.consumes:
            if shape.grouped:
                return None
            parts += [view.counters.names_key, tuple(ledger.counters(view).available)]
    for scope in scopes:
        if scope.has_derived:
            return None
        parts.append(_pattern(scope, node))
    return tuple(parts)


def _pattern(scope: ConstraintScope, node: NodePools) -> Hashable:
    """Constraints compare values with each other and with nothing else."""
    columns = [scope.column(shape) for shape in node.shapes]
    if scope.lists and any(isinstance(value, frozenset) for column in columns for value in column.values):
        return tuple(columns)
    if len(columns) == 1:
        return columns[0].pattern
    return pattern_of(tuple([value for column in columns for value in column.values]))
