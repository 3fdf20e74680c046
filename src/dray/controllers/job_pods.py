"""What a Job reads from its pods and writes into them."""

from __future__ import annotations

from collections.abc import Iterable

from dray.api.core import Pod
from dray.api.dra.pod_phase import is_active
from dray.client.rest import Document

INDEX = "batch.kubernetes.io/job-completion-index"


def failures(pods: Iterable[Pod]) -> int:
    """Failed pods, and restarts of containers in pods that restart them on failure."""
    count = 0
    for pod in pods:
        if pod.status.phase == "Failed":
            count += 1
        elif pod.spec.restart_policy == "OnFailure" and pod.status.phase in ("Pending", "Running"):
            statuses = (*pod.status.container_statuses, *pod.status.init_container_statuses)
            count += sum(status.restart_count for status in statuses)
    return count


def index_of(pod: Pod) -> int | None:
    text = pod.metadata.annotations.get(INDEX, "")
    return int(text) if text.isdigit() else None


def completed_indexes(pods: Iterable[Pod], completions: int) -> set[int]:
    indexes = (index_of(pod) for pod in pods if pod.status.phase == "Succeeded")
    return {index for index in indexes if index is not None and index < completions}


def missing_indexes(pods: Iterable[Pod], completions: int) -> list[int]:
    """The lowest indexes that neither succeeded nor have a pod at work."""
    pods = list(pods)
    taken = completed_indexes(pods, completions) | {index_of(pod) for pod in pods if is_active(pod)}
    return [index for index in range(completions) if index not in taken]


def with_index(document: Document, job_name: str, index: int) -> Document:
    """The pod learns its index from an annotation, a label, its host name and an environment variable."""
    metadata, spec = document["metadata"], document["spec"]
    metadata["generateName"] = f"{job_name}-{index}-"
    metadata.setdefault("annotations", {})[INDEX] = str(index)
    metadata["labels"][INDEX] = str(index)
    spec.setdefault("hostname", f"{job_name}-{index}")
    for container in (*spec.get("containers", ()), *spec.get("initContainers", ())):
        env = container.setdefault("env", [])
        if not any(variable.get("name") == "JOB_COMPLETION_INDEX" for variable in env):
            field = {"fieldRef": {"fieldPath": f"metadata.annotations['{INDEX}']"}}
            env.append({"name": "JOB_COMPLETION_INDEX", "valueFrom": field})
    return document
