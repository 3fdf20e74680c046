"""Pod affinity and anti-affinity, of the pod itself and of pods already placed: required terms filter, preferred ones score."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from dray.api.core import Pod, PodAffinityTerm
from dray.api.matching import matches_labels
from dray.api.reasons import Reason
from dray.scheduler.framework.interface import (
    SKIP,
    Action,
    ClusterChange,
    ClusterEvent,
    CycleState,
    EventRegistration,
    EventResource,
    Hint,
    PluginStatus,
    unresolvable,
    unschedulable,
)
from dray.scheduler.framework.scoring import MAX_SCORE
from dray.scheduler.nodes import NodeState
from dray.scheduler.snapshot import Snapshot

AFFINITY_NOT_MET = unresolvable(Reason("pod-affinity", "node(s) didn't match pod affinity rules"))
ANTI_AFFINITY_NOT_MET = unschedulable(Reason("pod-affinity", "node(s) didn't match pod anti-affinity rules"))
ANTI_AFFINITY_OF_OTHERS = unschedulable(
    Reason("pod-affinity", "node(s) didn't satisfy existing pods anti-affinity rules")
)

Domain = tuple[str, str]
"""A topology key and its value."""
Labels = Mapping[str, Mapping[str, str]]
"""Labels of namespaces by name."""


def required_affinity(pod: Pod) -> tuple[PodAffinityTerm, ...]:
    affinity = pod.spec.affinity
    wanted = affinity.pod_affinity if affinity else None
    return wanted.required_during_scheduling_ignored_during_execution if wanted else ()


def required_anti_affinity(pod: Pod) -> tuple[PodAffinityTerm, ...]:
    affinity = pod.spec.affinity
    wanted = affinity.pod_anti_affinity if affinity else None
    return wanted.required_during_scheduling_ignored_during_execution if wanted else ()


def preferred(pod: Pod) -> list[tuple[PodAffinityTerm, int]]:
    """Terms with points: below zero for pods that should be far."""
    affinity = pod.spec.affinity
    if affinity is None:
        return []
    near, far = affinity.pod_affinity, affinity.pod_anti_affinity
    wanted = near.preferred_during_scheduling_ignored_during_execution if near else ()
    unwanted = far.preferred_during_scheduling_ignored_during_execution if far else ()
    return [(row.pod_affinity_term, row.weight) for row in wanted] + [
        (row.pod_affinity_term, -row.weight) for row in unwanted
    ]


def term_matches(term: PodAffinityTerm, owner: Pod, other: Pod, namespaces: Mapping[str, Mapping[str, str]]) -> bool:
    """Does `owner`'s term speak of `other`?"""
    return _in_namespaces(term, owner, other.metadata.namespace, namespaces) and _has_labels(term, owner, other)


def _has_labels(term: PodAffinityTerm, owner: Pod, other: Pod) -> bool:
    if not matches_labels(term.label_selector, other.metadata.labels):
        return False
    if not term.match_label_keys and not term.mismatch_label_keys:
        return True
    return all(
        other.metadata.labels.get(key) == value for key, value in _shared(term, term.match_label_keys, owner)
    ) and all(other.metadata.labels.get(key) != value for key, value in _shared(term, term.mismatch_label_keys, owner))


def _shared(term: PodAffinityTerm, keys: Iterable[str], owner: Pod) -> Iterator[tuple[str, str]]:
    """The owner's own labels under these keys. Kubernetes puts them into the selector when the pod is created; then that counts."""
    selector = term.label_selector
    said = {row.key for row in selector.match_expressions} if selector is not None else set()
    labels = owner.metadata.labels
    return ((key, labels[key]) for key in keys if key in labels and key not in said)


def _in_namespaces(
    term: PodAffinityTerm, owner: Pod, namespace: str, namespaces: Mapping[str, Mapping[str, str]]
) -> bool:
    if not term.namespaces and term.namespace_selector is None:
        return namespace == owner.metadata.namespace
    if namespace in term.namespaces:
        return True
    return matches_labels(term.namespace_selector, namespaces.get(namespace, {}))


@dataclass(slots=True)
class Neighbours:
    """Topology domains that hold pods the attempt must be near to, or far from."""

    friends: list[Counter[Domain]] = field(default_factory=list)
    enemies: Counter[Domain] = field(default_factory=Counter)
    unwelcome_in: Counter[Domain] = field(default_factory=Counter)
    is_own_friend: bool = False


@dataclass(slots=True)
class Wishes:
    """What being in a topology domain is worth."""

    points: Counter[Domain] = field(default_factory=Counter)

    def add(self, term: PodAffinityTerm, points: int, owner: Pod, other: Pod, node: NodeState, names: Labels) -> None:
        """If `owner`'s term speaks of `other`; `node` is where the one of them is that is placed already."""
        value = node.labels.get(term.topology_key)
        if points and value is not None and term_matches(term, owner, other, names):
            self.points[(term.topology_key, value)] += points


class InterPodAffinity:
    name = "InterPodAffinity"

    def __init__(self, args: Mapping[str, Any] | None = None) -> None:
        args = args or {}
        weight = args.get("hardPodAffinityWeight", 1)
        if not isinstance(weight, int) or not 0 <= weight <= 100:
            raise ValueError(f"hardPodAffinityWeight: Invalid value: {weight}: not in valid range [0, 100]")
        self._required_points = weight
        self._ignores_placed = bool(args.get("ignorePreferredTermsOfExistingPods"))

    # --- filter

    def pre_filter(self, cycle: CycleState, pod: Pod, snapshot: Snapshot) -> PluginStatus | None:
        if pod.spec.affinity is None and not snapshot.with_anti_affinity():
            return SKIP
        near, far = required_affinity(pod), required_anti_affinity(pod)
        seen = Neighbours([Counter() for _ in near])
        names = snapshot.namespace_labels
        for placed in snapshot.with_anti_affinity():
            node = snapshot.nodes.get(snapshot.node_of(placed.pod.metadata.uid) or "")
            if node is not None:
                _note_unwelcome(seen, placed.pod, pod, node, names)
        if near or far:
            for node in snapshot.nodes:
                for placed in node.pods.values():
                    _note_friends_and_enemies(seen, pod, placed.pod, node, names)
        elif not seen.unwelcome_in:
            return SKIP
        seen.is_own_friend = bool(near) and all(term_matches(term, pod, pod, names) for term in near)
        cycle.write(seen)
        return None

    def filter(self, cycle: CycleState, pod: Pod, node: NodeState) -> PluginStatus | None:
        seen = cycle.expect(Neighbours)
        if not _has_friends(seen, required_affinity(pod), node):
            return AFFINITY_NOT_MET
        for term in required_anti_affinity(pod):
            value = node.labels.get(term.topology_key)
            if value is not None and seen.enemies[(term.topology_key, value)]:
                return ANTI_AFFINITY_NOT_MET
        if any(node.labels.get(key) == value for key, value in seen.unwelcome_in):
            return ANTI_AFFINITY_OF_OTHERS
        return None

    # --- score

    def pre_score(self, cycle: CycleState, pod: Pod, snapshot: Snapshot, feasible: int) -> PluginStatus | None:
        mine = preferred(pod)
        if not mine and (self._ignores_placed or not snapshot.with_pod_wishes()):
            return SKIP
        wishes, names = Wishes(), snapshot.namespace_labels
        if mine:
            for node in snapshot.nodes:
                for placed in node.pods.values():
                    for term, points in mine:
                        wishes.add(term, points, pod, placed.pod, node, names)
        for placed in snapshot.with_pod_wishes():
            there = snapshot.nodes.get(snapshot.node_of(placed.pod.metadata.uid) or "")
            if there is not None:
                for term, points in self._wishes_of(placed.pod):
                    wishes.add(term, points, placed.pod, pod, there, names)
        if not wishes.points:
            return SKIP
        cycle.write(wishes)
        return None

    def _wishes_of(self, placed: Pod) -> Iterable[tuple[PodAffinityTerm, int]]:
        """A pod that must be near others likes it when such others come to it."""
        yield from ((term, self._required_points) for term in required_affinity(placed))
        yield from preferred(placed)

    def scores(self, cycle: CycleState, pod: Pod, snapshot: Snapshot, feasible: int) -> dict[int, int]:
        cells = {0: feasible}
        for (key, value), worth in cycle.expect(Wishes).points.items():
            members = snapshot.nodes.by_label(key).get(value, 0)
            refined: dict[int, int] = {}
            for total, mask in cells.items():
                for part, score in ((mask & members, total + worth), (mask & ~members, total)):
                    if part:
                        refined[score] = refined.get(score, 0) | part
            cells = refined
        return cells

    def normalize(self, scores: Iterable[int]) -> Mapping[int, int]:
        """From the worst at 0 to the best at 100; where all are alike, nothing."""
        found = set(scores)
        least, most = min(found, default=0), max(found, default=0)
        return {score: MAX_SCORE * (score - least) // (most - least) if most > least else 0 for score in found}

    # --- queue

    @staticmethod
    def _pod_hint(pod: Pod, change: ClusterChange) -> Hint:
        """A friend that came or an enemy that left may help; most pods are neither."""
        if change.new is not None and any(_may_concern(term, pod, change.new) for term in required_affinity(pod)):
            return Hint.QUEUE
        gone: Pod | None = change.old
        if gone is None:
            return Hint.SKIP
        was_enemy = any(_may_concern(term, pod, gone) for term in required_anti_affinity(pod))
        if was_enemy or any(_may_concern(term, gone, pod) for term in required_anti_affinity(gone)):
            return Hint.QUEUE
        return Hint.SKIP

    def events_to_register(self) -> Iterable[EventRegistration]:
        pods = Action.ADD | Action.DELETE | Action.UPDATE_POD_LABEL
        return [
            EventRegistration(ClusterEvent(EventResource.ASSIGNED_POD, pods), self._pod_hint),
            EventRegistration(ClusterEvent(EventResource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL)),
        ]


def _may_concern(term: PodAffinityTerm, owner: Pod, other: Pod) -> bool:
    """As `term_matches`, without knowing the labels of namespaces: rather once too often."""
    if term.namespace_selector is None and not _in_namespaces(term, owner, other.metadata.namespace, {}):
        return False
    return _has_labels(term, owner, other)


def _note_unwelcome(
    seen: Neighbours, owner: Pod, pod: Pod, node: NodeState, names: Mapping[str, Mapping[str, str]]
) -> None:
    for term in required_anti_affinity(owner):
        value = node.labels.get(term.topology_key)
        if value is not None and term_matches(term, owner, pod, names):
            seen.unwelcome_in[(term.topology_key, value)] += 1


def _note_friends_and_enemies(
    seen: Neighbours, pod: Pod, other: Pod, node: NodeState, names: Mapping[str, Mapping[str, str]]
) -> None:
    near = required_affinity(pod)
    if near and all(term_matches(term, pod, other, names) for term in near):
        for term, domains in zip(near, seen.friends, strict=True):
            if term.topology_key in node.labels:
                domains[(term.topology_key, node.labels[term.topology_key])] += 1
    for term in required_anti_affinity(pod):
        if term.topology_key in node.labels and term_matches(term, pod, other, names):
            seen.enemies[(term.topology_key, node.labels[term.topology_key])] += 1


def _has_friends(seen: Neighbours, near: tuple[PodAffinityTerm, ...], node: NodeState) -> bool:
    if any(term.topology_key not in node.labels for term in near):
        return False
    there = all(
        domains[(term.topology_key, node.labels[term.topology_key])]
        for term, domains in zip(near, seen.friends, strict=True)
    )
    # The first pod of a group that wants to be near its own kind may start anywhere.
    return there or (seen.is_own_friend and not any(seen.friends))
