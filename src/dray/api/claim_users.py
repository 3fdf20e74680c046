"""May this pod use this claim? Asked by whoever sees pods and claims but not their groups. Pure.

A claim lets in the pods that `reservedFor` names, and those of a group that it names. Of a group only the name is known
from the pod; that is enough, since a claim made or reserved for a group that was replaced is freed with the old group.
"""

from __future__ import annotations

from dray.api.core import Pod
from dray.api.resource import ResourceClaim

GROUP_API, GROUP_RESOURCE, GROUP_KIND = "scheduling.k8s.io", "podgroups", "PodGroup"


def group_name(pod: Pod) -> str | None:
    group = pod.spec.scheduling_group
    return (group.pod_group_name or None) if group is not None else None


def lets_in(claim: ResourceClaim, pod: Pod) -> bool:
    group = group_name(pod)
    return any(
        user.uid == pod.metadata.uid
        or (group is not None and (user.api_group, user.resource, user.name) == (GROUP_API, GROUP_RESOURCE, group))
        for user in claim.status.reserved_for
    )


def was_made_for(claim: ResourceClaim, pod: Pod) -> bool:
    """Was it made from a template for this very pod, or for its group?"""
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
