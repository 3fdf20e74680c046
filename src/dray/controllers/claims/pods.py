"""What a pod or a pod group says about its claims. Pure questions; nothing here talks to the cluster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dray.api.core import Pod, PodResourceClaim
from dray.api.dra.claim_users import GROUP_API, GROUP_RESOURCE
from dray.api.resource import ResourceClaim, ResourceClaimConsumerReference
from dray.api.workloads import PodGroup

TERMINAL_PHASES = ("Succeeded", "Failed")

# Both list claims in the same shape and have claims of their own made from templates.
ClaimOwner = Pod | PodGroup


def owner_kind(owner: ClaimOwner) -> str:
    return "Pod" if isinstance(owner, Pod) else "PodGroup"


class NoKnownSource(ValueError):
    """A pod claim names neither a claim nor a template, so somebody newer than us wrote it."""


@dataclass(frozen=True, slots=True)
class ClaimName:
    """Where the claim of a pod claim is. `name` is None when it is not recorded, or when none is needed."""

    name: str | None
    is_generated: bool
    is_recorded: bool = True


def claim_name(owner: ClaimOwner, entry: PodResourceClaim) -> ClaimName:
    if entry.resource_claim_name is not None:
        return ClaimName(entry.resource_claim_name, is_generated=False)
    if entry.resource_claim_template_name is None:
        word = "pod" if isinstance(owner, Pod) else "pod group"
        where = f'{word} "{owner.metadata.namespace}/{owner.metadata.name}", spec.resourceClaim "{entry.name}"'
        raise NoKnownSource(f"{where}: none of the supported fields are set")
    for status in owner.status.resource_claim_statuses:
        if status.name == entry.name:
            return ClaimName(status.resource_claim_name, is_generated=True)
    return ClaimName(None, is_generated=True, is_recorded=False)


def uses_claims(pod: Pod) -> bool:
    return bool(pod.spec.resource_claims) or pod.status.extended_resource_claim_status is not None


def known_claim_names(owner: ClaimOwner) -> Iterator[str]:
    """The claims of `spec.resourceClaims` whose names are known by now."""
    for entry in owner.spec.resource_claims:
        try:
            name = claim_name(owner, entry).name
        except NoKnownSource:
            continue
        if name is not None:
            yield name


def released_claim_names(pod: Pod) -> Iterator[str]:
    """Every claim to look at when the pod is over: also the one made for extended resources."""
    yield from known_claim_names(pod)
    extended = pod.status.extended_resource_claim_status
    if extended is not None and extended.resource_claim_name:
        yield extended.resource_claim_name


def is_done(pod: Pod) -> bool:
    """Its containers do not run and never will: finished, or deleted before it got a node."""
    never_ran = pod.metadata.deletion_timestamp is not None and not pod.spec.node_name
    return pod.status.phase in TERMINAL_PHASES or never_ran


def controller_uid(claim: ResourceClaim) -> str:
    for owner in claim.metadata.owner_references:
        if owner.controller:
            return owner.uid
    return ""


def is_owned_by(claim: ResourceClaim, owner: ClaimOwner) -> bool:
    return claim.metadata.namespace == owner.metadata.namespace and controller_uid(claim) == owner.metadata.uid


# --- pods in groups --------------------------------------------------------------------------------------------------


def is_shared(entry: PodResourceClaim, group: PodGroup | None) -> bool:
    """Is this the group's claim? It is if the group has an entry that is equal in every field."""
    return group is not None and entry in group.spec.resource_claims


# --- consumers -------------------------------------------------------------------------------------------------------


def is_reserved_for(claim: ResourceClaim, owner: ClaimOwner) -> bool:
    return any(consumer.uid == owner.metadata.uid for consumer in claim.status.reserved_for)


def consumer(owner: ClaimOwner) -> ResourceClaimConsumerReference:
    metadata = owner.metadata
    if isinstance(owner, PodGroup):
        return ResourceClaimConsumerReference(
            api_group=GROUP_API, resource=GROUP_RESOURCE, name=metadata.name, uid=metadata.uid
        )
    return ResourceClaimConsumerReference(resource="pods", name=metadata.name, uid=metadata.uid)
