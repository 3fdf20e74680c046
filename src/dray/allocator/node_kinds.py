"""Nodes that differ in nothing a claim can see get one answer."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from dray.allocator.inventory import NodePools
from dray.allocator.ledger import Ledger
from dray.allocator.requests import Problem
from dray.allocator.rules.constraints import Scope
from dray.allocator.shapes import pattern_of


def kind_of_node(problem: Problem, node: NodePools, ledger: Ledger, scopes: Sequence[Scope]) -> Hashable:
    """Equal for nodes on which the search would take the same steps; None: not worth comparing."""
    if problem.has_all and (node.incomplete or node.invalid):
        return None
    parts: list[Hashable] = [node.unreachable, node.declares_operations]
    for view in node.pools:
        shape = view.shape
        taken = ledger.taken(view)
        parts += [shape.base, taken.dedicated, taken.shared]
        for screen in problem.screens:
            parts.append(screen.lenses.get(shape) or screen.lens(shape))
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


def _pattern(scope: Scope, node: NodePools) -> Hashable:
    """Constraints compare values with each other and with nothing else."""
    columns = [scope.column(shape) for shape in node.shapes]
    if scope.lists and any(isinstance(value, frozenset) for column in columns for value in column.values):
        return tuple(columns)
    if len(columns) == 1:
        return columns[0].pattern
    return pattern_of(tuple([value for column in columns for value in column.values]))
