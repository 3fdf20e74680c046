"""Why a Job, a Deployment or another workload has no pods: what its controller says in events."""

from __future__ import annotations

import re

from dray.api.core import Event, Pod
from dray.api.dra.pod_phase import is_active, is_bound
from dray.explain.cluster_objects import ClusterObjects
from dray.explain.reason_codes import SCHEDULED
from dray.explain.recorded_causes import RecordedCause, newest, time_of, when
from dray.explain.verdicts import PodVerdict

# As kubectl names them.
WORKLOADS = {
    **dict.fromkeys(("job", "jobs"), "Job"),
    **dict.fromkeys(("deployment", "deployments", "deploy"), "Deployment"),
    **dict.fromkeys(("replicaset", "replicasets", "rs"), "ReplicaSet"),
    **dict.fromkeys(("replicationcontroller", "replicationcontrollers", "rc"), "ReplicationController"),
    **dict.fromkeys(("daemonset", "daemonsets", "ds"), "DaemonSet"),
    **dict.fromkeys(("statefulset", "statefulsets", "sts"), "StatefulSet"),
}
FAILED, SUCCEEDED = "FailedCreate", "SuccessfulCreate"
# What the server's refusal of a pod has in it, and what helps; names that the refusal mentions go into the advice.
_REFUSALS: tuple[tuple[str, str], ...] = (
    (
        r"exceeded quota: (?P<name>[^,\s]+)",
        "delete pods that are not needed, or allow more: kubectl edit resourcequota/{name} -n {namespace}",
    ),
    (
        r'violates PodSecurity "(?P<name>[^":]+)',
        "change the pod template as it says, or allow more than {name}: "
        "kubectl label namespace {namespace} pod-security.kubernetes.io/enforce=privileged --overwrite",
    ),
    (
        r'serviceaccount "(?P<name>[^"]+)" not found',
        "kubectl create serviceaccount {name} -n {namespace}, or name another one in the pod template",
    ),
    (
        r"(?:maximum|minimum) .* usage per|limit to request ratio",
        "ask for amounts within the limits of the namespace: kubectl describe limitrange -n {namespace}",
    ),
    (
        r'no PriorityClass with name (?P<name>[^\s"]+)',
        "create priority class {name}, or name another one in the pod template",
    ),
    (r"failed quota: (?P<name>[^:\s]+): must specify", "let each container of the pod template ask for what it says"),
)


def why_no_pods(world: ClusterObjects, kind: str, namespace: str, name: str) -> RecordedCause | None:
    """What its controller says about the last pod that it could not create, unless one could be created since."""
    events = [
        event
        for (of_kind, of_namespace, of_name), found in world.events_by_object.items()
        if of_namespace == namespace and _is_of(kind, name, of_kind, of_name)
        for event in found
    ]
    failed = newest(event for event in events if event.reason == FAILED)
    succeeded = newest(event for event in events if event.reason == SUCCEEDED)
    if failed is None or (succeeded is not None and time_of(succeeded) > time_of(failed)):
        return None
    said = failed.message.removeprefix("(combined from similar events): ").removeprefix("Error creating: ")
    return RecordedCause("no-pods", f"{said}{when(failed)}", _what_helps(failed, namespace))


def pods_of(world: ClusterObjects, kind: str, namespace: str, name: str) -> list[Pod]:
    return [
        pod
        for pod in world.pods
        if pod.metadata.namespace == namespace
        and any(_is_of(kind, name, owner.kind, owner.name) for owner in pod.metadata.owner_references)
    ]


def waiting_pods_of(world: ClusterObjects, kind: str, namespace: str, name: str) -> list[Pod]:
    from dray.explain.doctor import held_up_pods

    own = pods_of(world, kind, namespace, name)
    held_up = {pod.metadata.uid for pod in held_up_pods(world)}
    return [
        pod
        for pod in own
        if (not is_bound(pod) and is_active(pod)) or (pod.metadata.uid and pod.metadata.uid in held_up)
    ]


def verdict_of_workload(world: ClusterObjects, kind: str, namespace: str, name: str) -> PodVerdict:
    """Of the workload alone; its pods have verdicts of their own."""
    where = f"{kind.lower()} {namespace}/{name}"
    pods = pods_of(world, kind, namespace, name)
    there = "1 pod" if len(pods) == 1 else f"{len(pods)} pods"
    cause = why_no_pods(world, kind, namespace, name)
    if cause is not None:
        has = f"has {there} and cannot get another" if pods else "has no pods"
        return PodVerdict(namespace, name, cause.code, f"{where} {has}: {cause.message}", fix=cause.fix)
    if pods:
        return PodVerdict(namespace, name, SCHEDULED, f"{where} has {there}, and nothing keeps it from getting more")
    return PodVerdict(
        namespace,
        name,
        "no-pods",
        f"{where} has no pods, and no event says why",
        fix=f"see that it exists and asks for pods, and that its controller runs: kubectl describe {kind.lower()}/{name} -n {namespace}",
    )


def _is_of(kind: str, name: str, of_kind: str, of_name: str) -> bool:
    """A Deployment has its pods through ReplicaSets, which bear its name with a hash behind it."""
    return (of_kind, of_name) == (kind, name) or (
        kind == "Deployment" and of_kind == "ReplicaSet" and of_name.rpartition("-")[0] == name
    )


def _what_helps(event: Event, namespace: str) -> str:
    for pattern, advice in _REFUSALS:
        found = re.search(pattern, event.message)
        if found is not None:
            return advice.format(namespace=namespace, **found.groupdict())
    return "do what its message says; see the pod template"
