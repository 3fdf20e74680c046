"""A node's ledger for people: the rows behind each amount, and one line per resource split into specs and claims."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from dray.accounting.charges import ClaimCharge, DeviceShare, OverheadAmount, Policy
from dray.accounting.container_amounts import AmountReading, Source, moments
from dray.accounting.demand import Demand, PodRef
from dray.accounting.policies import Replaced
from dray.accounting.resources import as_quantity, format_of, ledger_amount
from dray.api.quantity import Quantity

RowKind = Literal["container", "init container", "sidecar", "claim", "pod level", "pod overhead", "pool"]

_KINDS: dict[str, RowKind] = {
    "container": "container",
    "sidecar": "sidecar",
    "init": "init container",
    "pod": "pod level",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the ledger. A pool belongs to all the pods that use it."""

    pods: tuple[PodRef, ...]
    kind: RowKind
    resource: str
    quantity: Quantity
    container: str = ""
    claim: str = ""
    device: str = ""
    policy: str = ""


def pool_row(claim: str, resource: str, size: int, consumers: Sequence[PodRef], placed: Mapping[PodRef, Demand]) -> Row:
    """The reservation of one pool, with the devices behind it if a consumer knows them."""
    namespace, _, name = claim.rpartition("/")
    amounts = [
        amount
        for pod in consumers
        if pod.namespace == namespace
        for charge in placed[pod].charges
        if charge.claim == name
        for amount in charge.mapped
        if amount.resource == resource
    ]
    devices = {share.device_id: None for amount in amounts for share in amount.shares}
    return Row(
        tuple(consumers),
        "pool",
        resource,
        as_quantity(resource, size),
        claim=name,
        device=", ".join(devices),
        policy=amounts[0].policy if amounts else Policy.CONSUME_FROM,
    )


def demand_rows(pod: PodRef, demand: Demand, resource: str) -> list[Row]:
    """The parts of this pod's amount of the resource, without pools; the quantities add up to it before rounding."""
    level = dict(demand.ask.level).get(resource)
    drawn = sum(draw.amount for draw in demand.draws if draw.resource == resource)
    from_pools = as_quantity(resource, drawn).nanos
    if level is not None:
        rows = [_row(pod, "pod level", resource, max(0, level - from_pools))]
    else:
        readings = [
            _pod_rows(pod, reading, from_pools, resource)
            if reading.is_of_pod
            else _reading_rows(pod, reading, demand.charges, resource)
            for reading in demand.ask.readings
        ]
        rows = max(readings, key=_total, default=[])
    overhead = dict(demand.ask.overhead).get(resource, 0)
    rows.append(_row(pod, "pod overhead", resource, overhead))
    return [row for row in rows if row.quantity.nanos]


def _row(pod: PodRef, kind: RowKind, resource: str, nanos: int, **names: str) -> Row:
    return Row((pod,), kind, resource, Quantity(nanos, format_of(resource)), **names)


def _total(rows: Iterable[Row]) -> int:
    return sum(row.quantity.nanos for row in rows)


def _reading_rows(pod: PodRef, reading: AmountReading, charges: tuple[ClaimCharge, ...], resource: str) -> list[Row]:
    replaced = Replaced(charges)
    busiest: list[Row] = max(
        ([*_moment_rows(pod, active, replaced, resource)] for active in moments(reading.sources)), key=_total
    )
    if reading.includes_claims:
        return busiest
    return busiest + [row for charge in charges for row in _claim_rows(pod, charge, resource)]


def _pod_rows(pod: PodRef, reading: AmountReading, from_pools: int, resource: str) -> list[Row]:
    nanos = dict(reading.sources[0].amounts).get(resource, 0)
    return [_row(pod, "pod level", resource, max(0, nanos - from_pools))]


def _moment_rows(pod: PodRef, active: Sequence[Source], replaced: Replaced, resource: str) -> Iterator[Row]:
    for source in active:
        own = dict(source.amounts).get(resource, 0)
        for name, nanos, pools in replaced.effective(source):
            if name != resource or pools:
                continue
            yield _row(pod, _KINDS[source.role], resource, own, container=source.name)
            claims = ", ".join(replaced.raisers(source.name, resource))
            if nanos > own:
                yield _row(pod, "claim", resource, nanos - own, container=source.name, claim=claims, policy=Policy.MAX)
    for claim, name, nanos in replaced.held_beside(active):
        if name == resource:
            yield _row(pod, "claim", resource, nanos, claim=claim, policy=Policy.MAX)


def _claim_rows(pod: PodRef, charge: ClaimCharge, resource: str) -> Iterator[Row]:
    held = charge.held_with_pool() if charge.is_shareable else ()
    for amount in charge.mapped:
        if amount.resource != resource or amount.policy in (Policy.MAX, Policy.CONSUME_FROM) or amount in held:
            continue
        times = max(1, len(charge.containers)) if amount.policy is Policy.ADD_PER_REFERENCE else 1
        for device, nanos in _by_device(amount.shares, amount.quantity.nanos):
            yield _row(pod, "claim", resource, nanos * times, claim=charge.claim, device=device, policy=amount.policy)
    for overhead in charge.overhead:
        if overhead.resource == resource:
            yield from _overhead_rows(pod, charge, overhead)


def _overhead_rows(pod: PodRef, charge: ClaimCharge, overhead: OverheadAmount) -> Iterator[Row]:
    resource, claim = overhead.resource, charge.claim
    if overhead.per_pod is not None:
        for device, nanos in _by_device(overhead.pod_shares, overhead.per_pod.nanos):
            yield _row(pod, "claim", resource, nanos, claim=claim, device=device, policy="overhead per pod")
    if overhead.per_container is not None:
        for device, nanos in _by_device(overhead.container_shares, overhead.per_container.nanos):
            for container in charge.containers:
                yield _row(
                    pod,
                    "claim",
                    resource,
                    nanos,
                    container=container,
                    claim=claim,
                    device=device,
                    policy="overhead per container",
                )


def _by_device(shares: tuple[DeviceShare, ...], total: int) -> list[tuple[str, int]]:
    """Amounts per device; a charge read back from a pod's status no longer knows its devices."""
    return [(share.device_id, share.nanos) for share in shares] or [("", total)]


@dataclass(frozen=True, slots=True)
class Line:
    """One resource of one node, in ledger units."""

    resource: str
    allocatable: int
    by_spec: int
    by_claims: int
    requested: int

    @property
    def free(self) -> int:
        return self.allocatable - self.requested

    def texts(self) -> dict[str, str]:
        amounts = {
            "allocatable": self.allocatable,
            "bySpec": self.by_spec,
            "byClaims": self.by_claims,
            "requested": self.requested,
            "free": self.free,
        }
        return {name: str(as_quantity(self.resource, amount)) for name, amount in amounts.items()}


class ReadableLedger(Protocol):
    """What lines are made of: a `NodeLedger`."""

    def resources(self) -> Sequence[str]: ...

    def allocatable(self, resource: str) -> int: ...

    def requested(self, resource: str) -> int: ...

    def hands_out(self, resource: str) -> bool: ...

    def why(self, resource: str) -> Sequence[Row]: ...


def lines_of(ledger: ReadableLedger) -> list[Line]:
    """Every resource that the node has or that is asked of it; what only devices serve is not its to hand out."""
    lines = []
    for name in ledger.resources():
        allocatable, requested = ledger.allocatable(name), ledger.requested(name)
        if (allocatable or requested) and ledger.hands_out(name):
            by_claims = ledger_amount(name, sum(row.quantity.nanos for row in ledger.why(name) if is_of_claim(row)))
            lines.append(Line(name, allocatable, requested - by_claims, by_claims, requested))
    return lines


def is_of_claim(row: Row) -> bool:
    return row.kind in ("claim", "pool")
