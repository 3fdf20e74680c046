"""The ResourceClaim controller: decides which pods, groups and claims to handle when something changes, and releases claims.

A release drops users that are over, deallocates unused claims, and deletes generated ones. `creating` serves pods and groups.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

import msgspec

from dray.api.core import Pod, PodResourceClaim
from dray.api.dra.claim_users import (
    GROUP_API,
    GROUP_RESOURCE,
    controller_uid,
    group_name,
    is_claim_of_group,
    is_owned_by,
    is_reserved_for,
    with_users,
)
from dray.api.dra.pod_claims import (
    ClaimOwner,
    ClaimSource,
    claim_names,
    claim_names_of_entries,
    claim_of_entry,
    uses_claims,
)
from dray.api.dra.pod_phase import is_over
from dray.api.resource import CLAIM_FINALIZER, ResourceClaim, ResourceClaimConsumerReference, ResourceClaimTemplate
from dray.api.workloads import PodGroup
from dray.client import (
    CLAIMS,
    PODS,
    TEMPLATES,
    ApiError,
    Client,
    EventRecorder,
    Handler,
    Hopeless,
    Informer,
    Kind,
    MutationCache,
    Recorder,
    WorkQueue,
    object_key,
)
from dray.controllers.claims.creating import BY_CONTROLLER, ClaimCreator, ClaimMetrics, GroupLookup
from dray.controllers.context import ControllerContext
from dray.telemetry import VerboseLog

decisions = VerboseLog(__name__)

# A whole deployment may go at once; each pod that is remembered saves a question to the server.
REMEMBERED_UIDS = 10_000


class DeletedUids:
    """UIDs of pods and groups that were deleted while we watched, so that the server is asked only in other cases."""

    def __init__(self, limit: int = REMEMBERED_UIDS) -> None:
        self._limit = limit
        self._uids: OrderedDict[str, None] = OrderedDict()

    def add(self, uid: str) -> None:
        self._uids[uid] = None
        self._uids.move_to_end(uid)
        if len(self._uids) > self._limit:
            self._uids.popitem(last=False)

    def __contains__(self, uid: str) -> bool:
        return uid in self._uids


class ClaimNotReleased(Exception):
    """A claim could not be cleaned up now; the key is tried again."""


class ClaimReleaser:
    """One claim at a time. Every write carries the resourceVersion it was decided on; a conflict starts over."""

    def __init__(
        self,
        client: Client,
        pods: Informer[Pod],
        groups: GroupLookup,
        claims: MutationCache[ResourceClaim],
        deleted: DeletedUids,
    ) -> None:
        self._client = client
        self._pods = pods
        self._groups = groups
        self._claims = claims
        self._deleted = deleted
        # Claims we deleted: until the watch shows it, they look as if they still were to be.
        self._deleted_claims = DeletedUids()

    def concerns(self, claim: ResourceClaim) -> bool:
        """Whether there may be something to do, by the informers' copies. Most changes of a claim need nothing here."""
        namespace, consumers = claim.metadata.namespace, claim.status.reserved_for
        if consumers:
            return not all(self._is_known_alive(item, namespace) for item in consumers)
        is_locked = claim.metadata.deletion_timestamp is not None and _is_protected(claim)
        return is_locked or self._is_over(claim)

    def _is_known_alive(self, consumer: ResourceClaimConsumerReference, namespace: str) -> bool:
        if consumer.api_group or consumer.resource != "pods":
            return not _is_group(consumer)
        if consumer.uid in self._deleted:
            return False
        pod = self._pods.get(f"{namespace}/{consumer.name}")
        return pod is not None and pod.metadata.uid == consumer.uid and not is_over(pod)

    async def sync(self, claim: ResourceClaim) -> None:
        consumers = [item for item in claim.status.reserved_for if await self._is_alive(item, claim.metadata.namespace)]
        if len(consumers) < len(claim.status.reserved_for):
            claim = await self._drop_consumers(claim, consumers)
        elif claim.metadata.deletion_timestamp is not None and not consumers and _is_protected(claim):
            claim = await self._unprotect(await self._deallocate(claim))
        if not consumers:
            await self._delete_if_over(claim)

    async def _is_alive(self, consumer: ResourceClaimConsumerReference, namespace: str) -> bool:
        """Does this consumer still need the claim? A consumer of an unknown kind is kept."""
        if _is_group(consumer):
            return await self._is_group_alive(consumer, namespace)
        if consumer.api_group or consumer.resource != "pods":
            return True
        if consumer.uid in self._deleted:
            return False
        pod = self._pods.get(f"{namespace}/{consumer.name}")
        if pod is None:
            # The scheduler may know of pods that our watch has not shown yet: ask before dropping.
            pod = await self._client.find(PODS, consumer.name, namespace)
            return pod is not None and pod.metadata.uid == consumer.uid
        return pod.metadata.uid == consumer.uid and not is_over(pod)

    async def _is_group_alive(self, consumer: ResourceClaimConsumerReference, namespace: str) -> bool:
        """A group needs its claims for as long as it exists."""
        informer = self._groups.informer
        if informer is None or not self._groups.share_claims:
            return True
        if consumer.uid in self._deleted:
            return False
        group = informer.get(f"{namespace}/{consumer.name}")
        if group is None:
            group = await self._client.find(informer.kind, consumer.name, namespace)
        return group is not None and group.metadata.uid == consumer.uid

    async def _drop_consumers(
        self, claim: ResourceClaim, consumers: list[ResourceClaimConsumerReference]
    ) -> ResourceClaim:
        """Deallocating goes with dropping the last consumer, in one write; the finalizer needs a second."""
        decisions.say(5, "Dropping users of claim", claim=claim, left=len(consumers))
        claim = with_users(claim, consumers)
        if not consumers and _is_protected(claim):
            claim = _without_allocation(claim)
        claim = await self._write_status(claim)
        if not consumers and claim.status.allocation is None and _is_protected(claim):
            claim = await self._unprotect(claim)
        return claim

    async def _deallocate(self, claim: ResourceClaim) -> ResourceClaim:
        if claim.status.allocation is None:
            return claim
        decisions.say(5, "Deallocating claim", claim=claim)
        return await self._write_status(_without_allocation(claim))

    async def _unprotect(self, claim: ResourceClaim) -> ResourceClaim:
        finalizers = tuple(item for item in claim.metadata.finalizers if item != CLAIM_FINALIZER)
        metadata = msgspec.structs.replace(claim.metadata, finalizers=finalizers)
        updated = await self._client.update(CLAIMS, msgspec.structs.replace(claim, metadata=metadata))
        if finalizers or updated.metadata.deletion_timestamp is None:
            self._claims.remember(updated)
        return updated

    async def _write_status(self, claim: ResourceClaim) -> ResourceClaim:
        updated = await self._client.update_status(CLAIMS, claim)
        self._claims.remember(updated)
        return updated

    def _is_over(self, claim: ResourceClaim) -> bool:
        """A claim made for a pod goes when that pod is finished. Without its pod the garbage collector takes it."""
        metadata = claim.metadata
        owner = next((ref for ref in metadata.owner_references if ref.controller), None)
        if owner is None or (owner.api_version, owner.kind) != ("v1", "Pod") or metadata.deletion_timestamp is not None:
            return False
        if metadata.uid in self._deleted_claims:
            return False
        pod = self._pods.get(f"{metadata.namespace}/{owner.name}")
        return pod is not None and (pod.metadata.uid != owner.uid or is_over(pod))

    async def _delete_if_over(self, claim: ResourceClaim) -> None:
        if not self._is_over(claim):
            return
        metadata = claim.metadata
        decisions.say(5, "Deleting generated claim whose pod is over", claim=claim)
        try:
            await self._client.delete(CLAIMS, metadata.name, metadata.namespace, uid=metadata.uid)
        except ApiError as error:
            if not error.is_not_found:
                where = f"{metadata.namespace}/{metadata.name}"
                raise ClaimNotReleased(f"delete unused generated claim {where}: {error}") from error
        self._deleted_claims.add(metadata.uid)


def _without_allocation(claim: ResourceClaim) -> ResourceClaim:
    return msgspec.structs.replace(claim, status=msgspec.structs.replace(claim.status, allocation=None))


def _is_protected(claim: ResourceClaim) -> bool:
    return CLAIM_FINALIZER in claim.metadata.finalizers


def _is_group(consumer: ResourceClaimConsumerReference) -> bool:
    return (consumer.api_group, consumer.resource) == (GROUP_API, GROUP_RESOURCE)


POD_KEY, CLAIM_KEY, GROUP_KEY = "pod", "claim", "podgroup"
BY_CLAIM, BY_TEMPLATE, BY_GROUP = "resource claim", "resource claim template", "pod group"
DEFAULT_WORKERS = 50


class ClaimController:
    name = "resourceclaim-controller"

    def __init__(
        self,
        context: ControllerContext,
        *,
        workers: int = DEFAULT_WORKERS,
        recorder: Recorder | None = None,
        groups: Kind[PodGroup] | None = None,
    ) -> None:
        """`groups` is the kind of pod groups in the version that the server has, if it has any."""
        if workers <= 0:
            raise ValueError(f"concurrent-resourceclaim-syncs must be larger than 0, got {workers}")
        client = context.client.named("resource-claim-controller")
        informers = context.informers
        self._workers = workers
        self._informers = informers
        self._pods = informers.of(PODS)
        self._pods.add_indexer(BY_CLAIM, _claims_of)
        self._pods.add_indexer(BY_TEMPLATE, _templates_of)
        claims, templates = informers.of(CLAIMS), informers.of(TEMPLATES)
        follows_groups = groups is not None and context.gates.enabled("GenericWorkload")
        self._groups = GroupLookup(
            informers.of(groups) if groups is not None and follows_groups else None, context.gates
        )
        claims.add_indexer(BY_CONTROLLER, _controller_of)
        self.queue: WorkQueue[str] = WorkQueue("resource_claim", clock=context.clock, registry=context.registry)
        self.deleted = DeletedUids()
        self.claims = MutationCache(claims, context.clock)
        self._recorder = recorder or EventRecorder(client, "resource_claim")
        metrics = ClaimMetrics(context.registry, claims)
        self._creator = ClaimCreator(
            client, self.claims, templates, self._groups, self._recorder, context.gates, metrics
        )
        self._releaser = ClaimReleaser(client, self._pods, self._groups, self.claims, self.deleted)
        self._pods.add_handler(Handler(self._pod_seen, lambda _, new: self._pod_seen(new), self._pod_gone))
        claims.add_handler(Handler(self._claim_seen, self._claim_changed, self._look_at_users))
        templates.add_handler(Handler(self._template_seen, lambda _, new: self._template_seen(new)))
        if self._groups.informer is not None:
            self._follow_groups(self._groups.informer)

    def _follow_groups(self, groups: Informer[PodGroup]) -> None:
        self._pods.add_indexer(BY_GROUP, _group_of)
        groups.add_indexer(BY_CLAIM, _claims_of)
        groups.add_indexer(BY_TEMPLATE, _templates_of)
        groups.add_handler(Handler(self._group_seen, lambda _, new: self._group_seen(new), self._group_gone))

    async def run(self) -> None:
        await self._informers.synced()
        await self.queue.run(self.sync, self._workers)

    async def sync(self, key: str) -> None:
        prefix, colon, name = key.partition(":")
        if not colon:
            raise Hopeless(f"unexpected key: {key}")
        if prefix == POD_KEY:
            pod = self._pods.get(name)
            if pod is not None:
                await self._creator.sync_pod(pod)
        elif prefix == GROUP_KEY:
            group = self._groups.informer.get(name) if self._groups.informer is not None else None
            if group is not None:
                await self._creator.sync_group(group)
        elif prefix == CLAIM_KEY:
            claim = self.claims.get(name)
            if claim is not None:
                await self._releaser.sync(claim)
        else:
            raise Hopeless(f"unexpected key prefix: {prefix}")

    # --- triggers

    def _claim_seen(self, claim: ResourceClaim) -> None:
        if self._releaser.concerns(claim):
            self.queue.add(f"{CLAIM_KEY}:{object_key(claim)}")
        self._look_at_users(claim)

    def _claim_changed(self, old: ResourceClaim, new: ResourceClaim) -> None:
        metadata = new.metadata
        is_same = old.status == new.status and old.metadata.owner_references == metadata.owner_references
        if is_same and metadata.deletion_timestamp is None and old is not new:
            return  # as with the finalizer that comes before an allocation
        self._claim_seen(new)

    def _look_at_users(self, claim: ResourceClaim) -> None:
        self._look_again(BY_CLAIM, object_key(claim))

    def _template_seen(self, template: ResourceClaimTemplate) -> None:
        self._look_again(BY_TEMPLATE, object_key(template))

    def _look_again(self, index: str, key: str) -> None:
        for pod in self._pods.by_index(index, key):
            self._pod_seen(pod)
        if self._groups.informer is not None:
            for group in self._groups.informer.by_index(index, key):
                if self._group_needs_work(group):
                    self.queue.add(f"{GROUP_KEY}:{object_key(group)}")

    def _group_seen(self, group: PodGroup) -> None:
        if self._group_needs_work(group):
            self.queue.add(f"{GROUP_KEY}:{object_key(group)}")
        for pod in self._pods.by_index(BY_GROUP, object_key(group)):
            self._pod_seen(pod)

    def _group_gone(self, group: PodGroup) -> None:
        if group.spec.resource_claims:
            self.deleted.add(group.metadata.uid)
            for key in _claims_of(group):
                self.queue.add(f"{CLAIM_KEY}:{key}")

    def _pod_gone(self, pod: Pod) -> None:
        if uses_claims(pod):
            self.deleted.add(pod.metadata.uid)
            self._look_at_claims(pod)

    def _pod_seen(self, pod: Pod) -> None:
        if not uses_claims(pod):
            return
        if is_over(pod):
            self._look_at_claims(pod)
        elif self._needs_work(pod):
            self.queue.add(f"{POD_KEY}:{object_key(pod)}")

    def _look_at_claims(self, pod: Pod) -> None:
        for name in claim_names(pod):
            self.queue.add(f"{CLAIM_KEY}:{pod.metadata.namespace}/{name}")

    def _needs_work(self, pod: Pod) -> bool:
        if pod.metadata.deletion_timestamp is not None:
            return False
        group = self._groups.cached(pod)
        return any(
            self._lacks_shared(pod, entry, group)
            if group is not None and is_claim_of_group(entry, group)
            else self._lacks(pod, entry)
            for entry in pod.spec.resource_claims
        )

    def _group_needs_work(self, group: PodGroup) -> bool:
        is_going = group.metadata.deletion_timestamp is not None
        return not is_going and any(self._lacks(group, entry) for entry in group.spec.resource_claims)

    def _lacks(self, owner: ClaimOwner, entry: PodResourceClaim) -> bool:
        known = claim_of_entry(owner, entry)
        if known.source is ClaimSource.UNKNOWN:
            return True  # The sync tells the user.
        if not known.is_recorded:
            return True
        if not known.claim_name:
            return False
        claim = self.claims.get(f"{owner.metadata.namespace}/{known.claim_name}")
        if claim is None:
            return known.is_generated  # Another one its user has to make.
        if known.is_generated and not is_owned_by(claim, owner):
            return True
        return isinstance(owner, Pod) and _is_unreserved(claim, owner, owner)

    def _lacks_shared(self, pod: Pod, entry: PodResourceClaim, group: PodGroup) -> bool:
        """The group makes its claims; a pod only has to know their names and, if placed by hand, be let in."""
        if not self._groups.share_claims:
            return True  # The sync tells the user.
        shared = claim_of_entry(group, entry).claim_name
        if not shared:
            return False
        claim = self.claims.get(f"{pod.metadata.namespace}/{shared}")
        return claim_of_entry(pod, entry).claim_name != shared or (
            claim is not None and _is_unreserved(claim, pod, group)
        )


def _is_unreserved(claim: ResourceClaim, pod: Pod, user: ClaimOwner) -> bool:
    return (
        bool(pod.spec.node_name)
        and claim.status.allocation is not None
        and not is_reserved_for(claim, user.metadata.uid)
    )


def _claims_of(owner: ClaimOwner) -> Iterable[str]:
    return [f"{owner.metadata.namespace}/{name}" for name in claim_names_of_entries(owner)]


def _templates_of(owner: ClaimOwner) -> Iterable[str]:
    namespace = owner.metadata.namespace
    return [
        f"{namespace}/{entry.resource_claim_template_name}"
        for entry in owner.spec.resource_claims
        if entry.resource_claim_template_name is not None
    ]


def _group_of(pod: Pod) -> Iterable[str]:
    name = group_name(pod) if pod.spec.resource_claims else None
    return (f"{pod.metadata.namespace}/{name}",) if name else ()


def _controller_of(claim: ResourceClaim) -> Iterable[str]:
    uid = controller_uid(claim)
    return (uid,) if uid else ()
