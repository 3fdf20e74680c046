"""Table cells of the kinds that make pods and of those that stand beside pods."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from dray.apiserver.read.ages import (
    age,
    duration,
)

Document = dict[str, Any]


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
    return ",".join(terms) or "<none>"


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
    name, old, spec, _ = _start(document, now)
    address = spec.get("clusterIP") or "<none>"
    outside = spec.get("externalName") or ",".join(spec.get("externalIPs") or ()) or "<none>"
    ports = ",".join(_port_text(port) for port in spec.get("ports") or ()) or "<none>"
    selector = {"matchLabels": spec.get("selector") or {}}
    return [name, spec.get("type") or "", address, outside, ports, old, selector_text(selector)]


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
