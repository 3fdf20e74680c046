"""A pod's demand in the ledger's whole units, worked out once per pod version and kept with it."""

import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from dray.accounting.charges import ClaimCharge, added_amounts, are_additive, charges_in_status, refuse_negative
from dray.accounting.container_amounts import (
    AmountReading,
    Amounts,
    Ask,
    RequestOptions,
    peak_amounts,
    requests_asked,
    with_defaults,
)
from dray.accounting.errors import NegativeAmount
from dray.accounting.pod_requests import Footprint, additive_footprint, requests_footprint
from dray.accounting.policies import PoolSize
from dray.accounting.resources import CPU, EPHEMERAL_STORAGE, MEMORY, ledger_amount
from dray.api.core import Pod
from dray.api.quantity import Quantity


class PodRef(NamedTuple):
    """One pod, not the next one of the same name."""

    namespace: str
    name: str
    uid: str = ""

    @classmethod
    def of(cls, pod: Pod) -> "PodRef":
        metadata = pod.metadata
        # Interned: the pods of a namespace share its name.
        return cls(sys.intern(metadata.namespace), metadata.name, metadata.uid)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


# What the ledger counts: claims and resizes included.
SCHEDULING = RequestOptions(use_claim_status=True, use_status_resources=True, in_place_pod_level_resources=True)
# What it counts when devices are not asked what they take.
SCHEDULING_WITHOUT_CLAIMS = RequestOptions(use_status_resources=True, in_place_pod_level_resources=True)

# For scoring, a container that asks for nothing counts as if it asked for a little.
NON_ZERO_DEFAULTS: Amounts = ((CPU, Quantity.parse("100m").nanos), (MEMORY, Quantity.parse("200Mi").nanos))

# Pods of one template ask for the same. The memory of that is dropped as a whole when it has grown too large.
_REMEMBERED_ASKS = 8192


class ClaimPool(NamedTuple):
    """A pool that the pod's node must reserve, in ledger units."""

    claim: str
    resource: str
    size: int


class PoolDraw(NamedTuple):
    """The amounts that the pod takes out of pools, in ledger units; the first of `claims` with room gives first."""

    resource: str
    claims: tuple[str, ...]
    amount: int


# A msgspec struct without garbage collection instead of a dataclass: one is kept for every pod of the cluster
# (benchmark: memory of 5,000 nodes with 110 pods).
class Demand(msgspec.Struct, frozen=True, gc=False):
    """The amounts that one pod needs on a node. Claims are named `namespace/name`."""

    milli_cpu: int = 0
    memory: int = 0
    ephemeral_storage: int = 0
    # Huge pages and extended resources.
    scalars: tuple[tuple[str, int], ...] = ()
    non_zero_milli_cpu: int = 0
    non_zero_memory: int = 0
    pools: tuple[ClaimPool, ...] = ()
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


class _Worked(NamedTuple):
    """What is remembered of an ask. `scored` is the same with the defaults for scoring, often the same object.

    The bases are the peak amounts before claims; there are none while a resize has several readings.
    """

    ask: Ask
    scored: Ask
    base: dict[str, int] | None
    scored_base: dict[str, int] | None
    plain: Demand


_worked: dict[Ask, _Worked] = {}


def pod_demand(pod: Pod, charges: Sequence[ClaimCharge] | None = None, options: RequestOptions = SCHEDULING) -> Demand:
    """Computes the amounts that the pod needs on a node. `charges` are its claims' amounts there; without them the pod's status tells.

    Raises `NegativeAmount` for amounts below zero.
    """
    worked = _work(requests_asked(pod, options))
    if charges is None:
        statuses = pod.status.node_allocatable_resource_claim_statuses
        charges = charges_in_status(statuses) if statuses and options.use_claim_status else ()
        refuse_negative(charges)
    if not charges:
        return worked.plain
    return _demand_with_claims(worked, tuple(charges), pod.metadata.namespace)


def _work(ask: Ask) -> _Worked:
    found = _worked.get(ask)
    if found is None:
        _refuse_negative_asks(ask)
        scored = _scored(ask)
        footprint = requests_footprint(ask, ())
        non_zero = footprint.amounts if scored is ask else requests_footprint(scored, ()).amounts
        found = _Worked(ask, scored, _base(ask), _base(scored), _demand(ask, footprint, non_zero))
        if len(_worked) >= _REMEMBERED_ASKS:
            _worked.clear()
        _worked[ask] = found
    return found


def _base(ask: Ask) -> dict[str, int] | None:
    return peak_amounts(ask.readings[0].sources) if len(ask.readings) == 1 else None


def _demand_with_claims(worked: _Worked, charges: tuple[ClaimCharge, ...], namespace: str) -> Demand:
    ask, scored, base, scored_base, plain = worked
    if base is not None and scored_base is not None and are_additive(charges):
        added = added_amounts(charges)
        footprint = Footprint(additive_footprint(base, ask, added))
        non_zero = footprint.amounts if scored is ask else additive_footprint(scored_base, scored, added)
        return _demand(ask, footprint, non_zero, charges, namespace)
    footprint = _held_with_pools(requests_footprint(ask, charges), ask, charges)
    demand = _demand(ask, footprint, footprint.amounts, charges, namespace)
    if scored is ask:
        return demand
    # Where claims replace requests, the defaults for scoring count as they would without claims.
    return msgspec.structs.replace(
        demand,
        non_zero_milli_cpu=demand.milli_cpu + plain.non_zero_milli_cpu - plain.milli_cpu,
        non_zero_memory=demand.memory + plain.non_zero_memory - plain.memory,
    )


def _demand(
    ask: Ask,
    footprint: Footprint,
    non_zero: dict[str, int],
    charges: tuple[ClaimCharge, ...] = (),
    namespace: str = "",
) -> Demand:
    amounts = footprint.amounts
    pools, draws = _in_ledger_units(footprint, namespace) if footprint.pools else ((), ())
    milli_cpu = ledger_amount(CPU, amounts.get(CPU, 0))
    memory = ledger_amount(MEMORY, amounts.get(MEMORY, 0))
    is_scored_alike = non_zero is amounts
    return Demand(
        milli_cpu,
        memory,
        ledger_amount(EPHEMERAL_STORAGE, amounts[EPHEMERAL_STORAGE]) if EPHEMERAL_STORAGE in amounts else 0,
        _scalars(amounts),
        milli_cpu if is_scored_alike else ledger_amount(CPU, non_zero.get(CPU, 0)),
        memory if is_scored_alike else ledger_amount(MEMORY, non_zero.get(MEMORY, 0)),
        pools,
        draws,
        tuple([f"{namespace}/{charge.claim}" for charge in charges if not charge.is_shareable]),
        ask,
        charges,
    )


def _held_with_pools(footprint: Footprint, ask: Ask, charges: tuple[ClaimCharge, ...]) -> Footprint:
    """Amounts that the claim of a pool adds once are reserved with the pool: later pods that share it take none of their own.

    A pod-level amount covers the claim, so there is nothing beside it to reserve.
    """
    shared = [charge for charge in charges if len(charge.mapped) > 1 and charge.is_shareable]
    if not shared:
        return footprint
    level = {name for name, _ in ask.level}
    amounts, pools = footprint.amounts, list(footprint.pools)
    for charge in shared:
        for held in charge.held_with_pool():
            if held.resource not in level:
                amounts[held.resource] = max(0, amounts.get(held.resource, 0) - held.quantity.nanos)
                pools.append(PoolSize(charge.claim, held.resource, held.quantity.nanos))
    return footprint._replace(pools=tuple(pools))


def _in_ledger_units(footprint: Footprint, namespace: str) -> tuple[tuple[ClaimPool, ...], tuple[PoolDraw, ...]]:
    pools = tuple(
        ClaimPool(f"{namespace}/{pool.claim}", pool.resource, ledger_amount(pool.resource, pool.nanos))
        for pool in footprint.pools
    )
    draws = tuple(
        PoolDraw(
            draw.resource,
            tuple(f"{namespace}/{claim}" for claim in draw.claims),
            ledger_amount(draw.resource, draw.nanos),
        )
        for draw in footprint.draws
    )
    return pools, draws


def _scalars(amounts: dict[str, int]) -> tuple[tuple[str, int], ...]:
    if len(amounts) <= 2 and CPU in amounts and MEMORY in amounts:
        return ()
    return tuple(
        (name, ledger_amount(name, nanos))
        for name, nanos in amounts.items()
        if name not in (CPU, MEMORY, EPHEMERAL_STORAGE)
    )


def _scored(ask: Ask) -> Ask:
    """The ask with the defaults for scoring; itself where no container leaves anything out."""
    if not any(map(_defaulted, ask.readings)):
        return ask
    readings = tuple(
        AmountReading(
            tuple(
                source._replace(amounts=with_defaults(source.amounts, NON_ZERO_DEFAULTS)) for source in reading.sources
            ),
            reading.includes_claims,
        )
        for reading in ask.readings
    )
    return ask._replace(readings=readings)


def _defaulted(reading: AmountReading) -> list[str]:
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
