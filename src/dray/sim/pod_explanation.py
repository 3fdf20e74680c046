"""Why does this pod wait, or why is it where it is? One attempt of the real scheduler, with every filter asked on every node."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any

from msgspec.structs import replace as changed

from dray.allocator import Allocation
from dray.allocator.node_report import report_on_node
from dray.api.core import Node, Pod
from dray.api.dra.claim_users import MAX_USERS, is_reserved_only_for, may_use, user_names
from dray.api.dra.consumption import allocation_results
from dray.api.dra.pod_claims import claim_names, claim_names_of_entries, entries_without_claim
from dray.api.dra.pod_phase import is_finished
from dray.api.dra.pools import device_id
from dray.api.resource import ResourceClaim
from dray.explain.alike_nodes import DeviceVerdicts
from dray.explain.cluster_objects import ClusterObjects, meant_by_pod, meant_by_template, similar_name
from dray.explain.device_holders import DeviceHolders
from dray.explain.node_remedies import RefusingNode, is_in_trouble, node_remedies
from dray.explain.placement import device_names, why_these_devices, why_this_node
from dray.explain.reason_codes import (
    FITS,
    SCHEDULED,
)
from dray.explain.recorded_causes import RecordedCause, unready_devices, why_no_claim
from dray.explain.request_counts import RequestCounts, count_devices
from dray.explain.verdicts import DeviceVerdict, NodeVerdict, PodNotFound, PodVerdict, Refusal
from dray.explain.what_if import CHANGES_OF_CLAIMS, Remedy, WhatIfContext, all_of, step_limit
from dray.features import FeatureGates
from dray.scheduler.config import SchedulerConfig
from dray.scheduler.cycle import PreFiltered
from dray.scheduler.framework.filtering import positions
from dray.scheduler.framework.interface import CycleState, PluginStatus, StatusCode
from dray.scheduler.framework.profile import SchedulingProfile
from dray.scheduler.framework.scoring import ScoreRun
from dray.scheduler.nodes import NodeState
from dray.scheduler.outcomes import PodRejection, SchedulingFailed
from dray.scheduler.plugins.dynamic_resources.node_allocatable import why_no_room
from dray.scheduler.plugins.dynamic_resources.pod_claims import PodAttempt
from dray.sim.node_refusals import RefusalDetails
from dray.sim.rehearsals import Rehearsals
from dray.sim.simulation import Simulation

# Nodes for which it is tried out what would help.
IN_DEPTH = 3
_OF_DEVICES = frozenset(
    {"devices", "invalid-pools", "selector-error", "pool-not-ready", "capacity", "too-many-devices"}
)


@dataclass(frozen=True, slots=True)
class ExplainOptions:
    """`nodes` are looked at in depth. `new_pods`, by namespace and name, are not created yet, so nobody has made their
    claims. `is_live`: what the world does not hold does not exist; a dump may just lack it. `is_brief`: only what is in the way is
    wanted, and not what would help."""

    nodes: Sequence[str] = ()
    gates: FeatureGates | None = None
    config: SchedulerConfig | None = None
    new_pods: Collection[tuple[str, str]] = ()
    is_live: bool = False
    is_brief: bool = False


DEFAULT_OPTIONS = ExplainOptions()


def explain_live_pod(objects: ClusterObjects, namespace: str, name: str, gates: FeatureGates) -> PodVerdict:
    """Explains a pod of a live cluster: an object that is not among `objects` does not exist.

    The answer has a `headline`, the `code` and `cause` of what is wrong, `helps` that were rehearsed, and a `fix` where nothing
    could be; `explain.pod_text.short_text_of` makes a few lines of it.
    """
    return explain_pod(objects, namespace, name, ExplainOptions(gates=gates, is_live=True))


def explain_live_pods(
    objects: ClusterObjects, pods: Collection[tuple[str, str]], gates: FeatureGates
) -> dict[tuple[str, str], PodVerdict]:
    """The same for several pods, by namespace and name; a pod that does not exist has no answer."""
    cluster = ExplainedCluster(objects, ExplainOptions(gates=gates, is_live=True))
    return {pod: cluster.explain(*pod) for pod in pods if pod in objects.pods_by_name}


def explain_pod(
    world: ClusterObjects, namespace: str, name: str, options: ExplainOptions = DEFAULT_OPTIONS
) -> PodVerdict:
    """Explains one pod; see `ExplainedCluster` for several."""
    return ExplainedCluster(world, options).explain(namespace, name)


class ExplainedCluster:
    """A cluster of one moment in which pods are explained; its devices are compiled for the first of them."""

    def __init__(self, world: ClusterObjects, options: ExplainOptions = DEFAULT_OPTIONS) -> None:
        self._world = world
        self._options = options

    @cached_property
    def _simulation(self) -> Simulation:
        new = self._options.new_pods
        return Simulation(
            self._world,
            config=self._options.config,
            gates=self._options.gates,
            serves=lambda pod: (pod.metadata.namespace, pod.metadata.name) in new,
        )

    def _found_elsewhere(self, namespace: str, name: str) -> str:
        """Where a pod of that name is, or else a name in that namespace that is spelled alike."""
        others = sorted(place for place, found in self._world.pods_by_name if found == name)
        if others:
            more = f" and {len(others) - 1} other namespaces" if len(others) > 1 else ""
            return f"; a pod of that name is in namespace {others[0]}{more}: use -n {others[0]}"
        return similar_name(name, [found for place, found in self._world.pods_by_name if place == namespace])

    def explain(self, namespace: str, name: str) -> PodVerdict:
        """Raises `PodNotFound`."""
        pod = self._world.pods_by_name.get((namespace, name))
        if pod is None:
            raise PodNotFound(f"pod {namespace}/{name} not found{self._found_elsewhere(namespace, name)}")
        if is_finished(pod):
            said = ": ".join(part for part in (pod.status.phase, pod.status.reason, pod.status.message) if part)
            return _settled(pod, "pod-finished", f"{namespace}/{name} has finished ({said})")
        if pod.metadata.deletion_timestamp is not None and not pod.spec.node_name:
            return _settled(pod, "pod-deleted", f"{namespace}/{name} is being deleted")
        if pod.spec.node_name:
            return self._placed(pod)
        return _PodExplainer(self._world, self._simulation, name, namespace, self._options).verdict()

    def _placed(self, pod: Pod) -> PodVerdict:
        """The pod has a node: why it does not start there, or what it got, and how the nodes look if it is placed again."""
        from dray.explain.doctor import why_not_started

        where = f"{pod.metadata.namespace}/{pod.metadata.name}"
        held_up = why_not_started(self._world, pod)[:1] if pod.status.phase == "Pending" else []
        for found in held_up:
            code = (found.cause or found.code) if found.severity == "error" else SCHEDULED
            return replace(_settled(pod, code, f"{where} {found.message}"), fix=found.fix, details=self._devices(pod))
        again = self._as_if_waiting(pod)
        state = ", ".join([pod.status.phase or "Pending", *_waiting_containers(pod)])
        return replace(
            _settled(pod, SCHEDULED, f"{where} is on node {pod.spec.node_name} ({state})"),
            details=(f"node: {why_this_node(pod.spec.node_name, again.nodes)}", *self._devices(pod, again.requests)),
            nodes=again.nodes,
            notes=("the verdicts are as if the pod had no node and were placed now",),
        )

    def _devices(self, pod: Pod, counts: Sequence[RequestCounts] = ()) -> tuple[str, ...]:
        """A line for each request: what it got."""
        found: dict[tuple[str, str], list[str]] = {}
        for name in claim_names_of_entries(pod):
            claim = self._world.claims_by_name.get((pod.metadata.namespace, name))
            for row in allocation_results(claim) if claim is not None else ():
                found.setdefault((f"{pod.metadata.namespace}/{name}", row.request), []).append(str(device_id(row)))
        return tuple(f"devices: {why_these_devices(*key, devices, counts)}" for key, devices in found.items())

    def _as_if_waiting(self, pod: Pod) -> _PlacedAgain:
        """The verdict if the pod had no node, and the claims that only it uses had no devices."""
        cluster = self._simulation.cluster
        placed: Pod = cluster.get(Pod, pod.metadata.name, pod.metadata.namespace)
        claims = [
            claim
            for claim in cluster.all(ResourceClaim)
            if is_reserved_only_for(claim, {pod.metadata.uid}) and claim.status.allocation is not None
        ]
        free = [changed(each, status=changed(each.status, allocation=None, reserved_for=())) for each in claims]
        cluster.delete(placed)
        cluster.apply(_unbound(placed), *free)
        world = ClusterObjects.of((*replace(self._world, claims=()).objects(), *cluster.all(ResourceClaim)))
        try:
            explainer = _PodExplainer(world, self._simulation, pod.metadata.name, pod.metadata.namespace, self._options)
            return _PlacedAgain(explainer.verdict().nodes, explainer.requests_on(pod.spec.node_name))
        finally:
            cluster.delete(placed)
            cluster.apply(*claims, placed)


@dataclass(frozen=True, slots=True)
class _PlacedAgain:
    """`requests` are the devices of the pod's own node, request by request."""

    nodes: tuple[NodeVerdict, ...]
    requests: tuple[RequestCounts, ...]


# Containers that wait for these are on their way.
_ON_THE_WAY = ("", "ContainerCreating", "PodInitializing")


def _waiting_containers(pod: Pod) -> Iterator[str]:
    for row in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        waiting = row.state.waiting
        if waiting is not None and waiting.reason not in _ON_THE_WAY:
            yield f"container {row.name}: {': '.join(part for part in (waiting.reason, waiting.message) if part)}"


def _settled(pod: Pod, code: str, headline: str) -> PodVerdict:
    return PodVerdict(pod.metadata.namespace, pod.metadata.name, code, headline, pod.spec.node_name)


def _unbound(pod: Pod) -> Pod:
    return changed(pod, spec=changed(pod.spec, node_name=""), status=changed(pod.status, phase="Pending"))


class _PodExplainer:
    """Explains one pod of the simulated cluster. `world` is the cluster as it was handed in."""

    def __init__(
        self, world: ClusterObjects, simulation: Simulation, name: str, namespace: str, options: ExplainOptions
    ) -> None:
        self._options = options
        self._simulation = simulation
        self._scheduler = self._simulation.scheduler
        self._handle = self._scheduler.handle
        self._world = world
        found: Pod | None = self._simulation.cluster.get(Pod, name, namespace)
        assert found is not None
        self._pod = found
        self._holders = DeviceHolders(self._simulation.cluster.all(ResourceClaim), world.pods)
        self._where = f"{namespace}/{name}"
        self._cycle: CycleState | None = None
        self._device_verdicts: dict[Hashable, DeviceVerdicts] = {}
        # By node that would fit otherwise: the nominated pods for which the scheduler keeps room there.
        self._kept_for: dict[str, str] = {}

    def verdict(self) -> PodVerdict:
        problem = self._simulation.prepared.problems.get(self._pod.metadata.uid)
        if problem:
            return self._waits(problem.code, problem.text)
        profile = self._scheduler.profiles.get(self._pod.spec.scheduler_name)
        if profile is None:
            known = ", ".join(self._scheduler.profiles)
            name = self._pod.spec.scheduler_name
            return self._waits("other-scheduler", f"scheduler {name} is responsible, this one answers to {known}")
        held_back = self._scheduler.held_back(self._pod)
        if held_back is not None:
            return self._held_back(held_back)
        unready = self._unready_device()
        if unready is not None:
            return self._waits_for(unready)
        full = self._claim_without_room()
        if full is not None:
            return self._waits("claim-full", full)
        self._handle.snapshot.refresh()
        if not len(self._handle.snapshot.nodes):
            return self._waits("no-nodes", "there are no nodes")
        cycle = CycleState()
        allowed = self._scheduler.decider.pre_filter(profile, cycle, self._pod)
        if isinstance(allowed, SchedulingFailed):
            return self._waits(allowed.reason.code, allowed.message)
        if isinstance(allowed, PodRejection):
            return self._refused_everywhere(allowed, profile, cycle)
        verdicts = self._node_verdicts(profile, cycle, allowed)
        return self._summed_up(self._scored(verdicts, profile, cycle), profile)

    # --- before any node is asked

    def _waits(self, code: str, message: str, fix: str = "") -> PodVerdict:
        namespace, name = self._pod.metadata.namespace, self._pod.metadata.name
        return PodVerdict(namespace, name, code, f"{self._where} waits: {message}", fix=fix, notes=self._notes())

    def _waits_for(self, cause: RecordedCause) -> PodVerdict:
        return self._waits(cause.code, cause.message, cause.fix)

    def _unready_device(self) -> RecordedCause | None:
        """Of a claim that is allocated for this pod, or for others with it."""
        for name in claim_names(self._pod):
            claim = self._world.claims_by_name.get((self._pod.metadata.namespace, name))
            for cause in unready_devices(claim) if claim is not None else ():
                return cause
        return None

    def _claim_without_room(self) -> str | None:
        """An allocated claim that the scheduler would try to reserve for the pod, and the server would refuse."""
        for name in claim_names(self._pod):
            claim = self._world.claims_by_name.get((self._pod.metadata.namespace, name))
            users = len(claim.status.reserved_for) if claim is not None else 0
            if claim is not None and users >= MAX_USERS and not may_use(claim, self._pod):
                where = f"{claim.metadata.namespace}/{name}"
                return f"claim {where} is reserved for {users} users, and a claim can have no more than {MAX_USERS}"
        return None

    def _users_of_deleted_claim(self) -> str:
        """Nobody can have the claim again before these are gone."""
        for name in claim_names(self._pod):
            claim = self._world.claims_by_name.get((self._pod.metadata.namespace, name))
            if claim is not None and claim.metadata.deletion_timestamp is not None:
                users = list(user_names(claim))
                more = f" and {len(users) - 3} more" if len(users) > 3 else ""
                return f"; still used by pod {', '.join(users[:3])}{more}" if users else ""
        return ""

    def _held_back(self, status: PluginStatus) -> PodVerdict:
        code = status.reason_code
        if code == "claim-being-deleted":
            return self._waits(code, status.message + self._users_of_deleted_claim())
        if code == "claim-missing":
            meant = meant_by_pod(self._world, self._pod)
            return self._waits(code, status.message + meant.hint, meant.fix)
        if code != "claim-not-created":
            return self._waits(code, status.message)
        for entry in entries_without_claim(self._pod):
            template = entry.resource_claim_template_name or ""
            if (self._pod.metadata.namespace, template) not in self._world.templates_by_name:
                meant = meant_by_template(self._world, self._pod.metadata.namespace, template)
                said = f'resource claim template "{template}" of entry {entry.name} does not exist'
                return self._waits("template-missing", said + meant.hint, meant.fix)
            cause = why_no_claim(self._world, self._pod, entry)
            if cause is not None:
                return self._waits_for(cause)
            return self._waits(code, f"no claim has been made yet for entry {entry.name} from template {template}")
        return self._waits(code, status.message)

    def _refused_everywhere(self, rejection: PodRejection, profile: SchedulingProfile, cycle: CycleState) -> PodVerdict:
        if rejection.pre_filter is None:
            rejected = PreFiltered(0, dict(rejection.nodes_by_status))
            return self._summed_up(self._node_verdicts(profile, cycle, rejected), profile)
        status = rejection.pre_filter
        code = status.reason_code
        message = status.message
        if code == "missing-class":
            known = sorted(self._handle.devices.classes)
            message += (
                similar_name(self._missing_class(), known) or f"; classes there are: {', '.join(known) or 'none'}"
            )
        return self._waits(code, message)

    def _missing_class(self) -> str:
        for name in claim_names(self._pod):
            claim: ResourceClaim = self._simulation.cluster.get(ResourceClaim, name, self._pod.metadata.namespace)
            for request in claim.spec.devices.requests:
                asked = [request.exactly] if request.exactly is not None else request.first_available
                for each in asked:
                    if each.device_class_name not in self._handle.devices.classes:
                        return each.device_class_name
        return ""

    def _notes(self) -> tuple[str, ...]:
        """Kinds that nobody handed in make an answer doubtful; preemption may be about to make it untrue."""
        nominated = self._pod.status.nominated_node_name
        if nominated:
            return (f"the scheduler is freeing node {nominated} for the pod by preemption",)
        if not self._pod.spec.resource_claims:
            return ()
        kinds = {
            "ResourceSlices": self._world.slices,
            "DeviceClasses": self._world.classes,
            "ResourceClaims": self._options.is_live or self._world.claims,
        }
        absent = [name for name, found in kinds.items() if not found]
        return (f"the cluster or dump holds no {', no '.join(absent)}",) if absent else ()

    def _notes_on_changes(self, helps: Sequence[tuple[Remedy, list[str]]]) -> tuple[str, ...]:
        """The server refuses to change the spec of a claim or of a template; who follows the advice has to know."""
        is_new = (self._pod.metadata.namespace, self._pod.metadata.name) in self._options.new_pods
        if (
            is_new
            or self._pod.status.nominated_node_name
            or not any(CHANGES_OF_CLAIMS & set(remedy.code.split("+")) for remedy, _ in helps)
        ):
            return ()
        which = (
            "template" if any(row.resource_claim_template_name for row in self._pod.spec.resource_claims) else "claim"
        )
        return (
            f"a {which} cannot be changed: delete the pod and the {which}, and create both again as the advice says",
        )

    def _notes_on_claims(self) -> tuple[str, ...]:
        is_new = (self._pod.metadata.namespace, self._pod.metadata.name) in self._options.new_pods
        if is_new and any(each.resource_claim_template_name for each in self._pod.spec.resource_claims):
            return ("the pod is not created yet: names of claims that would be made for it are made up",)
        return ()

    # --- node by node

    def _node_verdicts(self, profile: SchedulingProfile, cycle: CycleState, allowed: PreFiltered) -> list[NodeVerdict]:
        plugins = [plugin for plugin in profile.at.filter if plugin.name not in cycle.skipped_filters]
        verdicts = [
            self._on_node(node, plugins, cycle, allowed, in_depth=False) for node in self._handle.snapshot.nodes
        ]
        verdicts.sort(key=lambda verdict: verdict.distance)
        if self._options.is_brief:
            return verdicts
        wanted = set(self._options.nodes) or {verdict.node for verdict in verdicts[:IN_DEPTH]}
        snapshot = self._handle.snapshot.nodes
        for index, verdict in enumerate(verdicts):
            state = snapshot.get(verdict.node)
            if verdict.node in wanted and not verdict.fits and state is not None:
                verdicts[index] = self._on_node(state, plugins, cycle, allowed, in_depth=True)
        return verdicts

    def _on_node(
        self, node: NodeState, plugins: Sequence[Any], cycle: CycleState, allowed: PreFiltered, *, in_depth: bool
    ) -> NodeVerdict:
        on_node = RefusalDetails(self._pod, node, cycle, self._handle)
        refusals: list[Refusal] = []
        for ruled_out, mask in allowed.ruled_out.items():
            if mask & node.bit:
                refusals.append(self._refusal(on_node, ruled_out))
        devices: DeviceVerdict | None = None
        for plugin in plugins:
            status = _asked(plugin, cycle, self._pod, self._handle.snapshot, node)
            # What ruled the node out before says it already.
            if status is None or any(each.plugin == plugin.name for each in refusals):
                continue
            refusal = self._refusal(on_node, status.by(plugin.name))
            if plugin.name == "DynamicResources" and refusal.code in _OF_DEVICES:
                devices = self._devices(node, cycle, in_depth)
                if devices is not None:
                    refusal = Refusal(devices.code, devices.message, plugin.name)
                if on_node.has_claims_elsewhere():
                    refusals.append(Refusal("claim-elsewhere", on_node.text("claim-elsewhere"), plugin.name))
            refusals.append(refusal)
        if not refusals:
            refusals += self._room_kept_for_others(node, plugins, cycle)
        chosen = self._chosen(node, cycle) if not refusals else ()
        return NodeVerdict(node.name, tuple(refusals), devices, chosen)

    def _room_kept_for_others(self, node: NodeState, plugins: Sequence[Any], cycle: CycleState) -> list[Refusal]:
        """As the scheduler does, pods that are nominated for the node count as if they were there."""
        expected = self._nominated_for(node.name)
        if not expected:
            return []
        names = ", ".join(f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in expected[:3])
        snapshot = self._handle.snapshot
        with snapshot.hypothetically_with(expected, node.name):
            details = RefusalDetails(self._pod, node, cycle, self._handle)
            asked = ((plugin, _asked(plugin, cycle, self._pod, snapshot, node)) for plugin in plugins)
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
            from dray.sim.extended_resource_text import not_served

            text += not_served(rows, self._handle.devices.classes.values())
        return Refusal(code, text, status.plugin, rows)

    def _devices(self, node: NodeState, cycle: CycleState, in_depth: bool) -> DeviceVerdict | None:
        attempt = cycle.read(PodAttempt)
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
        from dray.sim.extended_resource_text import asking_for_fewer, in_words_of_the_pod

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

    def _chosen(self, node: NodeState, cycle: CycleState) -> tuple[str, ...]:
        attempt = cycle.read(PodAttempt)
        question = attempt.on(node).question if attempt is not None else None
        answer = question.on(node.node, step_limit()) if question is not None else None
        if not isinstance(answer, Allocation):
            return ()
        return tuple(str(row.device_id) for devices in answer.devices() for row in devices)

    def _scored(self, verdicts: list[NodeVerdict], profile: SchedulingProfile, cycle: CycleState) -> list[NodeVerdict]:
        """Nodes that fit with the points of each plugin, the best first; a node that fits alone is not scored."""
        fitting = {verdict.node for verdict in verdicts if verdict.fits}
        self._cycle = cycle
        if len(fitting) < 2:
            return verdicts
        snapshot = self._handle.snapshot
        run = ScoreRun(cycle, self._pod, snapshot, snapshot.nodes.mask_of(fitting))
        if run.pre_score(profile.at.pre_score) is not None:
            return verdicts
        rows = run.rows(profile.score_steps)
        points: dict[str, list[tuple[str, int]]] = {name: [] for name in fitting}
        for row in rows:
            for score, nodes in row.nodes_by_score.items():
                for position in positions(nodes & snapshot.nodes.mask_of(fitting)):
                    points[snapshot.nodes[position].name].append((row.plugin, score * row.weight))
        scored = [replace(verdict, scores=tuple(points.get(verdict.node, ()))) for verdict in verdicts]
        return sorted(scored, key=lambda verdict: (verdict.distance, -verdict.score))

    def requests_on(self, node_name: str) -> tuple[RequestCounts, ...]:
        """How many devices of a node would serve each request, after `verdict`."""
        state = self._handle.snapshot.nodes.get(node_name)
        attempt = self._cycle.read(PodAttempt) if self._cycle is not None else None
        question = attempt.on(state).question if attempt is not None and state is not None else None
        if question is None or state is None:
            return ()
        report = report_on_node(self._handle.devices.allocator, question, state.node)
        return tuple(count_devices(each) for each in report.requests)

    # --- the answer

    def _remedies(self, verdicts: Sequence[NodeVerdict]) -> Iterator[Remedy]:
        """Of all nodes on which only one thing is in the way, nearest first."""
        for verdict in verdicts:
            state = self._handle.snapshot.nodes.get(verdict.node)
            if len(verdict.refusals) != 1 or state is None:
                continue
            if verdict.devices is not None:
                yield from verdict.devices.helps
            refusal = verdict.refusals[0]
            yield from node_remedies(self._pod, _refusing(state, state.node), refusal.code, refusal.rows)

    def _combined_remedies(self, verdicts: Sequence[NodeVerdict]) -> Iterator[Remedy]:
        """For nodes on which several things are in the way: the first remedy for each of them, one after the other."""
        for verdict in verdicts:
            state = self._handle.snapshot.nodes.get(verdict.node)
            steps = self._steps(verdict, state) if len(verdict.refusals) > 1 and state is not None else []
            if steps and len(steps) == len(verdict.refusals):
                yield all_of(steps)

    def _steps(self, verdict: NodeVerdict, state: NodeState) -> list[Remedy]:
        pod, node, devices = self._pod, state.node, verdict.devices
        steps: list[Remedy] = []
        for refusal in verdict.refusals:
            if devices is not None and refusal.code == devices.code:
                steps += devices.helps[:1]
                continue
            remedies = node_remedies(pod, _refusing(state, node, steps), refusal.code, refusal.rows)
            for step in islice(remedies, 1):
                steps.append(step)
                pod = next((each for each in step.edits if isinstance(each, Pod)), pod)
                node = next((each for each in step.edits if isinstance(each, Node)), node)
        return steps

    def _helps(self, verdicts: Sequence[NodeVerdict], profile: SchedulingProfile) -> Sequence[tuple[Remedy, list[str]]]:
        rehearsals = Rehearsals(self._simulation, profile, self._pod)
        # Before the first rehearsal changes the cluster.
        single, combined = list(self._remedies(verdicts)), list(self._combined_remedies(verdicts[:IN_DEPTH]))
        return rehearsals.that_help(single) or rehearsals.that_help(combined)

    def _repair(self, nearest: NodeVerdict) -> str:
        """Where nothing can be rehearsed: for room that another pod gets first, and for a node whose taint says that something is
        wrong with it, since to tolerate that taint would not make the pod run."""
        if nearest.node in self._kept_for:
            return f"wait until pod {self._kept_for[nearest.node]} is placed; the scheduler then tries this pod again"
        state = self._handle.snapshot.nodes.get(nearest.node)
        if state is None or not is_in_trouble(state.node) or all(row.code != "node-taint" for row in nearest.refusals):
            return ""
        return f"find out what is wrong with node {nearest.node}: kubectl describe node {nearest.node}, and the log of its node agent"

    def _summed_up(self, verdicts: list[NodeVerdict], profile: SchedulingProfile) -> PodVerdict:
        namespace, name = self._pod.metadata.namespace, self._pod.metadata.name
        total = len(verdicts)
        fitting = [verdict for verdict in verdicts if verdict.fits]
        if fitting:
            devices = f" with {device_names(fitting[0].chosen)}" if fitting[0].chosen else ""
            best = f"best {fitting[0].node}" if len(fitting) > 1 else fitting[0].node
            headline = f"{self._where} fits {len(fitting)} of {total} nodes, {best}{devices}"
            return PodVerdict(namespace, name, FITS, headline, nodes=tuple(verdicts), notes=self._notes())
        helps = [] if self._options.is_brief else self._helps(verdicts, profile)
        verdicts = [_with_remedies(verdict, helps) for verdict in verdicts]
        nearest = verdicts[0]
        alike = sum((verdict.code, verdict.message) == (nearest.code, nearest.message) for verdict in verdicts)
        others = f", and {alike - 1} more alike" if alike > 1 else ""
        headline = f"{self._where} waits: {nearest.message} (node {nearest.node}{others}; 0 of {total} nodes fit)"
        return PodVerdict(
            namespace,
            name,
            nearest.code,
            headline,
            fix=self._repair(nearest),
            helps=tuple(remedy for remedy, _ in helps),
            nodes=tuple(verdicts),
            notes=(*self._notes(), *self._notes_on_claims(), *self._notes_on_changes(helps)),
        )


def _refusing(state: NodeState, node: Node, steps: Sequence[Remedy] = ()) -> RefusingNode:
    """The node with the pods that are left on it after the steps."""
    gone = {pod.metadata.uid for step in steps for pod in step.gone}
    left = [counted for uid, counted in state.pods.items() if uid not in gone]
    return RefusingNode(node, [(counted.pod, counted.demand) for counted in left])


def _with_remedies(verdict: NodeVerdict, helps: Sequence[tuple[Remedy, list[str]]]) -> NodeVerdict:
    """Of a node only those that open it are told."""
    if verdict.devices is None:
        return verdict
    opening = tuple(remedy for remedy, opened in helps if verdict.node in opened)
    return replace(verdict, devices=replace(verdict.devices, helps=opening))


def _asked(plugin: Any, cycle: CycleState, pod: Pod, snapshot: Any, node: NodeState) -> PluginStatus | None:
    """One filter on one node, as the scheduler would ask it."""
    if hasattr(plugin, "reject"):
        for mask, status in plugin.reject(cycle, pod, snapshot, node.bit):
            if mask & node.bit:
                return status  # type: ignore[no-any-return]
    status = plugin.filter(cycle, pod, node)
    return None if status is None or status.code is StatusCode.SUCCESS else status
