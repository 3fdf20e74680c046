"""Evicts pods from nodes with `NoExecute` taints that they do not tolerate, at once or when their toleration ends.

The time of a toleration starts when the pod is first seen on its node with this taint, whatever other taints come and go. It does
not matter who put the taint there: a person, or `node_lifecycle` on a node that fell silent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta

from dray.api.core import Node, Pod, Taint, Toleration
from dray.api.dra.taints import NO_EXECUTE, tolerates
from dray.client import NODES, NORMAL, PODS, EventRecorder, Handler, Recorder, WorkQueue, object_key, reference_to
from dray.controllers.claims.controller import DeletedUids
from dray.controllers.context import ControllerContext
from dray.controllers.pod_eviction import DELETIONS_HELP, DURATION_BUCKETS, DURATIONS_HELP, PodEvictor

WORKERS = 8
BY_NODE = "node"
REASON = "TaintManagerEviction"
# A pod that may stay for longer than this may stay.
LONGEST_S = 100 * 365 * 24 * 3600

Key = tuple[str, str]  # namespace/name and uid


def node_of(pod: Pod) -> Iterable[str]:
    return (pod.spec.node_name,) if pod.spec.node_name else ()


def tolerated_s(taints: Iterable[Taint], tolerations: Sequence[Toleration]) -> int | None:
    """How long a pod may stay on a node with these taints; None for ever. Of each taint the first toleration counts."""
    shortest: int | None = None
    for taint in taints:
        toleration = next((each for each in tolerations if tolerates(each, taint)), None)
        if toleration is None:
            return 0
        seconds = toleration.toleration_seconds
        if seconds is not None and seconds <= LONGEST_S:
            shortest = max(0, seconds if shortest is None else min(shortest, seconds))
    return shortest


class NodeTaintEvictionController:
    name = "taint-eviction-controller"

    def __init__(self, context: ControllerContext, *, recorder: Recorder | None = None) -> None:
        self._client = context.client.named("node-controller")
        self._clock = context.clock
        self._informers = context.informers
        self._recorder = recorder or EventRecorder(self._client, self.name)
        self._evictor = PodEvictor(
            self._client,
            reason="DeletionByTaintManager",
            message="Taint manager: deleting due to NoExecute taint",
            deletions=context.registry.counter("taint_eviction_controller_pod_deletions_total", DELETIONS_HELP),
            durations=context.registry.histogram(
                "taint_eviction_controller_pod_deletion_duration_seconds",
                DURATIONS_HELP,
                buckets=DURATION_BUCKETS,
            ),
        )
        self._pods = context.informers.of(PODS)
        self._pods.add_indexer(BY_NODE, node_of)
        self._taints: dict[str, tuple[Taint, ...]] = {}
        # UID -> when the pod was first seen with each of the taints that it does not tolerate for ever, for pods that wait.
        self.waiting: dict[str, dict[Taint, float]] = {}
        self._evicted = DeletedUids()
        self.queue: WorkQueue[Key] = WorkQueue(
            "taint_eviction_controller", clock=context.clock, registry=context.registry
        )
        context.informers.of(NODES).add_handler(
            Handler(self._node_seen, lambda _, new: self._node_seen(new), self._node_gone)
        )
        self._pods.add_handler(Handler(self._pod_seen, self._pod_changed, self._pod_gone))

    async def run(self) -> None:
        await self._informers.synced()
        await self.queue.run(self.sync, WORKERS)

    # --- triggers

    def _node_seen(self, node: Node) -> None:
        name = node.metadata.name
        taints = tuple(taint for taint in node.spec.taints if taint.effect == NO_EXECUTE)
        if taints == self._taints.get(name, ()):
            return
        if taints:
            self._taints[name] = taints
        else:
            del self._taints[name]
        for pod in self._pods.by_index(BY_NODE, name):
            self.queue.add(_key(pod))

    def _node_gone(self, node: Node) -> None:
        self._taints.pop(node.metadata.name, None)

    def _pod_seen(self, pod: Pod) -> None:
        if pod.spec.node_name in self._taints:
            self.queue.add(_key(pod))

    def _pod_changed(self, old: Pod, new: Pod) -> None:
        if old.spec.node_name != new.spec.node_name or old.spec.tolerations != new.spec.tolerations:
            self._pod_seen(new)

    def _pod_gone(self, pod: Pod) -> None:
        self._forget(_key(pod))

    # --- acting

    async def sync(self, key: Key) -> None:
        name, uid = key
        pod = self._pods.get(name)
        if (
            pod is None
            or pod.metadata.uid != uid
            or pod.metadata.deletion_timestamp is not None
            or uid in self._evicted
        ):
            self._forget(key)
            return
        left_s = self._left_s(pod)
        if left_s is None:
            if self._forget(key):
                self._say(pod, f"Cancelling deletion of Pod {name}")
            return
        if left_s > 0:
            self.queue.add_after(key, left_s)
            return
        self._say(pod, f"Marking for deletion Pod {name}")
        await self._evictor.evict(pod, self._clock.now() + timedelta(seconds=left_s))
        self._evicted.add(uid)
        self._forget(key)

    def _left_s(self, pod: Pod) -> float | None:
        """How long the pod may stay from now on; None for ever."""
        limits = {
            taint: seconds
            for taint in self._taints.get(pod.spec.node_name, ())
            if (seconds := tolerated_s((taint,), pod.spec.tolerations)) is not None
        }
        if not limits:
            return None
        now, known = self._clock.monotonic(), self.waiting.get(pod.metadata.uid, {})
        seen = self.waiting[pod.metadata.uid] = {taint: known.get(taint, now) for taint in limits}
        return min(seen[taint] + seconds for taint, seconds in limits.items()) - now

    def _forget(self, key: Key) -> bool:
        """Returns whether the pod was waiting for its end."""
        self.queue.cancel_later(key)
        return self.waiting.pop(key[1], None) is not None

    def _say(self, pod: Pod, message: str) -> None:
        self._recorder.event(reference_to(PODS, pod), NORMAL, REASON, message)


def _key(pod: Pod) -> Key:
    return object_key(pod), pod.metadata.uid
