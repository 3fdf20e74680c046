"""Rows of the page: nodes with their ledgers, claims, waiting pods, and the rows behind an amount."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dray.accounting import NodeLedger, Row
from dray.accounting.ledger_rows import Line, lines_of
from dray.accounting.resources import PODS
from dray.api.core import Event, Node, Pod
from dray.api.dra.pod_claims import claims_of_entries
from dray.api.dra.pod_phase import is_waiting_for_node
from dray.api.resource import DeviceRequest, DeviceRequestAllocationResult, ResourceClaim
from dray.explain.verdicts import PodVerdict

Document = dict[str, Any]


def node_row(node: Node, ledger: NodeLedger | None) -> Document:
    row: Document = {"name": node.metadata.name, "created": node.metadata.creation_timestamp or ""}
    problems = _node_problems(node)
    if problems:
        row["problems"] = problems
    if node.spec.unschedulable:
        row["cordoned"] = True
    taints = [f"{each.key}{'=' + each.value if each.value else ''}:{each.effect}" for each in node.spec.taints]
    if taints:
        row["taints"] = taints
    if ledger is not None:
        row["pods"] = [ledger.pod_count, ledger.allocatable(PODS)]
        row["ledger"] = [_line(line) for line in lines_of(ledger)]
        over = [short.resource for short in ledger.overcommitted()]
        if over:
            row["over"] = over
    return row


def _node_problems(node: Node) -> list[str]:
    """Conditions that are not as they should be; a node that says nothing about being ready is not."""
    problems = []
    ready = next((each for each in node.status.conditions if each.type == "Ready"), None)
    if ready is None or ready.status != "True":
        text = (ready.message or ready.reason) if ready is not None else ""
        problems.append(f"not ready: {text}" if text else "not ready")
    for each in node.status.conditions:
        if each.type != "Ready" and each.status == "True" and each.type.endswith("Pressure"):
            problems.append(f"{each.type}: {each.message or each.reason}")
    return problems


def _line(line: Line) -> list[Any]:
    """Resource; then allocatable, by spec, by claims, requested, free as text; then percent by spec and by claims."""
    whole = line.allocatable or 1
    percents = [round(100 * amount / whole, 2) for amount in (line.by_spec, line.by_claims)]
    return [line.resource, *line.texts().values(), *percents]


# --- claims


def claim_row(claim: ResourceClaim, users: Iterable[Pod]) -> Document:
    status, metadata = claim.status, claim.metadata
    reserved = [
        f"{user.resource}/{user.name}" if user.resource != "pods" else user.name for user in status.reserved_for
    ]
    row: Document = {
        "namespace": metadata.namespace,
        "name": metadata.name,
        "created": metadata.creation_timestamp or "",
        "state": claim_state(claim),
        "requests": [_request(each) for each in claim.spec.devices.requests],
        "users": reserved,
    }
    waiting = [pod.metadata.name for pod in users if pod.metadata.name not in reserved]
    if waiting:
        row["waiting"] = waiting
    if status.allocation is not None:
        row["devices"] = [_result(each) for each in status.allocation.devices.results]
        row["nodes"] = _nodes_of(claim)
    notes = _notes(claim)
    if notes:
        row["notes"] = notes
    return row


def claim_state(claim: ResourceClaim) -> str:
    if claim.metadata.deletion_timestamp is not None:
        return "deleting"
    if claim.status.allocation is None:
        return "waiting"
    return "in use" if claim.status.reserved_for else "allocated"


def _request(request: DeviceRequest) -> str:
    if request.exactly is None:
        options = " or ".join(each.device_class_name for each in request.first_available)
        return f"{request.name}: {options}"
    asked = request.exactly
    count = "all" if asked.allocation_mode == "All" else f"{asked.count}×" if asked.count > 1 else ""
    capacity = ", ".join(
        f"{amount} {name}" for name, amount in (asked.capacity.requests if asked.capacity else {}).items()
    )
    text = " ".join(part for part in (count, asked.device_class_name, f"({capacity})" if capacity else "") if part)
    return f"{request.name}: {text}" + (", admin access" if asked.admin_access else "")


def _result(result: DeviceRequestAllocationResult) -> Document:
    row: Document = {
        "request": result.request,
        "driver": result.driver,
        "pool": result.pool,
        "device": result.device,
    }
    if result.consumed_capacity:
        row["consumed"] = {name: str(amount) for name, amount in sorted(result.consumed_capacity.items())}
    if result.share_id is not None:
        row["share"] = True
    if result.admin_access:
        row["admin"] = True
    return row


def _nodes_of(claim: ResourceClaim) -> str:
    allocation = claim.status.allocation
    if allocation is None or allocation.node_selector is None:
        return "any node"
    fields = [
        value
        for term in allocation.node_selector.node_selector_terms
        for each in term.match_fields
        if each.key == "metadata.name"
        for value in each.values
    ]
    return ", ".join(fields) or "nodes by label"


def _notes(claim: ResourceClaim) -> list[str]:
    """What drivers say about the devices."""
    return [
        f"{row.device}: {each.type} is {each.status}" + (f", {each.message}" if each.message else "")
        for row in claim.status.devices
        for each in row.conditions
    ]


# --- waiting pods


def pending_row(pod: Pod, verdict: PodVerdict | None = None) -> Document:
    """`message` is the explanation's headline, and the scheduler's sentence as long as there is none."""
    condition = next((each for each in pod.status.conditions if each.type == "PodScheduled"), None)
    said = condition.message if condition is not None else "the scheduler has not tried the pod yet"
    return {
        "namespace": pod.metadata.namespace,
        "name": pod.metadata.name,
        "created": pod.metadata.creation_timestamp or "",
        "priority": pod.spec.priority or 0,
        "reason": condition.reason if condition is not None else "",
        "said": said,
        "message": verdict.why if verdict is not None else said,
        "code": verdict.code if verdict is not None else "",
        "cause": verdict.cause if verdict is not None else "",
        "claims": [each.claim_name or each.entry for each in claims_of_entries(pod)],
    }


def pod_row(pod: Pod) -> Document:
    """One pod, waiting or not. `problem` is what a container or the pod itself complains about."""
    statuses = pod.status.container_statuses
    row: Document = {
        "namespace": pod.metadata.namespace,
        "name": pod.metadata.name,
        "created": pod.metadata.creation_timestamp or "",
        "state": pod_state(pod),
        "node": pod.spec.node_name,
        "ready": [sum(each.ready for each in statuses), len(pod.spec.containers)],
        "restarts": sum(each.restart_count for each in statuses),
        "claims": [each.claim_name or each.entry for each in claims_of_entries(pod)],
    }
    waiting = [each.state.waiting for each in statuses if each.state.waiting is not None]
    problem = pod.status.message or next((each.message or each.reason for each in waiting if each.message), "")
    if problem:
        row["problem"] = problem
    return row


def pod_state(pod: Pod) -> str:
    if pod.metadata.deletion_timestamp is not None:
        return "leaving"
    if is_waiting_for_node(pod):
        return "waiting"
    return {"Pending": "starting", "": "starting"}.get(pod.status.phase, pod.status.phase.lower())


def event_row(event: Event) -> Document:
    about = event.involved_object
    return {
        "time": event_time(event),
        "type": event.type,
        "reason": event.reason,
        "kind": about.kind,
        "namespace": about.namespace,
        "name": about.name,
        "message": event.message,
        "count": event.series.count if event.series is not None else max(1, event.count),
        "from": event.reporting_component or event.source.component,
    }


def event_time(event: Event) -> str:
    """When it happened last."""
    seen_last = event.series.last_observed_time if event.series is not None else None
    return seen_last or event.last_timestamp or event.event_time or event.metadata.creation_timestamp or ""


def why_row(row: Row) -> Document:
    return {
        "pods": [str(pod) for pod in row.pods],
        "kind": row.kind,
        "container": row.container,
        "claim": row.claim,
        "device": row.device,
        "policy": str(row.policy),
        "quantity": str(row.quantity),
        "nanos": row.quantity.nanos,
    }
