"""Table cells of pods, of the kinds that make pods and of the kinds beside them; ages as kubectl prints them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from dray.api.dra.pod_phase import is_finished_document

MINUTE, HOUR, DAY, YEAR = 60, 3600, 86400, 365 * 86400


def age(timestamp: Any, now: datetime) -> str:
    """The age of an RFC 3339 time; `<unknown>` for none."""
    if not isinstance(timestamp, str) or not timestamp:
        return "<unknown>"
    try:
        moment = datetime.fromisoformat(timestamp.replace("Z", "+00:00")).astimezone(UTC)
    except (ValueError, OverflowError):
        return "<unknown>"
    return duration((now - moment).total_seconds())


def duration(seconds: float) -> str:
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    if whole < 0:
        return "0s"
    if whole < 2 * MINUTE:
        return f"{whole}s"
    if whole < 10 * MINUTE:
        return _pair(whole, MINUTE, "m", 1, "s")
    if whole < 3 * HOUR:
        return f"{whole // MINUTE}m"
    if whole < 8 * HOUR:
        return _pair(whole, HOUR, "h", MINUTE, "m")
    if whole < 48 * HOUR:
        return f"{whole // HOUR}h"
    if whole < 8 * DAY:
        return _pair(whole, DAY, "d", HOUR, "h")
    if whole < 2 * YEAR:
        return f"{whole // DAY}d"
    if whole < 8 * YEAR:
        return _pair(whole, YEAR, "y", DAY, "d")
    return f"{whole // YEAR}y"


def _pair(seconds: int, unit: int, name: str, smaller: int, smaller_name: str) -> str:
    rest = seconds % unit // smaller
    return f"{seconds // unit}{name}" + (f"{rest}{smaller_name}" if rest else "")


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
        if not is_finished_document(pod):
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


def _start(document: Document, now: datetime) -> tuple[str, str, Document, Document]:
    metadata = document["metadata"]
    return (
        metadata.get("name", ""),
        age(metadata.get("creationTimestamp"), now),
        document.get("spec") or {},
        document.get("status") or {},
    )


def _containers(spec: Document) -> list[str]:
    containers = ((spec.get("template") or {}).get("spec") or {}).get("containers") or ()
    return [
        ",".join(container.get("name", "") for container in containers),
        ",".join(container.get("image", "") for container in containers),
        selector_text(spec.get("selector") or {}),
    ]


def selector_text(selector: Document) -> str:
    """As a column shows it."""
    return selector_query(selector) or "<none>"


def selector_query(selector: Document) -> str:
    """A label selector object in the form of a query."""
    terms = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for entry in selector.get("matchExpressions") or ():
        key, values = entry.get("key", ""), ",".join(entry.get("values") or ())
        terms.append(
            {
                "In": f"{key} in ({values})",
                "NotIn": f"{key} notin ({values})",
                "Exists": key,
                "DoesNotExist": f"!{key}",
            }.get(entry.get("operator", ""), key)
        )
    return ",".join(terms)


def _replica_set(document: Document, now: datetime) -> list[Any]:
    name, old, spec, status = _start(document, now)
    counts = [spec.get("replicas") or 0, status.get("replicas") or 0, status.get("readyReplicas") or 0]
    return [name, *counts, old, *_containers(spec)]


def _deployment(document: Document, now: datetime) -> list[Any]:
    name, old, spec, status = _start(document, now)
    ready = f"{status.get('readyReplicas') or 0}/{spec.get('replicas') or 0}"
    counts = [status.get("updatedReplicas") or 0, status.get("availableReplicas") or 0]
    return [name, ready, *counts, old, *_containers(spec)]


def _daemon_set(document: Document, now: datetime) -> list[Any]:
    name, old, spec, status = _start(document, now)
    names = (
        "desiredNumberScheduled", "currentNumberScheduled", "numberReady", "updatedNumberScheduled", "numberAvailable",
    )  # fmt: skip
    pod_spec = (spec.get("template") or {}).get("spec") or {}
    selector = ",".join(f"{key}={value}" for key, value in sorted((pod_spec.get("nodeSelector") or {}).items()))
    return [name, *(status.get(field) or 0 for field in names), selector or "<none>", old, *_containers(spec)]


def _job(document: Document, now: datetime) -> list[Any]:
    name, old, spec, status = _start(document, now)
    done, wanted = status.get("succeeded") or 0, spec.get("completions")
    completions = f"{done}/{wanted}" if wanted is not None else f"{done}/1"
    return [name, _job_state(spec, status), completions, _job_duration(status, now), old, *_containers(spec)]


def _job_state(spec: Document, status: Document) -> str:
    true = {entry.get("type") for entry in status.get("conditions") or () if entry.get("status") == "True"}
    for condition, text in (
        ("Complete", "Complete"), ("Failed", "Failed"), ("Suspended", "Suspended"), ("FailureTarget", "FailureTarget"),
        ("SuccessCriteriaMet", "SuccessCriteriaMet"),
    ):  # fmt: skip
        if condition in true:
            return text
    return "Running"


def _job_duration(status: Document, now: datetime) -> str:
    if not status.get("startTime"):
        return ""
    start = datetime.fromisoformat(status["startTime"].replace("Z", "+00:00"))
    end = status.get("completionTime")
    stop = datetime.fromisoformat(end.replace("Z", "+00:00")) if end else now
    return duration((stop - start).total_seconds())


def _budget(document: Document, now: datetime) -> list[Any]:
    name, old, spec, status = _start(document, now)
    least, most = (spec.get(field) for field in ("minAvailable", "maxUnavailable"))
    texts = ["N/A" if value is None else str(value) for value in (least, most)]
    return [name, *texts, status.get("disruptionsAllowed") or 0, old]


def _service(document: Document, now: datetime) -> list[Any]:
    name, old, spec, status = _start(document, now)
    address = spec.get("clusterIP") or "<none>"
    ports = ",".join(_port_text(port) for port in spec.get("ports") or ()) or "<none>"
    selector = {"matchLabels": spec.get("selector") or {}}
    return [name, spec.get("type") or "", address, _external_ip(spec, status), ports, old, selector_text(selector)]


def _external_ip(spec: Document, status: Document) -> str:
    """Where the service is reached from outside, which depends on its type."""
    kind, given = spec.get("type") or "ClusterIP", spec.get("externalIPs") or []
    if kind == "ExternalName":
        return spec.get("externalName") or "<none>"
    if kind != "LoadBalancer":
        return ",".join(given) or "<none>"
    entries = (status.get("loadBalancer") or {}).get("ingress") or ()
    found = [entry.get("ip") or entry.get("hostname") or "" for entry in entries]
    return ",".join([*filter(None, found), *given]) or "<pending>"


def _port_text(port: Document) -> str:
    number = f"{port.get('port')}:{port['nodePort']}" if port.get("nodePort") else str(port.get("port"))
    return f"{number}/{port.get('protocol') or 'TCP'}"


WORKLOAD_CELLS: dict[str, Callable[[Document, datetime], list[Any]]] = {
    "ReplicaSet": _replica_set,
    "Deployment": _deployment,
    "DaemonSet": _daemon_set,
    "Job": _job,
    "PodDisruptionBudget": _budget,
    "Service": _service,
}
