"""The claims of a pod: which they are, and whether they can be used yet."""

from dataclasses import dataclass

from dray.api.core import Pod, PodResourceClaim
from dray.api.resource import ResourceClaim
from dray.scheduler.assumed import AssumedClaims
from dray.scheduler.framework.status import PluginStatus, unresolvable


@dataclass(frozen=True, slots=True)
class PodClaim:
    """One entry of `spec.resourceClaims` and the claim behind it."""

    entry: str
    claim: ResourceClaim


class ClaimNotReady(Exception):
    """Some claim of the pod is missing or unusable; the text is for the user."""

    def status(self) -> PluginStatus:
        return unresolvable(str(self))


def claim_name(pod: Pod, entry: PodResourceClaim) -> str | None:
    """The name of the claim for an entry; None if it was deliberately not made."""
    if entry.resource_claim_name:
        return entry.resource_claim_name
    where = f"{pod.metadata.namespace}/{pod.metadata.name}"
    if not entry.resource_claim_template_name:
        raise ClaimNotReady(f'pod "{where}", spec.resourceClaim "{entry.name}": none of the supported fields are set')
    for status in pod.status.resource_claim_statuses:
        if status.name == entry.name:
            return status.resource_claim_name or None
    raise ClaimNotReady(f'pod "{where}": ResourceClaim not created yet')


def is_made_for(claim: ResourceClaim, pod: Pod) -> bool:
    return any(owner.controller and owner.uid == pod.metadata.uid for owner in claim.metadata.owner_references)


def _usable_claim(pod: Pod, entry: PodResourceClaim, name: str, claims: AssumedClaims) -> ResourceClaim:
    namespace = pod.metadata.namespace
    claim = claims.get(namespace, name)
    if claim is None:
        raise ClaimNotReady(f'could not find ResourceClaim "{namespace}/{name}"')
    if claim.metadata.deletion_timestamp is not None:
        raise ClaimNotReady(f'resourceclaim "{name}" is being deleted')
    if not entry.resource_claim_name and not is_made_for(claim, pod):
        raise ClaimNotReady(
            f"ResourceClaim {namespace}/{name} was not created for Pod {namespace}/{pod.metadata.name} (Pod is not owner)"
        )
    return claim


def claims_of(pod: Pod, claims: AssumedClaims) -> list[PodClaim]:
    """All claims of the pod in the order of its spec. Raises `ClaimNotReady` at the first that cannot be used."""
    found = []
    for entry in pod.spec.resource_claims:
        name = claim_name(pod, entry)
        if name is not None:
            found.append(PodClaim(entry.name, _usable_claim(pod, entry, name, claims)))
    return found


def is_reserved_for(claim: ResourceClaim, pod: Pod) -> bool:
    return any(user.uid == pod.metadata.uid for user in claim.status.reserved_for)
