"""The ledger of each node, computed from a cluster's objects: as tables and as documents."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dray.accounting import (
    AccountingError,
    ClusterLedger,
    DeviceIndex,
    DeviceLookup,
    NodeLedger,
    PodRef,
    Row,
    as_quantity,
    pod_demand,
)
from dray.accounting.device_charges import charges_of_placed
from dray.accounting.ledger_rows import lines_of
from dray.accounting.resources import PODS
from dray.api.core import Node, Pod
from dray.api.dra.pod_phase import is_on_node
from dray.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from dray.explain.dump import Dump
from dray.explain.text_columns import columns

_ALWAYS_SHOWN = ("cpu", "memory")


@dataclass
class NodeLedgers:
    """The ledgers, and a warning for each object that does not add up."""

    cluster: ClusterLedger = field(default_factory=ClusterLedger)
    warnings: list[str] = field(default_factory=list)

    def sorted(self) -> list[NodeLedger]:
        return sorted(self.cluster, key=lambda ledger: ledger.name)


def ledgers_of(dump: Dump) -> NodeLedgers:
    """Counts every pod that is bound and not over: by the amounts in its status, or else by the devices of its claims."""
    ledgers = NodeLedgers()
    classes = {each.metadata.name: each for each in dump.of(DeviceClass)}
    inventory = DeviceLookup(DeviceIndex(dump.of(ResourceSlice)), classes)
    claims = {(each.metadata.namespace, each.metadata.name): each for each in dump.of(ResourceClaim)}
    for node in dump.of(Node):
        ledgers.cluster.set_node(node)
    for pod in dump.of(Pod):
        if not is_on_node(pod):
            continue
        charges, odd = charges_of_placed(pod, claims, inventory)
        if odd:
            ledgers.warnings.append(f"pod {PodRef.of(pod)}: {odd}")
        try:
            demand = pod_demand(pod, charges)
        except AccountingError as problem:
            ledgers.warnings.append(f"pod {PodRef.of(pod)} is not counted: {problem}")
            continue
        ledgers.cluster.add(pod.spec.node_name, PodRef.of(pod), demand)
    for name in sorted(ledgers.cluster.nodes.keys() - {ledger.name for ledger in ledgers.cluster}):
        ledgers.warnings.append(f"node {name} is not among the objects, but has pods")
    return ledgers


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


def ledgers_document(ledgers: NodeLedgers, chosen: list[NodeLedger], why: str | None) -> dict[str, Any]:
    """The chosen nodes; with `why` also the rows behind the requested amount of that resource."""
    document: dict[str, Any] = {"nodes": [node_document(each) for each in chosen], "warnings": ledgers.warnings}
    if why:
        document["why"] = {why: [row_document(each.name, row) for each in chosen for row in each.why(why)]}
    return document


def nodes_table(chosen: list[NodeLedger], *, wide: bool) -> str:
    header = ("NODE", "RESOURCE", "ALLOCATABLE", "BY SPEC", "BY CLAIMS", "REQUESTED", "FREE")
    rows = []
    for each in chosen:
        for line in lines_of(each):
            if wide or line.resource in _ALWAYS_SHOWN or line.requested:
                rows.append((each.name, line.resource, *line.texts().values()))
        if wide:
            pods, allowed = each.pod_count, each.allocatable("pods")
            rows.append((each.name, "pods", str(allowed), str(pods), "0", str(pods), str(allowed - pods)))
    return columns(header, rows)


def rows_table(chosen: list[NodeLedger], resource: str) -> str:
    header = ("NODE", "POD", "KIND", "CONTAINER", "CLAIM", "DEVICE", "AMOUNT", "POLICY")
    rows = []
    for each in chosen:
        for row in each.why(resource):
            pods = ", ".join(map(str, row.pods))
            rows.append(
                (each.name, pods, row.kind, row.container, row.claim, row.device, str(row.quantity), str(row.policy))
            )
    return columns(header, rows)
