"""Partitionable devices: what chosen devices draw from the counter sets of their pool must be there."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING

from dray.allocator.ledger import CounterState
from dray.allocator.requests import Option
from dray.allocator.rules import KindOf, Look, Rule
from dray.allocator.rules.counter_sums import CounterSums, is_fixed
from dray.allocator.sums import most_within, spaces_of
from dray.allocator.types import bits
from dray.allocator.usefulness import Usefulness
from dray.api.quantity import Quantity

if TYPE_CHECKING:
    from dray.allocator.search_plan import SearchPlan

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


class CompetingDevices:
    """Devices that compete for the same counters, directly or through one another; no device outside uses these counters."""

    __slots__ = ("_answers", "_budget", "_by_amount", "_drawing", "_drawn", "_groups", "devices")

    def __init__(self, budget: PoolBudget) -> None:
        self._budget = budget
        self._drawn: dict[int, Drawn] = {}
        self.devices = 0
        # By counter: amounts, smallest first, each with the devices that draw it.
        self._by_amount: dict[int, list[tuple[int, int]]] = {}
        self._drawing: dict[int, int] = {}
        # By all the counters they draw from: devices.
        self._groups: dict[frozenset[int], int] = {}
        # For the devices and amounts left that were asked for last: a search asks again while it is at other cards.
        self._answers: tuple[tuple[int, tuple[int, ...]], dict[int | None, int]] = ((0, ()), {})

    def add(self, position: int, drawn: Drawn) -> None:
        self.devices |= 1 << position
        self._drawn[position] = drawn
        counters = frozenset([counter for counter, _ in drawn])
        self._groups[counters] = self._groups.get(counters, 0) | 1 << position
        for counter, _ in drawn:
            self._drawing[counter] = self._drawing.get(counter, 0) | 1 << position

    def most_that_fit(self, mask: int) -> int:
        """How many devices of `mask` can enter together at most.

        Two bounds, the smaller counts: each counter on its own, with all that do not draw from it let in; and the devices
        that draw from the same counters, with nobody else there.
        """
        if self._budget.overdrawn:
            return 0
        answers = self._answers_for(mask)
        if None not in answers:
            answers[None] = self._bound(mask)
        return answers[None]

    def _answers_for(self, mask: int) -> dict[int | None, int]:
        """What is known about these devices with what is left now: under None `most_that_fit`, under a number `exactly_fit` with this bound."""
        left = self._budget.left
        asked = (mask, tuple([left[counter] for counter in self._drawing]))
        if self._answers[0] != asked:
            self._answers = (asked, {})
        return self._answers[1]

    def _bound(self, mask: int) -> int:
        most = mask.bit_count()
        for counter, drawing in self._drawing.items():
            most = min(most, (mask & ~drawing).bit_count() + self._fitting(counter, mask))
        if len(self._groups) == 1:
            return most
        apart = 0
        for counters, devices in self._groups.items():
            alone = mask & devices
            if not alone & (alone - 1):
                apart += 1 if alone and self._has_room(alone.bit_length() - 1) else 0
            else:
                apart += min([self._fitting(counter, alone) for counter in counters], default=alone.bit_count())
        return min(most, apart)

    def exactly_fit(self, mask: int, most: int) -> int:
        """The same, all counters together; `most` is what one knows already."""
        # Where each counter suffices for all of them, all of them fit.
        if most <= 1 or len(self._drawing) == 1 or most == mask.bit_count():
            return most
        answers = self._answers_for(mask)
        if most not in answers:
            answers[most] = self._most_together(mask, most)
        return answers[most]

    def _most_together(self, mask: int, most: int) -> int:
        left = self._budget.left
        counters = sorted(self._drawing)
        draws = sorted([_amounts(self._drawn[position], counters) for position in bits(mask)])
        lefts = tuple([left[counter] for counter in counters])
        return most_within(tuple(draws), lefts, most) if min(lefts) >= 0 else most

    def _has_room(self, position: int) -> bool:
        left = self._budget.left
        return all(amount <= max(left[counter], 0) for counter, amount in self._drawn[position])

    def _fitting(self, counter: int, mask: int) -> int:
        """The number of devices that one counter suffices for, counting the smallest first."""
        left, fitting = self._budget.left[counter], 0
        for amount, devices in self._amounts_of(counter):
            wanting = (mask & devices).bit_count()
            taking = wanting if amount <= 0 else min(wanting, max(left, 0) // amount)
            left -= taking * amount
            fitting += taking
            if taking < wanting:
                break
        return fitting

    def _amounts_of(self, counter: int) -> list[tuple[int, int]]:
        found = self._by_amount.get(counter)
        if found is None:
            devices_by_amount: dict[int, int] = {}
            for position in bits(self._drawing[counter]):
                amount = dict(self._drawn[position])[counter]
                devices_by_amount[amount] = devices_by_amount.get(amount, 0) | 1 << position
            found = self._by_amount[counter] = sorted(devices_by_amount.items())
        return found


class Counters(Rule):
    """Each device draws once, however many shares of it are chosen."""

    name = "counters"
    kind_changes = True

    __slots__ = ("_budgets", "_charged", "_competing", "_concerns", "_drawn", "_shareable", "_shared", "_usefulness")

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
        self._competing: list[CompetingDevices] | None = None
        # Of looking at all counters of a card together.
        self._usefulness = Usefulness()

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

    def _groups(self) -> list[CompetingDevices]:
        if self._competing is None:
            self._competing = _competing_devices(self._budgets, self._drawn)
        return self._competing

    def tied_devices(self) -> Iterable[int]:
        return [competing.devices for competing in self._groups()]

    def sum_bounds(self, plan: SearchPlan, look: Look) -> list[CounterSums]:
        """Devices that may be shared are left out: they may have paid already."""
        found: list[CounterSums] = []
        wanted = choosable = 0
        for request in plan.given.problem.requests:
            wanted |= plan.mask_of(request)
            if not is_fixed(request):
                choosable |= plan.mask_of(request)
        for competing in self._groups():
            drawing = list(bits(competing.devices & wanted & ~self._shareable))
            counters = sorted({counter for position in drawing for counter, _ in self._drawn[position]})
            if not counters or self._budgets[drawing[0]].overdrawn or not _is_needed(plan, competing.devices):
                continue
            left = self._budgets[drawing[0]].left
            amounts = {position: _amounts(self._drawn[position], counters) for position in drawing}
            if min(map(min, amounts.values())) >= 0:
                chosen = [amounts[position] for position in drawing if choosable >> position & 1]
                for space in spaces_of(chosen or list(amounts.values()), [left[counter] for counter in counters]):
                    found.append(CounterSums(plan, space, amounts, left, counters, look))
        return found

    def most_that_fit(self, mask: int, wanted: int) -> int:
        """No more of these devices, none of them shared, can be chosen together."""
        most = (mask & ~self._concerns).bit_count()
        touched = [competing for competing in self._groups() if mask & competing.devices]
        bounds = [competing.most_that_fit(mask & competing.devices) for competing in touched]
        most += sum(bounds)
        if most < wanted or not self._usefulness.is_worth_asking():
            return most
        for competing, bound in zip(touched, bounds, strict=True):
            if most >= wanted:
                most += competing.exactly_fit(mask & competing.devices, bound) - bound
        self._usefulness.note(most < wanted)
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


def _is_needed(plan: SearchPlan, devices: int) -> bool:
    """Whether some requests find too few devices elsewhere."""
    wanted: dict[int, int] = {}
    for request in plan.given.problem.requests:
        mask = plan.mask_of(request)
        if mask & devices:
            if is_fixed(request):
                return True
            wanted[mask] = wanted.get(mask, 0) + min([plan.given.count_of(option) for option in request.options])
    return any(count > (mask & ~devices).bit_count() for mask, count in wanted.items())


def _amounts(drawn: Drawn, counters: Sequence[int]) -> tuple[int, ...]:
    """What a device draws, counter by counter."""
    by_counter = dict(drawn)
    return tuple([by_counter.get(counter, 0) for counter in counters])


def _competing_devices(budgets: dict[int, PoolBudget], drawn: dict[int, Drawn]) -> list[CompetingDevices]:
    """Groups devices by the counters they compete for, for example all partitions of one card."""
    leader: dict[tuple[int, int], tuple[int, int]] = {}

    def find(counter: tuple[int, int]) -> tuple[int, int]:
        while (above := leader.setdefault(counter, counter)) != counter:
            leader[counter] = leader[above]
            counter = above
        return counter

    for position, draws in drawn.items():
        pool = budgets[position].pool
        for counter, _ in draws[1:]:
            leader[find((pool, counter))] = find((pool, draws[0][0]))
    found: dict[Hashable, CompetingDevices] = {}
    for position, draws in drawn.items():
        budget = budgets[position]
        key = find((budget.pool, draws[0][0])) if draws else budget.pool
        found.setdefault(key, CompetingDevices(budget)).add(position, draws)
    return list(found.values())


def _units(nanos: int) -> str:
    """Counters mix counts and bytes: what is whole mebibytes is written as bytes are."""
    return str(Quantity(nanos, "BinarySI" if nanos and nanos % _MEBI == 0 else "DecimalSI"))


_MEBI = 2**20 * 10**9
