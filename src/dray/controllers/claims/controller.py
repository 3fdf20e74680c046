"""The ResourceClaim controller: which change makes which pod or claim worth a look."""

from __future__ import annotations

from collections.abc import Iterable

from dray.api.core import Pod
from dray.api.resource import ResourceClaim, ResourceClaimTemplate
from dray.client import (
    CLAIMS,
    PODS,
    TEMPLATES,
    EventRecorder,
    Handler,
    Hopeless,
    OwnWrites,
    Recorder,
    WorkQueue,
    object_key,
)
from dray.controllers.claims.creating import BY_CONTROLLER, ClaimMaker
from dray.controllers.claims.metrics import ClaimMetrics
from dray.controllers.claims.pods import (
    NoKnownSource,
    claim_name,
    controller_uid,
    is_done,
    is_for_pod,
    is_reserved_for,
    known_claim_names,
    released_claim_names,
    uses_claims,
)
from dray.controllers.claims.releasing import ClaimReleaser, DeletedUids
from dray.controllers.context import Context

POD_KEY, CLAIM_KEY = "pod", "claim"
BY_CLAIM, BY_TEMPLATE = "resource claim", "resource claim template"
DEFAULT_WORKERS = 50


class ClaimController:
    name = "resourceclaim-controller"

    def __init__(self, context: Context, *, workers: int = DEFAULT_WORKERS, recorder: Recorder | None = None) -> None:
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
        claims.add_indexer(BY_CONTROLLER, _controller_of)
        self.queue: WorkQueue[str] = WorkQueue("resource_claim", clock=context.clock, registry=context.registry)
        self.deleted = DeletedUids()
        self.claims = OwnWrites(claims, context.clock)
        self._recorder = recorder or EventRecorder(client, "resource_claim")
        metrics = ClaimMetrics(context.registry, claims)
        self._maker = ClaimMaker(client, self.claims, templates, self._recorder, context.gates, metrics)
        self._releaser = ClaimReleaser(client, self._pods, self.claims, self.deleted)
        self._pods.add_handler(Handler(self._pod_seen, lambda _, new: self._pod_seen(new), self._pod_gone))
        claims.add_handler(Handler(self._claim_seen, lambda _, new: self._claim_seen(new), self._look_at_users))
        templates.add_handler(Handler(self._template_seen, lambda _, new: self._template_seen(new)))

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
                await self._maker.sync(pod)
        elif prefix == CLAIM_KEY:
            claim = self.claims.get(name)
            if claim is not None:
                await self._releaser.sync(claim)
        else:
            raise Hopeless(f"unexpected key prefix: {prefix}")

    # --- triggers

    def _claim_seen(self, claim: ResourceClaim) -> None:
        self.queue.add(f"{CLAIM_KEY}:{object_key(claim)}")
        self._look_at_users(claim)

    def _look_at_users(self, claim: ResourceClaim) -> None:
        for pod in self._pods.by_index(BY_CLAIM, object_key(claim)):
            self._pod_seen(pod)

    def _template_seen(self, template: ResourceClaimTemplate) -> None:
        for pod in self._pods.by_index(BY_TEMPLATE, object_key(template)):
            self._pod_seen(pod)

    def _pod_gone(self, pod: Pod) -> None:
        if uses_claims(pod):
            self.deleted.add(pod.metadata.uid)
            self._look_at_claims(pod)

    def _pod_seen(self, pod: Pod) -> None:
        if not uses_claims(pod):
            return
        if is_done(pod):
            self._look_at_claims(pod)
        elif self._needs_work(pod):
            self.queue.add(f"{POD_KEY}:{object_key(pod)}")

    def _look_at_claims(self, pod: Pod) -> None:
        for name in released_claim_names(pod):
            self.queue.add(f"{CLAIM_KEY}:{pod.metadata.namespace}/{name}")

    def _needs_work(self, pod: Pod) -> bool:
        if pod.metadata.deletion_timestamp is not None:
            return False
        for entry in pod.spec.resource_claims:
            try:
                known = claim_name(pod, entry)
            except NoKnownSource:
                return True  # The sync tells the user.
            if not known.is_recorded:
                return True
            if known.name is None:
                continue
            claim = self.claims.get(f"{pod.metadata.namespace}/{known.name}")
            if claim is None:
                if known.is_generated:
                    return True
                continue  # Its user has to make it.
            if known.is_generated and not is_for_pod(claim, pod):
                return True
            if pod.spec.node_name and claim.status.allocation is not None and not is_reserved_for(claim, pod):
                return True
        return False


def _claims_of(pod: Pod) -> Iterable[str]:
    return [f"{pod.metadata.namespace}/{name}" for name in known_claim_names(pod)]


def _templates_of(pod: Pod) -> Iterable[str]:
    namespace = pod.metadata.namespace
    names = (entry.resource_claim_template_name for entry in pod.spec.resource_claims)
    return [f"{namespace}/{name}" for name in names if name is not None]


def _controller_of(claim: ResourceClaim) -> Iterable[str]:
    uid = controller_uid(claim)
    return (uid,) if uid else ()
