"""Deletes objects whose owners are gone, and lets go of owners that wait for their dependents.

The graph of owners is one index over all kinds, by the UID of the owner. Absence of an owner is believed only after asking the server.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from dray.api.meta import ObjectMeta, OwnerReference
from dray.client import ApiError, ApiObject, Handler, Informer, KeysByValue, Kind, WorkQueue, object_key
from dray.controllers.context import ControllerContext

log = logging.getLogger(__name__)

ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"
WORKERS = 20
# A whole deployment may go at once; each owner that is remembered saves a question to the server.
REMEMBERED_ABSENT_OWNERS = 10_000
# Characters of a reference. Whoever writes an object may make them as long as they like.
LONGEST_REMEMBERED = 1_024
# Others who react to the same deletion write first; deleting in the middle of that only makes conflicts.
SETTLE_S = 0.25
# Who has a finalizer on an object whose owner is gone, such as a claim of a deleted pod, is about to let go of it, with writes of its own. Once it
# has, the object settles as any other; if it does not, the object is deleted all the same, and waits for it then.
HELD_S = 2.0


class ObjectIdentity(msgspec.Struct, frozen=True):
    """One object by its UID, so that a later object of the same name is not mistaken for it."""

    group: str
    kind: str
    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class OwnerStates:
    """An object's owner references by the state of each owner."""

    solid: tuple[OwnerReference, ...]
    dangling: tuple[OwnerReference, ...]
    waiting: tuple[OwnerReference, ...]


class GarbageCollector:
    name = "garbage-collector-controller"

    def __init__(self, context: ControllerContext, kinds: Sequence[Kind[Any]], *, workers: int = WORKERS) -> None:
        self._client = context.client.named("generic-garbage-collector")
        self._informers = context.informers
        self._workers = workers
        self._watched: dict[tuple[str, str], Informer[Any]] = {}
        # UIDs of objects that were seen going away, and owners that the server did not find, each with the namespace in which it was looked for.
        self._absent: OrderedDict[str | tuple[OwnerReference, str], None] = OrderedDict()
        # By the UID of an owner, the kinds and keys of its dependents.
        self._dependents_of: KeysByValue[tuple[Informer[Any], str]] = KeysByValue()
        self.queue: WorkQueue[ObjectIdentity] = WorkQueue(
            "garbage_collector_attempt_to_delete", clock=context.clock, registry=context.registry
        )
        for kind in kinds:
            self._watch(kind)

    def _watch(self, kind: Kind[Any]) -> None:
        informer = self._informers.of(kind)
        self._watched[kind.row.group, kind.name] = informer

        def seen(obj: ApiObject) -> None:
            self._enter(informer, obj)
            self._seen(kind, obj)

        def changed(old: ApiObject, new: ApiObject) -> None:
            if old.metadata.owner_references != new.metadata.owner_references:
                self._leave(informer, old)
                self._enter(informer, new)
            elif new.metadata.deletion_timestamp is None and old is not new and not _was_let_go(old, new):
                return  # nothing that concerns owners; what happens to these is seen with them
            self._seen(kind, new)

        def gone(obj: ApiObject) -> None:
            self._leave(informer, obj)
            self._gone(obj)

        informer.add_handler(Handler(seen, changed, gone))

    def _enter(self, informer: Informer[Any], obj: ApiObject) -> None:
        for reference in obj.metadata.owner_references:
            self._dependents_of.add(reference.uid, (informer, object_key(obj)))

    def _leave(self, informer: Informer[Any], obj: ApiObject) -> None:
        for reference in obj.metadata.owner_references:
            self._dependents_of.discard(reference.uid, (informer, object_key(obj)))

    async def run(self) -> None:
        await self._informers.synced()
        await self.queue.run(self.sync, self._workers)

    # --- triggers

    def _seen(self, kind: Kind[Any], obj: ApiObject) -> None:
        metadata = obj.metadata
        if metadata.deletion_timestamp is not None:
            if FOREGROUND in metadata.finalizers:
                self.queue.add(_item(kind, metadata))
                self._wake_waiting_owners(metadata)
            elif ORPHAN in metadata.finalizers:
                self.queue.add(_item(kind, metadata))
            return
        for reference in metadata.owner_references:
            owner = self._cached_owner(reference, metadata.namespace)
            if owner is None or _waits_for_dependents(owner.metadata):
                self.queue.add_after(_item(kind, metadata), _settle_s(metadata))
                self._wake_waiting_owners(metadata)
                return

    def _gone(self, obj: ApiObject) -> None:
        self._note_absent(obj.metadata.uid)
        for dependent, metadata in self._dependents(obj.metadata.uid, obj.metadata.namespace):
            self.queue.add_after(dependent, _settle_s(metadata))
        self._wake_waiting_owners(obj.metadata)

    def _wake_waiting_owners(self, metadata: ObjectMeta) -> None:
        """An owner that waits looks again when a dependent is gone, or no longer blocks it."""
        for reference in metadata.owner_references:
            owner = self._cached_owner(reference, metadata.namespace)
            if owner is not None and _waits_for_dependents(owner.metadata):
                self.queue.add(_owner_item(reference, owner.metadata))

    # --- one object

    async def sync(self, item: ObjectIdentity) -> None:
        informer = self._watched[item.group, item.kind]
        obj = informer.get(f"{item.namespace}/{item.name}" if item.namespace else item.name)
        if obj is None or obj.metadata.uid != item.uid:
            return
        if obj.metadata.deletion_timestamp is None:
            await self._collect(item, informer.kind, obj.metadata)
        elif ORPHAN in obj.metadata.finalizers:
            await self._orphan_dependents(item, informer.kind)
        elif FOREGROUND in obj.metadata.finalizers:
            await self._wait_for_dependents(item, informer.kind)

    async def _collect(self, item: ObjectIdentity, kind: Kind[Any], cached: ObjectMeta) -> None:
        if not cached.owner_references or self._all_owners_cached(cached):
            return
        if self._is_forsaken(cached) and await self._delete_unchanged(item, kind, cached):
            return
        obj = await self._client.find(kind, item.name, item.namespace)
        if obj is None or obj.metadata.uid != item.uid or obj.metadata.deletion_timestamp is not None:
            return
        owners = await self._sort_owners(obj.metadata)
        if owners.solid:
            if owners.dangling or owners.waiting:
                await self._keep_owners(kind, obj.metadata, owners.solid)
        elif owners.waiting and any(True for _ in self._dependents(item.uid, item.namespace)):
            await self._unblock_circle(kind, obj.metadata)
            await self._delete(item, kind, obj.metadata, "Foreground")
        elif owners.waiting or owners.dangling:
            await self._delete(item, kind, obj.metadata, _policy(obj.metadata))

    def _is_forsaken(self, metadata: ObjectMeta) -> bool:
        """Were all its owners seen going away?"""
        return all(self._is_absent(owner, metadata.namespace) for owner in metadata.owner_references)

    async def _delete_unchanged(self, item: ObjectIdentity, kind: Kind[Any], metadata: ObjectMeta) -> bool:
        """The usual case, in one request: the server refuses if our copy is not the newest. True if it is settled."""
        policy = _policy(metadata)
        if policy == "Foreground":
            return False
        try:
            await self._delete(item, kind, metadata, policy)
        except ApiError as error:
            if not error.is_conflict:
                raise
            return False
        return True

    async def _delete(self, item: ObjectIdentity, kind: Kind[Any], metadata: ObjectMeta, policy: str) -> None:
        """Guarded by UID and revision: an owner added meanwhile must win."""
        revision = "" if policy == "Foreground" else metadata.resource_version
        try:
            await self._client.delete(
                kind, item.name, item.namespace, uid=item.uid, revision=revision, propagation=policy
            )
        except ApiError as error:
            if not error.is_not_found:
                raise
        log.debug("%s deleted: no owner is left", item)

    async def _wait_for_dependents(self, item: ObjectIdentity, kind: Kind[Any]) -> None:
        dependents = list(self._dependents(item.uid, item.namespace))
        is_blocked = False
        for dependent, metadata in dependents:
            is_blocked |= any(ref.uid == item.uid and ref.block_owner_deletion for ref in metadata.owner_references)
            # Who is being deleted already reports back by itself; waking it from here could go round in circles.
            if metadata.deletion_timestamp is None:
                self.queue.add(dependent)
        if not is_blocked:
            await self._remove_finalizer(item, kind, FOREGROUND)

    async def _orphan_dependents(self, item: ObjectIdentity, kind: Kind[Any]) -> None:
        for dependent, _ in list(self._dependents(item.uid, item.namespace)):
            dependent_kind = self._watched[dependent.group, dependent.kind].kind
            obj = await self._client.find(dependent_kind, dependent.name, dependent.namespace)
            if obj is None or obj.metadata.uid != dependent.uid:
                continue
            others = tuple(ref for ref in obj.metadata.owner_references if ref.uid != item.uid)
            if len(others) < len(obj.metadata.owner_references):
                await self._keep_owners(dependent_kind, obj.metadata, others)
        await self._remove_finalizer(item, kind, ORPHAN)

    async def _remove_finalizer(self, item: ObjectIdentity, kind: Kind[Any], finalizer: str) -> None:
        obj = await self._client.find(kind, item.name, item.namespace)
        if obj is None or obj.metadata.uid != item.uid or finalizer not in obj.metadata.finalizers:
            return
        rest = [name for name in obj.metadata.finalizers if name != finalizer]
        patch = {"metadata": {"resourceVersion": obj.metadata.resource_version, "finalizers": rest}}
        await self._client.patch(kind, item.name, patch, item.namespace, uid=item.uid)

    async def _keep_owners(self, kind: Kind[Any], metadata: ObjectMeta, kept: tuple[OwnerReference, ...]) -> None:
        patch = {"metadata": {"resourceVersion": metadata.resource_version, "ownerReferences": list(kept)}}
        await self._client.patch(kind, metadata.name, patch, metadata.namespace, uid=metadata.uid)

    async def _unblock_circle(self, kind: Kind[Any], metadata: ObjectMeta) -> None:
        """Objects that own each other would wait for ever: who has a waiting dependent stops blocking its owners."""
        if not any(
            _waits_for_dependents(dependent) for _, dependent in self._dependents(metadata.uid, metadata.namespace)
        ):
            return
        document = await self._client.get_document(kind, metadata.name, metadata.namespace)
        references = [{**ref, "blockOwnerDeletion": False} for ref in document["metadata"].get("ownerReferences", [])]
        await self._client.patch(
            kind, metadata.name, {"metadata": {"ownerReferences": references}}, metadata.namespace, uid=metadata.uid
        )

    # --- owners and dependents

    def _dependents(self, uid: str, namespace: str) -> Iterator[tuple[ObjectIdentity, ObjectMeta]]:
        """Of an owner in this namespace (empty: cluster-wide). Objects of other namespaces may name it, but it does not wait for them."""
        for informer, key in list(self._dependents_of[uid]):
            obj = informer.get(key)
            if obj is None or namespace not in ("", obj.metadata.namespace):
                continue
            if any(reference.uid == uid for reference in obj.metadata.owner_references):
                yield _item(informer.kind, obj.metadata), obj.metadata

    def _cached_owner(self, reference: OwnerReference, namespace: str) -> ApiObject | None:
        informer = self._informer_for(reference)
        if informer is None:
            return None
        owner: ApiObject | None = informer.get(
            f"{namespace}/{reference.name}" if informer.kind.namespaced else reference.name
        )
        return owner if owner is not None and owner.metadata.uid == reference.uid else None

    def _informer_for(self, reference: OwnerReference) -> Informer[Any] | None:
        group, slash, _ = reference.api_version.partition("/")
        return self._watched.get((group if slash else "", reference.kind))

    def _all_owners_cached(self, metadata: ObjectMeta) -> bool:
        for reference in metadata.owner_references:
            owner = self._cached_owner(reference, metadata.namespace)
            if owner is None or _waits_for_dependents(owner.metadata):
                return False
        return True

    async def _sort_owners(self, metadata: ObjectMeta) -> OwnerStates:
        solid, dangling, waiting = [], [], []
        for reference in metadata.owner_references:
            owner = await self._live_owner(reference, metadata.namespace)
            if owner is None:
                dangling.append(reference)
            elif _waits_for_dependents(owner):
                waiting.append(reference)
            else:
                solid.append(reference)
        return OwnerStates(tuple(solid), tuple(dangling), tuple(waiting))

    async def _live_owner(self, reference: OwnerReference, namespace: str) -> ObjectMeta | None:
        """The owner's metadata, or None when it is certainly gone. An owner of unknown kind counts as alive."""
        if self._is_absent(reference, namespace):
            return None
        informer = self._informer_for(reference)
        if informer is None or (informer.kind.namespaced and not namespace):
            log.warning("owner %s %s %s cannot be looked up: kept", *_words(reference))
            return ObjectMeta(uid=reference.uid)
        owner = self._cached_owner(reference, namespace)
        if owner is None:
            owner = await self._client.find(
                informer.kind, reference.name, namespace if informer.kind.namespaced else ""
            )
        if owner is None or owner.metadata.uid != reference.uid:
            self._note_absent((reference, namespace))
            return None
        return owner.metadata

    def _is_absent(self, reference: OwnerReference, namespace: str) -> bool:
        return reference.uid in self._absent or (reference, namespace) in self._absent

    def _note_absent(self, owner: str | tuple[OwnerReference, str]) -> None:
        """A UID that is gone never comes back. Of one that was only looked for in the wrong place, this is all that is known: anybody
        may write the UID of an object that exists into a reference with another name or in another namespace."""
        if isinstance(owner, tuple) and sum(map(len, (*_words(owner[0]), owner[0].uid))) > LONGEST_REMEMBERED:
            return
        self._absent[owner] = None
        if len(self._absent) > REMEMBERED_ABSENT_OWNERS:
            self._absent.popitem(last=False)


def _item(kind: Kind[Any], metadata: ObjectMeta) -> ObjectIdentity:
    return ObjectIdentity(kind.row.group, kind.name, metadata.namespace, metadata.name, metadata.uid)


def _owner_item(reference: OwnerReference, owner: ObjectMeta) -> ObjectIdentity:
    group, slash, _ = reference.api_version.partition("/")
    return ObjectIdentity(group if slash else "", reference.kind, owner.namespace, owner.name, owner.uid)


def _settle_s(metadata: ObjectMeta) -> float:
    return HELD_S if metadata.finalizers else SETTLE_S


def _was_let_go(old: ApiObject, new: ApiObject) -> bool:
    return bool(old.metadata.finalizers) and not new.metadata.finalizers


def _waits_for_dependents(metadata: ObjectMeta) -> bool:
    return metadata.deletion_timestamp is not None and FOREGROUND in metadata.finalizers


def _policy(metadata: ObjectMeta) -> str:
    """A finalizer that the object already carries says what its own dependents are to expect."""
    if ORPHAN in metadata.finalizers:
        return "Orphan"
    return "Foreground" if FOREGROUND in metadata.finalizers else "Background"


def _words(reference: OwnerReference) -> tuple[str, str, str]:
    return reference.api_version, reference.kind, reference.name
