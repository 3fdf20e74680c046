"""Bounds of devices that draw from counters: what is remembered is what a new rule would say, and it is not worked out again."""

from __future__ import annotations

import random

import pytest

from dray.allocator.ledger import CounterState
from dray.allocator.pools import PoolCounters
from dray.allocator.rules import counters
from dray.allocator.rules.counters import Counters, PoolBudget
from dray.allocator.types import bits

CARDS = 3
PER_CARD = 6
OPTION = None


def a_rule(left: list[int], drawn: dict[int, counters.Drawn]) -> Counters:
    state = CounterState(PoolCounters([]))
    state.available = left
    budget = PoolBudget(0, state, [("set", str(each)) for each in range(len(left))])
    return Counters(dict.fromkeys(drawn, budget), drawn, 0, 0)


def draws(chance: random.Random) -> dict[int, counters.Drawn]:
    """Each card has three counters; its devices draw from some of them, so that single devices and whole groups occur."""
    found: dict[int, counters.Drawn] = {}
    for position in range(CARDS * PER_CARD):
        card = position // PER_CARD
        of_card = [card * 3 + each for each in range(3)]
        chosen = sorted(chance.sample(of_card, chance.randint(1, 3)))
        found[position] = tuple([(counter, chance.randint(0, 4)) for counter in chosen])
    return found


@pytest.mark.parametrize("seed", range(40))
def test_a_rule_that_was_asked_before_says_what_a_new_one_says(seed: int) -> None:
    chance = random.Random(seed)
    drawn = draws(chance)
    left = [chance.randint(0, 9) for _ in range(CARDS * 3)]
    rule = a_rule(left, drawn)
    entered: list[int] = []
    for _ in range(60):
        position = chance.randrange(CARDS * PER_CARD)
        if position not in entered and rule.enter(OPTION, position):
            entered.append(position)
            left = [amount - dict(drawn[position]).get(counter, 0) for counter, amount in enumerate(left)]
        elif entered and chance.random() < 0.6:
            gone = entered.pop()
            rule.leave(OPTION, gone)
            left = [amount + dict(drawn[gone]).get(counter, 0) for counter, amount in enumerate(left)]
        mask = chance.getrandbits(CARDS * PER_CARD)
        for competing, new in zip(rule._groups(), a_rule(left, drawn)._groups(), strict=True):
            own = mask & competing.devices
            most = competing.most_that_fit(own)
            exactly = competing.exactly_fit(own, most)
            assert (most, exactly) == (new.most_that_fit(own), new.exactly_fit(own, most))
            assert most >= exactly >= most_by_trying(list(bits(own)), left, drawn)


def most_by_trying(positions: list[int], left: list[int], drawn: dict[int, counters.Drawn]) -> int:
    """As many as a greedy choice takes: no bound may be below it."""
    left, taken = list(left), 0
    for position in sorted(positions, key=lambda each: sum([amount for _, amount in drawn[each]])):
        if all(left[counter] >= amount for counter, amount in drawn[position]):
            taken += 1
            for counter, amount in drawn[position]:
                left[counter] -= amount
    return taken


def test_cards_that_did_not_change_are_not_worked_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    original = counters.CompetingDevices._bound

    def counted(competing: counters.CompetingDevices, mask: int) -> int:
        asked.append(mask)
        return original(competing, mask)

    monkeypatch.setattr(counters.CompetingDevices, "_bound", counted)
    drawn = {position: ((position // 4, 1), (4 + position // 4, 2)) for position in range(16)}
    rule = a_rule([4] * 8, drawn)
    everything = (1 << 16) - 1
    assert rule.most_that_fit(everything, 1) == 8
    assert len(asked) == 4
    assert rule.enter(OPTION, 0)
    assert rule.most_that_fit(everything, 1) == 7
    assert len(asked) == 5
