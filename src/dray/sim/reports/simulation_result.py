"""The result of a simulation, and of the comparison of two: as documents and as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dray.accounting import AccountingError, NodeLedger, as_quantity, pod_demand
from dray.accounting.resources import PODS
from dray.api.codec import to_document
from dray.api.core import Pod
from dray.api.dra.device_use import ClusterUse, UseCounts
from dray.api.resource import ResourceClaim
from dray.explain.node_ledgers import claim_states_document
from dray.explain.text_columns import columns
from dray.sim.autoscaling import Autoscaled
from dray.sim.lower_bound import whole_nodes
from dray.sim.node_templates import AddedNodes
from dray.sim.simulation import (
    Placed,
    Simulation,
)
from dray.sim.waiting_causes import with_causes

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ReportHeader:
    """What a report answers: the question in words, the files that were read, the policy, and when."""

    question: str
    files: tuple[str, ...]
    policy: str
    at: datetime


def result_document(simulation: Simulation, growth: Sequence[AddedNodes], problems: Sequence[str]) -> Document:
    placed = list(with_causes(simulation, simulation.placed()))
    return {
        "pods": [_pod(row) for row in placed],
        "nodes": [_node(ledger) for ledger in simulation.ledgers()],
        "summary": _summary(simulation, placed, growth, problems),
    }


def _pod(row: Placed) -> Document:
    pod = row.pod
    return {
        "namespace": pod.metadata.namespace,
        "name": pod.metadata.name,
        "outcome": row.outcome,
        "node": pod.spec.node_name,
        "code": row.code,
        "message": row.message,
        "demand": demand_texts(pod),
        "claims": [_claim(claim) for claim in row.claims],
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
    """How many pods wait, by the code of the reason, the most common first."""
    counts = Counter(row.code for row in placed if row.outcome != "scheduled")
    return dict(counts.most_common())


def autoscale_document(answer: Autoscaled, tried: Sequence[Autoscaled], bound: float, *, priced: bool) -> Document:
    """`price` and the bound are in the unit of the prices; without prices the bound is a number of nodes."""
    document: Document = {
        "policy": answer.policy,
        "nodes": answer.nodes,
        "lowerBound": round(bound, 4) if priced else whole_nodes(bound),
        "tried": [_tried(each, priced=priced) for each in tried],
    }
    if priced:
        document["price"] = round(answer.cost, 4)
    return document


def _tried(each: Autoscaled, *, priced: bool) -> Document:
    row: Document = {"policy": each.policy, "nodes": each.nodes, "waiting": each.waiting}
    if priced:
        row["price"] = round(each.cost, 4)
    row["added"] = [{"template": row.template.name, "count": row.count} for row in each.growth]
    return row


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
        return {"outcome": "absent", "node": "", "code": "", "devices": []}
    devices = [
        f"{result['driver']}/{result['pool']}/{result['device']}"
        for claim in row["claims"]
        for result in ((claim["allocation"] or {}).get("devices") or {}).get("results") or ()
    ]
    return {"outcome": row["outcome"], "node": row["node"], "code": row["code"], "devices": devices}


_COMPARED = (
    "scheduled",
    "unschedulable",
    "errors",
    "nodes",
    "devices",
    "fragmentation",
    "preempted",
    "waitingByReason",
)


def _numbers(document: Document) -> Document:
    summary = document["summary"]
    return {key: summary[key] for key in _COMPARED}


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
    if "autoscale" in summary:
        lines += autoscale_lines(summary["autoscale"])
    waiting = [f"{count} {code}" for code, count in summary["waitingByReason"].items()]
    lines += [f"waiting by reason: {', '.join(waiting)}"] if waiting else []
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
    message = f"{row['code']}: {_first_part(row['message'])}" if row["outcome"] != "scheduled" else ""
    return f"{row['namespace']}/{row['name']}", row["outcome"], row["node"], shown, message


def _node_rows(document: Document) -> list[tuple[str, ...]]:
    return [
        (node["name"], resource, amount, node["requested"].get(resource, "0"))
        for node in document["nodes"]
        for resource, amount in node["allocatable"].items()
    ]


def _first_part(message: str) -> str:
    return message.partition(" preemption:")[0]


def autoscale_lines(autoscale: Document) -> list[str]:
    """By which policy, what the others need, and how far from the lower bound."""
    priced = "price" in autoscale
    unit = "price" if priced else "nodes"
    bound = autoscale["lowerBound"]
    others = [
        f"{row['policy']} needs {row[unit]}{_leaves(row['waiting'])}"
        for row in autoscale["tried"]
        if row["policy"] != autoscale["policy"]
    ]
    nodes = autoscale["nodes"]
    left = next(row["waiting"] for row in autoscale["tried"] if row["policy"] == autoscale["policy"])
    said = f"by policy {autoscale['policy']}: {nodes} more {'node' if nodes == 1 else 'nodes'}" + (
        f" at a price of {autoscale['price']}" if priced else ""
    )
    said += _leaves(left)
    return ["; ".join([said, *others, f"no policy can do with less than {bound}"])]


def _leaves(waiting: int) -> str:
    return f" and leaves {waiting} waiting" if waiting else ""


def diff_rows(diff: Document) -> list[tuple[str, str, str]]:
    """Totals of both sides, side by side."""
    here, there = diff["from"], diff["to"]
    rows = [
        ("pods that get a node", here["scheduled"], there["scheduled"]),
        ("pods that keep waiting", here["unschedulable"] + here["errors"], there["unschedulable"] + there["errors"]),
    ]
    for code in dict.fromkeys((*here["waitingByReason"], *there["waitingByReason"])):
        rows.append((f"waiting: {code}", here["waitingByReason"].get(code, 0), there["waitingByReason"].get(code, 0)))
    rows.append(("pods preempted", len(here["preempted"]), len(there["preempted"])))
    rows.append(("nodes", here["nodes"], there["nodes"]))
    for word, key in _DEVICE_ROWS:
        rows.append((word, here["devices"][key], there["devices"][key]))
    for word, key in _FRAGMENTATION_ROWS:
        rows.append((word, here["fragmentation"][key], there["fragmentation"][key]))
    return [(word, str(before), str(after)) for word, before, after in rows]


_DEVICE_ROWS = (
    ("devices", "all"),
    ("devices used", "used"),
    ("devices partly used", "partlyUsed"),
    ("devices free", "free"),
    ("devices blocked", "blocked"),
)
_FRAGMENTATION_ROWS = (
    ("most free on one node", "mostFreeOnOneNode"),
    ("nodes with nothing taken", "untouchedNodes"),
    ("left of partly used devices", "leftInParts"),
)


def changed_pods(diff: Document) -> list[tuple[str, str, str]]:
    return [
        (f"{row['namespace']}/{row['name']}", _place_text(row["from"]), _place_text(row["to"])) for row in diff["pods"]
    ]


def _place_text(place: Document) -> str:
    """Node and devices, or why there is none."""
    if not place["node"]:
        return f"{place['outcome']} ({place['code']})" if place["code"] else str(place["outcome"])
    names = [name.rpartition("/")[2] for name in place["devices"]]
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"{place['node']}: {shown}" if shown else str(place["node"])


def _diff_lines(diff: Document) -> list[str]:
    names = (diff["from"]["name"].upper(), diff["to"]["name"].upper())
    lines = [columns(("COMPARED", *names), diff_rows(diff)), ""]
    if not diff["pods"]:
        return [*lines, "every pod is where it was"]
    return [*lines, columns(("POD", *names), changed_pods(diff))]


def question_of(document: Document, *, autoscale: bool) -> str:
    """What was asked, in words, for the head of the report."""
    summary = document["summary"]
    if autoscale:
        question = "How many more nodes give every waiting pod a place?"
    elif summary["addedNodes"]:
        more = ", ".join(f"{row['count']} more like {row['template']}" for row in summary["addedNodes"])
        question = f"Which waiting pods get a node with {more}?"
    else:
        question = "Which waiting pods get a node?"
    if "diff" in document:
        question += f" What differs between {document['diff']['from']['name']} and {document['diff']['to']['name']}?"
    if "defragmentation" in document:
        question += " Which pods would have to move?"
    return question
