"""PostFilter: make room by removing pods of lower priority, and the devices that only they use."""

from collections.abc import Mapping
from typing import Any

from dray.allocator import TimeLimits
from dray.api.core import Pod
from dray.client.errors import ApiError, ServerUnreachable
from dray.scheduler.framework.cycle_state import CycleState
from dray.scheduler.framework.plugin import PostFilterResult
from dray.scheduler.framework.profile import SchedulingProfile
from dray.scheduler.framework.status import PluginStatus, StatusCode, error, unresolvable, unschedulable
from dray.scheduler.handle import Handle
from dray.scheduler.outcomes import counted_reasons
from dray.scheduler.plugins.dynamic_resources.filter import deadlines
from dray.scheduler.plugins.victims import DryRun, PreemptionPlan, best_plan, may_help
from dray.scheduler.snapshot import Snapshot

DRY_RUNS_S = 0.5
NOT_HELPFUL = unresolvable("Preemption is not helpful for scheduling")
NO_VICTIMS = unschedulable("No preemption victims found for incoming pod")


class DefaultPreemption:
    name = "DefaultPreemption"

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        self._handle = handle
        self._percentage = int(args.get("minCandidateNodesPercentage", 10))
        self._at_least = int(args.get("minCandidateNodesAbsolute", 100))
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
        run = DryRun(pod, snapshot, self.profile, TimeLimits(lambda: enough))
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
