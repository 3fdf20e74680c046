"""A pod's requests and limits: what its containers ask for and what its claims add, as one amount per resource."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from dray.accounting.charges import ClaimCharge, Policy, added_amounts, are_additive, charges_in_status
from dray.accounting.container_amounts import (
    AmountReading,
    Ask,
    Quantities,
    RequestOptions,
    limits_asked,
    peak_amounts,
    requests_asked,
)
from dray.accounting.policies import Draw, Drawn, PoolSize, higher_of, pool_sizes, raise_to, replaced_amounts
from dray.accounting.resources import is_hugepages
from dray.api.core import Container, Pod
from dray.api.quantity import Format, Quantity


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


def _highest_reading(readings: Sequence[AmountReading], added: dict[str, int]) -> dict[str, int]:
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


DEFAULT_OPTIONS = RequestOptions()


def pod_requests(
    pod: Pod, options: RequestOptions = DEFAULT_OPTIONS, charges: Sequence[ClaimCharge] | None = None
) -> dict[str, Quantity]:
    """Everything the pod asks of its node, pools of its claims included.

    `charges` are the claims' amounts; without them the pod's status tells, if the options say so.
    """
    charges = _charges(pod, options, charges)
    if options.skip_container_level_resources:
        charges = ()
    footprint = requests_footprint(requests_asked(pod, options), charges)
    for pool in footprint.pools:
        add_to(footprint.amounts, {pool.resource: pool.nanos})
    level = pod.spec.resources
    lists: list[Quantities] = [level.requests] if level else []
    lists += [container.resources.requests for container in _containers(pod)]
    lists.append(options.non_missing_container_requests)
    return _as_quantities(footprint.amounts, lists, charges, pod.spec.overhead)


def pod_limits(
    pod: Pod, options: RequestOptions = DEFAULT_OPTIONS, charges: Sequence[ClaimCharge] | None = None
) -> dict[str, Quantity]:
    """The pod's limits. Claims raise limits that some container declares, and huge pages always."""
    charges = limited_charges(pod, _charges(pod, options, charges))
    amounts = limits_footprint(limits_asked(pod, options), charges)
    level = pod.spec.resources
    lists: list[Quantities] = [level.limits] if level else []
    lists += [container.resources.limits for container in _containers(pod)]
    return _as_quantities(amounts, lists, charges, pod.spec.overhead)


def _containers(pod: Pod) -> tuple[Container, ...]:
    return (*pod.spec.containers, *pod.spec.init_containers)


def _charges(pod: Pod, options: RequestOptions, given: Sequence[ClaimCharge] | None) -> Sequence[ClaimCharge]:
    if given is not None:
        return given
    return charges_in_status(pod.status.node_allocatable_resource_claim_statuses) if options.use_claim_status else ()


def limited_charges(pod: Pod, charges: Sequence[ClaimCharge]) -> tuple[ClaimCharge, ...]:
    """The claims' amounts of resources for which the pod has limits. Pools leave limits as they are."""
    declared = {name for container in _containers(pod) for name in container.resources.limits}

    def counts(resource: str) -> bool:
        return resource in declared or is_hugepages(resource)

    return tuple(
        msgspec.structs.replace(
            charge,
            mapped=tuple(
                amount
                for amount in charge.mapped
                if counts(amount.resource) and amount.policy is not Policy.CONSUME_FROM
            ),
            overhead=tuple(amount for amount in charge.overhead if counts(amount.resource)),
        )
        for charge in charges
    )


def _as_quantities(
    amounts: dict[str, int], lists: Iterable[Quantities], charges: Sequence[ClaimCharge], overhead: Quantities
) -> dict[str, Quantity]:
    """Each resource is written as in the first place that names an amount of it."""
    formats: dict[str, Format] = {}
    for quantities in (*lists, *_quantities_of(charges), overhead):
        for name, quantity in quantities.items():
            if quantity.nanos:
                formats.setdefault(name, quantity.format)
    return {name: Quantity(nanos, formats.get(name, "DecimalSI")) for name, nanos in amounts.items()}


def _quantities_of(charges: Sequence[ClaimCharge]) -> Iterator[Quantities]:
    for charge in charges:
        for amount in charge.mapped:
            yield {amount.resource: amount.quantity}
        for entry in charge.overhead:
            yield from ({entry.resource: part} for part in (entry.per_pod, entry.per_container) if part is not None)
