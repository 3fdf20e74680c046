"""From a pod's template entries to claims: find what is there, make what is missing, record it, reserve it."""

from __future__ import annotations

import logging

import msgspec

from dray.api.core import Pod, PodResourceClaim
from dray.api.meta import ObjectMeta, OwnerReference
from dray.api.resource import POD_CLAIM_NAME_ANNOTATION, ResourceClaim, ResourceClaimTemplate
from dray.client import CLAIMS, PODS, WARNING, ApiError, Client, Hopeless, Informer, OwnWrites, Recorder, reference_to
from dray.client.errors import ServerUnreachable
from dray.controllers.claims.metrics import ClaimMetrics
from dray.controllers.claims.names import generate_name
from dray.controllers.claims.pods import NoKnownSource, claim_name, consumer, is_for_pod, is_reserved_for
from dray.features import FeatureGates

log = logging.getLogger(__name__)

FIELD_MANAGER = "ResourceClaimController"
FAILED_CREATION = "FailedResourceClaimCreation"
BY_CONTROLLER = "controller"


class ClaimNotMade(Exception):
    """A claim could not be made now; the pod's events say why, and the key is tried again."""


class ClaimMaker:
    """One pod at a time. Claims are looked up in our own writes, then in the informer, then on the server."""

    def __init__(
        self,
        client: Client,
        claims: OwnWrites[ResourceClaim],
        templates: Informer[ResourceClaimTemplate],
        recorder: Recorder,
        gates: FeatureGates,
        metrics: ClaimMetrics,
    ) -> None:
        self._client = client
        self._claims = claims
        self._templates = templates
        self._recorder = recorder
        self._gates = gates
        self._metrics = metrics

    async def sync(self, pod: Pod) -> None:
        if pod.metadata.deletion_timestamp is not None:
            return
        self._refuse_group_member(pod)
        new_names: dict[str, str] = {}
        for entry in pod.spec.resource_claims:
            try:
                name = await self._ensure_claim(pod, entry)
            except (ClaimNotMade, ApiError, ServerUnreachable) as error:
                message = f"PodResourceClaim {entry.name}: {error}"
                self._recorder.event(reference_to(PODS, pod), WARNING, FAILED_CREATION, message)
                raise
            if name is not None:
                new_names[entry.name] = name
        if new_names:
            await self._record(pod, new_names)
        if pod.spec.node_name:
            await self._reserve(pod, new_names)

    def _refuse_group_member(self, pod: Pod) -> None:
        group = pod.spec.scheduling_group
        if group is None or not group.pod_group_name:
            return
        name = group.pod_group_name
        if not self._gates.enabled("GenericWorkload"):
            raise Hopeless(f"Pod is a member of PodGroup {name} but GenericWorkload feature is disabled")
        raise Hopeless(f"Pod is a member of PodGroup {name}: PodGroups are not supported")

    async def _ensure_claim(self, pod: Pod, entry: PodResourceClaim) -> str | None:
        """The name of a claim that the pod's status does not hold yet; None if there is nothing to record."""
        try:
            known = claim_name(pod, entry)
        except NoKnownSource as error:
            raise ClaimNotMade(f"checking for claim before creating it: {error}") from None
        if not known.is_generated or (known.is_recorded and known.name is None):
            return None
        if known.name is not None and await self._exists_for(pod, known.name):
            return None
        claim = self._orphan(pod, entry.name)
        if claim is None:
            claim = await self._create(pod, entry)
            self._claims.remember(claim)
            log.debug("claim %s/%s made for pod %s", claim.metadata.namespace, claim.metadata.name, pod.metadata.name)
        return claim.metadata.name

    async def _exists_for(self, pod: Pod, name: str) -> bool:
        """Is the recorded claim there and the pod's own? A claim of somebody else is never used."""
        namespace = pod.metadata.namespace
        claim = self._claims.get(f"{namespace}/{name}")
        if claim is None:
            try:
                claim = await self._client.find(CLAIMS, name, namespace)
            except (ApiError, ServerUnreachable) as error:
                raise ClaimNotMade(f"checking claim existence: {error}") from error
        if claim is None:
            return False
        if not is_for_pod(claim, pod):
            log.info(
                "ResourceClaim %s/%s was not created for Pod %s/%s (Pod is not owner)",
                *(namespace, name, namespace, pod.metadata.name),
            )
            return False
        return True

    def _orphan(self, pod: Pod, pod_claim_name: str) -> ResourceClaim | None:
        """A claim made for this entry whose name never reached the pod's status, because somebody died in between."""
        for claim in self._claims.by_index(BY_CONTROLLER, pod.metadata.uid):
            is_alive = claim.metadata.deletion_timestamp is None
            if is_alive and claim.metadata.annotations.get(POD_CLAIM_NAME_ANNOTATION) == pod_claim_name:
                return claim
        return None

    async def _create(self, pod: Pod, entry: PodResourceClaim) -> ResourceClaim:
        claim = claim_from_template(pod, entry.name, self._template(pod, entry))
        admin_access = self._metrics.admin_access(claim)
        try:
            created = await self._client.create(CLAIMS, claim)
        except ApiError as error:
            self._metrics.created(success=False, admin_access=admin_access)
            raise ClaimNotMade(f"create ResourceClaim : {error}") from error
        self._metrics.created(success=True, admin_access=admin_access)
        return created

    def _template(self, pod: Pod, entry: PodResourceClaim) -> ResourceClaimTemplate:
        name = entry.resource_claim_template_name or ""
        template = self._templates.get(f"{pod.metadata.namespace}/{name}")
        if template is None:
            missing = f'resourceclaimtemplate.resource.k8s.io "{name}" not found'
            raise ClaimNotMade(f'resource claim template "{name}": {missing}')
        requests = template.spec.spec.devices.requests
        if not self._gates.enabled("DRAAdminAccess") and any(r.exactly and r.exactly.admin_access for r in requests):
            raise ClaimNotMade("admin access is requested, but the feature is disabled")
        if not self._gates.enabled("DRAPrioritizedList") and any(r.first_available for r in requests):
            raise ClaimNotMade("template includes a prioritized list of subrequests, but the feature is disabled")
        return template

    async def _record(self, pod: Pod, new_names: dict[str, str]) -> None:
        """One apply with every entry: leaving out the old ones would take them away."""
        names = {s.name: s.resource_claim_name for s in pod.status.resource_claim_statuses if s.resource_claim_name}
        names |= new_names
        metadata = pod.metadata
        document = {
            "metadata": {"namespace": metadata.namespace, "name": metadata.name, "uid": metadata.uid},
            "status": {
                "resourceClaimStatuses": [
                    {"name": entry, "resourceClaimName": name} for entry, name in sorted(names.items())
                ]
            },
        }
        try:
            await self._client.apply(PODS, document, field_manager=FIELD_MANAGER, force=True, subresource="status")
        except ApiError as error:
            if error.is_not_found:
                return
            where = f"{metadata.namespace}/{metadata.name}"
            raise ClaimNotMade(f"update pod {where} ResourceClaimStatuses: {error}") from error

    async def _reserve(self, pod: Pod, new_names: dict[str, str]) -> None:
        """A pod that got its node without a scheduler may use claims that are already allocated."""
        for entry in pod.spec.resource_claims:
            name = new_names.get(entry.name) or claim_name(pod, entry).name
            if name is None:
                continue
            claim = self._claims.get(f"{pod.metadata.namespace}/{name}")
            if claim is None:
                return
            if claim.status.allocation is not None and not is_reserved_for(claim, pod):
                await self._add_consumer(claim, pod)

    async def _add_consumer(self, claim: ResourceClaim, pod: Pod) -> None:
        reserved_for = (*claim.status.reserved_for, consumer(pod))
        status = msgspec.structs.replace(claim.status, reserved_for=reserved_for)
        try:
            updated = await self._client.update_status(CLAIMS, msgspec.structs.replace(claim, status=status))
        except ApiError as error:
            where = f"{claim.metadata.namespace}/{claim.metadata.name}"
            raise ClaimNotMade(f"reserve claim {where}: {error}") from error
        self._claims.remember(updated)


def claim_from_template(pod: Pod, pod_claim_name: str, template: ResourceClaimTemplate) -> ResourceClaim:
    owner = OwnerReference(api_version="v1", kind="Pod", name=pod.metadata.name, uid=pod.metadata.uid, controller=True)
    annotations = {**template.spec.metadata.annotations, POD_CLAIM_NAME_ANNOTATION: pod_claim_name}
    metadata = ObjectMeta(
        generate_name=generate_name(pod.metadata.name, pod_claim_name),
        namespace=pod.metadata.namespace,
        labels=dict(template.spec.metadata.labels),
        annotations=annotations,
        owner_references=(owner,),
    )
    return ResourceClaim(metadata=metadata, spec=template.spec.spec)
