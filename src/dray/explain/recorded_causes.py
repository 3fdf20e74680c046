"""Causes that other parts of the cluster know: quotas, labels of namespaces, conditions of devices and nodes, and events."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dray.accounting.quota import QuotaClasses, claim_usage, quota_covers
from dray.api.codec import to_document
from dray.api.core import Event, Node, Pod, PodResourceClaim
from dray.api.dra.consumption import allocation_results
from dray.api.dra.pools import device_id
from dray.api.meta import Condition
from dray.api.resource import ADMIN_ACCESS_LABEL, DeviceRequestAllocationResult, ResourceClaim, ResourceClaimTemplate
from dray.explain.cluster_objects import ClusterObjects

FAILED_CREATION = "FailedResourceClaimCreation"
FAILED_PREPARE = "FailedPrepareDynamicResources"


@dataclass(frozen=True, slots=True)
class RecordedCause:
    """`fix` is what to do about it."""

    code: str
    message: str
    fix: str


# --- no claim from a template


def why_no_claim(world: ClusterObjects, pod: Pod, entry: PodResourceClaim) -> RecordedCause | None:
    """What keeps the claim controller from making the claim of an entry: as the objects are now, or as it said last."""
    namespace = pod.metadata.namespace
    template = world.templates_by_name.get((namespace, entry.resource_claim_template_name or ""))
    if template is not None:
        for cause in (*_without_admin_label(world, namespace, template), *_over_quota(world, namespace, template)):
            return cause
    event = last_event(world, pod, FAILED_CREATION)
    if event is None:
        return None
    code = "quota-exceeded" if "exceeded quota" in event.message else "claim-not-created"
    return RecordedCause(code, f"the claim controller says{when(event)}: {event.message}", "do what its message says")


def _without_admin_label(
    world: ClusterObjects, namespace: str, template: ResourceClaimTemplate
) -> Iterator[RecordedCause]:
    wants = any(each.exactly and each.exactly.admin_access for each in template.spec.spec.devices.requests)
    found = next((each for each in world.namespaces if each.metadata.name == namespace), None)
    if wants and found is not None and found.metadata.labels.get(ADMIN_ACCESS_LABEL) != "true":
        yield RecordedCause(
            "admin-access-denied",
            f"template {template.metadata.name} asks for admin access, and namespace {namespace} has no label "
            f"{ADMIN_ACCESS_LABEL}=true",
            f"kubectl label namespace {namespace} {ADMIN_ACCESS_LABEL}=true --overwrite",
        )


def _over_quota(world: ClusterObjects, namespace: str, template: ResourceClaimTemplate) -> Iterator[RecordedCause]:
    claim = to_document(ResourceClaim(spec=template.spec.spec))
    classes = QuotaClasses.of(map(to_document, world.classes))
    usage = claim_usage(claim, classes)
    for quota in world.quotas:
        if quota.metadata.namespace != namespace or not quota_covers(to_document(quota), None):
            continue
        for name in sorted(usage.keys() & quota.status.hard.keys() & quota.status.used.keys()):
            hard, used, more = quota.status.hard[name], quota.status.used[name], usage[name]
            if used.nanos + more.nanos > hard.nanos:
                allow = f"allow more: kubectl edit resourcequota/{quota.metadata.name} -n {namespace}"
                # Without any other claim it would be too much as well.
                less = "ask for fewer devices" if more.nanos > hard.nanos else "delete claims that are not needed"
                yield RecordedCause(
                    "quota-exceeded",
                    f"quota {quota.metadata.name} allows {hard} {name}, {used} are used, and the claim of template "
                    f"{template.metadata.name} takes {more} more",
                    f"{less}, or {allow}",
                )


# --- binding conditions


def unready_devices(claim: ResourceClaim) -> Iterator[RecordedCause]:
    """Devices of an allocated claim that failed, or whose binding conditions are not all true."""
    for result in allocation_results(claim):
        reported = _reported(claim, result)
        failed = [reported[name] for name in result.binding_failure_conditions if name in reported]
        failed = [row for row in failed if row.status == "True"]
        pending = [name for name in result.binding_conditions if name not in reported]
        pending += [
            name for name, row in reported.items() if name in result.binding_conditions and row.status != "True"
        ]
        where = f"device {device_id(result)} of claim {claim.metadata.namespace}/{claim.metadata.name}"
        fix = f"see the log of driver {result.driver}, or of the controller that sets the condition"
        if failed:
            yield RecordedCause("binding-failed", f"{where} failed: {_said(failed[0])}", fix)
        elif pending:
            name = pending[0]
            said = (
                f"is {_said(reported[name])}" if name in reported else f"is not reported by driver {result.driver} yet"
            )
            since = claim.status.allocation.allocation_timestamp if claim.status.allocation is not None else None
            allocated = f" (allocated at {since})" if since else ""
            yield RecordedCause("binding-pending", f"{where} is not ready: condition {name} {said}{allocated}", fix)


def _reported(claim: ResourceClaim, result: DeviceRequestAllocationResult) -> dict[str, Condition]:
    wanted = (result.driver, result.pool, result.device, result.share_id)
    return {
        row.type: row
        for device in claim.status.devices
        if (device.driver, device.pool, device.device, device.share_id) == wanted
        for row in device.conditions
    }


def _said(condition: Condition) -> str:
    details = ": ".join(part for part in (condition.reason, condition.message) if part)
    return f"{condition.type} {condition.status}" + (f" ({details})" if details else "")


# --- pods on their nodes


def why_not_prepared(world: ClusterObjects, pod: Pod) -> RecordedCause | None:
    """What the node agent says about the pod's devices."""
    event = last_event(world, pod, FAILED_PREPARE)
    if event is None:
        return None
    said = event.message.removeprefix("Failed to prepare dynamic resources: ").removeprefix(
        "prepare dynamic resources: "
    )
    unknown = re.search(r"DRA driver (\S+) is not registered", said)
    if unknown is not None:
        return RecordedCause(
            "driver-not-registered",
            f"driver {unknown[1]} is not registered with the node agent of {pod.spec.node_name}{when(event)}",
            f"start driver {unknown[1]} on node {pod.spec.node_name}, and see its log for the registration",
        )
    return RecordedCause(
        "prepare-failed",
        f"preparing its devices on node {pod.spec.node_name} fails{when(event)}: {said}",
        f"see the log of the driver on node {pod.spec.node_name}",
    )


def not_ready(node: Node) -> RecordedCause | None:
    ready = next((row for row in node.status.conditions if row.type == "Ready"), None)
    if ready is None or ready.status == "True":
        return None
    said = f" ({ready.message})" if ready.message else ""
    return RecordedCause(
        "node-not-ready",
        f"its node {node.metadata.name} is not ready{said}",
        f"see the node agent of {node.metadata.name}",
    )


# --- events


def last_event(world: ClusterObjects, pod: Pod, reason: str) -> Event | None:
    """The newest event of the pod, and not of an earlier one of its name."""
    return newest(
        event
        for event in world.events_by_object.get(("Pod", pod.metadata.namespace, pod.metadata.name), ())
        if event.reason == reason and event.involved_object.uid in ("", pod.metadata.uid)
    )


def newest(events: Iterable[Event]) -> Event | None:
    return max(events, key=time_of, default=None)


def time_of(event: Event) -> str:
    series = event.series.last_observed_time if event.series is not None else None
    return series or event.last_timestamp or event.event_time or event.first_timestamp or ""


def when(event: Event) -> str:
    times = event.series.count if event.series is not None else event.count
    said = [f"{times} times" if times > 1 else "", f"last at {time_of(event)}" if time_of(event) else ""]
    return f" ({', '.join(part for part in said if part)})" if any(said) else ""
