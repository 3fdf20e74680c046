"""The policies that are not mere sums: Max and ConsumeFrom, and which claims may meet in one container."""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple, TypeVar

from dray.accounting.charges import ClaimCharge, MappedAmount, Policy
from dray.accounting.container_amounts import Source, moments
from dray.accounting.errors import IncompatiblePolicies

K = TypeVar("K", bound=Hashable)

_EXCLUSIVE = (Policy.MAX, Policy.CONSUME_FROM)


class PoolSize(NamedTuple):
    """A claim that reserves an amount on the node, for pods to draw from."""

    claim: str
    resource: str
    nanos: int


# (resource, pools) to the amount that is drawn from them.
Drawn = dict[tuple[str, tuple[str, ...]], int]


class Draw(NamedTuple):
    """An amount that comes out of pools instead of the node; the first of `claims` with room gives first."""

    resource: str
    claims: tuple[str, ...]
    nanos: int


def pool_sizes(charges: Iterable[ClaimCharge]) -> tuple[PoolSize, ...]:
    """One size for each claim and resource, whatever number of devices it comes from."""
    sizes: dict[tuple[str, str], int] = {}
    for charge in charges:
        for amount in charge.mapped:
            if amount.policy is Policy.CONSUME_FROM:
                key = (charge.claim, amount.resource)
                sizes[key] = sizes.get(key, 0) + amount.quantity.nanos
    return tuple([PoolSize(claim, resource, nanos) for (claim, resource), nanos in sizes.items()])


def check_compatibility(charges: Sequence[ClaimCharge]) -> None:
    """Refuse claims that cannot be counted together in one container: `IncompatiblePolicies` names them.

    Max and ConsumeFrom both replace the container's own request, so one of a kind decides, and one driver behind it.
    """
    containers = dict.fromkeys(name for charge in charges for name in charge.containers)
    for container in containers:
        entries = [
            (charge.claim, amount)
            for charge in charges
            if container in charge.containers
            for amount in charge.mapped
            if amount.policy in _EXCLUSIVE
        ]
        for (claim, amount), (other_claim, other) in combinations(entries, 2):
            if amount.resource == other.resource:
                _check_pair(container, (claim, amount), (other_claim, other))
        for claim, amount in entries:
            _check_one_driver(container, amount, (claim, claim), _drivers(amount))


def _check_pair(container: str, one: tuple[str, MappedAmount], other: tuple[str, MappedAmount]) -> None:
    (claim, amount), (other_claim, second) = one, other
    if amount.policy is not second.policy:
        raise IncompatiblePolicies(
            f"container {container}: claim {claim} counts {amount.resource} by {amount.policy} "
            f"and claim {other_claim} by {second.policy}, which exclude each other"
        )
    _check_one_driver(container, amount, (claim, other_claim), _drivers(amount) | _drivers(second))


def _check_one_driver(container: str, amount: MappedAmount, claims: tuple[str, str], drivers: dict[str, None]) -> None:
    if len(drivers) > 1:
        named = " and ".join(dict.fromkeys(claims))
        raise IncompatiblePolicies(
            f"container {container}: claims {named} count {amount.resource} by {amount.policy} "
            f"for different drivers ({', '.join(drivers)})"
        )


def _drivers(amount: MappedAmount) -> dict[str, None]:
    return dict.fromkeys(share.driver for share in amount.shares)


class Replaced:
    """Which container requests are replaced, by what; made once per pod and asked for every container."""

    def __init__(self, charges: Sequence[ClaimCharge]) -> None:
        self._users: set[str] = set()
        self._raised: dict[tuple[str, str], int] = {}
        self._raised_of: dict[str, list[str]] = {}
        self._pools: dict[tuple[str, str], tuple[str, ...]] = {}
        self._raisers: dict[tuple[str, str], list[str]] = {}
        self._held: list[tuple[ClaimCharge, MappedAmount]] = []
        for charge in charges:
            for amount in charge.mapped:
                self._enter(charge, amount)

    def _enter(self, charge: ClaimCharge, amount: MappedAmount) -> None:
        if amount.policy is Policy.MAX:
            self._held.append((charge, amount))
            for container in dict.fromkeys(charge.containers):
                key = (container, amount.resource)
                self._raised[key] = self._raised.get(key, 0) + amount.quantity.nanos
                self._raised_of.setdefault(container, []).append(amount.resource)
                self._raisers.setdefault(key, []).append(charge.claim)
        elif amount.policy is Policy.CONSUME_FROM:
            for container in charge.containers:
                key = (container, amount.resource)
                present = self._pools.get(key)
                self._pools[key] = tuple(sorted({*present, charge.claim})) if present else (charge.claim,)
        self._users.update(charge.containers)

    def effective(self, source: Source) -> list[tuple[str, int, tuple[str, ...]]]:
        """(resource, amount, pools it is drawn from); without pools the node gives it."""
        container, amounts = source.name, source.amounts
        if container not in self._users:
            return [(resource, nanos, ()) for resource, nanos in amounts]
        own = dict(amounts)
        for resource in self._raised_of.get(container, ()):
            own.setdefault(resource, 0)
        found = []
        for resource, nanos in own.items():
            key = (container, resource)
            found.append((resource, max(nanos, self._raised.get(key, 0)), self._pools.get(key, ())))
        return found

    def raisers(self, container: str, resource: str) -> list[str]:
        """The Max claims that raise a container's own request."""
        return self._raisers.get((container, resource), [])

    def held_beside(self, active: Sequence[Source]) -> Iterator[tuple[str, str, int]]:
        """(claim, resource, amount) of Max claims that nobody running uses: their devices are taken all the same."""
        names = {source.name for source in active}
        for charge, amount in self._held:
            if names.isdisjoint(charge.containers):
                yield charge.claim, amount.resource, amount.quantity.nanos


def replaced_amounts(sources: Sequence[Source], charges: Sequence[ClaimCharge]) -> tuple[dict[str, int], Drawn]:
    """Peak amounts asked of the node, and of pools, where claims replace what containers ask for."""
    replaced = Replaced(charges)
    peak: dict[str, int] = {}
    drawn: Drawn = {}
    for active in moments(sources):
        total: dict[str, int] = {}
        pools: Drawn = {}
        for source in active:
            for resource, nanos, claims in replaced.effective(source):
                if claims:
                    key = (resource, claims)
                    pools[key] = pools.get(key, 0) + nanos
                else:
                    total[resource] = total.get(resource, 0) + nanos
        for _, resource, nanos in replaced.held_beside(active):
            total[resource] = total.get(resource, 0) + nanos
        peak, drawn = higher_of(peak, total), higher_of(drawn, pools)
    return peak, drawn


def higher_of(highest: dict[K, int], amounts: dict[K, int]) -> dict[K, int]:
    """The larger of both for every key; may be one of the two."""
    if not highest:
        return amounts
    raise_to(highest, amounts)
    return highest


def raise_to(highest: dict[K, int], amounts: Mapping[K, int]) -> None:
    """Keep the larger of both for every key."""
    for key, nanos in amounts.items():
        if key not in highest or nanos > highest[key]:
            highest[key] = nanos
