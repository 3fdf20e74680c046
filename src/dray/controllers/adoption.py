"""Pods that belong by their labels: who has no owner and matches is taken in, who is owned and matches no longer is let go.

So a ReplicaSet that is made again finds the pods of the one before, and a pod that somebody relabels to look into it is
replaced while it stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dray.api.core import Pod
from dray.api.dra.pod_phase import is_active
from dray.api.matching import matches_labels
from dray.api.workloads import ReplicaSet
from dray.client import (
    BY_NAMESPACE,
    PODS,
    REPLICA_SETS,
    ApiError,
    Client,
    Handler,
    Informers,
    by_namespace,
    object_key,
)
from dray.controllers.owned_pods import OwnedPods, controller_of

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
