"""The input of a search on one node: the devices that match each request there, and the rules that apply."""

from __future__ import annotations

from collections.abc import Sequence

from dray.allocator.device_kinds import DeviceKind
from dray.allocator.inventory import NodePools
from dray.allocator.ledger import CapacitySums, Ledger
from dray.allocator.matches import NodeMatches
from dray.allocator.policies import Order, Policy
from dray.allocator.requests import Option, Problem
from dray.allocator.rules import Rule
from dray.allocator.rules.capacity import Capacity
from dray.allocator.rules.compatibility import Compatibility, SetKey
from dray.allocator.rules.constraints import ConstraintScope, constraint_rule
from dray.allocator.rules.counters import Counters, Drawn, PoolBudget
from dray.allocator.types import FatalError, bits
from dray.api.dra.compatibility import Groups


class SearchInput:
    """Everything a search needs to know about a node; raises FatalError where an `All` request cannot be laid out."""

    __slots__ = (
        "_kinds",
        "all_sets",
        "distinct_matches",
        "ledger",
        "matches_by_option",
        "node",
        "orders",
        "problem",
        "rules",
        "shareable",
        "stored",
    )

    def __init__(
        self,
        problem: Problem,
        node: NodePools,
        ledger: Ledger,
        scopes: Sequence[ConstraintScope],
        policy: Policy | None = None,
    ) -> None:
        self.problem = problem
        self.node = node
        self.ledger = ledger
        features = problem.features
        blocked = 0
        shareable = 0
        stored = 0
        shared = 0
        consumed: dict[int, CapacitySums] = {}
        draws = False
        grouped = False
        for view, offset in zip(node.pools, node.offsets, strict=True):
            shape = view.shape
            taken = ledger.taken(view)
            stored |= taken.dedicated << offset
            if shape.allows_multiple:
                shareable |= shape.allows_multiple << offset
            if taken.shared:
                shared |= taken.shared << offset
            if taken.consumed:
                for place, amounts in taken.consumed.items():
                    consumed[offset + place] = amounts
            if shape.consumes and view.counters is not None:
                draws = True
                grouped = grouped or shape.grouped
            if shape.consumes and not features.partitionable_devices:
                blocked |= shape.consumes << offset
            if shape.skipping and not (features.optional_node_operations and node.declares_operations):
                blocked |= shape.skipping << offset
        self.stored = stored
        self.shareable = shareable if features.consumable_capacity else 0
        self._kinds: list[DeviceKind] | None = None
        by_filter = [NodeMatches(device_filter, node, blocked) for device_filter in problem.filters]
        self.distinct_matches = by_filter
        self.matches_by_option = [by_filter[option.device_filter.index] for option in problem.options]
        self.rules: list[Rule] = []
        if features.consumable_capacity and (shareable or consumed):
            self.rules.append(Capacity(problem, self.kinds, shareable, consumed, shared))
        if draws:
            if grouped and features.compatibility_groups:
                self.rules.append(self._compatibility(shared))
            self.rules.append(self._counters(shared))
        for scope in scopes:
            self.rules.append(constraint_rule(scope, self.kinds))
        self.all_sets: dict[int, list[int]] = {}
        if problem.has_all:
            self._lay_out_all()
        # By option, the order in which to try devices; None: as they are published.
        self.orders = None if policy is None else [Order(policy(self, option)) for option in problem.options]

    @property
    def kinds(self) -> list[DeviceKind]:
        if self._kinds is None:
            self._kinds = [kind for shape in self.node.shapes for kind in shape.kinds]
        return self._kinds

    def _counters(self, shared: int) -> Counters:
        budgets: dict[int, PoolBudget] = {}
        drawn: dict[int, Drawn] = {}
        for index, (view, offset) in enumerate(zip(self.node.pools, self.node.offsets, strict=True)):
            if view.counters is None or not view.shape.consumes:
                continue
            budget = PoolBudget(index, self.ledger.counters(view), view.counters.names)
            for place in bits(view.shape.consumes):
                budgets[offset + place] = budget
                drawn[offset + place] = view.counters.drawn_by(view.shape.kinds[place])
        return Counters(budgets, drawn, self.shareable, shared)

    def _compatibility(self, shared: int) -> Compatibility:
        groups: dict[int, tuple[tuple[SetKey, Groups], ...]] = {}
        allocated: list[tuple[SetKey, Groups]] = []
        for index, (view, offset) in enumerate(zip(self.node.pools, self.node.offsets, strict=True)):
            for place in bits(view.shape.consumes):
                groups[offset + place] = _groups(view.shape.kinds[place], index)
            use = self.ledger.use(view.pool_id)
            for kind in view.kinds_of_pool(use.allocated()):
                allocated += _groups(kind, index)
        return Compatibility(groups, allocated, self.shareable, shared)

    def _lay_out_all(self) -> None:
        """Decides how many "all" is, for each request that wants all; in the order of the claims."""
        for claim in self.problem.claims:
            options = [option for request in claim.requests for option in request.options]
            for option in options:
                if option.all_devices:
                    self._check_pools(option)
                    matches = self.matches_by_option[option.index]
                    self._ask_in_order(option, matches)
                    self.all_sets[option.index] = list(bits(matches.yes & ~self.node.unreachable))
            if any(option.all_devices for option in options):
                claim.check_minimum(self.count_of)

    def from_rank(self, option: Option, mask: int, rank: int) -> int:
        """Devices of `mask` that come at this rank or later."""
        if self.orders is None:
            return mask >> rank << rank
        return mask & self.orders[option.index].from_rank[rank]

    def rank(self, option: Option, position: int) -> int:
        return position if self.orders is None else self.orders[option.index].ranks[position]

    def first_of(self, option: Option, mask: int) -> int:
        """The device of `mask` to try next."""
        if self.orders is None:
            return (mask & -mask).bit_length() - 1
        ranks = self.orders[option.index].ranks
        return min(bits(mask), key=ranks.__getitem__)

    def count_of(self, option: Option) -> int:
        return len(self.all_sets[option.index]) if option.all_devices else option.count

    def _ask_in_order(self, option: Option, matches: NodeMatches) -> None:
        matches.ask_all()
        if matches.wrong:
            raise matches.error(option, (matches.wrong & -matches.wrong).bit_length() - 1)

    def _check_pools(self, option: Option) -> None:
        for pools, state in ((self.node.incomplete, "being updated"), (self.node.invalid, "invalid")):
            for view in pools:
                raise FatalError(
                    "pool-not-ready",
                    f"claim {option.claim.label}, request {option.name}: asks for all devices, "
                    f"but resource pool {view.driver}/{view.name} is currently {state}",
                )


def _groups(kind: DeviceKind, pool: int) -> tuple[tuple[SetKey, Groups], ...]:
    return tuple([((pool, counter_set), frozenset(groups)) for counter_set, _, groups in kind.consumes])
