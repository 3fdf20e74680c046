"""DaemonSets: one pod on every node that fits, replaced step by step when the template changes."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dray.api import codec
from dray.api.core import Node, Pod, PodSpec
from dray.api.dra.pod_phase import is_active
from dray.api.dra.taints import first_untolerated
from dray.api.matching import pod_wants_node, required_nodes
from dray.api.workloads import DaemonSet, DaemonSetStatus, RollingUpdate
from dray.client import DAEMON_SETS, NODES, EventRecorder, Handler, Recorder, WorkQueue, object_key
from dray.client.rest import Document
from dray.controllers.context import ControllerContext
from dray.controllers.deployment_rollout import number_of_pods
from dray.controllers.owned_pods import OwnedPods, deletion_order, is_ready
from dray.controllers.workload_status import Availability, availability, write_status


@dataclass(frozen=True, slots=True)
class NodePods:
    """The pods of one DaemonSet on a node: the best pod of the new edition, the best of an old one, and the rest."""

    new: Pod | None = None
    old: Pod | None = None
    surplus: tuple[Pod, ...] = ()
    is_stopping: bool = False

    @classmethod
    def of(cls, live: Sequence[Pod], edition: str, hash_label: str, *, is_stopping: bool) -> NodePods:
        """`live` has those that nobody deleted. Finished ones are surplus: they are replaced."""
        good = [pod for pod in live if is_active(pod)]
        new = _best([pod for pod in good if pod.metadata.labels.get(hash_label) == edition])
        old = _best([pod for pod in good if pod.metadata.labels.get(hash_label) != edition])
        surplus = tuple(pod for pod in live if pod is not new and pod is not old)
        return cls(new, old, surplus, is_stopping)


@dataclass(slots=True)
class RolloutPlan:
    delete: list[Pod] = field(default_factory=list)
    create_on: list[str] = field(default_factory=list)


def limits(rolling: RollingUpdate | None, nodes: int) -> tuple[int, int]:
    """How many nodes may be without a working daemon, and how many may have two. Percentages are rounded up."""
    surge = _amount(rolling.max_surge if rolling else None, 0, nodes)
    unavailable = _amount(rolling.max_unavailable if rolling else None, 1, nodes)
    return (max(1, unavailable) if surge == 0 else unavailable), surge


def rolling_plan(
    nodes: Mapping[str, NodePods], available: frozenset[str], max_unavailable: int, max_surge: int
) -> RolloutPlan:
    """`nodes` has every node that should run the daemon; `available` holds the UIDs of available pods."""
    plan = RolloutPlan()
    without = sum(not _works(found, available) for found in nodes.values())
    doubled = sum(found.new is not None and found.old is not None for found in nodes.values())
    room, surge_room = max_unavailable - without, max_surge - doubled
    for name, found in sorted(nodes.items()):
        plan.delete += found.surplus
        if found.old is None:
            if found.new is None and not found.is_stopping:
                plan.create_on.append(name)
        elif found.new is not None:
            # Two on one node: the old one goes as soon as the new one can do its work.
            if not max_surge or found.new.metadata.uid in available:
                plan.delete.append(found.old)
        elif found.old.metadata.uid not in available:
            plan.delete.append(found.old)
        elif surge_room > 0:
            surge_room -= 1
            plan.create_on.append(name)
        elif not max_surge and room > 0:
            room -= 1
            plan.delete.append(found.old)
    return plan


def manual_plan(nodes: Mapping[str, NodePods]) -> RolloutPlan:
    """`OnDelete`: a pod of any edition is good until somebody deletes it."""
    plan = RolloutPlan()
    for name, found in sorted(nodes.items()):
        plan.delete += found.surplus
        if found.new is not None and found.old is not None:
            plan.delete.append(found.old)
        elif found.new is None and found.old is None and not found.is_stopping:
            plan.create_on.append(name)
    return plan


def _works(found: NodePods, available: frozenset[str]) -> bool:
    return any(pod is not None and pod.metadata.uid in available for pod in (found.new, found.old))


def _best(pods: list[Pod]) -> Pod | None:
    return max(pods, key=deletion_order) if pods else None


def _amount(value: int | str | None, default: int, of: int) -> int:
    return default if value is None else number_of_pods(value, of, math.ceil, unreadable=default)


HASH_LABEL = "controller-revision-hash"
WORKERS = 2
# What a daemon endures on any node, besides what its template says.
ALWAYS_TOLERATED = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)


class DaemonSetController:
    name = "daemonset-controller"

    def __init__(self, context: ControllerContext, *, recorder: Recorder | None = None) -> None:
        self._client = context.client.named("daemonset-controller")
        self._clock = context.clock
        self._informers = context.informers
        self._sets = context.informers.of(DAEMON_SETS)
        self._nodes = context.informers.of(NODES)
        self.queue: WorkQueue[str] = WorkQueue("daemonset", clock=context.clock, registry=context.registry)
        recorder = recorder or EventRecorder(self._client, "daemonset-controller")
        self._pods = OwnedPods(self._client, context.informers, DAEMON_SETS, recorder, self.queue.add)
        self._sets.add_handler(Handler(self._seen, lambda _, new: self._seen(new)))
        self._nodes.add_handler(Handler(self._node_seen, self._node_changed, self._node_seen))

    def _seen(self, daemon_set: DaemonSet) -> None:
        self.queue.add(object_key(daemon_set))

    def _node_seen(self, _: Node) -> None:
        for daemon_set in self._sets:
            self._seen(daemon_set)

    def _node_changed(self, old: Node, new: Node) -> None:
        """Heartbeats concern nobody here."""
        if (old.metadata.labels, old.spec) != (new.metadata.labels, new.spec):
            self._node_seen(new)

    async def run(self) -> None:
        await self._informers.synced()
        await self.queue.run(self.sync, WORKERS)

    async def sync(self, key: str) -> None:
        daemon_set = self._sets.get(key)
        if daemon_set is None:
            return
        failure: Exception | None = None
        if daemon_set.metadata.deletion_timestamp is None:
            try:
                await self._reach(daemon_set)
            except Exception as error:
                failure = error
        await write_status(self._client, DAEMON_SETS, daemon_set, self._status(daemon_set))
        next_s = self._availability(daemon_set, *self._pods.of(daemon_set)).next_s
        if next_s is not None:
            self.queue.add_after(key, next_s)
        if failure is not None:
            raise failure

    def _wanted_nodes(self, daemon_set: DaemonSet) -> set[str]:
        spec = codec.to_object(pod_spec(daemon_set.spec.template, ""), PodSpec)
        return {node.metadata.name for node in self._nodes if should_run(spec, node)}

    async def _reach(self, daemon_set: DaemonSet) -> None:
        wanted = self._wanted_nodes(daemon_set)
        edition = template_hash(daemon_set.spec.template)
        by_node = self._pods_by_node(daemon_set)
        nodes = {name: self._node_pods(by_node.get(name, []), edition) for name in wanted}
        plan = self._plan(daemon_set, nodes)
        misplaced = [pod for name, pods in by_node.items() if name not in wanted for pod in pods]
        for pod in plan.delete + [pod for pod in misplaced if not self._pods.is_stopping(pod)]:
            await self._pods.delete(daemon_set, pod)
        documents = [self._document(daemon_set, name, edition) for name in plan.create_on]
        await self._pods.create_many(daemon_set, documents)

    def _node_pods(self, pods: list[Pod], edition: str) -> NodePods:
        live = [pod for pod in pods if not self._pods.is_stopping(pod)]
        return NodePods.of(live, edition, HASH_LABEL, is_stopping=len(live) < len(pods))

    def _plan(self, daemon_set: DaemonSet, nodes: dict[str, NodePods]) -> RolloutPlan:
        strategy = daemon_set.spec.update_strategy
        if strategy.type == "OnDelete":
            return manual_plan(nodes)
        pods = [pod for found in nodes.values() for pod in (found.new, found.old) if pod is not None]
        available = frozenset(pod.metadata.uid for pod in pods if self._availability(daemon_set, pod).available)
        return rolling_plan(nodes, available, *limits(strategy.rolling_update, len(nodes)))

    def _availability(self, daemon_set: DaemonSet, *pods: Pod) -> Availability:
        return availability(pods, daemon_set.spec.min_ready_seconds, self._clock.now())

    def _pods_by_node(self, daemon_set: DaemonSet) -> dict[str, list[Pod]]:
        by_node: dict[str, list[Pod]] = {}
        for pod in self._pods.including_stopping(daemon_set):
            by_node.setdefault(pod.spec.node_name or _target(pod), []).append(pod)
        return by_node

    def _document(self, daemon_set: DaemonSet, node_name: str, edition: str) -> Document:
        document = self._pods.document(daemon_set, daemon_set.spec.template, labels={HASH_LABEL: edition})
        document["spec"] = pod_spec(daemon_set.spec.template, node_name)
        return document

    def _status(self, daemon_set: DaemonSet) -> DaemonSetStatus:
        wanted = self._wanted_nodes(daemon_set)
        edition = template_hash(daemon_set.spec.template)
        by_node = {
            name: [pod for pod in pods if is_active(pod) and not self._pods.is_stopping(pod)]
            for name, pods in self._pods_by_node(daemon_set).items()
        }
        placed = {name: pods for name, pods in by_node.items() if pods and name in wanted}
        ready = sum(any(is_ready(pod) for pod in pods) for pods in placed.values())
        available = sum(bool(self._availability(daemon_set, *pods).available) for pods in placed.values())
        updated = sum(any(p.metadata.labels.get(HASH_LABEL) == edition for p in pods) for pods in placed.values())
        return DaemonSetStatus(
            desired_number_scheduled=len(wanted),
            current_number_scheduled=len(placed),
            number_misscheduled=sum(1 for name, pods in by_node.items() if pods and name not in wanted),
            number_ready=ready,
            number_available=available,
            number_unavailable=len(wanted) - available,
            updated_number_scheduled=updated,
            observed_generation=daemon_set.metadata.generation,
        )


def pod_spec(template: Document, node_name: str) -> Document:
    """The template's spec with the daemon's tolerations, bound by affinity to one node if it is named."""
    spec: dict[str, Any] = json.loads(json.dumps(template.get("spec") or {}))
    tolerations = spec.setdefault("tolerations", [])
    always = [{"key": key, "operator": "Exists", "effect": effect} for key, effect in ALWAYS_TOLERATED]
    if spec.get("hostNetwork"):
        key = "node.kubernetes.io/network-unavailable"
        always.append({"key": key, "operator": "Exists", "effect": "NoSchedule"})
    tolerations += [toleration for toleration in always if toleration not in tolerations]
    if node_name:
        wish = {"key": "metadata.name", "operator": "In", "values": [node_name]}
        rules = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
        required = rules.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {})
        # The template's own terms were used to choose the node; this one alone names it.
        required["nodeSelectorTerms"] = [{"matchFields": [wish]}]
    return spec


def should_run(spec: PodSpec, node: Node) -> bool:
    if spec.node_name and spec.node_name != node.metadata.name:
        return False
    return pod_wants_node(spec, node) and first_untolerated(node.spec.taints, spec.tolerations) is None


def template_hash(template: Document) -> str:
    text = json.dumps(template, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=5).hexdigest()


def _target(pod: Pod) -> str:
    """The node that an unplaced daemon pod is meant for."""
    required = required_nodes(pod.spec)
    for term in required.node_selector_terms if required else ():
        for wish in term.match_fields:
            if wish.key == "metadata.name" and wish.values:
                return wish.values[0]
    return ""
