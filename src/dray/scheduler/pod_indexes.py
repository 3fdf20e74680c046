"""Pods by what they name: waiting pods by claim, pod groups, and pods that are nominated for a node."""

from collections.abc import Iterable, Set

from dray.api.core import Pod, PodResourceClaim
from dray.api.dra.claim_users import controller_uid, group_name, is_claim_of_group
from dray.api.dra.pod_claims import mentioned_claim_names
from dray.api.resource import ResourceClaim
from dray.api.workloads import PodGroup

ClaimKey = tuple[str, str]


def named_claims(pod: Pod) -> set[ClaimKey]:
    """Claims by namespace and name: the ones the spec names and the ones made from templates, as far as known."""
    return {(pod.metadata.namespace, name) for name in mentioned_claim_names(pod.spec, pod.status)}


class ClaimUsers:
    """UIDs of waiting pods by the claims that they name."""

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
        pods = self._pods_of.get(key, set())
        owner = controller_uid(claim)
        return pods | {owner} if owner else pods


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
        group = self._groups.get((pod.metadata.namespace, group_name(pod) or "")) if self._groups else None
        return group if is_claim_of_group(entry, group) else None


class Nominations:
    """Pods that wait for victims to leave the node they will get; others must not take the room meanwhile."""

    def __init__(self) -> None:
        self._by_node: dict[str, dict[str, Pod]] = {}
        self._node_of: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self._node_of)

    def nominate(self, pod: Pod, node_name: str) -> None:
        self.withdraw(pod.metadata.uid)
        self._by_node.setdefault(node_name, {})[pod.metadata.uid] = pod
        self._node_of[pod.metadata.uid] = node_name

    def withdraw(self, uid: str) -> None:
        node_name = self._node_of.pop(uid, None)
        if node_name is None:
            return
        pods = self._by_node[node_name]
        pods.pop(uid, None)
        if not pods:
            del self._by_node[node_name]

    def node_of(self, uid: str) -> str | None:
        return self._node_of.get(uid)

    def nodes(self) -> Iterable[str]:
        return self._by_node.keys()

    def on(self, node_name: str) -> list[Pod]:
        return list(self._by_node.get(node_name, {}).values())

    def at_least(self, node_name: str, priority: int, except_uid: str) -> list[Pod]:
        """Nominated pods of the same or higher priority than the one that asks."""
        return [
            pod
            for pod in self._by_node.get(node_name, {}).values()
            if pod.metadata.uid != except_uid and (pod.spec.priority or 0) >= priority
        ]
