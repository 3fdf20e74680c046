"""The verdict of each node on a pod: what its filters say, which devices it has for the pod, and how many points it gets."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import replace
from typing import Any

from dray.allocator import Allocation
from dray.allocator.node_report import report_on_node
from dray.api.core import Pod
from dray.explain.alike_nodes import DeviceVerdicts
from dray.explain.device_holders import DeviceHolders
from dray.explain.request_counts import RequestCounts, count_devices
from dray.explain.verdicts import DeviceVerdict, NodeVerdict, Refusal
from dray.explain.what_if import WhatIfContext, step_limit
from dray.scheduler.cycle import PreFiltered
from dray.scheduler.framework.filtering import positions
from dray.scheduler.framework.interface import CycleState, PluginStatus, StatusCode
from dray.scheduler.framework.profile import SchedulingProfile
from dray.scheduler.framework.scoring import ScoreRun
from dray.scheduler.handle import Handle
from dray.scheduler.nodes import NodeState
from dray.scheduler.plugins.dynamic_resources.node_allocatable import why_no_room
from dray.scheduler.plugins.dynamic_resources.pod_claims import PodAttempt
from dray.sim.pod_explanation.node_refusals import RefusalDetails, without_taint_of_cordon

# Nodes for which it is tried out what would help.
IN_DEPTH = 3
_OF_DEVICES = frozenset(
    {"devices", "invalid-pools", "selector-error", "pool-not-ready", "capacity", "too-many-devices"}
)


class NodeVerdicts:
    """Asks the filters of a profile about one pod, in a scheduling cycle whose PreFilter left the nodes of `allowed`."""

    def __init__(
        self,
        pod: Pod,
        handle: Handle,
        profile: SchedulingProfile,
        cycle: CycleState,
        allowed: PreFiltered,
        holders: DeviceHolders,
    ) -> None:
        self._pod = pod
        self._handle = handle
        self._profile = profile
        self._cycle = cycle
        self._allowed = allowed
        self._holders = holders
        self._plugins = [plugin for plugin in profile.at.filter if plugin.name not in cycle.skipped_filters]
        self._device_verdicts: dict[Hashable, DeviceVerdicts] = {}
        # By node that would fit otherwise: the nominated pods for which the scheduler keeps room there.
        self._kept_for: dict[str, str] = {}

    def nearest_first(self) -> list[NodeVerdict]:
        verdicts = [self._on_node(node, in_depth=False) for node in self._handle.snapshot.nodes]
        return sorted(verdicts, key=lambda verdict: verdict.distance)

    def in_depth(self, names: Collection[str]) -> list[NodeVerdict]:
        """The same, where these nodes also say what would help, or else the nearest ones."""
        verdicts = self.nearest_first()
        wanted = set(names) or {verdict.node for verdict in verdicts[:IN_DEPTH]}
        for index, verdict in enumerate(verdicts):
            state = self._handle.snapshot.nodes.get(verdict.node)
            if verdict.node in wanted and not verdict.fits and state is not None:
                verdicts[index] = self._on_node(state, in_depth=True)
        return verdicts

    def kept_for(self, node_name: str) -> str:
        """The nominated pods for which the scheduler keeps room on a node that would fit otherwise; empty if there are none."""
        return self._kept_for.get(node_name, "")

    def scored(self, verdicts: list[NodeVerdict]) -> list[NodeVerdict]:
        """Nodes that fit with the points of each plugin, the best first; a node that fits alone is not scored."""
        fitting = {verdict.node for verdict in verdicts if verdict.fits}
        if len(fitting) < 2:
            return verdicts
        snapshot = self._handle.snapshot
        run = ScoreRun(self._cycle, self._pod, snapshot, snapshot.nodes.mask_of(fitting))
        if run.pre_score(self._profile.at.pre_score) is not None:
            return verdicts
        rows = run.rows(self._profile.score_steps)
        points: dict[str, list[tuple[str, int]]] = {name: [] for name in fitting}
        for row in rows:
            for score, nodes in row.nodes_by_score.items():
                for position in positions(nodes & snapshot.nodes.mask_of(fitting)):
                    points[snapshot.nodes[position].name].append((row.plugin, score * row.weight))
        scored = [replace(verdict, scores=tuple(points.get(verdict.node, ()))) for verdict in verdicts]
        return sorted(scored, key=lambda verdict: (verdict.distance, -verdict.score))

    def requests_on(self, node_name: str) -> tuple[RequestCounts, ...]:
        """How many devices of a node would serve each request."""
        state = self._handle.snapshot.nodes.get(node_name)
        attempt = self._cycle.read(PodAttempt)
        question = attempt.on(state).question if attempt is not None and state is not None else None
        if question is None or state is None:
            return ()
        report = report_on_node(self._handle.devices.allocator, question, state.node)
        return tuple(count_devices(each) for each in report.requests)

    # --- one node

    def _on_node(self, node: NodeState, *, in_depth: bool) -> NodeVerdict:
        on_node = RefusalDetails(self._pod, node, self._cycle, self._handle)
        refusals: list[Refusal] = []
        for ruled_out, mask in self._allowed.ruled_out.items():
            if mask & node.bit:
                refusals.append(self._refusal(on_node, ruled_out))
        devices: DeviceVerdict | None = None
        for plugin in self._plugins:
            status = self._status(plugin, node)
            # What ruled the node out before says it already.
            if status is None or any(each.plugin == plugin.name for each in refusals):
                continue
            refusal = self._refusal(on_node, status.by(plugin.name))
            if plugin.name == "DynamicResources" and refusal.code in _OF_DEVICES:
                devices = self._devices(node, in_depth)
                if devices is not None:
                    refusal = Refusal(devices.code, devices.message, plugin.name)
                if on_node.has_claims_elsewhere():
                    refusals.append(Refusal("claim-elsewhere", on_node.text("claim-elsewhere"), plugin.name))
            refusals.append(refusal)
        refusals = without_taint_of_cordon(refusals, self._pod, node.node)
        if not refusals:
            refusals += self._room_kept_for_others(node)
        chosen = self._chosen(node) if not refusals else ()
        return NodeVerdict(node.name, tuple(refusals), devices, chosen)

    def _status(self, plugin: Any, node: NodeState) -> PluginStatus | None:
        """One filter on one node, as the scheduler would ask it; None if the pod passes."""
        if hasattr(plugin, "reject"):
            for mask, status in plugin.reject(self._cycle, self._pod, self._handle.snapshot, node.bit):
                if mask & node.bit:
                    return status  # type: ignore[no-any-return]
        status = plugin.filter(self._cycle, self._pod, node)
        return None if status is None or status.code is StatusCode.SUCCESS else status

    def _room_kept_for_others(self, node: NodeState) -> list[Refusal]:
        """As the scheduler does, pods that are nominated for the node count as if they were there."""
        expected = self._nominated_for(node.name)
        if not expected:
            return []
        names = ", ".join(f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in expected[:3])
        with self._handle.snapshot.hypothetically_with(expected, node.name):
            details = RefusalDetails(self._pod, node, self._cycle, self._handle)
            asked = ((plugin, self._status(plugin, node)) for plugin in self._plugins)
            refusals = [
                self._refusal(details, status.by(plugin.name)) for plugin, status in asked if status is not None
            ]
        if refusals:
            self._kept_for[node.name] = names
        kept = f"; room is kept for pod {names}, nominated for this node with no lower priority"
        return [replace(refusal, message=refusal.message + kept) for refusal in refusals]

    def _nominated_for(self, node_name: str) -> list[Pod]:
        return self._handle.nominations.at_least(node_name, self._pod.spec.priority or 0, self._pod.metadata.uid)

    def _refusal(self, on_node: RefusalDetails, status: PluginStatus) -> Refusal:
        code = status.reason_code
        rows = on_node.short_rows(code)
        text = "; ".join(row.sentence() for row in rows) or on_node.text(code) or status.message
        if any("/" in row.resource for row in rows):
            from dray.sim.pod_explanation.extended_resource_text import not_served

            text += not_served(rows, self._handle.devices.classes.values())
        return Refusal(code, text, status.plugin, rows)

    # --- its devices

    def _devices(self, node: NodeState, in_depth: bool) -> DeviceVerdict | None:
        attempt = self._cycle.read(PodAttempt)
        question = attempt.on(node).question if attempt is not None else None
        if attempt is None or question is None:
            return None
        allocator = self._handle.devices.allocator
        # Nodes may be asked different questions: on some an extended resource comes from devices, on others not.
        known = self._device_verdicts.get(question.kind)
        if known is None:
            known = self._device_verdicts[question.kind] = DeviceVerdicts(allocator, question, self._holders)
        verdict = known.on(node.node, self._conditions(attempt, node) if in_depth else None)
        extended = attempt.on(node).extended
        if verdict is None or extended is None:
            return verdict
        from dray.sim.pod_explanation.extended_resource_text import asking_for_fewer, in_words_of_the_pod

        fewer = asking_for_fewer(self._pod, extended, verdict.requests) if in_depth else None
        return replace(
            verdict,
            message=in_words_of_the_pod(verdict.message, self._pod.metadata.namespace, extended),
            helps=(*verdict.helps, fewer) if fewer is not None else verdict.helps,
        )

    def _conditions(self, attempt: PodAttempt, node: NodeState) -> WhatIfContext:
        own = frozenset(f"{claim.metadata.namespace}/{claim.metadata.name}" for claim in attempt.allocated)
        if not self._handle.devices.some_take_node_resources:
            return WhatIfContext(own)
        return WhatIfContext(
            own, lambda allocation: why_no_room(attempt, self._pod, node, self._handle, allocation) is None
        )

    def _chosen(self, node: NodeState) -> tuple[str, ...]:
        attempt = self._cycle.read(PodAttempt)
        question = attempt.on(node).question if attempt is not None else None
        answer = question.on(node.node, step_limit()) if question is not None else None
        if not isinstance(answer, Allocation):
            return ()
        return tuple(str(row.device_id) for devices in answer.devices() for row in devices)
