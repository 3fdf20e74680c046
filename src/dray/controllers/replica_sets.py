"""ReplicaSets: as many pods from the template as asked for, counting those that belong by their labels."""

from __future__ import annotations

from dray.api.core import Pod
from dray.api.dra.pod_phase import is_active
from dray.api.workloads import ReplicaSet, ReplicaSetStatus
from dray.client import REPLICA_SETS, EventRecorder, Handler, Recorder, WorkQueue, object_key
from dray.controllers.adoption import Adoption
from dray.controllers.availability import Availability, availability
from dray.controllers.context import Context
from dray.controllers.owned_pods import OwnedPods, first_to_go
from dray.controllers.workload_status import write_status

WORKERS = 5
MAX_AT_ONCE = 500


class ReplicaSetController:
    name = "replicaset-controller"

    def __init__(self, context: Context, *, recorder: Recorder | None = None) -> None:
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
        for pod in sorted(active, key=first_to_go)[: max(0, len(active) - wanted)]:
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
