"""ReplicaSets: as many pods from the template as asked for, counting those that belong by their labels.

A ReplicaSet adopts a pod without an owner that matches its selector, and releases an owned pod that no longer matches. So
a ReplicaSet that is created again finds the pods of the one before, and a pod that somebody relabels in order to look into
it is replaced and stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dray.api.core import Pod
from dray.api.dra.pod_phase import is_active
from dray.api.matching import matches_labels
from dray.api.workloads import ReplicaSet, ReplicaSetStatus
from dray.client import (
    BY_NAMESPACE,
    PODS,
    REPLICA_SETS,
    ApiError,
    Client,
    EventRecorder,
    Handler,
    Informers,
    Recorder,
    WorkQueue,
    by_namespace,
    object_key,
)
from dray.controllers.context import ControllerContext
from dray.controllers.owned_pods import OwnedPods, controller_of, deletion_order
from dray.controllers.workload_status import Availability, availability, write_status

ORPHANS = "pods without a controller"


def _orphans(pod: Pod) -> Iterable[str]:
    return () if any(True for _ in controller_of(pod)) else (pod.metadata.namespace,)


class Adoption:
    def __init__(
        self, client: Client, informers: Informers, pods: OwnedPods[ReplicaSet], wake: Callable[[str], None]
    ) -> None:
        self._client = client
        self._owned = pods
        self._wake = wake
        self._sets = informers.of(REPLICA_SETS)
        self._sets.add_indexer(BY_NAMESPACE, by_namespace)
        self._pods = informers.of(PODS)
        self._pods.add_indexer(ORPHANS, _orphans)
        self._pods.add_handler(Handler(self._seen, lambda _, new: self._seen(new)))

    def _seen(self, pod: Pod) -> None:
        if not pod.metadata.labels or not is_active(pod) or any(True for _ in controller_of(pod)):
            return
        for replica_set in self._sets.by_index(BY_NAMESPACE, pod.metadata.namespace):
            if matches_labels(replica_set.spec.selector, pod.metadata.labels):
                self._wake(object_key(replica_set))

    async def settle(self, replica_set: ReplicaSet) -> None:
        """Let go of pods that no longer match; take in those that do and have nobody."""
        selector = replica_set.spec.selector
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

    async def _is_still_there(self, replica_set: ReplicaSet) -> bool:
        """Asked before anything is taken in: a set on its way out would take the pods with it."""
        metadata = replica_set.metadata
        current = await self._client.find(REPLICA_SETS, metadata.name, metadata.namespace)
        is_same = current is not None and current.metadata.uid == metadata.uid
        return is_same and current is not None and current.metadata.deletion_timestamp is None

    async def _take_in(self, replica_set: ReplicaSet, pod: Pod) -> None:
        owners = [*_documents(pod), self._owned.reference(replica_set)]
        await self._write_owners(pod, owners)

    async def _let_go(self, replica_set: ReplicaSet, pod: Pod) -> None:
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
MAX_AT_ONCE = 500


class ReplicaSetController:
    name = "replicaset-controller"

    def __init__(self, context: ControllerContext, *, recorder: Recorder | None = None) -> None:
        self._client = context.client.named("replicaset-controller")
        self._informers = context.informers
        self._clock = context.clock
        self._sets = context.informers.of(REPLICA_SETS)
        self.queue: WorkQueue[str] = WorkQueue("replicaset", clock=context.clock, registry=context.registry)
        recorder = recorder or EventRecorder(self._client, "replicaset-controller")
        self._pods = OwnedPods(self._client, context.informers, REPLICA_SETS, recorder, self.queue.add)
        self._adoption = Adoption(self._client, context.informers, self._pods, self.queue.add)
        self._sets.add_handler(Handler(self._seen, lambda _, new: self._seen(new)))

    def _seen(self, replica_set: ReplicaSet) -> None:
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
        await write_status(self._client, REPLICA_SETS, replica_set, status_of(replica_set, pods, found))
        if found.next_s is not None:
            self.queue.add_after(key, found.next_s)
        if failure is not None:
            raise failure

    async def _reach(self, replica_set: ReplicaSet) -> None:
        await self._adoption.settle(replica_set)
        wanted = 1 if replica_set.spec.replicas is None else replica_set.spec.replicas
        active = [pod for pod in self._pods.of(replica_set) if is_active(pod)]
        missing = min(wanted - len(active), MAX_AT_ONCE)
        if missing > 0:
            document = [self._pods.document(replica_set, replica_set.spec.template) for _ in range(missing)]
            await self._pods.create_many(replica_set, document)
            if wanted - len(active) > MAX_AT_ONCE:
                self.queue.add(object_key(replica_set))
        for pod in sorted(active, key=deletion_order)[: max(0, len(active) - wanted)]:
            await self._pods.delete(replica_set, pod)


def status_of(replica_set: ReplicaSet, pods: list[Pod], found: Availability) -> ReplicaSetStatus:
    labels = ((replica_set.spec.template.get("metadata") or {}).get("labels") or {}).items()
    fully_labeled = sum(labels <= pod.metadata.labels.items() for pod in pods)
    return ReplicaSetStatus(
        replicas=len(pods),
        fully_labeled_replicas=fully_labeled,
        ready_replicas=found.ready,
        available_replicas=found.available,
        observed_generation=replica_set.metadata.generation,
    )
