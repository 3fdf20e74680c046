"""DaemonSets: one pod on every node that takes it. The scheduler places them, as it does in Kubernetes."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from dray.api import codec
from dray.api.core import Node, Pod, PodSpec
from dray.api.dra.pod_phase import is_active
from dray.api.dra.taints import first_untolerated
from dray.api.matching import pod_wants_node, required_nodes
from dray.api.workloads import DaemonSet, DaemonSetStatus
from dray.client import DAEMON_SETS, NODES, EventRecorder, Handler, Recorder, WorkQueue, object_key
from dray.client.rest import Document
from dray.controllers.availability import Availability, availability
from dray.controllers.context import Context
from dray.controllers.daemon_rollout import NodePods, Plan, limits, manual_plan, rolling_plan
from dray.controllers.owned_pods import OwnedPods, is_ready
from dray.controllers.workload_status import write_status

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

    def __init__(self, context: Context, *, recorder: Recorder | None = None) -> None:
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

    def _plan(self, daemon_set: DaemonSet, nodes: dict[str, NodePods]) -> Plan:
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
