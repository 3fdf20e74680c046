"""Explains the pods of a cluster: why a pod waits, does not start on its node, or is on that node."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec.structs import replace as changed

from dray.api.core import ContainerStatus, Pod
from dray.api.dra.claim_users import is_reserved_only_for
from dray.api.dra.consumption import allocation_results
from dray.api.dra.pod_claims import claim_names_of_entries
from dray.api.dra.pod_phase import is_finished
from dray.api.dra.pools import device_id
from dray.api.resource import ResourceClaim
from dray.explain.cluster_objects import ClusterObjects, similar_name
from dray.explain.container_causes import waiting_containers, why_containers_wait
from dray.explain.placement import why_these_devices, why_this_node
from dray.explain.reason_codes import SCHEDULED
from dray.explain.request_counts import RequestCounts
from dray.explain.verdicts import NodeVerdict, PodNotFound, PodVerdict
from dray.features import FeatureGates
from dray.sim.pod_explanation.options import DEFAULT_OPTIONS, ExplainOptions
from dray.sim.simulation import Simulation

if TYPE_CHECKING:
    from dray.sim.pod_explanation.waiting_pod import WaitingPodExplainer


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
        return self._waiting(pod, self._world).verdict()

    def _waiting(self, pod: Pod, world: ClusterObjects) -> WaitingPodExplainer:
        # A pod that has finished, or cannot start on its node, needs no scheduler.
        from dray.sim.pod_explanation.waiting_pod import WaitingPodExplainer

        return WaitingPodExplainer(world, self._simulation, pod.metadata.name, pod.metadata.namespace, self._options)

    def _placed(self, pod: Pod) -> PodVerdict:
        """The pod has a node: why it does not start there, or what it got, and how the nodes look if it is placed again."""
        from dray.explain.doctor import why_not_started

        where = f"{pod.metadata.namespace}/{pod.metadata.name}"
        held_up = why_not_started(self._world, pod)[:1] if pod.status.phase == "Pending" else []
        for found in held_up:
            code = (found.cause or found.code) if found.severity == "error" else SCHEDULED
            return replace(_settled(pod, code, f"{where} {found.message}"), fix=found.fix, details=self._devices(pod))
        again = self._as_if_waiting(pod)
        going = ["being deleted"] if pod.metadata.deletion_timestamp is not None else []
        state = ", ".join([pod.status.phase or "Pending", *going, *(_waits(row) for row in waiting_containers(pod))])
        stuck = why_containers_wait(self._world, pod) if any(waiting_containers(pod)) else None
        return replace(
            _settled(pod, SCHEDULED, f"{where} is on node {pod.spec.node_name} ({state})"),
            fix=stuck.fix if stuck is not None else "",
            details=(f"node: {_why_there(pod, again)}", *self._devices(pod, again.requests)),
            nodes=again.nodes,
            notes=("the verdicts are as if the pod had no node and were placed now",) if again.nodes else (),
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
            explainer = self._waiting(pod, world)
            verdict = explainer.verdict()
            return _PlacedAgain(verdict.nodes, explainer.requests_on(pod.spec.node_name), verdict.why)
        finally:
            cluster.delete(placed)
            cluster.apply(*claims, placed)


@dataclass(frozen=True, slots=True)
class _PlacedAgain:
    """`requests` are the devices of the pod's own node, request by request; `why` is the answer in words."""

    nodes: tuple[NodeVerdict, ...]
    requests: tuple[RequestCounts, ...]
    why: str


def _why_there(pod: Pod, again: _PlacedAgain) -> str:
    """The scheduler asks no node while something is wrong with the pod or its claims."""
    if not again.nodes:
        return f"the scheduler would not place the pod now: {again.why}"
    return why_this_node(pod.spec.node_name, again.nodes)


def _waits(row: ContainerStatus) -> str:
    assert row.state.waiting is not None
    return f"container {row.name}: {': '.join(part for part in (row.state.waiting.reason, row.state.waiting.message) if part)}"


def _settled(pod: Pod, code: str, headline: str) -> PodVerdict:
    return PodVerdict(pod.metadata.namespace, pod.metadata.name, code, headline, pod.spec.node_name)


def _unbound(pod: Pod) -> Pod:
    return changed(pod, spec=changed(pod.spec, node_name=""), status=changed(pod.status, phase="Pending"))
