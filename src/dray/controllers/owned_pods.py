"""Creates, deletes and counts the pods that a workload controller makes from a template."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from dray.api.core import Pod
from dray.client import (
    NORMAL,
    PODS,
    WARNING,
    ApiError,
    ApiObject,
    Client,
    Handler,
    Informers,
    Kind,
    MutationCache,
    Recorder,
    reference_to,
)
from dray.client.rest import Document
from dray.controllers.claims.controller import DeletedUids

T = TypeVar("T", bound=ApiObject)

BY_CONTROLLER = "controller"
MAX_OWN_WRITES = 100_000
FIRST_BATCH = 1
# An owner may ask for billions of pods. So many are created before other owners have their turn.
MOST_AT_ONCE = 500


def controller_of(obj: ApiObject) -> Iterable[str]:
    return [owner.uid for owner in obj.metadata.owner_references if owner.controller]


def owned_by(owner: ApiObject, found: Iterable[T]) -> list[T]:
    """Those of the objects with the owner's UID that can be its own: in other namespaces, anybody may have written it."""
    return [obj for obj in found if obj.metadata.namespace == owner.metadata.namespace]


def is_ready(pod: Pod) -> bool:
    return any(condition.type == "Ready" and condition.status == "True" for condition in pod.status.conditions)


class OwnedPods(Generic[T]):
    """The pods of all owners of one kind, including those just made or deleted that the watch has not shown."""

    def __init__(
        self, client: Client, informers: Informers, kind: Kind[T], recorder: Recorder, wake: Callable[[str], None]
    ) -> None:
        self._client = client
        self._kind = kind
        self._recorder = recorder
        self._wake = wake
        self._pods = informers.of(PODS)
        self._pods.add_indexer(BY_CONTROLLER, controller_of)
        self._written: MutationCache[Pod] = MutationCache(self._pods, client.clock, limit=MAX_OWN_WRITES)
        self._deleted = DeletedUids(MAX_OWN_WRITES)
        self._pods.add_handler(Handler(self._seen, lambda _, new: self._seen(new), self._seen))

    def _seen(self, pod: Pod) -> None:
        """Wake the owner's reconcile, if the owner is of our kind."""
        for owner in pod.metadata.owner_references:
            if owner.controller and owner.kind == self._kind.name and owner.api_version == self._kind.api_version:
                self._wake(f"{pod.metadata.namespace}/{owner.name}")

    def of(self, owner: T) -> list[Pod]:
        return [pod for pod in self.including_stopping(owner) if pod.metadata.uid not in self._deleted]

    def including_stopping(self, owner: T) -> list[Pod]:
        """Also those that we deleted and that are not gone yet: they may still hold what the next one needs."""
        return owned_by(owner, self._written.by_index(BY_CONTROLLER, owner.metadata.uid))

    def is_stopping(self, pod: Pod) -> bool:
        return pod.metadata.deletion_timestamp is not None or pod.metadata.uid in self._deleted

    async def create_many(self, owner: T, documents: list[Document]) -> None:
        """In batches that double while all goes well: a quota that refuses one pod is not asked a thousand times."""
        size = FIRST_BATCH
        while documents:
            batch, documents = documents[:size], documents[size:]
            results = await asyncio.gather(*(self.create(owner, item) for item in batch), return_exceptions=True)
            failures = [result for result in results if isinstance(result, BaseException)]
            if failures:
                raise failures[0]
            size *= 2

    async def create(self, owner: T, document: Document) -> None:
        reference = reference_to(self._kind, owner)
        try:
            pod = await self._client.create(PODS, document, owner.metadata.namespace)
        except ApiError as error:
            if not error.is_namespace_terminating:
                self._recorder.event(reference, WARNING, "FailedCreate", f"Error creating: {error}")
            raise
        self._written.remember(pod)
        self._recorder.event(reference, NORMAL, "SuccessfulCreate", f"Created pod: {pod.metadata.name}")

    async def delete(self, owner: T, pod: Pod) -> None:
        reference = reference_to(self._kind, owner)
        try:
            await self._client.delete(PODS, pod.metadata.name, pod.metadata.namespace, uid=pod.metadata.uid)
        except ApiError as error:
            if error.is_not_found or error.is_conflict:
                return
            self._recorder.event(reference, WARNING, "FailedDelete", f"Error deleting: {error}")
            raise
        self._deleted.add(pod.metadata.uid)
        self._recorder.event(reference, NORMAL, "SuccessfulDelete", f"Deleted pod: {pod.metadata.name}")

    def remember(self, pod: Pod) -> None:
        """A pod that was changed under somebody else's hands than `create` and `delete`."""
        self._written.remember(pod)

    def reference(self, owner: T) -> Document:
        return {
            "apiVersion": self._kind.api_version,
            "kind": self._kind.name,
            "name": owner.metadata.name,
            "uid": owner.metadata.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }

    def document(self, owner: T, template: Document, *, labels: dict[str, str] | None = None) -> Document:
        """A pod from the owner's template, whole; the server makes up the rest of the name."""
        given: dict[str, Any] = template.get("metadata") or {}
        metadata: Document = {
            "generateName": f"{owner.metadata.name}-",
            "namespace": owner.metadata.namespace,
            "labels": {**(given.get("labels") or {}), **(labels or {})},
            "ownerReferences": [self.reference(owner)],
        }
        if given.get("annotations"):
            metadata["annotations"] = dict(given["annotations"])
        if given.get("finalizers"):
            metadata["finalizers"] = list(given["finalizers"])
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": copy.deepcopy(template.get("spec") or {}),
        }


def deletion_order(pod: Pod) -> tuple[bool, bool, bool, str]:
    """Sorting key: pods that are not placed, not running, not ready or young are deleted before others."""
    created = pod.metadata.creation_timestamp or ""
    youth = "".join(chr(0x10FFFF - ord(letter)) for letter in created)
    return bool(pod.spec.node_name), pod.status.phase == "Running", is_ready(pod), youth
