"""Who may use a claim, for whom it was made, and who owns it. Pure.

`status.reservedFor` names pods and pod groups. A pod itself says only the name of its group, not the UID. The name is
enough: the claim controller frees a claim that was made or reserved for a group when that group is replaced.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from dray.api.core import Pod, PodResourceClaim
from dray.api.dra.pod_claims import ClaimOwner
from dray.api.resource import ResourceClaim, ResourceClaimConsumerReference
from dray.api.workloads import PodGroup

GROUP_API, GROUP_RESOURCE, GROUP_KIND = "scheduling.k8s.io", "podgroups", "PodGroup"

# A claim has no more users at a time; so many entries `reservedFor` can hold.
MAX_USERS = 256

# --- pod groups ------------------------------------------------------------------------------------------------------


def group_name(pod: Pod) -> str | None:
    """None for a pod that is in no group."""
    group = pod.spec.scheduling_group
    return (group.pod_group_name or None) if group is not None else None


def is_claim_of_group(entry: PodResourceClaim, group: PodGroup | None) -> bool:
    """Whether a pod's entry means the claim of its group: the group has an entry that is equal in every field."""
    return group is not None and entry in group.spec.resource_claims


# --- users -----------------------------------------------------------------------------------------------------------


def may_use(claim: ResourceClaim, pod: Pod) -> bool:
    """Whether the claim is reserved for the pod or for its group."""
    group = group_name(pod)
    return any(
        user.uid == pod.metadata.uid
        or (group is not None and (user.api_group, user.resource, user.name) == (GROUP_API, GROUP_RESOURCE, group))
        for user in claim.status.reserved_for
    )


def is_reserved_for(claim: ResourceClaim, uid: str) -> bool:
    """Whether `reservedFor` names the pod or group with this UID."""
    return any(user.uid == uid for user in claim.status.reserved_for)


def is_reserved_only_for(claim: ResourceClaim, uids: Collection[str]) -> bool:
    """Whether somebody uses the claim, and nobody but the pods and groups with these UIDs."""
    users = claim.status.reserved_for
    return bool(users) and all(user.uid in uids for user in users)


def consumer_reference(owner: ClaimOwner) -> ResourceClaimConsumerReference:
    """The entry of `reservedFor` for a pod or a group."""
    metadata = owner.metadata
    if isinstance(owner, PodGroup):
        return ResourceClaimConsumerReference(
            api_group=GROUP_API, resource=GROUP_RESOURCE, name=metadata.name, uid=metadata.uid
        )
    return ResourceClaimConsumerReference(resource="pods", name=metadata.name, uid=metadata.uid)


def with_users(claim: ResourceClaim, users: Iterable[ResourceClaimConsumerReference]) -> ResourceClaim:
    status = msgspec.structs.replace(claim.status, reserved_for=tuple(users))
    return msgspec.structs.replace(claim, status=status)


def user_names(claim: ResourceClaim) -> list[str]:
    """`namespace/name` of every user, as people read it."""
    return [f"{claim.metadata.namespace}/{user.name}" for user in claim.status.reserved_for]


# --- owners ----------------------------------------------------------------------------------------------------------


def controller_uid(claim: ResourceClaim) -> str:
    """UID of the pod or group that the claim was made for; empty for a claim that a user made."""
    for owner in claim.metadata.owner_references:
        if owner.controller:
            return owner.uid
    return ""


def is_owned_by(claim: ResourceClaim, owner: ClaimOwner) -> bool:
    """Whether the claim was made from a template for exactly this pod or group."""
    return claim.metadata.namespace == owner.metadata.namespace and controller_uid(claim) == owner.metadata.uid


def was_made_for(claim: ResourceClaim, pod: Pod) -> bool:
    """Whether the claim was made from a template for this very pod, or for a group with the name of its group."""
    group = group_name(pod)
    return any(
        owner.controller
        and (
            owner.uid == pod.metadata.uid
            or (
                group is not None
                and (owner.kind, owner.name) == (GROUP_KIND, group)
                and owner.api_version.partition("/")[0] == GROUP_API
            )
        )
        for owner in claim.metadata.owner_references
    )
