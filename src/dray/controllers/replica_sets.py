"""ReplicaSets and ReplicationControllers: as many pods from the template as asked for, counting those that belong by their labels.

A ReplicaSet adopts a pod without an owner that matches its selector, and releases an owned pod that no longer matches. So
a ReplicaSet that is created again finds the pods of the one before, and a pod that somebody relabels in order to look into
it is replaced and stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from dray.api.core import Pod
from dray.api.dra.pod_phase import is_active
from dray.api.matching import matches_labels
from dray.api.meta import LabelSelector
from dray.api.workloads import ReplicaSet, ReplicaSetStatus, ReplicationController, WorkloadCondition
from dray.client import (
    BY_NAMESPACE,
    PODS,
    REPLICA_SETS,
    ApiError,
    Client,
    EventRecorder,
    Handler,
    Informers,
    Kind,
    Recorder,
    WorkQueue,
    by_namespace,
    object_key,
)
from dray.clock import rfc3339
from dray.controllers.context import ControllerContext
from dray.controllers.owned_pods import MOST_AT_ONCE, OwnedPods, controller_of, deletion_order
from dray.controllers.workload_status import Availability, availability, write_status

ORPHANS = "pods without a controller"
REPLICA_FAILURE = "ReplicaFailure"

Replicated = ReplicaSet | ReplicationController


def selector_of(owner: Replicated) -> LabelSelector | None:
    if isinstance(owner, ReplicaSet):
        return owner.spec.selector
    return LabelSelector(match_labels=owner.spec.selector)


def _orphans(pod: Pod) -> Iterable[str]:
    return () if any(True for _ in controller_of(pod)) else (pod.metadata.namespace,)


class Adoption:
    def __init__(
        self,
        client: Client,
        informers: Informers,
        kind: Kind[Any],
        pods: OwnedPods[Any],
        wake: Callable[[str], None],
    ) -> None:
        self._client = client
        self._kind = kind
        self._owned = pods
        self._wake = wake
        self._sets = informers.of(kind)
        self._sets.add_indexer(BY_NAMESPACE, by_namespace)
        self._pods = informers.of(PODS)
        self._pods.add_indexer(ORPHANS, _orphans)
        self._pods.add_handler(Handler(self._seen, lambda _, new: self._seen(new)))

    def _seen(self, pod: Pod) -> None:
        if not pod.metadata.labels or not is_active(pod) or any(True for _ in controller_of(pod)):
            return
        for replica_set in self._sets.by_index(BY_NAMESPACE, pod.metadata.namespace):
            if matches_labels(selector_of(replica_set), pod.metadata.labels):
                self._wake(object_key(replica_set))

    async def settle(self, replica_set: Replicated) -> None:
        """Let go of pods that no longer match; take in those that do and have nobody."""
        selector = selector_of(replica_set)
        for pod in self._owned.of(replica_set):
            if not matches_labels(selector, pod.metadata.labels):
                await self._let_go(replica_set, pod)
        candidates = [
            pod
            for pod in self._pods.by_index(ORPHANS, replica_set.metadata.namespace)
            if is_active(pod) and matches_labels(selector, pod.metadata.labels)
        ]
        if candidates and await self._is_still_there(replica_set):
            for pod in candidates:
                await self._take_in(replica_set, pod)

    async def _is_still_there(self, replica_set: Replicated) -> bool:
        """Asked before anything is taken in: a set on its way out would take the pods with it."""
        metadata = replica_set.metadata
        current = await self._client.find(self._kind, metadata.name, metadata.namespace)
        is_same = current is not None and current.metadata.uid == metadata.uid
        return is_same and current is not None and current.metadata.deletion_timestamp is None

    async def _take_in(self, replica_set: Replicated, pod: Pod) -> None:
        owners = [*_documents(pod), self._owned.reference(replica_set)]
        await self._write_owners(pod, owners)

    async def _let_go(self, replica_set: Replicated, pod: Pod) -> None:
        uid = replica_set.metadata.uid
        await self._write_owners(pod, [owner for owner in _documents(pod) if owner.get("uid") != uid])

    async def _write_owners(self, pod: Pod, owners: list[dict[str, object]]) -> None:
        """With the revision that was decided on: of two who want the pod, one is refused and looks again."""
        metadata = pod.metadata
        patch = {"metadata": {"resourceVersion": metadata.resource_version, "ownerReferences": owners}}
        try:
            updated = await self._client.patch(PODS, metadata.name, patch, metadata.namespace, uid=metadata.uid)
        except ApiError as error:
            if not error.is_not_found:
                raise
        else:
            self._owned.remember(updated)


def _documents(pod: Pod) -> list[dict[str, object]]:
    return [
        {
            "apiVersion": owner.api_version,
            "kind": owner.kind,
            "name": owner.name,
            "uid": owner.uid,
            **({"controller": owner.controller} if owner.controller is not None else {}),
            **({"blockOwnerDeletion": owner.block_owner_deletion} if owner.block_owner_deletion is not None else {}),
        }
        for owner in pod.metadata.owner_references
    ]


WORKERS = 5


class ReplicaSetController:
    """Reconciles the objects of one kind, ReplicaSets or ReplicationControllers."""

    name = "replicaset-controller"

    def __init__(
        self,
        context: ControllerContext,
        kind: Kind[Any] = REPLICA_SETS,
        name: str = "replicaset-controller",
        *,
        recorder: Recorder | None = None,
    ) -> None:
        self.name = name
        self._kind = kind
        self._client = context.client.named(name)
        self._informers = context.informers
        self._clock = context.clock
        self._sets = context.informers.of(kind)
        queue = name.removesuffix("-controller")
        self.queue: WorkQueue[str] = WorkQueue(queue, clock=context.clock, registry=context.registry)
        recorder = recorder or EventRecorder(self._client, name)
        self._pods: OwnedPods[Any] = OwnedPods(self._client, context.informers, kind, recorder, self.queue.add)
        self._adoption = Adoption(self._client, context.informers, kind, self._pods, self.queue.add)
        self._sets.add_handler(Handler(self._seen, lambda _, new: self._seen(new)))

    def _seen(self, replica_set: Replicated) -> None:
        self.queue.add(object_key(replica_set))

    async def run(self) -> None:
        await self._informers.synced()
        await self.queue.run(self.sync, WORKERS)

    async def sync(self, key: str) -> None:
        replica_set = self._sets.get(key)
        if replica_set is None:
            return
        failure: Exception | None = None
        if replica_set.metadata.deletion_timestamp is None:
            try:
                await self._reach(replica_set)
            except Exception as error:
                failure = error
        pods = [pod for pod in self._pods.of(replica_set) if is_active(pod)]
        found = availability(pods, replica_set.spec.min_ready_seconds, self._clock.now())
        status = status_of(replica_set, pods, found, self._conditions(replica_set, failure))
        await write_status(self._client, self._kind, replica_set, status)
        if found.next_s is not None:
            self.queue.add_after(key, found.next_s)
        if failure is not None:
            raise failure

    def _conditions(self, replica_set: Replicated, failure: Exception | None) -> tuple[WorkloadCondition, ...]:
        """Says whether pods could not be made or removed; the conditions of others stay."""
        known = replica_set.status.conditions
        if failure is None:
            return tuple(each for each in known if each.type != REPLICA_FAILURE)
        if any(each.type == REPLICA_FAILURE for each in known):
            return known
        now = rfc3339(self._clock.now())
        wanted = 1 if replica_set.spec.replicas is None else replica_set.spec.replicas
        active = sum(is_active(pod) for pod in self._pods.of(replica_set))
        reason = "FailedCreate" if active < wanted else "FailedDelete"
        failed = WorkloadCondition(
            type=REPLICA_FAILURE, status="True", last_transition_time=now, reason=reason, message=str(failure)
        )
        return (*known, failed)

    async def _reach(self, replica_set: Replicated) -> None:
        await self._adoption.settle(replica_set)
        wanted = 1 if replica_set.spec.replicas is None else replica_set.spec.replicas
        active = [pod for pod in self._pods.of(replica_set) if is_active(pod)]
        missing = min(wanted - len(active), MOST_AT_ONCE)
        if missing > 0:
            document = [self._pods.document(replica_set, replica_set.spec.template) for _ in range(missing)]
            await self._pods.create_many(replica_set, document)
            if wanted - len(active) > MOST_AT_ONCE:
                self.queue.add(object_key(replica_set))
        for pod in sorted(active, key=deletion_order)[: max(0, len(active) - wanted)]:
            await self._pods.delete(replica_set, pod)


def status_of(
    replica_set: Replicated, pods: list[Pod], found: Availability, conditions: tuple[WorkloadCondition, ...] = ()
) -> ReplicaSetStatus:
    labels = ((replica_set.spec.template.get("metadata") or {}).get("labels") or {}).items()
    fully_labeled = sum(labels <= pod.metadata.labels.items() for pod in pods)
    return ReplicaSetStatus(
        replicas=len(pods),
        fully_labeled_replicas=fully_labeled,
        ready_replicas=found.ready,
        available_replicas=found.available,
        observed_generation=replica_set.metadata.generation,
        conditions=conditions,
    )
