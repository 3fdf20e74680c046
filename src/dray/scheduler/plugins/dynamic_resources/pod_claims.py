"""The claims of a pod: which they are, and whether they can be used yet."""

from dataclasses import dataclass

from dray.api.core import Pod, PodResourceClaim
from dray.api.reasons import Reason
from dray.api.resource import ResourceClaim, ResourceClaimConsumerReference
from dray.api.workloads import PodGroup
from dray.scheduler.assumed import AssumedClaims
from dray.scheduler.framework.status import PluginStatus, unresolvable
from dray.scheduler.pod_groups import PodGroups, user_of


@dataclass(frozen=True, slots=True)
class PodClaim:
    """One entry of `spec.resourceClaims`, the claim behind it, and for whom it is reserved: the pod, or its group."""

    entry: str
    claim: ResourceClaim
    user: ResourceClaimConsumerReference


class ClaimNotReady(Exception):
    """Some claim of the pod is missing or unusable."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.reason = Reason(code, text)

    def status(self) -> PluginStatus:
        return unresolvable(self.reason)


def claim_name(pod: Pod, entry: PodResourceClaim) -> str | None:
    """The name of the claim for an entry; None if it was deliberately not made."""
    if entry.resource_claim_name:
        return entry.resource_claim_name
    where = f"{pod.metadata.namespace}/{pod.metadata.name}"
    if not entry.resource_claim_template_name:
        raise ClaimNotReady(
            "claim-source", f'pod "{where}", spec.resourceClaim "{entry.name}": none of the supported fields are set'
        )
    for status in pod.status.resource_claim_statuses:
        if status.name == entry.name:
            return status.resource_claim_name or None
    raise ClaimNotReady("claim-not-created", f'pod "{where}": ResourceClaim not created yet')


def is_made_for(claim: ResourceClaim, uid: str) -> bool:
    """Was it made from a template for this pod or group?"""
    return any(owner.controller and owner.uid == uid for owner in claim.metadata.owner_references)


def _usable_claim(
    pod: Pod, entry: PodResourceClaim, name: str, claims: AssumedClaims, group: PodGroup | None
) -> ResourceClaim:
    namespace = pod.metadata.namespace
    claim = claims.get(namespace, name)
    if claim is None:
        raise ClaimNotReady("claim-missing", f'could not find ResourceClaim "{namespace}/{name}"')
    if claim.metadata.deletion_timestamp is not None:
        raise ClaimNotReady("claim-being-deleted", f'resourceclaim "{name}" is being deleted')
    owner = pod if group is None else group
    if not entry.resource_claim_name and not is_made_for(claim, owner.metadata.uid):
        why = "Pod is not owner" if group is None else f"neither Pod nor PodGroup {group.metadata.name} is the owner"
        raise ClaimNotReady(
            "claim-not-owned",
            f"ResourceClaim {namespace}/{name} was not created for Pod {namespace}/{pod.metadata.name} ({why})",
        )
    return claim


def claims_of(pod: Pod, claims: AssumedClaims, groups: PodGroups) -> list[PodClaim]:
    """All claims of the pod in the order of its spec. Raises `ClaimNotReady` at the first that cannot be used."""
    found = []
    for entry in pod.spec.resource_claims:
        name = claim_name(pod, entry)
        if name is not None:
            group = groups.sharing(pod, entry)
            claim = _usable_claim(pod, entry, name, claims, group)
            found.append(PodClaim(entry.name, claim, user_of(pod, group)))
    return found


def is_reserved_for(claim: ResourceClaim, user: ResourceClaimConsumerReference) -> bool:
    return any(known.uid == user.uid for known in claim.status.reserved_for)
