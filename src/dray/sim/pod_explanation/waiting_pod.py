"""Explains a pod that has no node: one attempt of the real scheduler, with every filter asked on every node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dray.api.core import Pod
from dray.api.resource import ResourceClaim
from dray.explain.cluster_objects import ClusterObjects
from dray.explain.device_holders import DeviceHolders
from dray.explain.placement import device_names
from dray.explain.reason_codes import FITS
from dray.explain.recorded_causes import RecordedCause
from dray.explain.request_counts import RequestCounts
from dray.explain.unreachable_slices import unreachable_slices
from dray.explain.verdicts import NodeVerdict, PodVerdict
from dray.explain.volume_causes import why_volumes_wait
from dray.explain.what_if import CHANGES_OF_CLAIMS, Remedy
from dray.scheduler.cycle import PreFiltered
from dray.scheduler.framework.interface import CycleState
from dray.scheduler.framework.profile import SchedulingProfile
from dray.scheduler.outcomes import PodRejection, SchedulingFailed
from dray.sim.pod_explanation.claim_causes import (
    claim_without_room,
    unready_device,
    why_held_back,
    with_known_classes,
)
from dray.sim.pod_explanation.node_verdicts import NodeVerdicts
from dray.sim.pod_explanation.options import ExplainOptions
from dray.sim.pod_explanation.pod_remedies import PodRemedies, with_remedies_of_node
from dray.sim.simulation import Simulation


class WaitingPodExplainer:
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
        # Set once the scheduler would have asked nodes.
        self._nodes: NodeVerdicts | None = None

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
            return self._waits_for(why_held_back(self._world, self._pod, held_back))
        unready = unready_device(self._world, self._pod)
        if unready is not None:
            return self._waits_for(unready)
        full = claim_without_room(self._world, self._pod)
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
        self._nodes = self._asked(profile, cycle, allowed)
        return self._summed_up(self._nodes, self._nodes.scored(self._verdicts(self._nodes)), profile)

    def requests_on(self, node_name: str) -> tuple[RequestCounts, ...]:
        """How many devices of a node would serve each request, after `verdict`."""
        return self._nodes.requests_on(node_name) if self._nodes is not None else ()

    # --- before any node is asked

    def _waits(self, code: str, message: str, fix: str = "") -> PodVerdict:
        namespace, name = self._pod.metadata.namespace, self._pod.metadata.name
        return PodVerdict(namespace, name, code, f"{self._where} waits: {message}", fix=fix, notes=self._notes())

    def _waits_for(self, cause: RecordedCause) -> PodVerdict:
        return self._waits(cause.code, cause.message, cause.fix)

    def _refused_everywhere(self, rejection: PodRejection, profile: SchedulingProfile, cycle: CycleState) -> PodVerdict:
        status = rejection.pre_filter
        if status is None:
            nodes = self._asked(profile, cycle, PreFiltered(0, dict(rejection.nodes_by_status)))
            return self._summed_up(nodes, self._verdicts(nodes), profile)
        message = status.message
        if status.reason_code == "missing-class":
            message = with_known_classes(message, self._pod, self._simulation.cluster, self._handle.devices.classes)
        return self._waits(status.reason_code, message)

    # --- the nodes

    def _asked(self, profile: SchedulingProfile, cycle: CycleState, allowed: PreFiltered) -> NodeVerdicts:
        return NodeVerdicts(self._pod, self._handle, profile, cycle, allowed, self._holders)

    def _verdicts(self, nodes: NodeVerdicts) -> list[NodeVerdict]:
        return nodes.nearest_first() if self._options.is_brief else nodes.in_depth(self._options.nodes)

    def _summed_up(self, nodes: NodeVerdicts, verdicts: list[NodeVerdict], profile: SchedulingProfile) -> PodVerdict:
        namespace, name = self._pod.metadata.namespace, self._pod.metadata.name
        total = len(verdicts)
        fitting = [verdict for verdict in verdicts if verdict.fits]
        of_volumes = why_volumes_wait(self._pod)
        if fitting and of_volumes is not None:
            return replace(self._waits_for(of_volumes), nodes=tuple(verdicts))
        if fitting:
            devices = f" with {device_names(fitting[0].chosen)}" if fitting[0].chosen else ""
            best = f"best {fitting[0].node}" if len(fitting) > 1 else fitting[0].node
            headline = f"{self._where} fits {len(fitting)} of {total} nodes, {best}{devices}"
            return PodVerdict(namespace, name, FITS, headline, nodes=tuple(verdicts), notes=self._notes())
        remedies = PodRemedies(self._pod, self._simulation, profile)
        helps = [] if self._options.is_brief else remedies.that_help(verdicts)
        verdicts = [with_remedies_of_node(verdict, helps) for verdict in verdicts]
        nearest = verdicts[0]
        alike = sum((verdict.code, verdict.message) == (nearest.code, nearest.message) for verdict in verdicts)
        others = f", and {alike - 1} more alike" if alike > 1 else ""
        headline = f"{self._where} waits: {nearest.message} (node {nearest.node}{others}; 0 of {total} nodes fit)"
        return PodVerdict(
            namespace,
            name,
            nearest.code,
            headline,
            fix=remedies.repair(nearest, nodes.kept_for(nearest.node)) or self._slice_of_no_node(nearest),
            helps=tuple(remedy for remedy, _ in helps),
            nodes=tuple(verdicts),
            notes=(
                *([of_volumes.message] if of_volumes is not None else ()),
                *self._notes(),
                *self._notes_on_claims(),
                *self._notes_on_changes(helps),
            ),
        )

    def _slice_of_no_node(self, nearest: NodeVerdict) -> str:
        """Where a node has no devices: those that were published for no node at all may be the ones that are missed."""
        found = next(unreachable_slices(self._world), None) if nearest.code in ("no-devices", "other-node") else None
        return f"slice {found.slice.metadata.name} {found.message}; {found.fix}" if found is not None else ""

    # --- notes

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
