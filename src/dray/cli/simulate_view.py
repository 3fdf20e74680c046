"""What a rehearsal found, as the documents that `dray simulate` prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from dray.accounting import AccountingError, NodeLedger, as_quantity, pod_demand
from dray.accounting.resources import PODS
from dray.api.codec import to_document
from dray.api.core import Pod
from dray.api.resource import ResourceClaim
from dray.cli.ledger_view import claim_states_document
from dray.sim.more_nodes import Growth
from dray.sim.rehearsal import Placed, Rehearsal

Document = dict[str, Any]


def result_document(rehearsal: Rehearsal, growth: Sequence[Growth], problems: Sequence[str]) -> Document:
    placed = rehearsal.placed()
    return {
        "pods": [_pod(row, rehearsal) for row in placed],
        "nodes": [_node(ledger) for ledger in rehearsal.ledgers()],
        "summary": _summary(rehearsal, placed, growth, problems),
    }


def _pod(row: Placed, rehearsal: Rehearsal) -> Document:
    pod = row.pod
    return {
        "namespace": pod.metadata.namespace,
        "name": pod.metadata.name,
        "outcome": row.outcome,
        "node": pod.spec.node_name,
        "message": row.message,
        "demand": demand_texts(pod),
        "claims": [_claim(claim) for claim in row.claims],
        "codes": rehearsal.codes_of(pod) if row.outcome != "scheduled" else [],
    }


def _claim(claim: ResourceClaim) -> Document:
    allocation = claim.status.allocation
    return {"name": claim.metadata.name, "allocation": to_document(allocation) if allocation is not None else None}


def demand_texts(pod: Pod) -> dict[str, str]:
    """What the pod asks of its node, through its spec and, once it has them, through its devices."""
    try:
        demand = pod_demand(pod)
    except AccountingError:
        return {}
    return {name: str(as_quantity(name, amount)) for name, amount in demand.amounts() if amount}


def _node(ledger: NodeLedger) -> Document:
    names = [name for name in ledger.resources() if ledger.allocatable(name) or ledger.requested(name)]
    return {
        "name": ledger.name,
        "allocatable": {
            **{name: str(as_quantity(name, ledger.allocatable(name))) for name in names},
            PODS: str(ledger.allocatable(PODS)),
        },
        "requested": {
            **{name: str(as_quantity(name, ledger.requested(name))) for name in names},
            PODS: str(ledger.pod_count),
        },
        "claimStates": claim_states_document(ledger),
    }


def _summary(
    rehearsal: Rehearsal, placed: Sequence[Placed], growth: Sequence[Growth], problems: Sequence[str]
) -> Document:
    outcomes = Counter(row.outcome for row in placed)
    return {
        "pods": len(placed),
        "scheduled": outcomes["scheduled"],
        "unschedulable": outcomes["unschedulable"],
        "errors": outcomes["error"],
        "nodes": len(rehearsal.ledgers()),
        "devices": device_counts(rehearsal),
        "addedNodes": [{"template": row.template.name, "count": row.count} for row in growth],
        "preempted": [f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in rehearsal.cluster.preempted],
        "waitingByReason": waiting_by_reason(placed),
        "leftOut": list(problems),
    }


def device_counts(rehearsal: Rehearsal) -> dict[str, int]:
    taken = {
        (result.driver, result.pool, result.device)
        for claim in rehearsal.cluster.all(ResourceClaim)
        if claim.status.allocation is not None
        for result in claim.status.allocation.devices.results
        if not result.admin_access
    }
    published = rehearsal.published_devices()
    return {"published": len(published), "taken": len(taken & published)}


def waiting_by_reason(placed: Iterable[Placed]) -> dict[str, int]:
    """How many pods wait, by message; amounts of nodes in it are left out, so that alike pods fall together."""
    counts = Counter(row.message.partition(" preemption:")[0] for row in placed if row.outcome != "scheduled")
    return dict(counts.most_common())


def diff_document(here: Document, there: Document, here_name: str, there_name: str) -> Document:
    """Pods that differ in outcome, node or devices; a pod that only one side has is shown as absent on the other."""
    mine, theirs = _by_name(here), _by_name(there)
    rows = []
    for key in dict.fromkeys((*mine, *theirs)):
        before, after = _place(mine.get(key)), _place(theirs.get(key))
        if before != after:
            rows.append({"namespace": key[0], "name": key[1], "from": before, "to": after})
    return {
        "pods": rows,
        "from": {"name": here_name, **_numbers(here)},
        "to": {"name": there_name, **_numbers(there)},
    }


def _by_name(document: Document) -> dict[tuple[str, str], Document]:
    return {(row["namespace"], row["name"]): row for row in document["pods"]}


def _place(row: Document | None) -> Document:
    if row is None:
        return {"outcome": "absent", "node": "", "devices": []}
    devices = [
        f"{result['driver']}/{result['pool']}/{result['device']}"
        for claim in row["claims"]
        for result in ((claim["allocation"] or {}).get("devices") or {}).get("results") or ()
    ]
    return {"outcome": row["outcome"], "node": row["node"], "devices": devices}


def _numbers(document: Document) -> Document:
    summary = document["summary"]
    return {key: summary[key] for key in ("scheduled", "unschedulable", "errors", "devices")}
