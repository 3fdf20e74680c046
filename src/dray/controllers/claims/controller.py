"""The ResourceClaim controller: decides which pods, groups and claims to handle when something changes."""

from __future__ import annotations

from collections.abc import Iterable

from dray.api.core import Pod, PodResourceClaim
from dray.api.dra.claim_users import controller_uid, group_name, is_claim_of_group, is_owned_by, is_reserved_for
from dray.api.dra.pod_claims import (
    ClaimOwner,
    ClaimSource,
    claim_names,
    claim_names_of_entries,
    claim_of_entry,
    uses_claims,
)
from dray.api.dra.pod_phase import is_over
from dray.api.resource import ResourceClaim, ResourceClaimTemplate
from dray.api.workloads import PodGroup
from dray.client import (
    CLAIMS,
    PODS,
    TEMPLATES,
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
from dray.controllers.claims.creating import BY_CONTROLLER, ClaimCreator, GroupLookup
from dray.controllers.claims.metrics import ClaimMetrics
from dray.controllers.claims.releasing import ClaimReleaser, DeletedUids
from dray.controllers.context import ControllerContext

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
        claims.add_handler(Handler(self._claim_seen, lambda _, new: self._claim_seen(new), self._look_at_users))
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
    names = (entry.resource_claim_template_name for entry in owner.spec.resource_claims)
    return [f"{namespace}/{name}" for name in names if name is not None]


def _group_of(pod: Pod) -> Iterable[str]:
    name = group_name(pod) if pod.spec.resource_claims else None
    return (f"{pod.metadata.namespace}/{name}",) if name else ()


def _controller_of(claim: ResourceClaim) -> Iterable[str]:
    uid = controller_uid(claim)
    return (uid,) if uid else ()
