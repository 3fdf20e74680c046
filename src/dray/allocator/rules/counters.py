"""Partitionable devices: what chosen devices draw from the counter sets of their pool must be there."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from dray.allocator.ledger import CounterState
from dray.allocator.requests import Option
from dray.allocator.rules import KindOf
from dray.api.quantity import Quantity

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


class Drawers:
    """Devices that draw from the same counters, and from no others."""

    __slots__ = ("_budget", "_by_amount", "devices")

    def __init__(self, budget: PoolBudget) -> None:
        self._budget = budget
        self.devices = 0
        # By counter: amounts, each with the devices that draw it.
        self._by_amount: dict[int, dict[int, int]] = {}

    def add(self, position: int, drawn: Drawn) -> None:
        self.devices |= 1 << position
        for counter, amount in drawn:
            amounts = self._by_amount.setdefault(counter, {})
            amounts[amount] = amounts.get(amount, 0) | 1 << position

    def most_that_fit(self, mask: int) -> int:
        """How many devices of `mask` can enter together at most: the smallest first, counter by counter."""
        if self._budget.overdrawn:
            return 0
        most = mask.bit_count()
        for counter, amounts in self._by_amount.items():
            left, fitting = self._budget.left[counter], 0
            for amount, devices in sorted(amounts.items()):
                wanting = (mask & devices).bit_count()
                taking = wanting if amount <= 0 else min(wanting, max(left, 0) // amount)
                left -= taking * amount
                fitting += taking
                if taking < wanting:
                    break
            most = min(most, fitting)
        return most


class Counters:
    is_constraint = False
    name = "counters"

    __slots__ = ("_budgets", "_charged", "_concerns", "_drawers", "_drawn", "_shareable", "_shared")

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
        self._drawers: list[Drawers] | None = None

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

    def most_that_fit(self, mask: int) -> int:
        """No more of these devices, none of them shared, can be chosen together."""
        if self._drawers is None:
            by_counters: dict[Hashable, Drawers] = {}
            for position, drawn in self._drawn.items():
                budget = self._budgets[position]
                key = (budget.pool, frozenset([counter for counter, _ in drawn]))
                by_counters.setdefault(key, Drawers(budget)).add(position, drawn)
            self._drawers = list(by_counters.values())
        most = (mask & ~self._concerns).bit_count()
        for drawers in self._drawers:
            if mask & drawers.devices:
                most += drawers.most_that_fit(mask & drawers.devices)
        return most

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
    """Counters mix counts and bytes: what is whole mebibytes is written as bytes are."""
    return str(Quantity(nanos, "BinarySI" if nanos and nanos % _MEBI == 0 else "DecimalSI"))


_MEBI = 2**20 * 10**9
