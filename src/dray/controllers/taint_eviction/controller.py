"""The device taint eviction controller: evicts pods from devices that are tainted NoExecute, when their tolerations end.

Every change that may move a pod's deadline puts the pod in the queue; the deadline itself is computed afresh from the
informers each time, so there is no second copy of the truth that could go stale.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable

import msgspec

from dray.api.core import Pod
from dray.api.dra.consumption import allocation_results
from dray.api.dra.pools import pool_id
from dray.api.meta import Condition
from dray.api.resource import DeviceTaintRule, ResourceClaim, ResourceSlice
from dray.client import (
    CLAIMS,
    NORMAL,
    PODS,
    SLICES,
    TAINT_RULES,
    ApiError,
    EventRecorder,
    Handler,
    Kind,
    Recorder,
    WorkQueue,
    object_key,
    reference_to,
)
from dray.clock import rfc3339
from dray.controllers.context import ControllerContext
from dray.controllers.pod_eviction import DELETIONS_HELP, DURATION_BUCKETS, DURATIONS_HELP, PodEvictor
from dray.controllers.taint_eviction.causes import EvictionCauses, claims_of, pools_of
from dray.controllers.taint_eviction.deadlines import Deadline, PublishedTaints, rule_applies
from dray.controllers.taint_eviction.rule_status import NONE, RuleCounts, condition
from dray.telemetry import VerboseLog

decisions = VerboseLog(__name__)

NAME = "device-taint-eviction-controller"
WORKERS = 8
BY_CLAIM, BY_POOL = "resource claim", "pool"
REASON = "DeviceTaintManagerEviction"
REMEMBERED_EVICTIONS = 500
# While a rule evicts, its status follows at this pace, not with every pod.
RULE_STATUS_INTERVAL_S = 10.0

Key = tuple[str, ...]  # ("pod", namespace/name, uid) or ("rule", name)


class TaintEvictionController:
    name = NAME

    def __init__(
        self,
        context: ControllerContext,
        *,
        rules: Kind[DeviceTaintRule] | None = TAINT_RULES,
        workers: int = WORKERS,
        recorder: Recorder | None = None,
    ) -> None:
        """`rules` is the served version of DeviceTaintRules; None leaves them out."""
        self._client = context.client.named(NAME)
        self._clock = context.clock
        self._informers = context.informers
        self._workers = workers
        self._recorder = recorder or EventRecorder(self._client, NAME)
        self._taints = PublishedTaints()
        self._pods = context.informers.of(PODS)
        self._claims = context.informers.of(CLAIMS)
        self._rule_kind = rules
        self._rules = context.informers.of(rules) if rules is not None else None
        self._causes = EvictionCauses(self._pods, self._claims, self._rules, self._taints, context.clock)
        slices = context.informers.of(SLICES)
        self._pods.add_indexer(BY_CLAIM, claims_of)
        self._claims.add_indexer(BY_POOL, pools_of)
        self.queue: WorkQueue[Key] = WorkQueue(NAME, clock=context.clock, registry=context.registry)
        self.pending: dict[str, tuple[Pod, Deadline]] = {}
        self._evicted: OrderedDict[str, None] = OrderedDict()
        self._evicted_by_rule: Counter[str] = Counter()
        self._rule_written_at: dict[str, float] = {}
        self._evictor = PodEvictor(
            self._client,
            reason="DeletionByDeviceTaintManager",
            message="Device Taint manager: deleting due to NoExecute taint",
            deletions=context.registry.counter("device_taint_eviction_controller_pod_deletions_total", DELETIONS_HELP),
            durations=context.registry.histogram(
                "device_taint_eviction_controller_pod_deletion_duration_seconds",
                DURATIONS_HELP,
                buckets=DURATION_BUCKETS,
            ),
        )
        slices.add_handler(Handler(self._slice_seen, self._slice_changed, self._slice_gone))
        if self._rules is not None:
            self._rules.add_handler(Handler(self._rule_seen, self._rule_changed, self._rule_gone))
        self._claims.add_handler(Handler(self._claim_seen, lambda _, new: self._claim_seen(new), self._claim_seen))
        self._pods.add_handler(Handler(self._pod_seen, lambda _, new: self._pod_seen(new), self._pod_gone))

    async def run(self) -> None:
        await self._informers.synced()
        await self.queue.run(self.sync, self._workers)

    # --- triggers

    def _slice_seen(self, resource_slice: ResourceSlice) -> None:
        if self._taints.put(resource_slice):
            self._look_at_pool(resource_slice)

    def _slice_changed(self, old: ResourceSlice, new: ResourceSlice) -> None:
        if pool_id(old) != pool_id(new):
            self._slice_gone(old)
        self._slice_seen(new)

    def _slice_gone(self, resource_slice: ResourceSlice) -> None:
        if self._taints.remove(resource_slice):
            self._look_at_pool(resource_slice)

    def _look_at_pool(self, resource_slice: ResourceSlice) -> None:
        for claim in self._claims.by_index(BY_POOL, "/".join(pool_id(resource_slice))):
            self._claim_seen(claim)

    def _rule_seen(self, rule: DeviceTaintRule) -> None:
        self._look_at_rule(rule)
        self.queue.add(("rule", rule.metadata.name))

    def _rule_changed(self, old: DeviceTaintRule, new: DeviceTaintRule) -> None:
        if old.spec != new.spec:
            self._look_at_rule(old)
            self._rule_seen(new)

    def _rule_gone(self, rule: DeviceTaintRule) -> None:
        self._evicted_by_rule.pop(rule.metadata.name, None)
        self._rule_written_at.pop(rule.metadata.name, None)
        self._look_at_rule(rule)

    def _look_at_rule(self, rule: DeviceTaintRule) -> None:
        for claim in self._claims:
            if any(rule_applies(rule, device) for device in allocation_results(claim)):
                self._claim_seen(claim)

    def _claim_seen(self, claim: ResourceClaim) -> None:
        for pod in self._pods.by_index(BY_CLAIM, object_key(claim)):
            self._pod_seen(pod)

    def _pod_seen(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        if pod.spec.resource_claims and (uid in self.pending or self.deadline(pod) is not None):
            self.queue.add(("pod", object_key(pod), uid))

    def _pod_gone(self, pod: Pod) -> None:
        self._forget(pod.metadata.uid, cancelled=False)

    def deadline(self, pod: Pod) -> Deadline | None:
        return None if pod.metadata.uid in self._evicted else self._causes.deadline(pod)

    # --- acting

    async def sync(self, key: Key) -> None:
        if key[0] == "rule":
            await self._sync_rule(key[1])
        else:
            await self._sync_pod(key)

    async def _sync_pod(self, key: Key) -> None:
        _, name, uid = key
        pod = self._pods.get(name)
        if pod is None or pod.metadata.uid != uid:
            self._forget(uid, cancelled=False)
            return
        deadline = self.deadline(pod)
        if deadline is None:
            self._forget(uid, cancelled=pod.metadata.deletion_timestamp is None and uid not in self._evicted)
            return
        self._expect(pod, deadline)
        decisions.say(5, "Pod uses a tainted device", pod=pod, at=deadline.at)
        wait_s = (deadline.at - self._clock.now()).total_seconds()
        if wait_s > 0:
            self.queue.add_after(key, wait_s)
        else:
            decisions.say(4, "Deleting pod because of a tainted device", pod=pod, rules=sorted(deadline.rules))
            await self._evict(pod, deadline)

    def _expect(self, pod: Pod, deadline: Deadline) -> None:
        known = self.pending.get(pod.metadata.uid)
        self.pending[pod.metadata.uid] = (pod, deadline)
        if known is None:
            self._recorder.event(reference_to(PODS, pod), NORMAL, REASON, "Marking for deletion")
        before = known[1].rules if known else frozenset()
        self._rules_changed(before ^ deadline.rules)

    def _forget(self, uid: str, *, cancelled: bool) -> None:
        known = self.pending.pop(uid, None)
        if known is None:
            return
        pod, deadline = known
        self.queue.cancel_later(("pod", object_key(pod), uid))
        if cancelled:
            self._recorder.event(reference_to(PODS, pod), NORMAL, REASON, "Cancelling deletion")
        self._rules_changed(deadline.rules)

    async def _evict(self, pod: Pod, deadline: Deadline) -> None:
        uid = pod.metadata.uid
        await self._evictor.evict(pod, deadline.at)
        self._evicted[uid] = None
        if len(self._evicted) > REMEMBERED_EVICTIONS:
            self._evicted.popitem(last=False)
        self._evicted_by_rule.update(deadline.rules)
        self._forget(uid, cancelled=False)

    # --- rule status

    def _rules_changed(self, names: Iterable[str]) -> None:
        for name in names:
            last = self._rule_written_at.get(name)
            wait_s = 0.0 if last is None else last + RULE_STATUS_INTERVAL_S - self._clock.monotonic()
            self.queue.add_after(("rule", name), wait_s)

    async def _sync_rule(self, name: str) -> None:
        rule = self._rules.get(name) if self._rules is not None else None
        if rule is None or self._rule_kind is None:
            return
        fresh = condition(rule, self._counts(rule))
        old = next((item for item in rule.status.conditions if item.type == fresh.type), None)
        if old is not None and _is_settled(rule, old, fresh):
            return
        is_same_status = old is not None and old.status == fresh.status
        changed_at = old.last_transition_time if old and is_same_status else rfc3339(self._clock.now())
        fresh = msgspec.structs.replace(fresh, last_transition_time=changed_at)
        document = {
            "metadata": {"name": name, "uid": rule.metadata.uid},
            "status": {"conditions": [msgspec.to_builtins(fresh)]},
        }
        self._rule_written_at[name] = self._clock.monotonic()
        try:
            await self._client.apply(self._rule_kind, document, field_manager=NAME, force=True, subresource="status")
        except ApiError as error:
            if not error.is_not_found:
                raise

    def _counts(self, rule: DeviceTaintRule) -> RuleCounts:
        if rule.spec.taint.effect == NONE:
            return self._causes.dry_run(rule)
        name = rule.metadata.name
        pods = (pod for pod, deadline in self.pending.values() if name in deadline.rules)
        return RuleCounts(Counter(pod.metadata.namespace for pod in pods), self._evicted_by_rule[name])


def _is_settled(rule: DeviceTaintRule, old: Condition, fresh: Condition) -> bool:
    """Says the same already; and a dry run is written once for each edition of the rule."""
    if rule.spec.taint.effect == NONE and old.reason == fresh.reason:
        return old.observed_generation == fresh.observed_generation
    return msgspec.structs.replace(fresh, last_transition_time=old.last_transition_time) == old
