"""The result of a simulation, and of the comparison of two: as documents and as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from dray.accounting import AccountingError, NodeLedger, as_quantity, pod_demand
from dray.accounting.resources import PODS
from dray.api.codec import to_document
from dray.api.core import Pod
from dray.api.dra.device_use import ClusterUse, UseCounts
from dray.api.resource import ResourceClaim
from dray.explain.node_ledgers import claim_states_document
from dray.explain.text_columns import columns
from dray.sim.node_templates import AddedNodes
from dray.sim.simulation import (
    Placed,
    Simulation,
)

Document = dict[str, Any]


def result_document(simulation: Simulation, growth: Sequence[AddedNodes], problems: Sequence[str]) -> Document:
    placed = simulation.placed()
    return {
        "pods": [_pod(row, simulation) for row in placed],
        "nodes": [_node(ledger) for ledger in simulation.ledgers()],
        "summary": _summary(simulation, placed, growth, problems),
    }


def _pod(row: Placed, simulation: Simulation) -> Document:
    pod = row.pod
    return {
        "namespace": pod.metadata.namespace,
        "name": pod.metadata.name,
        "outcome": row.outcome,
        "node": pod.spec.node_name,
        "message": row.message,
        "demand": demand_texts(pod),
        "claims": [_claim(claim) for claim in row.claims],
        "codes": simulation.codes_of(pod) if row.outcome != "scheduled" else [],
    }


def _claim(claim: ResourceClaim) -> Document:
    allocation = claim.status.allocation
    return {"name": claim.metadata.name, "allocation": to_document(allocation) if allocation is not None else None}


def demand_texts(pod: Pod) -> dict[str, str]:
    """The amounts that the pod needs on its node, for its spec and for its devices."""
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
    simulation: Simulation, placed: Sequence[Placed], growth: Sequence[AddedNodes], problems: Sequence[str]
) -> Document:
    outcomes = Counter(row.outcome for row in placed)
    use = simulation.device_use()
    return {
        "pods": len(placed),
        "scheduled": outcomes["scheduled"],
        "unschedulable": outcomes["unschedulable"],
        "errors": outcomes["error"],
        "nodes": len(simulation.ledgers()),
        "devices": use.counts.document(),
        "fragmentation": fragmentation_document(use),
        "addedNodes": [{"template": row.template.name, "count": row.count} for row in growth],
        "preempted": [f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in simulation.cluster.preempted],
        "waitingByReason": waiting_by_reason(placed),
        "leftOut": list(problems),
    }


def fragmentation_document(use: ClusterUse) -> Document:
    """What is left, and how well it hangs together: the most free devices of one driver on one node, nodes of whose
    devices nothing is taken, and what is left of devices that are partly used."""
    places = [counts for driver in use.by_driver() for counts in use.by_place(driver).values()]
    return {
        "mostFreeOnOneNode": max((counts.free for counts in places), default=0),
        "untouchedNodes": sum(not counts.parts for counts in use.by_node().values()),
        "leftInParts": round(use.counts.left_in_parts, 2),
    }


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


def words_of_counts(devices: Document) -> str:
    names = ("used", "partlyUsed", "free", "blocked", "tainted")
    return UseCounts(*(devices[name] for name in names)).words()


def result_text(document: Document, *, wide: bool) -> str:
    """The summary and a row for each pod; with `wide` also a row for each resource of each node."""
    summary = document["summary"]
    lines = [
        f"{summary['scheduled']} of {summary['pods']} waiting pods get a node"
        + (f", still waiting: {summary['unschedulable']}" if summary["unschedulable"] else "")
        + (f", errors: {summary['errors']}" if summary["errors"] else "")
        + f"; then {words_of_counts(summary['devices'])}"
    ]
    lines += [f"added: {row['count']} x {row['template']}" for row in summary["addedNodes"]]
    lines += [f"preempted: {name}" for name in summary["preempted"]]
    if document["pods"]:
        lines += ["", columns(("POD", "OUTCOME", "NODE", "DEVICES", "MESSAGE"), map(_pod_row, document["pods"]))]
    if wide and document["nodes"]:
        lines += ["", columns(("NODE", "RESOURCE", "ALLOCATABLE", "REQUESTED"), _node_rows(document))]
    if "diff" in document:
        lines += ["", *_diff_lines(document["diff"])]
    return "\n".join(lines)


def _pod_row(row: Document) -> tuple[str, ...]:
    devices = [
        f"{result['pool']}/{result['device']}"
        for claim in row["claims"]
        for result in ((claim["allocation"] or {}).get("devices") or {}).get("results") or ()
    ]
    shown = ", ".join(devices[:4]) + (f" and {len(devices) - 4} more" if len(devices) > 4 else "")
    codes = f"{', '.join(row['codes'])}: " if row["codes"] else ""
    message = codes + row["message"].partition(" preemption:")[0]
    return f"{row['namespace']}/{row['name']}", row["outcome"], row["node"], shown, message


def _node_rows(document: Document) -> list[tuple[str, ...]]:
    return [
        (node["name"], resource, amount, node["requested"].get(resource, "0"))
        for node in document["nodes"]
        for resource, amount in node["allocatable"].items()
    ]


def _diff_lines(diff: Document) -> list[str]:
    here, there = diff["from"], diff["to"]
    headline = f"compared with {there['name']}: {there['scheduled']} scheduled there, {here['scheduled']} here"
    if not diff["pods"]:
        return [headline, "every pod is where it was"]
    rows = [
        (
            f"{row['namespace']}/{row['name']}",
            row["from"]["node"] or row["from"]["outcome"],
            row["to"]["node"] or row["to"]["outcome"],
        )
        for row in diff["pods"]
    ]
    return [headline, columns(("POD", here["name"].upper(), there["name"].upper()), rows)]
