"""Keeps the status of PodDisruptionBudgets right, and takes back marks of disruptions that did not come."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from dray.api.core import Pod, PodCondition
from dray.api.disruption import with_verdict
from dray.api.dra.pod_phase import is_active
from dray.api.times import parse_time
from dray.api.workloads import PodDisruptionBudget, PodDisruptionBudgetStatus
from dray.client import (
    BY_NAMESPACE,
    DISRUPTION_BUDGETS,
    NORMAL,
    PODS,
    WARNING,
    ApiError,
    EventRecorder,
    Handler,
    Recorder,
    WorkQueue,
    by_namespace,
    object_key,
    reference_to,
)
from dray.client.rest import STRATEGIC_PATCH
from dray.clock import rfc3339
from dray.controllers.context import ControllerContext
from dray.controllers.disruption.coverage import CoveredPods, PodsOfBudget
from dray.controllers.disruption.numbers import (
    NotCountable,
    disrupted_pods,
    needs_scale,
    selector_problem,
    status_of,
)
from dray.controllers.disruption.scales import OwnerScales
from dray.controllers.owned_pods import BY_CONTROLLER, controller_of

WORKERS = 2
# A pod that says it is about to be disrupted and is not deleted within this time says so no longer.
STALE_CONDITION_S = 120.0
DISRUPTION_TARGET, BY_KUBELET = "DisruptionTarget", "TerminationByKubelet"
UNMANAGED = (
    "Pods selected by this PodDisruptionBudget (selector: {selector}) were found to be unmanaged. As a result, the status of the "
    "PDB cannot be calculated correctly, which may result in undefined behavior. To account for these pods please set "
    '".spec.minAvailable" field of the PDB to an integer value.'
)

Key = tuple[str, str]  # "budget" or "pod", and namespace/name


class DisruptionController:
    name = "disruption-controller"

    def __init__(self, context: ControllerContext, *, recorder: Recorder | None = None) -> None:
        self._client = context.client.named(self.name)
        self._clock = context.clock
        self._informers = context.informers
        self._recorder = recorder or EventRecorder(self._client, self.name)
        self._budgets = context.informers.of(DISRUPTION_BUDGETS)
        self._pods = context.informers.of(PODS)
        self._pods.add_indexer(BY_NAMESPACE, by_namespace)
        self._pods.add_indexer(BY_CONTROLLER, controller_of)
        self._scales = OwnerScales(context, self._client)
        self._scales.replica_sets.add_indexer(BY_CONTROLLER, controller_of)
        self.covered = CoveredPods()
        self.queue: WorkQueue[Key] = WorkQueue("disruption", clock=context.clock, registry=context.registry)
        self._budgets.add_handler(Handler(self._budget_seen, lambda _, new: self._budget_seen(new), self._budget_gone))
        self._pods.add_handler(Handler(self._pod_seen, lambda _, new: self._pod_seen(new), self._pod_gone))
        for informer in (
            self._scales.replica_sets,
            self._scales.stateful_sets,
            self._scales.replication_controllers,
        ):
            informer.add_handler(Handler(self._owner_seen, self._owner_changed))
        self._scales.deployments.add_handler(Handler(self._deployment_seen, self._deployment_changed))

    async def run(self) -> None:
        await self._informers.synced()
        await self.queue.run(self.sync, WORKERS)

    # --- triggers

    def _budget_seen(self, budget: PodDisruptionBudget) -> None:
        key, namespace = object_key(budget), budget.metadata.namespace
        selector = None if selector_problem(budget.spec.selector) else budget.spec.selector
        self.covered.put_budget(key, namespace, selector, self._in_namespace(namespace))
        self.queue.add(("budget", key))

    def _in_namespace(self, namespace: str) -> Iterable[Pod]:
        """Listed only when somebody asks for the first one."""
        yield from self._pods.by_index(BY_NAMESPACE, namespace)

    def _budget_gone(self, budget: PodDisruptionBudget) -> None:
        key = object_key(budget)
        self.covered.remove_budget(key)
        self.queue.cancel_later(("budget", key))

    def _pod_seen(self, pod: Pod) -> None:
        self._wake(self.covered.put_pod(pod))
        left_s = self._stale_in_s(pod)
        if left_s is not None:
            self.queue.add_after(("pod", object_key(pod)), left_s)

    def _pod_gone(self, pod: Pod) -> None:
        self._wake(self.covered.remove_pod(pod))

    def _wake(self, budgets: Iterable[str]) -> None:
        for key in budgets:
            self.queue.add(("budget", key))

    def _owner_changed(self, old: Any, new: Any) -> None:
        if old.spec.replicas != new.spec.replicas:
            self._owner_seen(new)

    def _owner_seen(self, owner: Any) -> None:
        if self.covered.selectors:
            for pod in self._pods.by_index(BY_CONTROLLER, owner.metadata.uid):
                self._wake(self.covered.budgets_of(pod))

    def _deployment_changed(self, old: Any, new: Any) -> None:
        if old.spec.replicas != new.spec.replicas:
            self._deployment_seen(new)

    def _deployment_seen(self, deployment: Any) -> None:
        if self.covered.selectors:
            for replica_set in self._scales.replica_sets.by_index(BY_CONTROLLER, deployment.metadata.uid):
                self._owner_seen(replica_set)

    # --- acting

    async def sync(self, key: Key) -> None:
        kind, name = key
        if kind == "pod":
            await self._take_back(name)
            return
        budget = self._budgets.get(name)
        if budget is None:
            return
        coverage = self.covered.of(name)
        now = self._clock.now()
        disrupted = disrupted_pods(budget.status.disrupted_pods, coverage.pods, now)
        try:
            expected = await self._expected(budget, coverage)
            status = status_of(budget, coverage, expected, disrupted.waiting, now)
        except NotCountable as problem:
            await self._say_unknown(budget, str(problem))
            return
        except ApiError as error:
            await self._say_unknown(budget, str(error))
            raise
        if status != budget.status:
            await self._write(budget, status)
            self._report(budget, coverage)
            for pod in disrupted.not_deleted:
                self._say_not_deleted(budget, pod)
        if disrupted.left_s is not None:
            self.queue.add_after(key, disrupted.left_s)

    async def _expected(self, budget: PodDisruptionBudget, coverage: PodsOfBudget) -> int:
        problem = selector_problem(budget.spec.selector)
        if problem:
            raise NotCountable(problem)
        if not needs_scale(budget.spec):
            return len(coverage.pods) if budget.spec.min_available is not None else 0
        namespace = budget.metadata.namespace
        scales: dict[str, int] = {}
        for owner in list(coverage.owners.values()):
            scale = await self._scales.of(owner, namespace)
            if scale is None:
                pod = next((name for name, pod in coverage.pods.items() if pod.owner == owner), "")
                raise NotCountable(f'found no controllers for pod "{pod}"')
            scales[scale.uid] = scale.replicas
        return sum(scales.values())

    async def _say_unknown(self, budget: PodDisruptionBudget, problem: str) -> None:
        """Nothing may be disrupted while nobody can say how much; the other numbers stay."""
        known, now = budget.status, rfc3339(self._clock.now())
        conditions = with_verdict(known.conditions, 0, known.observed_generation, now, failure=problem)
        status = msgspec.structs.replace(known, disruptions_allowed=0, conditions=conditions)
        if status == known:
            return
        reason, what = "CalculateExpectedPodCountFailed", "Failed to calculate the number of expected pods"
        if problem == selector_problem(budget.spec.selector):
            reason, what = "NoPods", "Failed to get pods"
        self._recorder.event(reference_to(DISRUPTION_BUDGETS, budget), WARNING, reason, f"{what}: {problem}")
        await self._write(budget, status)

    async def _write(self, budget: PodDisruptionBudget, status: PodDisruptionBudgetStatus) -> None:
        """With the revision that was read: an eviction that took a disruption meanwhile is not overwritten."""
        try:
            await self._client.update_status(DISRUPTION_BUDGETS, msgspec.structs.replace(budget, status=status))
        except ApiError as error:
            if not error.is_not_found:
                raise

    def _report(self, budget: PodDisruptionBudget, coverage: PodsOfBudget) -> None:
        about = reference_to(DISRUPTION_BUDGETS, budget)
        if not coverage.pods:
            self._recorder.event(about, NORMAL, "NoPods", "No matching pods found")
        elif needs_scale(budget.spec) and coverage.unmanaged:
            selector = msgspec.json.encode(budget.spec.selector).decode()
            self._recorder.event(about, WARNING, "UnmanagedPods", UNMANAGED.format(selector=selector))

    def _say_not_deleted(self, budget: PodDisruptionBudget, name: str) -> None:
        metadata = budget.metadata
        pod = self._pods.get(f"{metadata.namespace}/{name}")
        if pod is not None:
            text = f"Pod was expected by PDB {metadata.namespace}/{metadata.name} to be deleted but it wasn't"
            self._recorder.event(reference_to(PODS, pod), WARNING, "NotDeleted", text)

    # --- marks of pods

    def _stale_in_s(self, pod: Pod) -> float | None:
        mark = _mark(pod)
        if mark is None or mark.status != "True" or mark.reason == BY_KUBELET or not is_active(pod):
            return None
        try:
            since = parse_time(mark.last_transition_time or "")
        except ValueError:
            return 0.0
        return max(0.0, STALE_CONDITION_S + (since - self._clock.now()).total_seconds())

    async def _take_back(self, key: str) -> None:
        pod = self._pods.get(key)
        left_s = self._stale_in_s(pod) if pod is not None else None
        if pod is None or left_s is None:
            return
        if left_s > 0:
            self.queue.add_after(("pod", key), left_s)
            return
        now = rfc3339(self._clock.now())
        mark = {
            "type": DISRUPTION_TARGET,
            "status": "False",
            "lastTransitionTime": now,
            "reason": None,
            "message": None,
        }
        try:
            await self._client.patch(
                *(PODS, pod.metadata.name, {"status": {"conditions": [mark]}}, pod.metadata.namespace),
                patch_type=STRATEGIC_PATCH,
                subresource="status",
                uid=pod.metadata.uid,
            )
        except ApiError as error:
            if not error.is_not_found:
                raise


def _mark(pod: Pod) -> PodCondition | None:
    return next((each for each in pod.status.conditions if each.type == DISRUPTION_TARGET), None)
