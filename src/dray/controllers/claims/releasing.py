"""Releases claims: drops users that are over, deallocates unused claims, and deletes generated ones."""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from dray.api.core import Pod
from dray.api.dra.claim_users import GROUP_API, GROUP_RESOURCE, with_users
from dray.api.dra.pod_phase import is_over
from dray.api.resource import CLAIM_FINALIZER, ResourceClaim, ResourceClaimConsumerReference
from dray.client import CLAIMS, PODS, ApiError, Client, Informer, MutationCache
from dray.controllers.claims.creating import GroupLookup
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
