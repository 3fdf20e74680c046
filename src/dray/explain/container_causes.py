"""What keeps the containers of a pod from starting on its node, as its node agent says in the pod's status and in events."""

from __future__ import annotations

from collections.abc import Iterator

from dray.api.core import ContainerStatus, Pod
from dray.explain.cluster_objects import ClusterObjects
from dray.explain.recorded_causes import RecordedCause, last_event, when

# Containers that wait for these are on their way.
ON_THE_WAY = ("", "ContainerCreating", "PodInitializing")
CRASH_LOOP = "CrashLoopBackOff"

_TRIES_AGAIN = "the node agent tries again by itself"
_IMAGE = "correct the name of the image, or let the pod name an imagePullSecret of its registry"
_COMMAND = "correct the command or the image of the container, and create the pod again"
# By reason of a waiting container: the reason code and what to do.
_WAITS: dict[str, tuple[str, str]] = {
    "CreateContainerConfigError": (
        "container-config",
        f"create what is missing in the namespace of the pod, or correct the pod; {_TRIES_AGAIN}",
    ),
    "ErrImagePull": ("image-pull", _IMAGE),
    "ImagePullBackOff": ("image-pull", _IMAGE),
    "InvalidImageName": ("image-pull", "correct the name of the image"),
    "ErrImageNeverPull": ("image-pull", "bring the image to the node, or set imagePullPolicy: IfNotPresent"),
    "StartError": ("container-start", _COMMAND),
    "RunContainerError": ("container-start", _COMMAND),
    "CreateContainerError": ("container-start", _COMMAND),
}
# By reason of an event, for pods whose containers have not been tried yet.
_EVENTS: dict[str, tuple[str, str]] = {
    "FailedMount": ("volume-mount", f"create or correct what the volume names; {_TRIES_AGAIN}"),
    "FailedAttachVolume": ("volume-mount", "see the driver of the volume, and which node it is attached to"),
    "FailedCreatePodSandBox": ("container-start", "see the log of the node agent and of the container runtime"),
}


def waiting_containers(pod: Pod) -> Iterator[ContainerStatus]:
    """Those that something keeps from starting."""
    for row in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        if row.state.waiting is not None and row.state.waiting.reason not in ON_THE_WAY:
            yield row


def why_containers_wait(world: ClusterObjects, pod: Pod) -> RecordedCause | None:
    for row in waiting_containers(pod):
        return _why_it_waits(world, pod, row)
    for reason, (code, fix) in _EVENTS.items():
        event = last_event(world, pod, reason)
        if event is not None:
            return RecordedCause(code, f"{event.message}{when(event)}", fix)
    return None


def _why_it_waits(world: ClusterObjects, pod: Pod, row: ContainerStatus) -> RecordedCause:
    assert row.state.waiting is not None
    reason, message = row.state.waiting.reason, row.state.waiting.message
    if reason == CRASH_LOOP:
        return _why_it_ends(pod, row)
    code, fix = _WAITS.get(reason, ("container-start", f"see kubectl describe {_named(pod)}"))
    failed = last_event(world, pod, "Failed") if reason == "ImagePullBackOff" else None
    said = ": ".join(part for part in (reason, message) if part) + (f"; {failed.message}" if failed is not None else "")
    return RecordedCause(code, f"container {row.name} does not start: {said}", fix)


def _why_it_ends(pod: Pod, row: ContainerStatus) -> RecordedCause:
    ended = row.last_state.terminated
    how = f" with exit code {ended.exit_code}" if ended is not None else ""
    how += f" ({ended.reason})" if ended is not None and ended.reason not in ("", "Error") else ""
    said = f"; it said {ended.message.strip().splitlines()[-1]}" if ended is not None and ended.message.strip() else ""
    return RecordedCause(
        "container-fails",
        f"container {row.name} ends again and again{how}{said}",
        f"see why: kubectl logs {_named(pod)} -c {row.name} --previous",
    )


def _named(pod: Pod) -> str:
    return f"pod/{pod.metadata.name} -n {pod.metadata.namespace}"
