"""What would help a waiting pod: the remedies of the nearest nodes, each rehearsed in the simulated cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, islice

from dray.api.core import Node, Pod
from dray.explain.node_remedies import RefusingNode, is_in_trouble, node_remedies
from dray.explain.verdicts import NodeVerdict, Refusal
from dray.explain.what_if import Remedy, all_of
from dray.scheduler.framework.profile import SchedulingProfile
from dray.scheduler.nodes import NodeState
from dray.sim.pod_explanation.node_verdicts import IN_DEPTH
from dray.sim.pod_explanation.rehearsals import Rehearsals
from dray.sim.simulation import Simulation

# Things in the way of which every choice is tried: all but one of them, all but two...
MOST_VARIED = 4


class PodRemedies:
    """Finds remedies for one pod that no node takes."""

    def __init__(self, pod: Pod, simulation: Simulation, profile: SchedulingProfile) -> None:
        self._pod = pod
        self._simulation = simulation
        self._profile = profile
        self._snapshot = simulation.scheduler.handle.snapshot

    def that_help(self, verdicts: Sequence[NodeVerdict]) -> list[tuple[Remedy, list[str]]]:
        """Remedies after which the pod fits, with the nodes that it then fits. `verdicts` has the nearest node first."""
        rehearsals = Rehearsals(self._simulation, self._profile, self._pod)
        # Before the first rehearsal changes the cluster.
        single, combined = list(self._remedies(verdicts)), list(self._combined_remedies(verdicts[:IN_DEPTH]))
        return rehearsals.that_help(single) or rehearsals.that_help(rehearsals.first_that_help(combined))

    def repair(self, nearest: NodeVerdict, kept_for: str) -> str:
        """Where nothing can be rehearsed: for room that another pod gets first, and for a node whose taint says that something is
        wrong with it, since to tolerate that taint would not make the pod run."""
        if kept_for:
            return f"wait until pod {kept_for} is placed; the scheduler then tries this pod again"
        state = self._snapshot.nodes.get(nearest.node)
        if state is None or not is_in_trouble(state.node) or all(row.code != "node-taint" for row in nearest.refusals):
            return ""
        return f"find out what is wrong with node {nearest.node}: kubectl describe node {nearest.node}, and the log of its node agent"

    def _remedies(self, verdicts: Sequence[NodeVerdict]) -> Iterator[Remedy]:
        """Of all nodes on which only one thing is in the way, nearest first."""
        for verdict in verdicts:
            state = self._snapshot.nodes.get(verdict.node)
            if len(verdict.refusals) != 1 or state is None:
                continue
            if verdict.devices is not None:
                yield from verdict.devices.helps
            refusal = verdict.refusals[0]
            yield from node_remedies(self._pod, _refusing(state, state.node), refusal.code, refusal.rows)

    def _combined_remedies(self, verdicts: Sequence[NodeVerdict]) -> Iterator[list[Remedy]]:
        """For each node on which several things are in the way: the first remedy for some of them, one after the other, fewest
        steps first, since one step may do for two of these things; at last for all of them."""
        for verdict in verdicts:
            state = self._snapshot.nodes.get(verdict.node)
            if len(verdict.refusals) < 2 or state is None:
                continue
            least = 1 if len(verdict.refusals) <= MOST_VARIED else len(verdict.refusals)
            chosen = (
                each
                for count in range(least, len(verdict.refusals) + 1)
                for each in combinations(verdict.refusals, count)
            )
            steps = [(len(each), self._steps(verdict, state, each)) for each in chosen]
            remedies = [all_of(found) for wanted, found in steps if len(found) == wanted]
            if remedies:
                yield remedies

    def _steps(self, verdict: NodeVerdict, state: NodeState, refusals: Sequence[Refusal]) -> list[Remedy]:
        pod, node, devices = self._pod, state.node, verdict.devices
        steps: list[Remedy] = []
        for refusal in refusals:
            if devices is not None and refusal.code == devices.code:
                steps += devices.helps[:1]
                continue
            remedies = node_remedies(pod, _refusing(state, node, steps), refusal.code, refusal.rows)
            for step in islice(remedies, 1):
                steps.append(step)
                pod = next((each for each in step.edits if isinstance(each, Pod)), pod)
                node = next((each for each in step.edits if isinstance(each, Node)), node)
        return steps


def with_remedies_of_node(verdict: NodeVerdict, helps: Sequence[tuple[Remedy, list[str]]]) -> NodeVerdict:
    """The verdict of a node, with those remedies only after which the pod fits that node."""
    if verdict.devices is None:
        return verdict
    opening = tuple(remedy for remedy, opened in helps if verdict.node in opened)
    return replace(verdict, devices=replace(verdict.devices, helps=opening))


def _refusing(state: NodeState, node: Node, steps: Sequence[Remedy] = ()) -> RefusingNode:
    """The node with the pods that are left on it after the steps."""
    gone = {pod.metadata.uid for step in steps for pod in step.gone}
    left = [counted for uid, counted in state.pods.items() if uid not in gone]
    return RefusingNode(node, [(counted.pod, counted.demand) for counted in left])
