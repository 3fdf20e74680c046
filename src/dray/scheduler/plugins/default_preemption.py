"""PostFilter: makes room by removing pods of lower priority, and the devices that only they use.

Devices are freed for pods of the same namespace only, unless the configuration says otherwise: a namespace must not lose its
devices to another one that has a higher priority. Cpu and memory are freed across namespaces, as in Kubernetes. Which pods would have to go is tried out on the snapshot and undone at once.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from dray.allocator import TimeLimits
from dray.api.core import Pod
from dray.client.errors import ApiError, ServerUnreachable
from dray.scheduler.framework.filtering import FilterRun, positions, span
from dray.scheduler.framework.interface import (
    LACKS_DEVICES,
    CycleState,
    NodeNames,
    PluginStatus,
    PostFilterResult,
    StatusCode,
    error,
    unresolvable,
    unschedulable,
)
from dray.scheduler.framework.profile import SchedulingProfile
from dray.scheduler.handle import Handle
from dray.scheduler.nodes import NodeState
from dray.scheduler.outcomes import counted_reasons
from dray.scheduler.plugins.dynamic_resources.filter import deadlines
from dray.scheduler.snapshot import Snapshot

MOST_TRIED = 1000
TRIED_IN_ONE_PIECE = 32


@dataclass(frozen=True, slots=True)
class PreemptionPlan:
    """Without these pods, the node can take the preemptor. Victims are sorted by importance, highest first."""

    node_name: str
    victims: tuple[Pod, ...]


def may_help(rejections: Mapping[PluginStatus, int], *, devices: bool) -> int:
    """Nodes where removing pods may help; with `devices` also those that lack free devices."""
    nodes = 0
    for status, mask in rejections.items():
        lacks_devices = devices and status.has_reason(LACKS_DEVICES)
        if status.code is StatusCode.UNSCHEDULABLE or lacks_devices:
            nodes |= mask
    return nodes


def importance(pod: Pod) -> tuple[int, str]:
    """Sorts the most important first: higher priority, then the longer running."""
    return (-(pod.spec.priority or 0), pod.status.start_time or "~")


class DryRun:
    """`notes` are written into the state of every trial, for the plugins that are asked.

    `any_namespace`: devices of pods in other namespaces count as free, too, when these pods are gone.
    """

    def __init__(
        self, pod: Pod, snapshot: Snapshot, profile: SchedulingProfile, *notes: object, any_namespace: bool = False
    ) -> None:
        self._notes = notes
        self._any_namespace = any_namespace
        self._pod = pod
        self._snapshot = snapshot
        self._profile = profile

    async def plans(self, candidates: int, wanted: int, start: int) -> tuple[list[PreemptionPlan], int]:
        """Plans for up to `wanted` nodes from `start` on, and the candidates for which there is none.

        Others have their turn in between: each node is tried out and put back in one piece. Where many nodes are tried in
        vain, the rest wait for the next attempt, which starts elsewhere.
        """
        found: list[PreemptionPlan] = []
        names = [self._snapshot.nodes[position].name for position in self._in_order(candidates, start)]
        for tried, name in enumerate(names):
            if len(found) >= wanted or tried >= MOST_TRIED:
                break
            if tried % TRIED_IN_ONE_PIECE == TRIED_IN_ONE_PIECE - 1:
                await asyncio.sleep(0)
                self._snapshot.refresh()
            node = self._snapshot.nodes.get(name)
            plan = self._plan_for(node) if node is not None else None
            if plan is not None:
                found.append(plan)
        with_plan = self._snapshot.nodes.mask_of(plan.node_name for plan in found)
        return found, self._snapshot.nodes.mask_of(names) & ~with_plan

    def _in_order(self, candidates: int, start: int) -> Iterator[int]:
        nodes = len(self._snapshot.nodes)
        ahead = candidates & span(start, nodes - start, nodes)
        yield from positions(ahead)
        yield from positions(candidates & ~ahead)

    def _plan_for(self, node: NodeState) -> PreemptionPlan | None:
        priority = self._pod.spec.priority or 0
        lower = sorted((placed.pod for placed in node.pods.values() if placed.priority < priority), key=importance)
        if not lower or not self.fits_without(node, lower):
            return None
        victims = list(lower)
        # The most important are spared first, as long as the preemptor still fits.
        for pod in lower:
            spared = [victim for victim in victims if victim is not pod]
            if self.fits_without(node, spared):
                victims = spared
        return PreemptionPlan(node.name, tuple(victims))

    def fits_without(self, node: NodeState, gone: list[Pod]) -> bool:
        """Would the pod fit on the node if these pods had left it with their devices?"""
        with ExitStack() as hypothesis:
            uids = [pod.metadata.uid for pod in gone]
            hypothesis.enter_context(self._snapshot.hypothetically_without(uids, node.name))
            giving = [pod for pod in gone if self._gives_devices(pod)]
            for plugin in self._profile.device_freeing:
                hypothesis.enter_context(plugin.hypothetically_without(giving))
            return self._passes(node)

    def _gives_devices(self, victim: Pod) -> bool:
        return self._any_namespace or victim.metadata.namespace == self._pod.metadata.namespace

    def _passes(self, node: NodeState) -> bool:
        """PreFilter counts pods, so it is asked again for the changed world."""
        cycle = CycleState()
        for note in self._notes:
            cycle.write(note)
        for plugin in self._profile.at.pre_filter:
            answer = plugin.pre_filter(cycle, self._pod, self._snapshot)
            if isinstance(answer, NodeNames) or answer is None:
                continue
            if answer.code is StatusCode.SKIP:
                cycle.skipped_filters.add(plugin.name)
            elif answer.code is not StatusCode.SUCCESS:
                return False
        return FilterRun(self._profile.filter_steps, cycle, self._pod, self._snapshot).on_one(node.position) is None


def best_plan(plans: Iterable[PreemptionPlan]) -> PreemptionPlan | None:
    """Least harm: the lowest top victim, then the lowest sum, the fewest, and the latest started."""
    return min(plans, key=_harm, default=None)


def _harm(plan: PreemptionPlan) -> tuple[int, int, int, tuple[int, ...]]:
    priorities = [victim.spec.priority or 0 for victim in plan.victims]
    top = max(priorities, default=0)
    earliest = min(
        (victim.status.start_time or "~" for victim in plan.victims if (victim.spec.priority or 0) == top), default="~"
    )
    newest_first = tuple(-ord(character) for character in earliest)
    # Negative priorities must not make many victims look cheap.
    return top, sum(priority + 2**31 for priority in priorities), len(priorities), newest_first


DRY_RUNS_S = 0.5
NOT_HELPFUL = unresolvable("Preemption is not helpful for scheduling")
NO_VICTIMS = unschedulable("No preemption victims found for incoming pod")


class DefaultPreemption:
    name = "DefaultPreemption"

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        self._handle = handle
        self._percentage = int(args.get("minCandidateNodesPercentage", 10))
        self._at_least = int(args.get("minCandidateNodesAbsolute", 100))
        self._any_namespace = bool(args.get("devicesOfOtherNamespaces", False))
        self.profile: SchedulingProfile
        """The profile this plugin is part of; dry runs ask its filters."""

    async def post_filter(
        self, cycle: CycleState, pod: Pod, snapshot: Snapshot, rejections: Mapping[PluginStatus, int]
    ) -> PostFilterResult:
        self._handle.metrics.preemption_attempts.inc()
        reason = self._why_not_eligible(pod, snapshot)
        if reason:
            return PostFilterResult(unschedulable(f"preemption: {reason}"))
        plans, verdicts = await self._try_nodes(pod, snapshot, rejections)
        plan = best_plan(plans)
        if plan is None:
            return PostFilterResult(unschedulable(self._message(snapshot, verdicts)), "")
        failure = await self._carry_out(plan, pod)
        return failure or PostFilterResult(PluginStatus(StatusCode.SUCCESS), plan.node_name)

    def _why_not_eligible(self, pod: Pod, snapshot: Snapshot) -> str:
        if pod.spec.preemption_policy == "Never":
            return "not eligible due to preemptionPolicy=Never."
        nominated = snapshot.nodes.get(pod.status.nominated_node_name)
        priority = pod.spec.priority or 0
        if nominated is not None and any(
            placed.pod.metadata.deletion_timestamp and placed.priority < priority for placed in nominated.pods.values()
        ):
            return "not eligible due to a terminating pod on the nominated node."
        return ""

    async def _try_nodes(
        self, pod: Pod, snapshot: Snapshot, rejections: Mapping[PluginStatus, int]
    ) -> tuple[list[PreemptionPlan], dict[PluginStatus, int]]:
        """Plans for up to a tenth of the nodes, and at least a hundred; and why the others are none."""
        lowest = min(snapshot.priorities, default=0)
        everything = snapshot.nodes.everything
        if lowest >= (pod.spec.priority or 0):
            return [], self._verdicts(everything, may_help(rejections, devices=False))
        candidates = may_help(rejections, devices=True)
        wanted = max(len(snapshot.nodes) * self._percentage // 100, self._at_least)
        # Searches for devices in worlds without some pods: all of them together must not take long.
        enough = deadlines(self._handle.clock.monotonic, DRY_RUNS_S)()
        limits = TimeLimits(lambda: enough)
        run = DryRun(pod, snapshot, self.profile, limits, any_namespace=self._any_namespace)
        plans, hopeless = await run.plans(candidates, wanted, self._handle.chance.randrange(len(snapshot.nodes) or 1))
        return plans, self._verdicts(everything, hopeless)

    @staticmethod
    def _verdicts(everything: int, tried: int) -> dict[PluginStatus, int]:
        verdicts = {NOT_HELPFUL: everything & ~tried, NO_VICTIMS: tried & everything}
        return {status: mask for status, mask in verdicts.items() if mask}

    @staticmethod
    def _message(snapshot: Snapshot, verdicts: Mapping[PluginStatus, int]) -> str:
        return f"preemption: 0/{len(snapshot.nodes)} nodes are available: {counted_reasons(verdicts)}."

    async def _carry_out(self, plan: PreemptionPlan, pod: Pod) -> PostFilterResult | None:
        """Delete the victims and keep lower pods from waiting for the room that is freed."""
        for victim in plan.victims:
            if victim.metadata.deletion_timestamp is not None:
                continue
            try:
                await self._handle.writer.evict(victim, pod)
            except ApiError as problem:
                if not problem.is_not_found:
                    return PostFilterResult(error(f"preempting pod {victim.metadata.name}: {problem}"))
            except ServerUnreachable as problem:
                return PostFilterResult(error(f"preempting pod {victim.metadata.name}: {problem}"))
            who = f"{pod.metadata.uid}"
            message = f"Preempted by pod {who} on node {plan.node_name}"
            self._handle.writer.event(victim, "Normal", "Preempted", "Preempting", message)
        self._handle.metrics.preemption_victims.observe(len(plan.victims))
        for lower in self._handle.nominations.on(plan.node_name):
            if (lower.spec.priority or 0) < (pod.spec.priority or 0):
                self._handle.nominations.withdraw(lower.metadata.uid)
        return None
