"""From what is asked for and what claims add to one amount per resource: the formula that everybody uses."""

from collections.abc import Sequence
from typing import NamedTuple

from dray.accounting.ask import Ask, Reading
from dray.accounting.charges import ClaimCharge, added_amounts, are_additive
from dray.accounting.phases import peak_amounts
from dray.accounting.policies import Draw, Drawn, PoolSize, higher_of, pool_sizes, raise_to, replaced_amounts


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
        highest = higher_of(highest, amounts)
    return highest


def _footprint_with_policies(ask: Ask, charges: Sequence[ClaimCharge]) -> Footprint:
    added = added_amounts(charges)
    highest: dict[str, int] = {}
    drawn: Drawn = {}
    # Amounts of the whole pod come last: what is drawn from pools is known then.
    for reading in ask.readings:
        if reading.is_of_pod:
            continue
        amounts, from_pools = replaced_amounts(reading.sources, charges)
        if not reading.includes_claims:
            add_to(amounts, added)
        highest, drawn = higher_of(highest, amounts), higher_of(drawn, from_pools)
    for reading in ask.readings:
        if reading.is_of_pod:
            raise_to(highest, _beside_pools(peak_amounts(reading.sources), drawn))
    _finish(highest, ask, drawn)
    draws = [Draw(resource, claims, nanos) for (resource, claims), nanos in sorted(drawn.items())]
    return Footprint(highest, pool_sizes(charges), tuple(draws))


def _beside_pools(amounts: dict[str, int], drawn: Drawn) -> dict[str, int]:
    """An amount of the whole pod covers the part that comes from pools too; only the rest is asked of the node."""
    from_pools: dict[str, int] = {}
    for (resource, _), nanos in drawn.items():
        add_to(from_pools, {resource: nanos})
    return {name: max(0, nanos - from_pools.get(name, 0)) for name, nanos in amounts.items()}


def _finish(amounts: dict[str, int], ask: Ask, drawn: Drawn | None = None) -> None:
    if ask.level:
        level = dict(ask.level)
        amounts.update(_beside_pools(level, drawn) if drawn else level)
    for name, nanos in ask.overhead:
        amounts[name] = amounts.get(name, 0) + nanos


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
