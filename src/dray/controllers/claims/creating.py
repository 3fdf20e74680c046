"""From template entries of a pod or group to claims: find what is there, make what is missing, record it."""

from __future__ import annotations

import logging
from typing import Any

from dray.api.core import Pod, PodResourceClaim
from dray.api.meta import ObjectMeta, OwnerReference
from dray.api.resource import POD_CLAIM_NAME_ANNOTATION, ResourceClaim, ResourceClaimTemplate
from dray.api.workloads import PodGroup
from dray.client import (
    CLAIMS,
    POD_GROUPS,
    PODS,
    WARNING,
    ApiError,
    Client,
    Hopeless,
    Informer,
    Kind,
    MutationCache,
    Recorder,
    ServerUnreachable,
    reference_to,
)
from dray.controllers.claims.groups import GroupMissing, Groups
from dray.controllers.claims.metrics import ClaimMetrics
from dray.controllers.claims.names import generate_name
from dray.controllers.claims.pods import (
    ClaimOwner,
    NoKnownSource,
    claim_name,
    is_owned_by,
    is_shared,
    owner_kind,
)
from dray.controllers.claims.reserving import ClaimReserver
from dray.features import FeatureGates

log = logging.getLogger(__name__)

FIELD_MANAGER = "ResourceClaimController"
FAILED_CREATION = "FailedResourceClaimCreation"
BY_CONTROLLER = "controller"


class ClaimNotMade(Exception):
    """A claim could not be made now; the owner's events say why, and the key is tried again."""


class ClaimMaker:
    """One pod or group at a time. Claims are looked up in our own writes, then in the informer, then on the server."""

    def __init__(
        self,
        client: Client,
        claims: MutationCache[ResourceClaim],
        templates: Informer[ResourceClaimTemplate],
        groups: Groups,
        recorder: Recorder,
        gates: FeatureGates,
        metrics: ClaimMetrics,
    ) -> None:
        self._client = client
        self._claims = claims
        self._templates = templates
        self._groups = groups
        self._recorder = recorder
        self._gates = gates
        self._metrics = metrics
        self._reserver = ClaimReserver(client, claims)

    async def sync_pod(self, pod: Pod) -> None:
        if pod.metadata.deletion_timestamp is not None:
            return
        try:
            group = self._groups.of(pod)
        except GroupMissing as error:
            self._recorder.event(reference_to(PODS, pod), WARNING, FAILED_CREATION, str(error))
            raise
        new_names = await self._ensure_claims(pod, group)
        if new_names:
            await self._record(PODS, pod, new_names)
        if pod.spec.node_name:
            await self._reserver.reserve(pod, group, new_names)

    async def sync_group(self, group: PodGroup) -> None:
        if group.metadata.deletion_timestamp is not None or not self._groups.share_claims:
            return
        new_names = await self._ensure_claims(group, None)
        if new_names:
            await self._record(_kind_of(group), group, new_names)

    async def _ensure_claims(self, owner: ClaimOwner, group: PodGroup | None) -> dict[str, str]:
        """The names that the owner's status does not hold yet, by entry. Stops at the first entry that fails."""
        new_names: dict[str, str] = {}
        for entry in owner.spec.resource_claims:
            try:
                if group is not None and is_shared(entry, group):
                    name = self._shared_claim(owner, group, entry)
                else:
                    name = await self._ensure_claim(owner, entry, group)
            except (ClaimNotMade, Hopeless, ApiError, ServerUnreachable) as error:
                message = f"{owner_kind(owner)}ResourceClaim {entry.name}: {error}"
                self._recorder.event(reference_to(_kind_of(owner), owner), WARNING, FAILED_CREATION, message)
                raise
            if name is not None:
                new_names[entry.name] = name
        return new_names

    def _shared_claim(self, owner: ClaimOwner, group: PodGroup, entry: PodResourceClaim) -> str | None:
        """The group's claim, as far as it is known and not recorded yet. Making it is the group's business."""
        if not self._groups.share_claims:
            raise Hopeless(
                f"claim {entry.name} is a PodGroup claim but the DRAWorkloadResourceClaims feature is disabled"
            )
        known = claim_name(group, entry)
        return known.name if known.is_generated and known.name != claim_name(owner, entry).name else None

    async def _ensure_claim(self, owner: ClaimOwner, entry: PodResourceClaim, group: PodGroup | None) -> str | None:
        """The name of a claim that the owner's status does not hold yet; None if there is nothing to record."""
        try:
            known = claim_name(owner, entry)
        except NoKnownSource as error:
            raise ClaimNotMade(f"checking for claim before creating it: {error}") from None
        if not known.is_generated or (known.is_recorded and known.name is None):
            return None
        if known.name is not None and await self._exists_for(owner, known.name, group):
            return None
        claim = self._orphan(owner, entry.name)
        if claim is None:
            claim = await self._create(owner, entry)
            self._claims.remember(claim)
            log.debug("claim %s/%s made for %s", claim.metadata.namespace, claim.metadata.name, owner.metadata.name)
        return claim.metadata.name

    async def _exists_for(self, owner: ClaimOwner, name: str, group: PodGroup | None) -> bool:
        """Is the recorded claim there and the owner's own? A claim of somebody else is never used."""
        namespace = owner.metadata.namespace
        claim = self._claims.get(f"{namespace}/{name}")
        if claim is None:
            try:
                claim = await self._client.find(CLAIMS, name, namespace)
            except (ApiError, ServerUnreachable) as error:
                raise ClaimNotMade(f"checking claim existence: {error}") from error
        if claim is None:
            return False
        if not is_owned_by(claim, owner):
            who = owner_kind(owner)
            why = f"neither {who} nor PodGroup {group.metadata.name} is the owner" if group else f"{who} is not owner"
            where = f"{namespace}/{name} was not created for {who} {namespace}/{owner.metadata.name}"
            log.info("ResourceClaim %s (%s)", where, why)
            return False
        return True

    def _orphan(self, owner: ClaimOwner, entry_name: str) -> ResourceClaim | None:
        """A claim made for this entry whose name never reached the owner's status, because somebody died in between."""
        for claim in self._claims.by_index(BY_CONTROLLER, owner.metadata.uid):
            is_alive = claim.metadata.deletion_timestamp is None
            if is_alive and claim.metadata.annotations.get(POD_CLAIM_NAME_ANNOTATION) == entry_name:
                return claim
        return None

    async def _create(self, owner: ClaimOwner, entry: PodResourceClaim) -> ResourceClaim:
        claim = claim_from_template(owner, entry.name, self._template(owner, entry))
        admin_access = self._metrics.admin_access(claim)
        try:
            created = await self._client.create(CLAIMS, claim)
        except ApiError as error:
            self._metrics.created(owner, success=False, admin_access=admin_access)
            raise ClaimNotMade(f"create ResourceClaim : {error}") from error
        self._metrics.created(owner, success=True, admin_access=admin_access)
        return created

    def _template(self, owner: ClaimOwner, entry: PodResourceClaim) -> ResourceClaimTemplate:
        name = entry.resource_claim_template_name or ""
        template = self._templates.get(f"{owner.metadata.namespace}/{name}")
        if template is None:
            missing = f'resourceclaimtemplate.resource.k8s.io "{name}" not found'
            raise ClaimNotMade(f'resource claim template "{name}": {missing}')
        requests = template.spec.spec.devices.requests
        if not self._gates.enabled("DRAAdminAccess") and any(r.exactly and r.exactly.admin_access for r in requests):
            raise ClaimNotMade("admin access is requested, but the feature is disabled")
        if not self._gates.enabled("DRAPrioritizedList") and any(r.first_available for r in requests):
            raise ClaimNotMade("template includes a prioritized list of subrequests, but the feature is disabled")
        return template

    async def _record(self, kind: Kind[Any], owner: ClaimOwner, new_names: dict[str, str]) -> None:
        """One apply with every entry: leaving out the old ones would take them away."""
        names = {s.name: s.resource_claim_name for s in owner.status.resource_claim_statuses if s.resource_claim_name}
        names |= new_names
        metadata = owner.metadata
        document = {
            "metadata": {"namespace": metadata.namespace, "name": metadata.name, "uid": metadata.uid},
            "status": {
                "resourceClaimStatuses": [
                    {"name": entry, "resourceClaimName": name} for entry, name in sorted(names.items())
                ]
            },
        }
        try:
            await self._client.apply(kind, document, field_manager=FIELD_MANAGER, force=True, subresource="status")
        except ApiError as error:
            if error.is_not_found:
                return
            where = f"{metadata.namespace}/{metadata.name}"
            word = "pod" if isinstance(owner, Pod) else "podgroup"
            raise ClaimNotMade(f"update {word} {where} ResourceClaimStatuses: {error}") from error


def claim_from_template(owner: ClaimOwner, entry_name: str, template: ResourceClaimTemplate) -> ResourceClaim:
    uid, name = owner.metadata.uid, owner.metadata.name
    reference = OwnerReference(
        api_version=owner.api_version, kind=owner_kind(owner), name=name, uid=uid, controller=True
    )
    metadata = ObjectMeta(
        generate_name=generate_name(name, entry_name),
        namespace=owner.metadata.namespace,
        labels=dict(template.spec.metadata.labels),
        annotations={**template.spec.metadata.annotations, POD_CLAIM_NAME_ANNOTATION: entry_name},
        owner_references=(reference,),
    )
    return ResourceClaim(metadata=metadata, spec=template.spec.spec)


def _kind_of(owner: ClaimOwner) -> Kind[Any]:
    if isinstance(owner, Pod):
        return PODS
    return POD_GROUPS.at_version(owner.api_version.rpartition("/")[2])
