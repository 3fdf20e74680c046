"""Partitionable devices: what chosen devices draw from the counter sets of their pool must be there."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from dray.allocator.ledger import CounterState
from dray.allocator.requests import Option
from dray.allocator.rules import KindOf

Drawn = tuple[tuple[int, int], ...]


class PoolBudget:
    """The counters of one pool during one search."""

    __slots__ = ("left", "names", "overdrawn", "pool")

    def __init__(self, pool: int, state: CounterState, names: Sequence[tuple[str, str]]) -> None:
        self.pool = pool
        self.left = list(state.available)
        # One counter below zero anywhere blocks every device of the pool that draws at all.
        self.overdrawn = state.overdrawn
        self.names = names


class Counters:
    is_constraint = False
    name = "counters"

    __slots__ = ("_budgets", "_charged", "_concerns", "_drawn", "_shareable", "_shared")

    def __init__(self, budgets: dict[int, PoolBudget], drawn: dict[int, Drawn], shareable: int, shared: int) -> None:
        """`budgets` and `drawn` by device position; `shared` devices paid their counters with their first share."""
        self._budgets = budgets
        self._drawn = drawn
        self._concerns = 0
        for position in drawn:
            self._concerns |= 1 << position
        self._shareable = shareable
        self._shared = shared & shareable
        # Whether each entry of a device paid, oldest first.
        self._charged: dict[int, list[bool]] = {}

    def narrow(self, option: Option, mask: int) -> int:
        return mask

    def enter(self, option: Option, position: int) -> bool:
        if not self._concerns >> position & 1:
            return True
        entries = self._charged.get(position)
        pays = not (self._shared >> position & 1 or (entries and self._shareable >> position & 1))
        if pays:
            budget = self._budgets[position]
            left, drawn = budget.left, self._drawn[position]
            if budget.overdrawn:
                return False
            for counter, amount in drawn:
                if left[counter] < amount:
                    return False
            for counter, amount in drawn:
                left[counter] -= amount
        if entries is None:
            self._charged[position] = [pays]
        else:
            entries.append(pays)
        return True

    def leave(self, option: Option, position: int) -> None:
        if not self._concerns >> position & 1:
            return
        entries = self._charged[position]
        if entries.pop():
            left = self._budgets[position].left
            for counter, amount in self._drawn[position]:
                left[counter] += amount
        if not entries:
            del self._charged[position]

    def kind(self, first_request: int, position: int) -> Hashable:
        if not self._concerns >> position & 1:
            return None
        return (self._budgets[position].pool, self._drawn[position], self._shared >> position & 1)

    def live_kind(self, position: int) -> bool:
        return bool(self._shareable >> position & 1 and self._charged.get(position))

    def state(self, first_request: int, kind_of: KindOf) -> Hashable:
        budgets = {id(budget): budget for budget in self._budgets.values()}
        return tuple([tuple(budget.left) for budget in budgets.values()])

    def why(self, option: Option, position: int) -> str:
        budget = self._budgets[position]
        if budget.overdrawn:
            return "a counter of the pool is overdrawn"
        for counter, amount in self._drawn[position]:
            if budget.left[counter] < amount:
                counter_set, name = budget.names[counter]
                return (
                    f"draws {_units(amount)} of counter {name} in set {counter_set}, "
                    f"{_units(budget.left[counter])} left"
                )
        return "counters do not suffice"


def _units(nanos: int) -> str:
    from dray.api.quantity import Quantity

    return str(Quantity(nanos))
