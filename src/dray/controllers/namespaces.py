"""Namespace deletion: deletes everything inside, then removes the `kubernetes` finalizer and with it the namespace."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dray.api.core import Namespace
from dray.api.meta import Condition
from dray.client import NAMESPACES, ApiError, ApiObject, Handler, Kind, Listing, WorkQueue
from dray.client.kinds import EVENTS
from dray.client.rest import Document
from dray.clock import rfc3339
from dray.controllers.context import ControllerContext

log = logging.getLogger(__name__)

FINALIZER = "kubernetes"
WORKERS = 10
# Content that is slow to go is looked at again when one of its objects disappears, and at the latest after this long.
LOOK_AGAIN_S = 15.0
# Objects that disappear together are looked at together.
GATHER_S = 0.1


@dataclass(frozen=True, slots=True)
class RemainingContent:
    """The remaining content of a namespace: instances per kind, and per finalizer that keeps them."""

    by_kind: Counter[str]
    by_finalizer: Counter[str]
    failures: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        return not self.by_kind and not self.failures


class NamespaceController:
    name = "namespace-controller"

    def __init__(self, context: ControllerContext, kinds: Sequence[Kind[Any]]) -> None:
        self._client = context.client.named("namespace-controller")
        self._informers = context.informers
        self._namespaces = context.informers.of(NAMESPACES)
        self._kinds = [kind for kind in kinds if kind.namespaced]
        self.queue: WorkQueue[str] = WorkQueue("namespace", clock=context.clock, registry=context.registry)
        self._namespaces.add_handler(Handler(self._seen, lambda _, new: self._seen(new)))
        for kind in self._kinds:
            context.informers.of(kind).add_handler(Handler(on_delete=self._content_gone))

    async def run(self) -> None:
        await self._informers.synced()
        await self.queue.run(self.sync, WORKERS)

    def _seen(self, namespace: Namespace) -> None:
        if namespace.metadata.deletion_timestamp is not None:
            self.queue.add(namespace.metadata.name)

    def _content_gone(self, obj: ApiObject) -> None:
        namespace = self._namespaces.get(obj.metadata.namespace)
        if namespace is not None and namespace.metadata.deletion_timestamp is not None:
            self.queue.add_after(namespace.metadata.name, GATHER_S)

    async def sync(self, name: str) -> None:
        namespace = self._namespaces.get(name)
        if namespace is None or namespace.metadata.deletion_timestamp is None:
            return
        if FINALIZER not in namespace.spec.finalizers:
            return
        remaining = await self._empty(name)
        if remaining.is_empty:
            await self._finalize(name, namespace.metadata.uid)
            return
        await self._report(namespace, remaining)
        self.queue.add_after(name, LOOK_AGAIN_S)

    async def _empty(self, namespace: str) -> RemainingContent:
        found = await asyncio.gather(*(self._empty_of(kind, namespace) for kind in [*self._kinds, EVENTS]))
        by_kind: Counter[str] = Counter()
        by_finalizer: Counter[str] = Counter()
        failures: list[str] = []
        for kind, listing in zip([*self._kinds, EVENTS], found, strict=True):
            if isinstance(listing, ApiError):
                failures.append(f"{kind.plural}: {listing}")
                continue
            if listing.items:
                by_kind[kind.plural] = len(listing.items)
            for item in listing.items:
                by_finalizer.update(item.metadata.finalizers)
        return RemainingContent(by_kind, by_finalizer, tuple(failures))

    async def _empty_of(self, kind: Kind[Any], namespace: str) -> Listing[Any] | ApiError:
        """Deletes the objects of a namespace and reports those that remain: pods in their grace period, objects with finalizers."""
        try:
            listing = await self._client.list(kind, namespace)
            if not listing.items or all(item.metadata.deletion_timestamp for item in listing.items):
                return listing
            await self._client.delete_collection(kind, namespace)
            return await self._client.list(kind, namespace)
        except ApiError as error:
            return error

    async def _finalize(self, name: str, uid: str) -> None:
        """PUT /finalize with the whole document: somebody else's finalizers stay."""
        try:
            document = await self._client.get_document(NAMESPACES, name)
            if document["metadata"].get("uid") != uid:
                return
            spec: Document = document.setdefault("spec", {})
            spec["finalizers"] = [item for item in spec.get("finalizers") or [] if item != FINALIZER]
            await self._client.update(NAMESPACES, document, subresource="finalize")
        except ApiError as error:
            if not error.is_not_found:
                raise

    async def _report(self, namespace: Namespace, remaining: RemainingContent) -> None:
        """Conditions that tell a waiting person what the namespace waits for."""
        conditions = [
            _condition(
                *("NamespaceDeletionContentFailure", "ContentDeletionFailed", "ContentDeleted"),
                "; ".join(remaining.failures),
                "All content successfully deleted, may be waiting on finalization",
            ),
            _condition(
                *("NamespaceContentRemaining", "SomeResourcesRemain", "ContentRemoved"),
                _sentence("Some resources are remaining: ", remaining.by_kind, "{} has {} resource instances"),
                "All content successfully removed",
            ),
            _condition(
                *("NamespaceFinalizersRemaining", "SomeFinalizersRemain", "ContentHasNoFinalizers"),
                _sentence(
                    "Some content in the namespace has finalizers remaining: ",
                    remaining.by_finalizer,
                    "{} in {} resource instances",
                ),
                "All content-preserving finalizers finished",
            ),
        ]
        old = {condition.type: condition for condition in namespace.status.conditions}
        if all(_says_same(old.get(condition["type"]), condition) for condition in conditions):
            return
        now = rfc3339(self._client.clock.now())
        status = {"conditions": [{**condition, "lastTransitionTime": now} for condition in conditions]}
        try:
            await self._client.patch(NAMESPACES, namespace.metadata.name, {"status": status}, subresource="status")
        except ApiError as error:
            log.info("namespace %s: conditions not written: %s", namespace.metadata.name, error)


def _condition(condition_type: str, bad_reason: str, good_reason: str, problem: str, fine: str) -> Document:
    return {
        "type": condition_type,
        "status": "True" if problem else "False",
        "reason": bad_reason if problem else good_reason,
        "message": problem or fine,
    }


def _says_same(old: Condition | None, new: Document) -> bool:
    return old is not None and all(getattr(old, field) == new[field] for field in ("status", "reason", "message"))


def _sentence(start: str, counts: Counter[str], phrase: str) -> str:
    if not counts:
        return ""
    return start + ", ".join(phrase.format(name, count) for name, count in sorted(counts.items()))
