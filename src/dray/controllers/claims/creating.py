"""Makes the claims that a pod or group lists from their templates, records their names, reserves them if needed, and counts them.

The metrics of the controller have today's names and those of KEP-4381.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from typing import Any

from dray.api.core import Pod, PodResourceClaim
from dray.api.dra.claim_users import (
    GROUP_API,
    consumer_reference,
    group_name,
    is_claim_of_group,
    is_owned_by,
    is_reserved_for,
    with_users,
)
from dray.api.dra.pod_claims import (
    ClaimOwner,
    ClaimSource,
    claim_from_template,
    claim_of_entry,
    claim_records,
    owner_kind,
    recorded_claims,
)
from dray.api.resource import (
    EXTENDED_RESOURCE_CLAIM_ANNOTATION,
    POD_CLAIM_NAME_ANNOTATION,
    ResourceClaim,
    ResourceClaimTemplate,
)
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
from dray.features import FeatureGates
from dray.telemetry import Registry, Sample, VerboseLog

CREATES = "dynamic_resource_allocation_resourceclaim_creates_total"
CLAIMS_GAUGE = "dynamic_resource_allocation_resource_claims"


class ClaimMetrics:
    """Counters are kept; gauges are computed from the informer when somebody looks."""

    def __init__(self, registry: Registry, claims: Informer[ResourceClaim]) -> None:
        self._claims = claims
        labels = ("status", "admin_access", "owner_api_group", "owner_api_kind")
        self._creates = registry.counter(CREATES, "Number of ResourceClaims creation requests", labels)
        self._kep_creates = registry.counter(
            "resourceclaim_controller_create_total", "Number of ResourceClaims creation requests"
        )
        self._kep_failures = registry.counter(
            "resourceclaim_controller_create_failures_total", "Number of ResourceClaims creation request failures"
        )
        registry.computed_gauge(CLAIMS_GAUGE, "Number of ResourceClaims", self._by_state)
        registry.computed_gauge(
            "resourceclaim_controller_resource_claims", "Number of ResourceClaims", lambda: [({}, len(claims))]
        )
        registry.computed_gauge(
            "resourceclaim_controller_allocated_resource_claims",
            "Number of allocated ResourceClaims",
            lambda: [({}, sum(claim.status.allocation is not None for claim in claims))],
        )

    def created(self, owner: ClaimOwner, *, success: bool, admin_access: str) -> None:
        group = "" if isinstance(owner, Pod) else GROUP_API
        self._creates.inc("success" if success else "failure", admin_access, group, owner_kind(owner))
        self._kep_creates.inc()
        if not success:
            self._kep_failures.inc()

    def _by_state(self) -> Iterable[Sample]:
        counts = Counter(
            (_text(claim.status.allocation is not None), self.admin_access(claim), source(claim))
            for claim in self._claims
        )
        for (allocated, admin_access, made_by), count in sorted(counts.items()):
            yield {"allocated": allocated, "admin_access": admin_access, "source": made_by}, count

    @staticmethod
    def admin_access(claim: ResourceClaim | None) -> str:
        """Alternatives of a prioritized list cannot ask for it."""
        requests = claim.spec.devices.requests if claim is not None else ()
        return _text(any(request.exactly and request.exactly.admin_access for request in requests))


def source(claim: ResourceClaim) -> str:
    annotations = claim.metadata.annotations
    if POD_CLAIM_NAME_ANNOTATION in annotations:
        return "resource_claim_template"
    return "extended_resource" if annotations.get(EXTENDED_RESOURCE_CLAIM_ANNOTATION) == "true" else ""


def _text(value: bool) -> str:
    return "true" if value else "false"


class GroupMissing(Exception):
    """The pod's group does not exist yet; the pod is handled again when the group is created."""


class GroupLookup:
    """`informer` is None where the server does not serve pod groups, or where the feature is off."""

    def __init__(self, informer: Informer[PodGroup] | None, gates: FeatureGates) -> None:
        self.informer = informer
        self._gates = gates

    @property
    def share_claims(self) -> bool:
        return self.informer is not None and self._gates.enabled("DRAWorkloadResourceClaims")

    def cached(self, pod: Pod) -> PodGroup | None:
        name = group_name(pod)
        if name is None or self.informer is None:
            return None
        return self.informer.get(f"{pod.metadata.namespace}/{name}")

    def of(self, pod: Pod) -> PodGroup | None:
        """None for a pod that is in no group."""
        name = group_name(pod)
        if name is None:
            return None
        if not self._gates.enabled("GenericWorkload"):
            raise Hopeless(f"Pod is a member of PodGroup {name} but GenericWorkload feature is disabled")
        group = self.cached(pod)
        if group is None:
            raise GroupMissing(f'pod group "{name}": podgroup.{GROUP_API} "{name}" not found')
        return group


log = logging.getLogger(__name__)
decisions = VerboseLog(__name__)

FIELD_MANAGER = "ResourceClaimController"
FAILED_CREATION = "FailedResourceClaimCreation"
BY_CONTROLLER = "controller"


class ClaimNotCreated(Exception):
    """A claim could not be created now; the owner's events say why, and the key is tried again."""


class ClaimCreator:
    """One pod or group at a time. Claims are looked up in our own writes, then in the informer, then on the server."""

    def __init__(
        self,
        client: Client,
        claims: MutationCache[ResourceClaim],
        templates: Informer[ResourceClaimTemplate],
        groups: GroupLookup,
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
                if group is not None and is_claim_of_group(entry, group):
                    name = self._shared_claim(owner, group, entry)
                else:
                    name = await self._ensure_claim(owner, entry, group)
            except (ClaimNotCreated, Hopeless, ApiError, ServerUnreachable) as error:
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
        known = claim_of_entry(group, entry)
        is_recorded = known.claim_name == claim_of_entry(owner, entry).claim_name
        return known.claim_name or None if known.is_generated and not is_recorded else None

    async def _ensure_claim(self, owner: ClaimOwner, entry: PodResourceClaim, group: PodGroup | None) -> str | None:
        """The name of a claim that the owner's status does not hold yet; None if there is nothing to record."""
        known = claim_of_entry(owner, entry)
        if known.source is ClaimSource.UNKNOWN:
            word = "pod" if isinstance(owner, Pod) else "pod group"
            where = f'{word} "{owner.metadata.namespace}/{owner.metadata.name}", spec.resourceClaim "{entry.name}"'
            raise ClaimNotCreated(
                f"checking for claim before creating it: {where}: none of the supported fields are set"
            )
        if not known.is_generated or (known.is_recorded and not known.claim_name):
            return None
        if known.claim_name and await self._exists_for(owner, known.claim_name, group):
            return None
        claim = self._orphan(owner, entry.name)
        if claim is None:
            claim = await self._create(owner, entry)
            self._claims.remember(claim)
            decisions.say(4, "Created claim", claim=claim, owner=owner, entry=entry.name)
        return claim.metadata.name

    async def _exists_for(self, owner: ClaimOwner, name: str, group: PodGroup | None) -> bool:
        """Is the recorded claim there and the owner's own? A claim of somebody else is never used."""
        namespace = owner.metadata.namespace
        claim = self._claims.get(f"{namespace}/{name}")
        if claim is None:
            try:
                claim = await self._client.find(CLAIMS, name, namespace)
            except (ApiError, ServerUnreachable) as error:
                raise ClaimNotCreated(f"checking claim existence: {error}") from error
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
            if claim.metadata.namespace != owner.metadata.namespace:
                continue  # in other namespaces, anybody may have written the owner's UID
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
            raise ClaimNotCreated(f"create ResourceClaim : {error}") from error
        self._metrics.created(owner, success=True, admin_access=admin_access)
        return created

    def _template(self, owner: ClaimOwner, entry: PodResourceClaim) -> ResourceClaimTemplate:
        name = entry.resource_claim_template_name or ""
        template = self._templates.get(f"{owner.metadata.namespace}/{name}")
        if template is None:
            missing = f'resourceclaimtemplate.resource.k8s.io "{name}" not found'
            raise ClaimNotCreated(f'resource claim template "{name}": {missing}')
        requests = template.spec.spec.devices.requests
        if not self._gates.enabled("DRAAdminAccess") and any(r.exactly and r.exactly.admin_access for r in requests):
            raise ClaimNotCreated("admin access is requested, but the feature is disabled")
        if not self._gates.enabled("DRAPrioritizedList") and any(r.first_available for r in requests):
            raise ClaimNotCreated("template includes a prioritized list of subrequests, but the feature is disabled")
        return template

    async def _record(self, kind: Kind[Any], owner: ClaimOwner, new_names: dict[str, str]) -> None:
        """One apply with every entry: leaving out the old ones would take them away."""
        names = {entry: name for entry, name in recorded_claims(owner).items() if name} | new_names
        metadata = owner.metadata
        document = {
            "metadata": {"namespace": metadata.namespace, "name": metadata.name, "uid": metadata.uid},
            "status": claim_records(names),
        }
        try:
            await self._client.apply(kind, document, field_manager=FIELD_MANAGER, force=True, subresource="status")
        except ApiError as error:
            if error.is_not_found:
                return
            where = f"{metadata.namespace}/{metadata.name}"
            word = "pod" if isinstance(owner, Pod) else "podgroup"
            raise ClaimNotCreated(f"update {word} {where} ResourceClaimStatuses: {error}") from error


def _kind_of(owner: ClaimOwner) -> Kind[Any]:
    if isinstance(owner, Pod):
        return PODS
    return POD_GROUPS.at_version(owner.api_version.rpartition("/")[2])


# --- reservations ------------------------------------------------------------------------------------------------------


class ClaimNotReserved(Exception):
    """The claim could not be reserved now; the key is tried again."""


class ClaimReserver:
    """Reserves allocated claims for a pod that got its node without a scheduler."""

    def __init__(self, client: Client, claims: MutationCache[ResourceClaim]) -> None:
        self._client = client
        self._claims = claims

    async def reserve(self, pod: Pod, group: PodGroup | None, new_names: dict[str, str]) -> None:
        """`new_names` are those that the pod's status does not show yet. A claim of the group is reserved for the group."""
        for entry in pod.spec.resource_claims:
            name = new_names.get(entry.name) or claim_of_entry(pod, entry).claim_name
            if not name:
                continue
            claim = self._claims.get(f"{pod.metadata.namespace}/{name}")
            if claim is None:
                return
            user = group if group is not None and is_claim_of_group(entry, group) else pod
            if claim.status.allocation is not None and not is_reserved_for(claim, user.metadata.uid):
                await self._add_consumer(claim, user)

    async def _add_consumer(self, claim: ResourceClaim, user: ClaimOwner) -> None:
        reserved = with_users(claim, (*claim.status.reserved_for, consumer_reference(user)))
        try:
            updated = await self._client.update_status(CLAIMS, reserved)
        except ApiError as error:
            where = f"{claim.metadata.namespace}/{claim.metadata.name}"
            raise ClaimNotReserved(f"reserve claim {where}: {error}") from error
        self._claims.remember(updated)
