"""Waiting pods by the claims they name, so that a claim's event looks only at its own pods."""

from collections.abc import Set

from dray.api.core import Pod
from dray.api.resource import ResourceClaim

ClaimKey = tuple[str, str]


def named_claims(pod: Pod) -> set[ClaimKey]:
    """Claims by namespace and name: the ones the spec names and the ones made from templates, as far as known."""
    namespace = pod.metadata.namespace
    names = {entry.resource_claim_name for entry in pod.spec.resource_claims}
    names |= {entry.resource_claim_name for entry in pod.status.resource_claim_statuses}
    extended = pod.status.extended_resource_claim_status
    if extended is not None:
        names.add(extended.resource_claim_name)
    return {(namespace, name) for name in names if name}


class ClaimUsers:
    def __init__(self) -> None:
        self._claims_of: dict[str, set[ClaimKey]] = {}
        self._pods_of: dict[ClaimKey, set[str]] = {}

    def set(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        claims = named_claims(pod)
        if self._claims_of.get(uid, set()) == claims:
            return
        self.remove(uid)
        if claims:
            self._claims_of[uid] = claims
            for claim in claims:
                self._pods_of.setdefault(claim, set()).add(uid)

    def remove(self, uid: str) -> None:
        for claim in self._claims_of.pop(uid, ()):
            pods = self._pods_of[claim]
            pods.discard(uid)
            if not pods:
                del self._pods_of[claim]

    def of(self, claim: ResourceClaim) -> Set[str]:
        """UIDs of waiting pods that name the claim, and of the pod it was made for."""
        key = (claim.metadata.namespace, claim.metadata.name)
        owners = {owner.uid for owner in claim.metadata.owner_references if owner.controller}
        return owners | self._pods_of.get(key, set())
