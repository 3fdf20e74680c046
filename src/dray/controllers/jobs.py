"""Jobs: pods until enough of them succeeded, or too many failed.

Finished pods are what is counted, so they must stay until the Job is over. Completions, parallelism, Indexed mode, suspend,
deadline, backoff limit and time to live are supported; pod failure and success policies are not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dray.api.core import Pod
from dray.api.dra.pod_phase import is_active
from dray.api.workloads import Job, JobStatus, WorkloadCondition
from dray.client import (
    JOBS,
    NORMAL,
    WARNING,
    ApiError,
    EventRecorder,
    Handler,
    Recorder,
    WorkQueue,
    object_key,
    reference_to,
)
from dray.client.rest import Document
from dray.clock import rfc3339
from dray.controllers.context import ControllerContext
from dray.controllers.owned_pods import MOST_AT_ONCE, OwnedPods, deletion_order, is_ready
from dray.controllers.taint_eviction.deadlines import taint_time
from dray.controllers.workload_status import write_status

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


def backoff_s(failed: int) -> float:
    """Twice as long with each failure; a node may tell of any number of restarts."""
    return min(BACKOFF_CAP_S, BACKOFF_S * 2.0 ** min(failed - 1, 30))


def index_of(pod: Pod) -> int | None:
    text = pod.metadata.annotations.get(INDEX, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 11 else None


def completed_indexes(pods: Iterable[Pod], completions: int) -> set[int]:
    indexes = (index_of(pod) for pod in pods if pod.status.phase == "Succeeded")
    return {index for index in indexes if index is not None and index < completions}


def missing_indexes(pods: Iterable[Pod], completions: int) -> Iterator[int]:
    """The indexes that neither succeeded nor have a pod at work, the lowest first; there may be billions."""
    pods = list(pods)
    taken = completed_indexes(pods, completions) | {index_of(pod) for pod in pods if is_active(pod)}
    return (index for index in range(completions) if index not in taken)


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


WORKERS = 5
DEFAULT_BACKOFF_LIMIT = 6
BACKOFF_S, BACKOFF_CAP_S = 10.0, 360.0


@dataclass(frozen=True, slots=True)
class JobVerdict:
    """How a Job ended."""

    condition: str
    reason: str
    message: str


class JobController:
    name = "job-controller"

    def __init__(self, context: ControllerContext, *, recorder: Recorder | None = None) -> None:
        self._client = context.client.named("job-controller")
        self._clock = context.clock
        self._informers = context.informers
        self._jobs = context.informers.of(JOBS)
        self.queue: WorkQueue[str] = WorkQueue("job", clock=context.clock, registry=context.registry)
        self._recorder = recorder or EventRecorder(self._client, "job-controller")
        self._pods = OwnedPods(self._client, context.informers, JOBS, self._recorder, self.queue.add)
        # When the pods of a Job may be replaced again, after failures.
        self._not_before: dict[str, tuple[int, float]] = {}
        self._jobs.add_handler(Handler(self._seen, lambda _, new: self._seen(new), self._gone))

    def _seen(self, job: Job) -> None:
        self.queue.add(object_key(job))

    def _gone(self, job: Job) -> None:
        self._not_before.pop(job.metadata.uid, None)

    async def run(self) -> None:
        await self._informers.synced()
        await self.queue.run(self.sync, WORKERS)

    async def sync(self, key: str) -> None:
        job = self._jobs.get(key)
        if job is None or job.metadata.deletion_timestamp is not None:
            return
        if is_finished(job):
            await self._expire(job)
            return
        pods = self._pods.of(job)
        verdict = self._verdict(job, pods)
        if verdict is not None:
            await self._finish(job, pods, verdict)
            return
        failure: Exception | None = None
        try:
            await self._reach(job, pods)
        except Exception as error:
            failure = error
        await write_status(self._client, JOBS, job, self._status(job, self._pods.of(job)))
        if failure is not None:
            raise failure

    # --- is it over?

    def _verdict(self, job: Job, pods: list[Pod]) -> JobVerdict | None:
        failed = failures(pods)
        limit = DEFAULT_BACKOFF_LIMIT if job.spec.backoff_limit is None else job.spec.backoff_limit
        if failed > limit:
            return JobVerdict("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
        if self._seconds_left(job) == 0:
            return JobVerdict("Failed", "DeadlineExceeded", "Job was active longer than specified deadline")
        done = self._succeeded(job, pods)
        is_active_left = any(is_active(pod) for pod in pods)
        wanted = job.spec.completions
        is_complete = done >= wanted if wanted is not None else done > 0 and not is_active_left
        if is_complete:
            return JobVerdict("Complete", "CompletionsReached", "Reached expected number of succeeded pods")
        return None

    def _succeeded(self, job: Job, pods: list[Pod]) -> int:
        if job.spec.completion_mode == "Indexed":
            return len(completed_indexes(pods, job.spec.completions or 0))
        return sum(pod.status.phase == "Succeeded" for pod in pods)

    def _seconds_left(self, job: Job) -> float | None:
        started, deadline_s = taint_time(job.status.start_time), job.spec.active_deadline_seconds
        if started is None or deadline_s is None or job.spec.suspend:
            return None
        return max(0.0, deadline_s - (self._clock.now() - started).total_seconds())

    async def _finish(self, job: Job, pods: list[Pod], verdict: JobVerdict) -> None:
        """Pods that still run are stopped; the conditions are the last word."""
        for pod in pods:
            if is_active(pod):
                await self._pods.delete(job, pod)
        now = rfc3339(self._clock.now())
        first = "SuccessCriteriaMet" if verdict.condition == "Complete" else "FailureTarget"
        conditions = tuple(
            WorkloadCondition(
                type=condition_type,
                status="True",
                last_probe_time=now,
                last_transition_time=now,
                reason=verdict.reason,
                message=verdict.message,
            )
            for condition_type in (first, verdict.condition)
        )
        status = self._status(job, [pod for pod in pods if not is_active(pod)], conditions)
        await write_status(self._client, JOBS, job, status)
        event_type = NORMAL if verdict.condition == "Complete" else WARNING
        reason = "Completed" if verdict.condition == "Complete" else verdict.reason
        message = "Job completed" if verdict.condition == "Complete" else verdict.message
        self._recorder.event(reference_to(JOBS, job), event_type, reason, message)

    async def _expire(self, job: Job) -> None:
        lifetime_s = job.spec.ttl_seconds_after_finished
        ended = max((taint_time(c.last_transition_time) for c in _endings(job)), default=None, key=lambda t: str(t))
        if lifetime_s is None or ended is None:
            return
        left_s = lifetime_s - (self._clock.now() - ended).total_seconds()
        if left_s > 0:
            self.queue.add_after(object_key(job), left_s)
            return
        try:
            metadata = job.metadata
            await self._client.delete(
                JOBS, metadata.name, metadata.namespace, uid=metadata.uid, propagation="Foreground"
            )
        except ApiError as error:
            if not error.is_not_found:
                raise

    # --- not yet

    async def _reach(self, job: Job, pods: list[Pod]) -> None:
        active = [pod for pod in pods if is_active(pod)]
        wanted = 0 if job.spec.suspend else self._wanted_active(job, pods)
        for pod in sorted(active, key=deletion_order)[: max(0, len(active) - wanted)]:
            await self._pods.delete(job, pod)
        left_s = self._seconds_left(job)
        if left_s is not None:
            self.queue.add_after(object_key(job), left_s)
        missing = min(wanted - len(active), MOST_AT_ONCE)
        if missing > 0 and self._may_replace(job, pods):
            await self._pods.create_many(job, self._documents(job, pods, missing))
            if wanted - len(active) > MOST_AT_ONCE:
                self.queue.add(object_key(job))

    def _wanted_active(self, job: Job, pods: list[Pod]) -> int:
        parallelism = 1 if job.spec.parallelism is None else job.spec.parallelism
        done = self._succeeded(job, pods)
        if job.spec.completions is None:
            # A work queue: once one pod succeeded, no new ones start.
            return sum(is_active(pod) for pod in pods) if done else parallelism
        return max(0, min(parallelism, job.spec.completions - done))

    def _may_replace(self, job: Job, pods: list[Pod]) -> bool:
        """Each new failure doubles the wait before the next pod."""
        failed = failures(pods)
        if not failed:
            return True
        now = self._clock.monotonic()
        counted, not_before = self._not_before.get(job.metadata.uid, (0, 0.0))
        if failed > counted:
            not_before = now + backoff_s(failed)
            self._not_before[job.metadata.uid] = (failed, not_before)
        if now >= not_before:
            return True
        self.queue.add_after(object_key(job), not_before - now)
        return False

    def _documents(self, job: Job, pods: list[Pod], missing: int) -> list[Document]:
        uid, name = job.metadata.uid, job.metadata.name
        labels = {
            "batch.kubernetes.io/controller-uid": uid,
            "controller-uid": uid,
            "batch.kubernetes.io/job-name": name,
            "job-name": name,
        }
        documents = [self._pods.document(job, job.spec.template, labels=labels) for _ in range(missing)]
        if job.spec.completion_mode != "Indexed":
            return documents
        indexes = missing_indexes(pods, job.spec.completions or 0)
        return [with_index(document, name, index) for document, index in zip(documents, indexes, strict=False)]

    def _status(self, job: Job, pods: list[Pod], conditions: tuple[WorkloadCondition, ...] = ()) -> JobStatus:
        now = rfc3339(self._clock.now())
        is_complete = any(condition.type == "Complete" for condition in conditions)
        active = [pod for pod in pods if is_active(pod)]
        return JobStatus(
            conditions=conditions or job.status.conditions,
            start_time=job.status.start_time or (None if job.spec.suspend else now),
            completion_time=now if is_complete else None,
            active=len(active),
            ready=sum(is_ready(pod) for pod in active),
            succeeded=self._succeeded(job, pods),
            failed=sum(pod.status.phase == "Failed" for pod in pods),
            completed_indexes=_ranges(completed_indexes(pods, job.spec.completions or 0))
            if job.spec.completion_mode == "Indexed"
            else "",
        )


def _endings(job: Job) -> list[WorkloadCondition]:
    return [c for c in job.status.conditions if c.type in ("Complete", "Failed") and c.status == "True"]


def is_finished(job: Job) -> bool:
    return bool(_endings(job))


def _ranges(indexes: set[int]) -> str:
    """`0-2,5`, as the API writes sets of indexes."""
    text: list[str] = []
    for index in sorted(indexes):
        if index - 1 in indexes:
            continue
        last = index
        while last + 1 in indexes:
            last += 1
        text.append(str(index) if last == index else f"{index},{last}" if last == index + 1 else f"{index}-{last}")
    return ",".join(text)
