"""Deployments: one ReplicaSet for each version of the template, and the rollout from the old one to the new one.

RollingUpdate (with maxSurge and maxUnavailable), Recreate, pause, history limit, revisions (so that `kubectl rollout
history` and `undo` work), `minReadySeconds`, the progress deadline and conditions are supported.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from dray.api.matching import matches_labels
from dray.api.workloads import Deployment, ReplicaSet
from dray.client import (
    BY_NAMESPACE,
    DEPLOYMENTS,
    NORMAL,
    REPLICA_SETS,
    ApiError,
    EventRecorder,
    Handler,
    MutationCache,
    Recorder,
    WorkQueue,
    by_namespace,
    object_key,
    reference_to,
)
from dray.client.rest import Document
from dray.controllers.context import ControllerContext
from dray.controllers.daemon_sets import template_hash
from dray.controllers.deployment_rollout import next_sizes, report, surge_and_unavailable
from dray.controllers.owned_pods import BY_CONTROLLER, controller_of, owned_by
from dray.controllers.workload_status import write_status

ORPHANS = "sets without a controller"
HASH_LABEL = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"
WORKERS = 5
DEFAULT_HISTORY = 10
REVISION_HISTORY = "deployment.kubernetes.io/revision-history"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
# These belong to the object they are on.
NOT_PASSED_ON = frozenset({REVISION, REVISION_HISTORY, LAST_APPLIED})


class DeploymentController:
    name = "deployment-controller"

    def __init__(self, context: ControllerContext, *, recorder: Recorder | None = None) -> None:
        self._client = context.client.named("deployment-controller")
        self._clock = context.clock
        self._informers = context.informers
        self._deployments = context.informers.of(DEPLOYMENTS)
        sets = context.informers.of(REPLICA_SETS)
        self._deployments.add_indexer(BY_NAMESPACE, by_namespace)
        sets.add_indexer(BY_CONTROLLER, controller_of)
        sets.add_indexer(ORPHANS, _orphans)
        self._sets: MutationCache[ReplicaSet] = MutationCache(sets, context.clock)
        self._recorder = recorder or EventRecorder(self._client, "deployment-controller")
        self.queue: WorkQueue[str] = WorkQueue("deployment", clock=context.clock, registry=context.registry)
        self._deployments.add_handler(Handler(self._seen, lambda _, new: self._seen(new)))
        sets.add_handler(Handler(self._set_seen, lambda _, new: self._set_seen(new), self._set_seen))

    def _seen(self, deployment: Deployment) -> None:
        self.queue.add(object_key(deployment))

    def _set_seen(self, replica_set: ReplicaSet) -> None:
        for owner in replica_set.metadata.owner_references:
            if owner.controller and owner.kind == "Deployment":
                self.queue.add(f"{replica_set.metadata.namespace}/{owner.name}")
        for namespace in _orphans(replica_set):
            for deployment in self._deployments.by_index(BY_NAMESPACE, namespace):
                if matches_labels(deployment.spec.selector, replica_set.metadata.labels):
                    self.queue.add(object_key(deployment))

    async def run(self) -> None:
        await self._informers.synced()
        await self.queue.run(self.sync, WORKERS)

    async def sync(self, key: str) -> None:
        deployment = self._deployments.get(key)
        if deployment is None:
            return
        if deployment.metadata.deletion_timestamp is None:
            await self._adopt(deployment)
            await self._roll(deployment)
        found = report(deployment, *self._editions(deployment), self._clock.now())
        await write_status(self._client, DEPLOYMENTS, deployment, found.status)
        if found.look_again_s is not None:
            self.queue.add_after(key, found.look_again_s)

    async def _adopt(self, deployment: Deployment) -> None:
        """Takes in the ReplicaSets that match and have nobody, unless the Deployment is on its way out."""
        metadata = deployment.metadata
        candidates = [
            item
            for item in self._sets.by_index(ORPHANS, metadata.namespace)
            if item.metadata.deletion_timestamp is None
            and matches_labels(deployment.spec.selector, item.metadata.labels)
        ]
        if not candidates:
            return
        current = await self._client.find(DEPLOYMENTS, metadata.name, metadata.namespace)
        if current is None or current.metadata.uid != metadata.uid or current.metadata.deletion_timestamp is not None:
            return
        for item in candidates:
            # With the revision that was decided on: of two who want the set, one is refused and looks again.
            owners = [*msgspec.to_builtins(item.metadata.owner_references), _reference(deployment)]
            revision = item.metadata.resource_version
            await self._patch_set(item, {"metadata": {"resourceVersion": revision, "ownerReferences": owners}})

    def _owned(self, deployment: Deployment) -> list[ReplicaSet]:
        return owned_by(deployment, self._sets.by_index(BY_CONTROLLER, deployment.metadata.uid))

    def _editions(self, deployment: Deployment) -> tuple[ReplicaSet | None, list[ReplicaSet]]:
        """The set of the template as it is now, if there is one, and all others."""
        edition = template_hash(deployment.spec.template)
        sets = self._owned(deployment)
        new = next((item for item in sets if _edition_of(item) == edition), None)
        return new, [item for item in sets if item is not new]

    async def _roll(self, deployment: Deployment) -> None:
        new, old = self._editions(deployment)
        wanted = 1 if deployment.spec.replicas is None else deployment.spec.replicas
        if deployment.spec.paused:
            await self._resize_paused(deployment, [item for item in (new, *old) if item is not None], wanted)
            return
        revision = str(1 + max((revision_of(item) for item in old), default=0))
        if new is None:
            new = await self._create(deployment, template_hash(deployment.spec.template), revision)
        elif revision_of(new) < int(revision):
            new = await self._annotate_set(deployment, new, revision)
        if new.spec.min_ready_seconds != deployment.spec.min_ready_seconds:
            new = await self._patch_set(new, {"spec": {"minReadySeconds": deployment.spec.min_ready_seconds}})
        await self._number(deployment, new)
        if deployment.spec.strategy.type == "Recreate":
            surge, unavailable = 0, wanted
            new_size = 0 if any(item.status.replicas or item.spec.replicas for item in old) else wanted
            old_sizes = [0 for _ in old]
        else:
            surge, unavailable = surge_and_unavailable(deployment.spec.strategy.rolling_update, wanted)
            new_size, old_sizes = next_sizes(wanted, surge, unavailable, new, old)
        await self._scale(deployment, new, new_size)
        for replica_set, size in zip(old, old_sizes, strict=True):
            await self._scale(deployment, replica_set, size)
        await self._drop_history(deployment, old)

    async def _create(self, deployment: Deployment, edition: str, revision: str) -> ReplicaSet:
        template = deployment.spec.template
        labels = {**((template.get("metadata") or {}).get("labels") or {}), HASH_LABEL: edition}
        document = await self._client.get_document(DEPLOYMENTS, deployment.metadata.name, deployment.metadata.namespace)
        selector: dict[str, Any] = dict(document["spec"].get("selector") or {})
        selector["matchLabels"] = {**(selector.get("matchLabels") or {}), HASH_LABEL: edition}
        owner = _reference(deployment)
        replica_set: Document = {
            "apiVersion": REPLICA_SETS.api_version,
            "kind": "ReplicaSet",
            "metadata": {
                "name": f"{deployment.metadata.name}-{edition}",
                "namespace": deployment.metadata.namespace,
                "labels": labels,
                "annotations": {**_passed_on(deployment), REVISION: revision},
                "ownerReferences": [owner],
            },
            "spec": {
                "replicas": 0,
                "minReadySeconds": deployment.spec.min_ready_seconds,
                "selector": selector,
                "template": {**template, "metadata": {**(template.get("metadata") or {}), "labels": labels}},
            },
        }
        created = await self._client.create(REPLICA_SETS, replica_set)
        self._sets.remember(created)
        return created

    async def _annotate_set(self, deployment: Deployment, replica_set: ReplicaSet, revision: str) -> ReplicaSet:
        """An old edition that is wanted again becomes the newest revision."""
        metadata = replica_set.metadata
        before = metadata.annotations.get(REVISION, "")
        history = ",".join(filter(None, (metadata.annotations.get(REVISION_HISTORY, ""), before)))
        annotations = {**_passed_on(deployment), REVISION: revision, REVISION_HISTORY: history}
        return await self._patch_set(replica_set, {"metadata": {"annotations": annotations}})

    async def _patch_set(self, replica_set: ReplicaSet, patch: Document) -> ReplicaSet:
        metadata = replica_set.metadata
        updated = await self._client.patch(REPLICA_SETS, metadata.name, patch, metadata.namespace, uid=metadata.uid)
        self._sets.remember(updated)
        return updated

    async def _resize_paused(self, deployment: Deployment, sets: list[ReplicaSet], wanted: int) -> None:
        """A pause stops the rollout, not the scaling: a single ReplicaSet that has pods is scaled."""
        running = [item for item in sets if item.spec.replicas]
        if len(running) == 1:
            await self._scale(deployment, running[0], wanted)

    async def _number(self, deployment: Deployment, new: ReplicaSet) -> None:
        """The Deployment says which revision it is at; by way of the status, since other changes of annotations are a new generation."""
        revision, metadata = new.metadata.annotations.get(REVISION, ""), deployment.metadata
        if not revision or metadata.annotations.get(REVISION) == revision:
            return
        patch: Document = {"metadata": {"annotations": {REVISION: revision}}}
        await self._client.patch(
            DEPLOYMENTS, metadata.name, patch, metadata.namespace, subresource="status", uid=metadata.uid
        )

    async def _scale(self, deployment: Deployment, replica_set: ReplicaSet, size: int) -> None:
        before = replica_set.spec.replicas or 0
        if before == size:
            return
        metadata = replica_set.metadata
        try:
            await self._patch_set(replica_set, {"spec": {"replicas": size}})
        except ApiError as error:
            if error.is_not_found:
                return
            raise
        direction = "up" if size > before else "down"
        message = f"Scaled {direction} replica set {metadata.name} from {before} to {size}"
        self._recorder.event(reference_to(DEPLOYMENTS, deployment), NORMAL, "ScalingReplicaSet", message)

    async def _drop_history(self, deployment: Deployment, old: list[ReplicaSet]) -> None:
        limit = deployment.spec.revision_history_limit
        limit = DEFAULT_HISTORY if limit is None else limit
        empty = [item for item in old if not item.spec.replicas and not item.status.replicas]
        for replica_set in sorted(empty, key=revision_of)[: max(0, len(empty) - limit)]:
            metadata = replica_set.metadata
            try:
                await self._client.delete(REPLICA_SETS, metadata.name, metadata.namespace, uid=metadata.uid)
            except ApiError as error:
                if not error.is_not_found:
                    raise


def _passed_on(deployment: Deployment) -> dict[str, str]:
    return {key: value for key, value in deployment.metadata.annotations.items() if key not in NOT_PASSED_ON}


def _orphans(replica_set: ReplicaSet) -> Iterable[str]:
    return () if any(True for _ in controller_of(replica_set)) else (replica_set.metadata.namespace,)


def _reference(deployment: Deployment) -> Document:
    return {
        "apiVersion": DEPLOYMENTS.api_version,
        "kind": "Deployment",
        "name": deployment.metadata.name,
        "uid": deployment.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _edition_of(replica_set: ReplicaSet) -> str:
    """The hash of the set's template; a set that was taken in has no label with it."""
    label = replica_set.metadata.labels.get(HASH_LABEL)
    return label if label is not None else template_hash(replica_set.spec.template)


def revision_of(replica_set: ReplicaSet) -> int:
    text = replica_set.metadata.annotations.get(REVISION, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0
