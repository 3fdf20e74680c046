"""A pod's status, computed from the state of its containers. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dray.api.core import Container, Pod
from dray.api.dra.pod_phase import TERMINAL_PHASES
from dray.kubelet.runtime.interface import Exit

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ContainerProgress:
    """The state of one container: waiting, running or ended, and how its last run ended."""

    waiting: str = "ContainerCreating"
    message: str = ""
    container_id: str = ""
    started_at: str | None = None
    exit: Exit | None = None
    last: Document | None = None
    restarts: int = 0
    resources_status: tuple[Document, ...] = ()
    # What probes have said; without probes a container that runs has started and is ready.
    has_started: bool = True
    passes_probes: bool = True

    @property
    def is_running(self) -> bool:
        return self.started_at is not None and self.exit is None

    @property
    def is_ready(self) -> bool:
        return self.is_running and self.passes_probes


@dataclass(frozen=True, slots=True)
class PodProgress:
    """What the node knows of a pod."""

    containers: Mapping[str, ContainerProgress] = field(default_factory=dict)
    start_time: str | None = None
    has_sandbox: bool = False
    is_initialized: bool = False
    is_finished: bool = False
    reason: str = ""
    message: str = ""
    is_evicted: bool = False
    pod_ip: str = ""
    host_ip: str = ""


def state_document(progress: ContainerProgress) -> Document:
    if progress.exit is not None:
        ended: Document = {"exitCode": progress.exit.code, "reason": progress.exit.reason or "Completed"}
        if progress.exit.signal:
            ended["signal"] = progress.exit.signal
        ended |= {
            "message": progress.exit.message,
            "startedAt": progress.started_at,
            "finishedAt": progress.exit.finished_at,
            "containerID": progress.container_id,
        }
        return {"terminated": {key: value for key, value in ended.items() if value not in (None, "")}}
    if progress.started_at is not None:
        return {"running": {"startedAt": progress.started_at}}
    waiting = {"reason": progress.waiting} | ({"message": progress.message} if progress.message else {})
    return {"waiting": waiting}


def container_status(container: Container, progress: ContainerProgress, *, is_ready: bool) -> Document:
    document: Document = {
        "name": container.name,
        "state": state_document(progress),
        "ready": is_ready,
        "restartCount": progress.restarts,
        "image": container.image,
        "imageID": "",
        "started": progress.is_running and progress.has_started,
    }
    if progress.last is not None:
        document["lastState"] = progress.last
    if progress.container_id:
        document["containerID"] = progress.container_id
    if progress.resources_status:
        document["allocatedResourcesStatus"] = list(progress.resources_status)
    return document


def pod_phase(pod: Pod, progress: PodProgress) -> str:
    """Pending until every init container is done, Running while something runs or will run again; never back."""
    if progress.reason and progress.is_finished:
        return "Failed"
    main = [progress.containers.get(each.name, ContainerProgress()) for each in pod.spec.containers]
    if progress.is_finished:
        failed_init = any(
            (ended := progress.containers.get(each.name, ContainerProgress()).exit) is not None and ended.code != 0
            for each in pod.spec.init_containers
            if each.restart_policy != "Always"
        )
        return (
            "Failed" if failed_init or any(each.exit is None or each.exit.code != 0 for each in main) else "Succeeded"
        )
    if pod.status.phase == "Running":
        return "Running"
    if not progress.is_initialized:
        return "Pending"
    started = [each for each in main if each.started_at is not None or each.exit is not None or each.restarts]
    return "Running" if len(started) == len(main) else "Pending"


def status_document(pod: Pod, progress: PodProgress, now: str, reported: Sequence[Document] = ()) -> Document:
    """The node's part of the pod's status: conditions keep their transition time while they stay the same.

    `reported` are the conditions written last, which the pod at hand may not show yet.
    """
    since = {each.type: (each.status, each.last_transition_time) for each in pod.status.conditions}
    since |= {each["type"]: (each["status"], each["lastTransitionTime"]) for each in reported}
    phase = pod_phase(pod, progress)
    wanted = (
        _ready_to_start(progress),
        _initialized(pod, progress, phase),
        *_readiness(pod, progress, phase),
    )
    document: Document = {
        "phase": phase,
        "conditions": [_condition(since, each, now) for each in wanted],
    }
    if progress.is_evicted:
        disruption = Verdict("DisruptionTarget", True, "TerminationByKubelet", progress.message)
        document["conditions"].append(_condition(since, disruption, now))
    # A pod that was turned away has no containers to speak of; kubectl then shows the reason.
    was_rejected = bool(progress.reason) and progress.is_finished and not progress.containers
    if not was_rejected:
        document["containerStatuses"] = _statuses(pod, pod.spec.containers, progress)
    if pod.spec.init_containers and not was_rejected:
        document["initContainerStatuses"] = _statuses(pod, pod.spec.init_containers, progress)
    if pod.spec.ephemeral_containers and not was_rejected:
        document["ephemeralContainerStatuses"] = _statuses(pod, ephemeral_containers(pod), progress)
    optional = {
        "startTime": progress.start_time,
        "hostIP": progress.host_ip,
        "podIP": progress.pod_ip,
        "podIPs": _only(progress.pod_ip),
        "hostIPs": _only(progress.host_ip),
        "reason": progress.reason,
        "message": progress.message,
    }
    return document | {key: value for key, value in optional.items() if value}


def ephemeral_containers(pod: Pod) -> tuple[Container, ...]:
    """As containers like others: that they are not restarted is the business of who runs them."""
    return tuple(
        Container(
            name=each.name,
            image=each.image,
            command=each.command,
            args=each.args,
            working_dir=each.working_dir,
            env_from=each.env_from,
            env=each.env,
            volume_mounts=each.volume_mounts,
            image_pull_policy=each.image_pull_policy,
            security_context=each.security_context,
            stdin=each.stdin,
            stdin_once=each.stdin_once,
            tty=each.tty,
        )
        for each in pod.spec.ephemeral_containers
    )


def _statuses(pod: Pod, containers: Sequence[Container], progress: PodProgress) -> list[Document]:
    """An init container is ready once it is done, a sidecar and a main container while it runs."""
    are_init = containers is pod.spec.init_containers
    found = []
    for container in containers:
        each = _progress(pod, progress, container)
        is_done = each.exit is not None and each.exit.code == 0
        is_ready = is_done if are_init and container.restart_policy != "Always" else each.is_ready
        found.append(container_status(container, each, is_ready=is_ready))
    return found


def _progress(pod: Pod, progress: PodProgress, container: Container) -> ContainerProgress:
    waits_for_init = bool(pod.spec.init_containers) and not progress.is_initialized
    waiting = "PodInitializing" if waits_for_init else "ContainerCreating"
    return progress.containers.get(container.name, ContainerProgress(waiting=waiting))


def _only(ip: str) -> list[Document]:
    """The list with this address alone. Servers merge the list by address, so an earlier address would stay in it otherwise."""
    return [{"$patch": "replace"}, {"ip": ip}] if ip else []


# --- conditions


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a condition says now; `reason` and `message` are empty where it needs none."""

    kind: str
    holds: bool
    reason: str = ""
    message: str = ""


def _ready_to_start(progress: PodProgress) -> Verdict:
    kind = "PodReadyToStartContainers"
    if progress.has_sandbox:
        return Verdict(kind, True)
    return Verdict(kind, False, "PodSandboxNotReady", "no pod sandbox exists")


def _initialized(pod: Pod, progress: PodProgress, phase: str) -> Verdict:
    """A pod without init containers is initialized before anything of it has started."""
    if phase == "Succeeded":
        return Verdict("Initialized", True, "PodCompleted")
    incomplete = [each.name for each in pod.spec.init_containers if not _is_past(each, progress)]
    if progress.is_initialized or not incomplete:
        return Verdict("Initialized", True)
    message = f"containers with incomplete status: [{' '.join(incomplete)}]"
    return Verdict("Initialized", False, "ContainersNotInitialized", message)


def _is_past(container: Container, progress: PodProgress) -> bool:
    """Whether the next container need not wait for this init container."""
    found = progress.containers.get(container.name, ContainerProgress())
    if container.restart_policy == "Always":
        return found.is_running
    return found.exit is not None and found.exit.code == 0


def _readiness(pod: Pod, progress: PodProgress, phase: str) -> tuple[Verdict, Verdict]:
    containers = _containers_ready(pod, progress, phase)
    if not containers.holds:
        return replace(containers, kind="Ready"), containers
    return _gates_ready(pod), containers


def _containers_ready(pod: Pod, progress: PodProgress, phase: str) -> Verdict:
    kind = "ContainersReady"
    if phase in TERMINAL_PHASES:
        return Verdict(kind, False, "PodCompleted" if phase == "Succeeded" else "PodFailed")
    sidecars = [each for each in pod.spec.init_containers if each.restart_policy == "Always"]
    unready = [each.name for each in (*sidecars, *pod.spec.containers) if not is_ready(progress, each)]
    if unready:
        return Verdict(kind, False, "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]")
    return Verdict(kind, True)


def is_ready(progress: PodProgress, container: Container) -> bool:
    return progress.containers.get(container.name, ContainerProgress()).is_ready


def _gates_ready(pod: Pod) -> Verdict:
    """Other components answer for readiness gates, with conditions of their own."""
    said = {each.type: each.status for each in pod.status.conditions}
    missing = []
    for gate in (each.condition_type for each in pod.spec.readiness_gates):
        if gate not in said:
            missing.append(f'corresponding condition of pod readiness gate "{gate}" does not exist.')
        elif said[gate] != "True":
            missing.append(f'the status of pod readiness gate "{gate}" is not "True", but {said[gate]}')
    if missing:
        return Verdict("Ready", False, "ReadinessGatesNotReady", ", ".join(missing))
    return Verdict("Ready", True)


def _condition(since: Mapping[str, tuple[str, str | None]], verdict: Verdict, now: str) -> Document:
    status = "True" if verdict.holds else "False"
    before, moment = since.get(verdict.kind, ("", None))
    changed = moment if before == status and moment is not None else now
    # A reason or message that no longer holds is taken out by name: a merge would keep it.
    return {
        "type": verdict.kind,
        "status": status,
        "lastTransitionTime": changed,
        "reason": verdict.reason or None,
        "message": verdict.message or None,
    }
