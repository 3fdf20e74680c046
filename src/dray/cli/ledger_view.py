"""A cluster's ledger out of its objects: what `dray ledger` shows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from dray.accounting import (
    AccountingError,
    ClusterLedger,
    DeviceIndex,
    Inventory,
    NodeLedger,
    PodRef,
    Row,
    as_quantity,
    pod_demand,
)
from dray.accounting.device_charges import charges_of_placed, takes_from_node
from dray.accounting.ledger_rows import lines_of
from dray.accounting.resources import PODS
from dray.api.core import Node, Pod
from dray.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from dray.cli.dump import Dump


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
        if not takes_from_node(pod):
            continue
        charges, odd = charges_of_placed(pod, claims, inventory)
        if odd:
            view.warnings.append(f"pod {PodRef.of(pod)}: {odd}")
        try:
            demand = pod_demand(pod, charges)
        except AccountingError as problem:
            view.warnings.append(f"pod {PodRef.of(pod)} is not counted: {problem}")
            continue
        view.cluster.add(pod.spec.node_name, PodRef.of(pod), demand)
    for name in sorted(view.cluster.nodes.keys() - {ledger.name for ledger in view.cluster}):
        view.warnings.append(f"node {name} is not among the objects, but has pods")
    return view


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
