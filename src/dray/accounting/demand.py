"""A pod's demand in the ledger's whole units, worked out once per pod version and kept with it."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from dray.accounting.ask import Ask, Reading, RequestOptions, requests_asked, with_defaults
from dray.accounting.charges import ClaimCharge, charges_in_status, refuse_negative
from dray.accounting.errors import NegativeAmount
from dray.accounting.footprint import Footprint, requests_footprint
from dray.accounting.phases import Amounts
from dray.accounting.resources import CPU, EPHEMERAL_STORAGE, MEMORY, ledger_amount
from dray.api.core import Pod
from dray.api.quantity import Quantity

# What the ledger counts: claims and resizes included.
SCHEDULING = RequestOptions(use_claim_status=True, use_status_resources=True, in_place_pod_level_resources=True)

# For scoring, a container that asks for nothing counts as if it asked for a little.
NON_ZERO_DEFAULTS: Amounts = ((CPU, Quantity.parse("100m").nanos), (MEMORY, Quantity.parse("200Mi").nanos))

# Pods of one template ask for the same. The memory of that is dropped as a whole when it has grown too large.
_REMEMBERED_ASKS = 8192


class Pool(NamedTuple):
    """A pool that the pod's node must reserve, in ledger units."""

    claim: str
    resource: str
    size: int


class PoolDraw(NamedTuple):
    """What the pod takes out of pools, in ledger units; the first of `claims` with room gives first."""

    resource: str
    claims: tuple[str, ...]
    amount: int


# A msgspec struct without garbage collection instead of a dataclass: one is kept for every pod of the cluster
# (benchmark: memory of 5,000 nodes with 110 pods).
class Demand(msgspec.Struct, frozen=True, gc=False):
    """What one pod asks of a node. Claims are named `namespace/name`."""

    milli_cpu: int = 0
    memory: int = 0
    ephemeral_storage: int = 0
    # Huge pages and extended resources.
    scalars: tuple[tuple[str, int], ...] = ()
    non_zero_milli_cpu: int = 0
    non_zero_memory: int = 0
    pools: tuple[Pool, ...] = ()
    draws: tuple[PoolDraw, ...] = ()
    # Claims that belong to this pod alone, since they map amounts to it.
    exclusive_claims: tuple[str, ...] = ()
    # What the amounts are made of; `explain_demand` spells it out.
    ask: Ask = Ask(())
    charges: tuple[ClaimCharge, ...] = ()

    def amount(self, resource: str) -> int:
        if resource == CPU:
            return self.milli_cpu
        if resource == MEMORY:
            return self.memory
        if resource == EPHEMERAL_STORAGE:
            return self.ephemeral_storage
        return next((amount for name, amount in self.scalars if name == resource), 0)

    def amounts(self) -> Iterator[tuple[str, int]]:
        """All amounts that are not zero, without pools."""
        for name, amount in (
            (CPU, self.milli_cpu),
            (MEMORY, self.memory),
            (EPHEMERAL_STORAGE, self.ephemeral_storage),
            *self.scalars,
        ):
            if amount:
                yield name, amount


_plain_demands: dict[Ask, Demand] = {}


def pod_demand(pod: Pod, charges: Sequence[ClaimCharge] | None = None, options: RequestOptions = SCHEDULING) -> Demand:
    """What the pod asks of a node. `charges` are its claims' amounts there; without them the pod's status tells.

    Raises `NegativeAmount` for amounts below zero.
    """
    ask = requests_asked(pod, options)
    if charges is None:
        statuses = pod.status.node_allocatable_resource_claim_statuses
        charges = charges_in_status(statuses) if statuses and options.use_claim_status else ()
    plain = _plain_demand(ask)
    if not charges:
        return plain
    refuse_negative(charges)
    return _demand_with_claims(plain.ask, tuple(charges), pod.metadata.namespace)


def _plain_demand(ask: Ask) -> Demand:
    found = _plain_demands.get(ask)
    if found is None:
        _refuse_negative_asks(ask)
        found = _demand(ask, (), "")
        if len(_plain_demands) >= _REMEMBERED_ASKS:
            _plain_demands.clear()
        _plain_demands[ask] = found
    return found


def _demand_with_claims(ask: Ask, charges: tuple[ClaimCharge, ...], namespace: str) -> Demand:
    return _demand(ask, charges, f"{namespace}/")


def _demand(ask: Ask, charges: tuple[ClaimCharge, ...], prefix: str) -> Demand:
    footprint = requests_footprint(ask, charges)
    non_zero = _non_zero(ask, charges, footprint)
    amounts = footprint.amounts
    return Demand(
        milli_cpu=ledger_amount(CPU, amounts.get(CPU, 0)),
        memory=ledger_amount(MEMORY, amounts.get(MEMORY, 0)),
        ephemeral_storage=ledger_amount(EPHEMERAL_STORAGE, amounts.get(EPHEMERAL_STORAGE, 0)),
        scalars=_scalars(amounts),
        non_zero_milli_cpu=ledger_amount(CPU, non_zero.get(CPU, 0)),
        non_zero_memory=ledger_amount(MEMORY, non_zero.get(MEMORY, 0)),
        pools=tuple(
            Pool(prefix + pool.claim, pool.resource, ledger_amount(pool.resource, pool.nanos))
            for pool in footprint.pools
        ),
        draws=tuple(
            PoolDraw(
                draw.resource,
                tuple(prefix + claim for claim in draw.claims),
                ledger_amount(draw.resource, draw.nanos),
            )
            for draw in footprint.draws
        ),
        exclusive_claims=tuple(prefix + charge.claim for charge in charges if not charge.is_shareable),
        ask=ask,
        charges=charges,
    )


def _scalars(amounts: dict[str, int]) -> tuple[tuple[str, int], ...]:
    if len(amounts) <= 2 and CPU in amounts and MEMORY in amounts:
        return ()
    return tuple(
        (name, ledger_amount(name, nanos))
        for name, nanos in amounts.items()
        if name not in (CPU, MEMORY, EPHEMERAL_STORAGE)
    )


def _non_zero(ask: Ask, charges: tuple[ClaimCharge, ...], footprint: Footprint) -> dict[str, int]:
    if all(len(_defaulted(reading)) == 0 for reading in ask.readings):
        return footprint.amounts
    readings = tuple(
        Reading(
            tuple(
                source._replace(amounts=with_defaults(source.amounts, NON_ZERO_DEFAULTS)) for source in reading.sources
            ),
            reading.includes_claims,
        )
        for reading in ask.readings
    )
    return requests_footprint(ask._replace(readings=readings), charges).amounts


def _defaulted(reading: Reading) -> list[str]:
    """Containers that leave out cpu or memory."""
    return [
        source.name
        for source in reading.sources
        if source.role != "pod" and not {CPU, MEMORY} <= {name for name, _ in source.amounts}
    ]


def _refuse_negative_asks(ask: Ask) -> None:
    lists = [(source.name, source.amounts) for reading in ask.readings for source in reading.sources]
    for owner, amounts in (*lists, ("pod level", ask.level), ("pod overhead", ask.overhead)):
        for name, nanos in amounts:
            if nanos < 0:
                raise NegativeAmount(f"{owner}: {name} {Quantity(nanos)} is below zero")
