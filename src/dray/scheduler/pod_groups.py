"""Pod groups, as far as their claims go: a claim of the group is shared by its pods and reserved for the group."""

from dray.api.core import Pod, PodResourceClaim
from dray.api.resource import ResourceClaimConsumerReference
from dray.api.workloads import PodGroup

GROUP_API, GROUP_RESOURCE = "scheduling.k8s.io", "podgroups"


def group_name(pod: Pod) -> str:
    """Empty for a pod that is in no group."""
    group = pod.spec.scheduling_group
    return (group.pod_group_name or "") if group is not None else ""


class PodGroups:
    """The groups there are; none where the feature is off."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str], PodGroup] = {}

    def set(self, group: PodGroup) -> None:
        self._groups[group.metadata.namespace, group.metadata.name] = group

    def remove(self, group: PodGroup) -> None:
        self._groups.pop((group.metadata.namespace, group.metadata.name), None)

    def sharing(self, pod: Pod, entry: PodResourceClaim) -> PodGroup | None:
        """The pod's group, if this is the group's claim: it has an entry that is equal in every field."""
        group = self._groups.get((pod.metadata.namespace, group_name(pod))) if self._groups else None
        return group if group is not None and entry in group.spec.resource_claims else None


def user_of(pod: Pod, group: PodGroup | None) -> ResourceClaimConsumerReference:
    """For whom a claim is reserved."""
    if group is None:
        return ResourceClaimConsumerReference(resource="pods", name=pod.metadata.name, uid=pod.metadata.uid)
    metadata = group.metadata
    return ResourceClaimConsumerReference(
        api_group=GROUP_API, resource=GROUP_RESOURCE, name=metadata.name, uid=metadata.uid
    )
