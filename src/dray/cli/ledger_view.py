"""A cluster's ledger out of its objects: what `dray ledger` shows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dray.accounting import (
    AccountingError,
    AllocatedClaim,
    ClaimCharge,
    ClusterLedger,
    DeviceIndex,
    Inventory,
    NodeLedger,
    PodRef,
    Row,
    as_quantity,
    charges_in_status,
    claim_charges_of_published,
    claim_names,
    claim_statuses,
    pod_demand,
)
from dray.accounting.resources import PODS, ledger_amount
from dray.api.core import Node, Pod
from dray.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from dray.cli.dump import Dump

_GONE = ("Succeeded", "Failed")


@dataclass
class LedgerView:
    """The ledgers, and what was odd about the objects they were made from."""

    cluster: ClusterLedger = field(default_factory=ClusterLedger)
    warnings: list[str] = field(default_factory=list)


def ledger_of(dump: Dump) -> LedgerView:
    """Every pod that is bound and not over counts, by the amounts in its status, or else by its claims' devices."""
    view = LedgerView()
    classes = {each.metadata.name: each for each in dump.of(DeviceClass)}
    inventory = Inventory(DeviceIndex(dump.of(ResourceSlice)), classes)
    claims = {(each.metadata.namespace, each.metadata.name): each for each in dump.of(ResourceClaim)}
    for node in dump.of(Node):
        view.cluster.set_node(node)
    for pod in dump.of(Pod):
        if not pod.spec.node_name or pod.status.phase in _GONE:
            continue
        try:
            demand = pod_demand(pod, _charges(pod, claims, inventory, view.warnings))
        except AccountingError as problem:
            view.warnings.append(f"pod {PodRef.of(pod)} is not counted: {problem}")
            continue
        view.cluster.add(pod.spec.node_name, PodRef.of(pod), demand)
    for name in sorted(view.cluster.nodes.keys() - {ledger.name for ledger in view.cluster}):
        view.warnings.append(f"node {name} is not among the objects, but has pods")
    return view


def _charges(
    pod: Pod, claims: dict[tuple[str, str], ResourceClaim], inventory: Inventory, warnings: list[str]
) -> Sequence[ClaimCharge]:
    written = pod.status.node_allocatable_resource_claim_statuses
    try:
        found = claim_charges_of_published(pod, _allocated(pod, claims), inventory)
    except AccountingError as problem:
        warnings.append(f"pod {PodRef.of(pod)}: {problem}")
        return charges_in_status(written)
    if not written:
        if found:
            warnings.append(
                f"pod {PodRef.of(pod)}: claims take from the node, but the pod's status does not say so; "
                "a scheduler overlooks them until the pod is created again"
            )
        return found
    # The same amounts with the devices behind them tell more than the status alone.
    if claim_statuses(found) == tuple(sorted(written, key=lambda status: status.resource_claim_name)):
        return found
    if found:
        warnings.append(f"pod {PodRef.of(pod)}: its status and the devices of its claims differ; the status counts")
    return charges_in_status(written)


def _allocated(pod: Pod, claims: dict[tuple[str, str], ResourceClaim]) -> dict[str, AllocatedClaim]:
    allocated = {}
    for name, claim_name in claim_names(pod).items():
        claim = claims.get((pod.metadata.namespace, claim_name))
        if claim is not None and claim.status.allocation is not None:
            allocated[name] = AllocatedClaim(claim, claim.status.allocation)
    return allocated


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


def lines_of(ledger: NodeLedger) -> list[Line]:
    """Every resource that the node has or that is asked of it."""
    lines = []
    for name in ledger.resources():
        allocatable, requested = ledger.allocatable(name), ledger.requested(name)
        if allocatable or requested:
            by_claims = ledger_amount(name, sum(row.quantity.nanos for row in ledger.why(name) if is_of_claim(row)))
            lines.append(Line(name, allocatable, requested - by_claims, by_claims, requested))
    return lines


def is_of_claim(row: Row) -> bool:
    return row.kind in ("claim", "pool")


def node_document(ledger: NodeLedger) -> dict[str, Any]:
    return {
        "name": ledger.name,
        "pods": {"allocatable": ledger.allocatable(PODS), "requested": ledger.pod_count},
        "resources": {line.resource: line.texts() for line in lines_of(ledger)},
        "claimStates": claim_states_document(ledger),
        "overcommitted": [short.resource for short in ledger.overcommitted()],
    }


def claim_states_document(ledger: NodeLedger) -> dict[str, Any]:
    """Claims that pods hold or draw from on this node, by namespace and name."""

    def texts(amounts: dict[str, int]) -> dict[str, str]:
        return {name: str(as_quantity(name, amount)) for name, amount in sorted(amounts.items())}

    return {
        claim: {
            "allocated": texts(state.allocated),
            "consumed": texts(state.consumed),
            "consumers": [str(pod) for pod in state.consumers],
        }
        for claim, state in sorted(ledger.claim_states.items())
    }


def row_document(node: str, row: Row) -> dict[str, Any]:
    return {
        "node": node,
        "pods": [str(pod) for pod in row.pods],
        "kind": row.kind,
        "container": row.container,
        "claim": row.claim,
        "device": row.device,
        "policy": row.policy,
        "quantity": str(row.quantity),
    }


def sorted_ledgers(ledgers: Iterable[NodeLedger]) -> list[NodeLedger]:
    return sorted(ledgers, key=lambda ledger: ledger.name)
