"""DaemonSets: one pod on every node that takes it. The scheduler places them, as it does in Kubernetes."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from dray.api import codec
from dray.api.core import Node, Pod, PodSpec
from dray.api.matching import HARD, pod_wants_node, required_nodes, untolerated
from dray.api.workloads import DaemonSet, DaemonSetStatus
from dray.client import DAEMON_SETS, NODES, EventRecorder, Handler, Recorder, WorkQueue, object_key
from dray.client.rest import Document
from dray.controllers.context import Context
from dray.controllers.owned_pods import OwnedPods, first_to_go, is_active, is_ready
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
        if failure is not None:
            raise failure

    def _wanted_nodes(self, daemon_set: DaemonSet) -> set[str]:
        spec = codec.to_object(pod_spec(daemon_set.spec.template, ""), PodSpec)
        return {node.metadata.name for node in self._nodes if should_run(spec, node)}

    async def _reach(self, daemon_set: DaemonSet) -> None:
        wanted = self._wanted_nodes(daemon_set)
        edition = template_hash(daemon_set.spec.template)
        missing = set(wanted)
        for node_name, pods in self._pods_by_node(daemon_set).items():
            keep, surplus = self._choose(daemon_set, pods, edition, is_wanted=node_name in wanted)
            for pod in surplus:
                await self._pods.delete(daemon_set, pod)
            if keep is not None or any(pod.metadata.deletion_timestamp for pod in pods):
                missing.discard(node_name)  # Also while the old pod is still stopping there.
        documents = [self._document(daemon_set, name, edition) for name in sorted(missing)]
        await self._pods.create_many(daemon_set, documents)

    def _choose(
        self, daemon_set: DaemonSet, pods: list[Pod], edition: str, *, is_wanted: bool
    ) -> tuple[Pod | None, list[Pod]]:
        """Of a node's pods one stays: the best of the right edition. Finished ones are replaced."""
        updates = daemon_set.spec.update_strategy.type != "OnDelete"
        live = [pod for pod in pods if pod.metadata.deletion_timestamp is None]
        good = [
            pod for pod in live if is_active(pod) and (not updates or pod.metadata.labels.get(HASH_LABEL) == edition)
        ]
        keep = max(good, key=first_to_go) if good and is_wanted else None
        return keep, [pod for pod in live if pod is not keep]

    def _pods_by_node(self, daemon_set: DaemonSet) -> dict[str, list[Pod]]:
        by_node: dict[str, list[Pod]] = {}
        for pod in self._pods.of(daemon_set):
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
            name: [pod for pod in pods if is_active(pod)] for name, pods in self._pods_by_node(daemon_set).items()
        }
        placed = {name: pods for name, pods in by_node.items() if pods and name in wanted}
        ready = sum(any(is_ready(pod) for pod in pods) for pods in placed.values())
        updated = sum(any(p.metadata.labels.get(HASH_LABEL) == edition for p in pods) for pods in placed.values())
        return DaemonSetStatus(
            desired_number_scheduled=len(wanted),
            current_number_scheduled=len(placed),
            number_misscheduled=sum(1 for name, pods in by_node.items() if pods and name not in wanted),
            number_ready=ready,
            number_available=ready,
            number_unavailable=len(wanted) - ready,
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
    return pod_wants_node(spec, node) and untolerated(node.spec.taints, spec.tolerations, HARD) is None


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
