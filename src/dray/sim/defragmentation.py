"""Which pods to move so that a waiting pod fits, or a node becomes empty: the fewest moves first, each plan proven by scheduling.

Nothing is moved. A plan is tried on a copy of the cluster with the real scheduler: the waiting pod gets its node, then each moved pod gets
another place. A plan that leaves any of them without a node, or that preempts a pod, is dropped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from msgspec.structs import replace as changed

from dray.api.core import Pod
from dray.api.dra.pod_claims import claim_names, pending_with_same_claims
from dray.api.dra.pod_phase import is_finished
from dray.api.resource import ResourceClaim, ResourceClaimStatus
from dray.explain.cluster_objects import ClusterObjects
from dray.scheduler.nodes import NodeState
from dray.scheduler.plugins.default_preemption import DryRun
from dray.sim.simulation import Simulation

Document = dict[str, Any]
MakeSimulation = Callable[[ClusterObjects], Simulation]

# Waiting pods and nodes for which a plan is looked for, and plans that are tried for one of them.
MOST_PODS = 10
MOST_NODES = 20
MOST_PROOFS = 5
# Up to so many pods on a node, every pair is tried.
MOST_FOR_PAIRS = 24


@dataclass(frozen=True, slots=True)
class Move:
    """A pod that leaves its node, and the node that the scheduler gives it next."""

    pod: Pod
    target: str


@dataclass(frozen=True, slots=True)
class MovePlan:
    """After the moves, in this order, `node` takes the waiting pod, or is empty where there is none."""

    node: str
    moves: tuple[Move, ...]
    waiting: Pod | None = None


class Defragmentation:
    """Plans over the state in which a simulation ended. Each plan builds on those before it."""

    def __init__(self, ended: Simulation, simulate: MakeSimulation, step: Callable[[], None] = lambda: None) -> None:
        self._simulate = simulate
        self._step = step
        waiting = [row.pod for row in ended.placed() if row.outcome == "unschedulable"]
        self._waiting = waiting[:MOST_PODS]
        world = ended.world()
        self._world = replace(world, pods=tuple([pod for pod in world.pods if pod.spec.node_name]))

    # --- room for waiting pods

    def room_plans(self) -> list[MovePlan]:
        """For each of the first waiting pods, in queue order, the plan with the fewest moves; pods that none helps are left out."""
        plans = []
        for pod in self._waiting:
            plan = self._room_for(pod)
            if plan is not None:
                plans.append(plan)
        return plans

    def _room_for(self, pod: Pod) -> MovePlan | None:
        now = self._run(self._world)
        hopeful = sorted(_fewest_by_node(now, pod), key=lambda row: (len(row[1]), row[0]))
        for _, leaving in hopeful[:MOST_PROOFS]:
            self._step()
            plan = self._prove_room(pod, leaving)
            if plan is not None:
                return plan
        return None

    def _prove_room(self, pod: Pod, leaving: Sequence[Pod]) -> MovePlan | None:
        gone = {each.metadata.uid for each in leaving}
        staying = tuple([each for each in self._world.pods if each.metadata.uid not in gone])
        freed = replace(self._world, claims=_freed(self._world.claims, leaving))
        first = self._run(replace(freed, pods=(*staying, pod)))
        if not _all_placed(first):
            return None
        after = first.world()
        second = self._run(replace(after, pods=(*after.pods, *map(_released, leaving))))
        if not _all_placed(second):
            return None
        self._world = second.world()
        [(_, node_name)] = _placed_now(first, [pod])
        return MovePlan(node_name, _moves(second, leaving), pod)

    # --- empty nodes

    def empty_plans(self) -> list[MovePlan]:
        """Nodes that can be emptied, those with the fewest pods first. A node once emptied gets none of the pods that move later."""
        plans = []
        for name in self._least_used()[:MOST_NODES]:
            self._step()
            plan = self._prove_empty(name)
            if plan is not None:
                plans.append(plan)
        return plans

    def _least_used(self) -> list[str]:
        """Nodes all of whose pods can move, those with the fewest pods first."""
        on_node: Counter[str] = Counter()
        fixed: set[str] = set()
        for pod in self._world.pods:
            if is_finished(pod) or _is_daemon(pod):
                continue
            on_node[pod.spec.node_name] += 1
            if not is_movable(pod, self._world.claims_by_name):
                fixed.add(pod.spec.node_name)
        return sorted(on_node.keys() - fixed, key=lambda name: (on_node[name], name))

    def _prove_empty(self, name: str) -> MovePlan | None:
        # As it is now: earlier plans may have moved pods here.
        leaving = [pod for pod in self._world.pods if pod.spec.node_name == name and not _is_daemon(pod)]
        gone = {pod.metadata.uid for pod in leaving}
        nodes = tuple(
            [
                changed(node, spec=changed(node.spec, unschedulable=True)) if node.metadata.name == name else node
                for node in self._world.nodes
            ]
        )
        staying = [pod for pod in self._world.pods if pod.metadata.uid not in gone]
        world = replace(
            self._world,
            nodes=nodes,
            claims=_freed(self._world.claims, leaving),
            pods=(*staying, *map(_released, leaving)),
        )
        proof = self._run(world)
        if not _all_placed(proof):
            return None
        self._world = proof.world()
        return MovePlan(name, _moves(proof, leaving))

    def _run(self, world: ClusterObjects) -> Simulation:
        simulation = self._simulate(world)
        simulation.run()
        return simulation


def is_movable(pod: Pod, claims: dict[tuple[str, str], ResourceClaim]) -> bool:
    """Pods of a DaemonSet belong to their node; claims that other pods use cannot move with one of them."""
    if (
        _is_daemon(pod)
        or pod.metadata.deletion_timestamp is not None
        or "kubernetes.io/config.mirror" in pod.metadata.annotations
    ):
        return False
    used = [claims.get((pod.metadata.namespace, name)) for name in claim_names(pod)]
    return all(
        user.uid == pod.metadata.uid for claim in used if claim is not None for user in claim.status.reserved_for
    )


def _is_daemon(pod: Pod) -> bool:
    return any(owner.kind == "DaemonSet" for owner in pod.metadata.owner_references)


def _fewest_by_node(now: Simulation, waiting: Pod) -> Iterable[tuple[str, list[Pod]]]:
    """Nodes that could take the pod if some of their pods left, each with the fewest that were found."""
    handle = now.scheduler.handle
    profile = now.scheduler.profiles.get(waiting.spec.scheduler_name)
    if profile is None:
        return
    claims = now.world().claims_by_name
    handle.snapshot.refresh()
    dry_run = DryRun(waiting, handle.snapshot, profile, any_namespace=True)
    for node in list(handle.snapshot.nodes):
        movable = [placed.pod for placed in node.pods.values() if is_movable(placed.pod, claims)]
        if movable and dry_run.fits_without(node, movable):
            yield node.name, _fewest(dry_run, node, movable)


def _fewest(dry_run: DryRun, node: NodeState, movable: list[Pod]) -> list[Pod]:
    sizes = (1, 2) if len(movable) <= MOST_FOR_PAIRS else (1,)
    for size in sizes:
        for few in combinations(movable, size):
            if dry_run.fits_without(node, list(few)):
                return list(few)
    leaving = list(movable)
    for pod in movable:
        spared = [each for each in leaving if each is not pod]
        if dry_run.fits_without(node, spared):
            leaving = spared
    return leaving


def _all_placed(simulation: Simulation) -> bool:
    return not simulation.cluster.preempted and all(row.outcome == "scheduled" for row in simulation.placed())


def _placed_now(proof: Simulation, pods: Iterable[Pod]) -> Iterator[tuple[Pod, str]]:
    """Each pod with the node that it has at the end of the proof."""
    for pod in pods:
        placed = proof.cluster.get(Pod, pod.metadata.name, pod.metadata.namespace)
        assert placed is not None, f"pod {pod.metadata.name} is gone"
        yield pod, placed.spec.node_name


def _moves(proof: Simulation, leaving: Iterable[Pod]) -> tuple[Move, ...]:
    return tuple([Move(pod, node_name) for pod, node_name in _placed_now(proof, leaving)])


def _released(pod: Pod) -> Pod:
    """The pod as its controller would make it again: without node and status, with the same claims."""
    return changed(pod, spec=changed(pod.spec, node_name=""), status=pending_with_same_claims(pod))


def _freed(claims: Iterable[ResourceClaim], pods: Iterable[Pod]) -> tuple[ResourceClaim, ...]:
    """The claims, without allocation where these pods hold them."""
    names = {(pod.metadata.namespace, name) for pod in pods for name in claim_names(pod)}
    return tuple(
        [
            changed(claim, status=ResourceClaimStatus())
            if (claim.metadata.namespace, claim.metadata.name) in names
            else claim
            for claim in claims
        ]
    )


# --- documents and text


def defragmentation_document(room: Iterable[MovePlan], empty: Iterable[MovePlan]) -> Document:
    return {"room": [_plan(plan) for plan in room], "empty": [_plan(plan) for plan in empty]}


def _plan(plan: MovePlan) -> Document:
    document: Document = {
        "node": plan.node,
        "moves": [
            {
                "namespace": move.pod.metadata.namespace,
                "name": move.pod.metadata.name,
                "from": move.pod.spec.node_name,
                "to": move.target,
            }
            for move in plan.moves
        ],
    }
    if plan.waiting is not None:
        document["pod"] = {"namespace": plan.waiting.metadata.namespace, "name": plan.waiting.metadata.name}
    return document


def defragmentation_text(document: Document) -> str:
    lines = []
    for plan in document["room"]:
        pod = plan["pod"]
        lines.append(f"To make room for pod {pod['namespace']}/{pod['name']} on node {plan['node']}:")
        lines += _move_lines(plan)
    for plan in document["empty"]:
        lines.append(f"To empty node {plan['node']}:")
        lines += _move_lines(plan)
    return "\n".join(lines) if lines else "No moves help: no waiting pod gets room, and no node can be emptied."


def _move_lines(plan: Document) -> list[str]:
    return [
        f"  {number}. move pod {move['namespace']}/{move['name']} from {move['from']} to {move['to']}"
        for number, move in enumerate(plan["moves"], 1)
    ]
