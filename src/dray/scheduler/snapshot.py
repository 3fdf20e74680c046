"""The cluster as the scheduler knows it, brought forward by what changes.

One event loop owns it and an attempt never yields, so what an attempt reads is one consistent moment that already
contains every write of our own. Indexes find pods by what they name: waiting pods by claim, pod groups, and pods that are
nominated for a node.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager

from dray.accounting.container_amounts import RequestOptions
from dray.accounting.demand import SCHEDULING, Demand, PodRef, pod_demand
from dray.api.core import Node, Pod, PodResourceClaim
from dray.api.dra.claim_users import controller_uid, group_name, is_claim_of_group
from dray.api.dra.pod_claims import mentioned_claim_names
from dray.api.dra.pod_phase import is_finished
from dray.api.matching import host_ports
from dray.api.resource import ResourceClaim
from dray.api.workloads import PodGroup
from dray.scheduler.framework.filtering import AnswerCache, FilterAnswers, NodeChangeLog, ScoreAnswers
from dray.scheduler.framework.interface import NodeFacet
from dray.scheduler.nodes import CountedPod, NodeList, NodeState

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


_POD_FACETS = (NodeFacet.RESOURCES, NodeFacet.PODS)


class Snapshot:
    """Nodes and the pods on them, bound or assumed."""

    def __init__(self, counts: RequestOptions = SCHEDULING) -> None:
        self._counts = counts
        self.log = NodeChangeLog()
        self.nodes = NodeList(self.log)
        self.filter_answers: AnswerCache[FilterAnswers] = AnswerCache(self.log, FilterAnswers)
        self.score_answers: AnswerCache[ScoreAnswers] = AnswerCache(self.log, ScoreAnswers)
        self.namespace_labels: dict[str, dict[str, str]] = {}
        self.priorities: Counter[int] = Counter()
        self._node_of: dict[str, str] = {}
        self._assumed: dict[str, CountedPod] = {}
        self._pods_without_node: dict[str, dict[str, CountedPod]] = {}
        self._with_anti_affinity: dict[str, CountedPod] = {}
        self._with_pod_wishes: dict[str, CountedPod] = {}
        self._by_controller: dict[str, Counter[str]] = {}

    # --- nodes

    def set_node(self, node: Node) -> None:
        is_new = self.nodes.get(node.metadata.name) is None
        self.nodes.set(node)
        if is_new:
            self._take_in(node.metadata.name)

    def _take_in(self, name: str) -> None:
        """Pods may be known before their node is."""
        state = self.nodes.get(name)
        assert state is not None
        for placed in self._pods_without_node.pop(name, {}).values():
            state.enter(placed)

    def remove_node(self, name: str) -> None:
        state = self.nodes.remove(name)
        if state is not None and state.pods:
            self._pods_without_node[name] = dict(state.pods)

    # --- pods

    def placed(self, uid: str) -> CountedPod | None:
        name = self._node_of.get(uid)
        if name is None:
            return None
        state = self.nodes.get(name)
        return state.pods.get(uid) if state is not None else self._pods_without_node.get(name, {}).get(uid)

    def node_of(self, uid: str) -> str | None:
        return self._node_of.get(uid)

    def is_assumed(self, uid: str) -> bool:
        return uid in self._assumed

    def assume(self, pod: Pod, node_name: str) -> None:
        """Count the pod on the node before the API server knows; `forget` or the bound pod itself ends this."""
        if pod.metadata.uid in self._node_of:
            raise ValueError(f"pod {pod.metadata.namespace}/{pod.metadata.name} is already on a node")
        self._assumed[pod.metadata.uid] = self._enter(pod, node_name)

    def forget(self, uid: str) -> None:
        if self._assumed.pop(uid, None) is not None:
            self._leave(uid)

    def set_pod(self, pod: Pod) -> None:
        """A pod that is bound according to the API server; takes the place of the assumed one."""
        uid = pod.metadata.uid
        if is_finished(pod):
            self.remove_pod(uid)
            return
        was_on = self._node_of.get(uid)
        self._assumed.pop(uid, None)
        if was_on == pod.spec.node_name and self._is_same_load(uid, pod):
            self._swap(uid, pod)
            return
        if was_on is not None:
            self._leave(uid)
        self._enter(pod, pod.spec.node_name)

    def remove_pod(self, uid: str) -> None:
        self._assumed.pop(uid, None)
        if uid in self._node_of:
            self._leave(uid)

    def pods(self) -> Iterator[CountedPod]:
        for state in self.nodes:
            yield from state.pods.values()

    def sizes(self) -> dict[str, int]:
        return {"nodes": len(self.nodes), "pods": len(self._node_of), "assumed_pods": len(self._assumed)}

    def with_anti_affinity(self) -> Collection[CountedPod]:
        """Placed pods that keep others away; most clusters have none."""
        return self._with_anti_affinity.values()

    def with_pod_wishes(self) -> Collection[CountedPod]:
        """Placed pods that would like others near or far; they count in the score of a node."""
        return self._with_pod_wishes.values()

    def pods_of_controller(self, uid: str) -> Mapping[str, int]:
        """How many pods of a ReplicaSet or the like are on which node, without those that are leaving."""
        return self._by_controller.get(uid, {})

    def refresh(self) -> None:
        """Before an attempt: let added and removed nodes take their places."""
        self.nodes.refresh()

    def demand_of(self, pod: Pod) -> Demand:
        """All the pod takes from its node, claims included; equal for pods of one template."""
        return pod_demand(pod, options=self._counts)

    def as_placed(self, pod: Pod) -> CountedPod:
        return CountedPod(pod, PodRef.of(pod), self.demand_of(pod), host_ports(pod))

    @contextmanager
    def hypothetically_with(self, pods: Iterable[Pod], node_name: str) -> Iterator[None]:
        """As if these pods were on the node as well. For questions only: nothing may be awaited inside."""
        state = self.nodes.get(node_name)
        assert state is not None
        guests = [self.as_placed(pod) for pod in pods if pod.metadata.uid not in state.pods]
        for placed in guests:
            state.enter(placed)
        self._touch(state)
        try:
            yield
        finally:
            for placed in guests:
                state.leave(placed.pod.metadata.uid)
            self._touch(state)

    @contextmanager
    def hypothetically_without(self, uids: Iterable[str], node_name: str) -> Iterator[None]:
        """As if these pods had left the node."""
        state = self.nodes.get(node_name)
        assert state is not None
        gone = [placed for uid in uids if (placed := state.leave(uid)) is not None]
        self._touch(state)
        try:
            yield
        finally:
            for placed in gone:
                state.enter(placed)
            self._touch(state)

    def _is_same_load(self, uid: str, pod: Pod) -> bool:
        placed = self.placed(uid)
        return (
            placed is not None
            and placed.demand == self.demand_of(pod)
            and placed.pod.metadata.labels == pod.metadata.labels
            and placed.priority == (pod.spec.priority or 0)
        )

    def _swap(self, uid: str, pod: Pod) -> None:
        """The object is newer, but nothing that filters or scores look at differs."""
        old = self.placed(uid)
        assert old is not None
        state = self.nodes.get(pod.spec.node_name)
        pods = state.pods if state is not None else self._pods_without_node[pod.spec.node_name]
        pods[uid] = CountedPod(pod, old.ref, old.demand, old.ports)
        for index in (self._with_anti_affinity, self._with_pod_wishes):
            if uid in index:
                index[uid] = pods[uid]
        if pod.metadata.deletion_timestamp is not None and old.pod.metadata.deletion_timestamp is None:
            self._count_with_siblings(old.pod, pod.spec.node_name, -1)

    def _enter(self, pod: Pod, node_name: str) -> CountedPod:
        placed = self.as_placed(pod)
        self._node_of[pod.metadata.uid] = node_name
        self.priorities[placed.priority] += 1
        if pod.spec.affinity is not None:
            if has_anti_affinity(pod):
                self._with_anti_affinity[pod.metadata.uid] = placed
            if has_pod_wishes(pod):
                self._with_pod_wishes[pod.metadata.uid] = placed
        self._count_with_siblings(pod, node_name, 1)
        state = self.nodes.get(node_name)
        if state is None:
            self._pods_without_node.setdefault(node_name, {})[pod.metadata.uid] = placed
        else:
            state.enter(placed)
            self._touch(state)
        return placed

    def _leave(self, uid: str) -> None:
        name = self._node_of.pop(uid)
        self._with_anti_affinity.pop(uid, None)
        self._with_pod_wishes.pop(uid, None)
        state = self.nodes.get(name)
        placed = self._pods_without_node.get(name, {}).pop(uid, None) if state is None else state.leave(uid)
        if placed is None:
            return
        self._count_with_siblings(placed.pod, name, -1)
        self.priorities[placed.priority] -= 1
        if not self.priorities[placed.priority]:
            del self.priorities[placed.priority]
        if state is not None:
            self._touch(state)

    def _count_with_siblings(self, pod: Pod, node_name: str, change: int) -> None:
        """Pods that are leaving do not count: the next one takes their place."""
        if not pod.metadata.owner_references or pod.metadata.deletion_timestamp is not None:
            return
        controller = controller_of(pod)
        if not controller:
            return
        counts = self._by_controller.setdefault(controller, Counter())
        counts[node_name] += change
        if not counts[node_name]:
            del counts[node_name]
            if not counts:
                del self._by_controller[controller]

    def _touch(self, state: NodeState) -> None:
        for facet in _POD_FACETS:
            self.nodes.touch(state, facet)

    def check(self) -> None:
        """Raise if any ledger disagrees with its pods, or a pod is counted on two nodes."""
        seen: dict[str, str] = {}
        for state in self.nodes:
            state.check()
            for uid in state.pods:
                if seen.setdefault(uid, state.name) != state.name or self._node_of.get(uid) != state.name:
                    raise AssertionError(
                        f"pod {uid} is counted on {state.name}, but belongs to {self._node_of.get(uid)}"
                    )


def controller_of(pod: Pod) -> str:
    """The UID of the ReplicaSet or similar that makes pods like this one; empty if nobody does."""
    for owner in pod.metadata.owner_references:
        if owner.controller and owner.kind in ("ReplicaSet", "StatefulSet", "ReplicationController"):
            return owner.uid
    return ""


def has_pod_wishes(pod: Pod) -> bool:
    """Terms about other pods that score nodes: what must be near, and what should be near or far."""
    affinity = pod.spec.affinity
    near, far = (affinity.pod_affinity, affinity.pod_anti_affinity) if affinity is not None else (None, None)
    return bool(
        (near and near.required_during_scheduling_ignored_during_execution)
        or (near and near.preferred_during_scheduling_ignored_during_execution)
        or (far and far.preferred_during_scheduling_ignored_during_execution)
    )


def has_anti_affinity(pod: Pod) -> bool:
    affinity = pod.spec.affinity
    if affinity is None or affinity.pod_anti_affinity is None:
        return False
    return bool(affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution)
