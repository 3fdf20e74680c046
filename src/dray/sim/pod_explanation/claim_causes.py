"""Why the claims of a pod keep it waiting before any node is asked."""

from __future__ import annotations

from collections.abc import Collection

from dray.api.core import Pod
from dray.api.dra.claim_users import MAX_USERS, may_use, user_names
from dray.api.dra.pod_claims import claim_names, entries_without_claim
from dray.api.resource import ResourceClaim
from dray.explain.cluster_objects import ClusterObjects, meant_by_pod, meant_by_template, similar_name
from dray.explain.recorded_causes import RecordedCause, unready_devices, why_no_claim
from dray.scheduler.framework.interface import PluginStatus
from dray.sim.memory_cluster import MemoryCluster


def why_held_back(world: ClusterObjects, pod: Pod, status: PluginStatus) -> RecordedCause:
    """The cause behind the status with which the scheduler keeps the pod out of its queue."""
    code = status.reason_code
    if code == "claim-being-deleted":
        return RecordedCause(code, status.message + _users_of_deleted_claim(world, pod), "")
    if code == "claim-missing":
        meant = meant_by_pod(world, pod)
        return RecordedCause(code, status.message + meant.hint, meant.fix)
    if code != "claim-not-created":
        return RecordedCause(code, status.message, "")
    for entry in entries_without_claim(pod):
        template = entry.resource_claim_template_name or ""
        if (pod.metadata.namespace, template) not in world.templates_by_name:
            meant = meant_by_template(world, pod.metadata.namespace, template)
            said = f'resource claim template "{template}" of entry {entry.name} does not exist'
            return RecordedCause("template-missing", said + meant.hint, meant.fix)
        cause = why_no_claim(world, pod, entry)
        if cause is not None:
            return cause
        return RecordedCause(code, f"no claim has been made yet for entry {entry.name} from template {template}", "")
    return RecordedCause(code, status.message, "")


def _users_of_deleted_claim(world: ClusterObjects, pod: Pod) -> str:
    """Nobody can have the claim again before these are gone."""
    for name in claim_names(pod):
        claim = world.claims_by_name.get((pod.metadata.namespace, name))
        if claim is not None and claim.metadata.deletion_timestamp is not None:
            users = list(user_names(claim))
            more = f" and {len(users) - 3} more" if len(users) > 3 else ""
            return f"; still used by pod {', '.join(users[:3])}{more}" if users else ""
    return ""


def unready_device(world: ClusterObjects, pod: Pod) -> RecordedCause | None:
    """Of a claim that is allocated for this pod, or for others with it."""
    for name in claim_names(pod):
        claim = world.claims_by_name.get((pod.metadata.namespace, name))
        for cause in unready_devices(claim) if claim is not None else ():
            return cause
    return None


def claim_without_room(world: ClusterObjects, pod: Pod) -> str | None:
    """An allocated claim that the scheduler would try to reserve for the pod, and the server would refuse."""
    for name in claim_names(pod):
        claim = world.claims_by_name.get((pod.metadata.namespace, name))
        users = len(claim.status.reserved_for) if claim is not None else 0
        if claim is not None and users >= MAX_USERS and not may_use(claim, pod):
            where = f"{claim.metadata.namespace}/{name}"
            return f"claim {where} is reserved for {users} users, and a claim can have no more than {MAX_USERS}"
    return None


def with_known_classes(message: str, pod: Pod, cluster: MemoryCluster, classes: Collection[str]) -> str:
    """The message about a missing class, with the class that was probably meant, or else with all that exist."""
    known = sorted(classes)
    hint = similar_name(_missing_class(pod, cluster, classes), known)
    return message + (hint or f"; classes there are: {', '.join(known) or 'none'}")


def _missing_class(pod: Pod, cluster: MemoryCluster, classes: Collection[str]) -> str:
    for name in claim_names(pod):
        claim: ResourceClaim = cluster.get(ResourceClaim, name, pod.metadata.namespace)
        for request in claim.spec.devices.requests:
            asked = [request.exactly] if request.exactly is not None else request.first_available
            for each in asked:
                if each.device_class_name not in classes:
                    return each.device_class_name
    return ""
