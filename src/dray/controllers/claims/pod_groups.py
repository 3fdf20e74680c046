"""Finds the pod group of a pod, and says whether its claims are shared."""

from __future__ import annotations

from dray.api.core import Pod
from dray.api.dra.claim_users import GROUP_API, group_name
from dray.api.workloads import PodGroup
from dray.client import Hopeless, Informer
from dray.features import FeatureGates


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
