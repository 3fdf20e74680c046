"""The rule that no node holds more than its allocatable.

Two counts: pods that the node has taken in (they have a start time), which must hold always; and pods that are bound to it,
which must hold where the server refuses to overbook. Elsewhere two schedulers may both bind to the last free cpu; the node
agent then refuses one.
"""

from __future__ import annotations

from collections.abc import Iterator

from dray.accounting import AccountingError, ClusterLedger, PodRef, pod_demand
from dray.api.core import Node, Pod
from dray.client import NODES, PODS
from dray.proof.history import ObjectKey
from dray.proof.replay import (
    Object,
    ReplayedCluster,
)
from dray.proof.violation import Violation

FINISHED = ("Succeeded", "Failed")


class LedgerRule:
    def __init__(self, *, bound_must_fit: bool = False) -> None:
        self._bound = ClusterLedger()
        self._admitted = ClusterLedger()
        self._bound_must_fit = bound_must_fit
        # How often pods were bound beyond a node's allocatable, refused by the node afterwards.
        self.overbound = 0

    def changed(
        self, world: ReplayedCluster, revision: int, key: ObjectKey, old: Object | None, new: Object | None
    ) -> Iterator[Violation]:
        if isinstance(new, Node):
            self._bound.set_node(new)
            self._admitted.set_node(new)
        elif isinstance(old, Node):
            self._bound.remove_node(key.name)
            self._admitted.remove_node(key.name)
        else:
            yield from self._pod_changed(revision, old, new)

    def _pod_changed(self, revision: int, old: Object | None, new: Object | None) -> Iterator[Violation]:
        if isinstance(old, Pod) and (not isinstance(new, Pod) or new.metadata.uid != old.metadata.uid):
            self._bound.remove(PodRef.of(old))
            self._admitted.remove(PodRef.of(old))
        if not isinstance(new, Pod) or not new.spec.node_name:
            return
        if new.status.phase in FINISHED:
            self._bound.remove(PodRef.of(new))
            self._admitted.remove(PodRef.of(new))
            return
        was_bound = isinstance(old, Pod) and bool(old.spec.node_name)
        was_admitted = isinstance(old, Pod) and old.status.start_time is not None
        yield from self._enter(self._bound, revision, new, "bound-over-allocatable", was_bound)
        if new.status.start_time is not None:
            yield from self._enter(self._admitted, revision, new, "ledger-overdrawn", was_admitted)

    def _enter(self, ledger: ClusterLedger, revision: int, pod: Pod, rule: str, was_there: bool) -> Iterator[Violation]:
        try:
            demand = pod_demand(pod)
        except AccountingError as error:
            yield Violation(rule, revision, str(PodRef.of(pod)), f"what it asks for cannot be counted: {error}")
            return
        node = pod.spec.node_name
        ledger.add(node, PodRef.of(pod), demand)
        # A node that shrank or left breaks no promise; only a pod added beyond its allocatable does.
        if was_there or not ledger.has_node(node):
            return
        for short in ledger.nodes[node].overcommitted():
            if rule == "bound-over-allocatable":
                self.overbound += 1
                if not self._bound_must_fit:
                    continue
            keys = (ObjectKey(NODES.plural, "", node), *(_key(each) for each, _ in ledger.nodes[node].pods()))
            yield Violation(rule, revision, f"node {node}", f"pod {PodRef.of(pod)}: {short.detail}", keys)


def _key(pod: PodRef) -> ObjectKey:
    return ObjectKey(PODS.plural, pod.namespace, pod.name)
