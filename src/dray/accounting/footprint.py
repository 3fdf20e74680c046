"""From what is asked for and what claims add to one amount per resource: the formula that everybody uses."""

from collections.abc import Sequence
from typing import NamedTuple

from dray.accounting.ask import Ask, Reading
from dray.accounting.charges import ClaimCharge, added_amounts, are_additive
from dray.accounting.phases import peak_amounts
from dray.accounting.policies import Draw, PoolSize, pool_sizes, raise_to, replaced_amounts


class Footprint(NamedTuple):
    """Nano-units: what the node gives the pod itself, what it reserves for the pod's pools, what is drawn from them."""

    amounts: dict[str, int]
    pools: tuple[PoolSize, ...] = ()
    draws: tuple[Draw, ...] = ()


def requests_footprint(ask: Ask, charges: Sequence[ClaimCharge]) -> Footprint:
    """Containers, claims, pod level, overhead, in this order."""
    if not are_additive(charges):
        return _footprint_with_policies(ask, charges)
    amounts = _highest_reading(ask.readings, added_amounts(charges))
    _finish(amounts, ask)
    return Footprint(amounts)


def additive_footprint(base: dict[str, int], ask: Ask, added: dict[str, int]) -> dict[str, int]:
    """As `requests_footprint` for one reading, whose peak amounts are known, and claims that only add."""
    amounts = base.copy()
    add_to(amounts, added)
    _finish(amounts, ask)
    return amounts


def _highest_reading(readings: Sequence[Reading], added: dict[str, int]) -> dict[str, int]:
    highest: dict[str, int] = {}
    for reading in readings:
        amounts = peak_amounts(reading.sources)
        if added and not reading.includes_claims:
            add_to(amounts, added)
        if not highest:
            highest = amounts
        else:
            raise_to(highest, amounts)
    return highest


def _footprint_with_policies(ask: Ask, charges: Sequence[ClaimCharge]) -> Footprint:
    added = added_amounts(charges)
    highest: dict[str, int] = {}
    drawn: dict[tuple[str, tuple[str, ...]], int] = {}
    for reading in ask.readings:
        if reading.includes_claims:
            raise_to(highest, peak_amounts(reading.sources))
            continue
        amounts, draws = replaced_amounts(reading.sources, charges)
        add_to(amounts, added)
        raise_to(highest, amounts)
        raise_to(drawn, {(draw.resource, draw.claims): draw.nanos for draw in draws})
    _finish(highest, ask, drawn)
    draws = [Draw(resource, claims, nanos) for (resource, claims), nanos in sorted(drawn.items())]
    return Footprint(highest, pool_sizes(charges), tuple(draws))


def _finish(amounts: dict[str, int], ask: Ask, drawn: dict[tuple[str, tuple[str, ...]], int] | None = None) -> None:
    for name, nanos in ask.level:
        amounts[name] = nanos
    if drawn and ask.level:
        _take_drawn_from_level(amounts, ask, drawn)
    for name, nanos in ask.overhead:
        amounts[name] = amounts.get(name, 0) + nanos


def _take_drawn_from_level(amounts: dict[str, int], ask: Ask, drawn: dict[tuple[str, tuple[str, ...]], int]) -> None:
    """A pod-level budget covers the part that comes from pools too; only the rest is asked of the node."""
    for name, nanos in ask.level:
        from_pools = sum(part for (resource, _), part in drawn.items() if resource == name)
        amounts[name] = max(0, nanos - from_pools)


def limits_footprint(ask: Ask, charges: Sequence[ClaimCharge]) -> dict[str, int]:
    """As for requests; overhead is added only to limits that are there and not zero."""
    amounts = requests_footprint(ask._replace(overhead=()), charges).amounts
    for name, nanos in ask.overhead:
        if amounts.get(name):
            amounts[name] += nanos
    return amounts


def add_to(amounts: dict[str, int], added: dict[str, int]) -> None:
    for name, nanos in added.items():
        amounts[name] = amounts.get(name, 0) + nanos
