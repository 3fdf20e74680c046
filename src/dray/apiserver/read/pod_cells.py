"""A pod as a table row: what it is doing, said in one word, from phase, conditions and container states."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from dray.apiserver.read.ages import age

Document = dict[str, Any]
NONE = "<none>"


def pod_cells(pod: Document, now: datetime) -> list[Any]:
    metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    containers = status.get("containerStatuses") or []
    ready = sum(1 for entry in containers if entry.get("ready") and "running" in (entry.get("state") or {}))
    total = len(spec.get("containers") or ()) + len(_sidecars(spec))
    ready += _ready_sidecars(spec, status)
    ips = status.get("podIPs") or []
    ip = (ips[0].get("ip") if ips else status.get("podIP")) or NONE
    return [
        metadata.get("name", ""), f"{ready}/{total}", pod_state(pod), _restarts(spec, status, now),
        age(metadata.get("creationTimestamp"), now), ip, spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE, _gates(spec, status),
    ]  # fmt: skip


def _sidecars(spec: Document) -> list[str]:
    return [
        entry.get("name", "") for entry in spec.get("initContainers") or () if entry.get("restartPolicy") == "Always"
    ]


def _ready_sidecars(spec: Document, status: Document) -> int:
    names = set(_sidecars(spec))
    return sum(
        1 for entry in status.get("initContainerStatuses") or () if entry.get("name") in names and entry.get("ready")
    )


def pod_state(pod: Document) -> str:
    metadata, status = pod["metadata"], pod.get("status") or {}
    state = status.get("reason") or status.get("phase") or ""
    for entry in status.get("conditions") or ():
        if entry.get("type") == "PodScheduled" and entry.get("reason") == "SchedulingGated":
            state = "SchedulingGated"
    init = _init_state(pod.get("spec") or {}, status)
    if not init or _is_initialized(status):
        state = _container_state(init or state, status)
    else:
        state = init
    if metadata.get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            return "Unknown"
        if status.get("phase") not in ("Succeeded", "Failed"):
            return "Terminating"
    return str(state)


def _init_state(spec: Document, status: Document) -> str:
    """The first init container that is not done decides."""
    sidecars = set(_sidecars(spec))
    total = len(spec.get("initContainers") or ())
    for at, entry in enumerate(status.get("initContainerStatuses") or ()):
        state = entry.get("state") or {}
        if (ended := state.get("terminated")) is not None and ended.get("exitCode", 0) == 0:
            continue
        if entry.get("name") in sidecars and entry.get("started"):
            continue
        if ended is not None:
            return "Init:" + _ended(ended)
        reason = (state.get("waiting") or {}).get("reason")
        if reason and reason != "PodInitializing":
            return f"Init:{reason}"
        return f"Init:{at}/{total}"
    return ""


def _is_initialized(status: Document) -> bool:
    """A sidecar that ended after its pod was initialized is no failed initialization."""
    conditions = status.get("conditions") or ()
    return any(entry.get("type") == "Initialized" and entry.get("status") == "True" for entry in conditions)


def _ended(terminated: Document) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _container_state(state: str, status: Document) -> str:
    has_running = False
    for entry in reversed(status.get("containerStatuses") or ()):
        now = entry.get("state") or {}
        if (now.get("waiting") or {}).get("reason"):
            state = now["waiting"]["reason"]
        elif now.get("terminated") is not None:
            state = _ended(now["terminated"])
        elif entry.get("ready") and now.get("running") is not None:
            has_running = True
    if state == "Completed" and has_running:
        ready = any(
            entry.get("type") == "Ready" and entry.get("status") == "True" for entry in status.get("conditions") or ()
        )
        return "Running" if ready else "NotReady"
    return state


def _restarts(spec: Document, status: Document, now: datetime) -> str:
    """While a pod is being initialized, of its init containers; after that, of the others and of sidecars."""
    init = [*(status.get("initContainerStatuses") or ())]
    containers = init
    if not _init_state(spec, status) or _is_initialized(status):
        sidecars = set(_sidecars(spec))
        containers = [entry for entry in init if entry.get("name") in sidecars]
        containers += status.get("containerStatuses") or ()
    count = sum(entry.get("restartCount") or 0 for entry in containers)
    last = max(
        (((entry.get("lastState") or {}).get("terminated") or {}).get("finishedAt") or "" for entry in containers),
        default="",
    )
    return f"{count} ({age(last, now)} ago)" if count and last else str(count)


def _gates(spec: Document, status: Document) -> str:
    gates = spec.get("readinessGates") or ()
    if not gates:
        return NONE
    true = {entry.get("type") for entry in status.get("conditions") or () if entry.get("status") == "True"}
    return f"{sum(1 for gate in gates if gate.get('conditionType') in true)}/{len(gates)}"
