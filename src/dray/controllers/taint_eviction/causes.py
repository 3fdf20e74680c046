"""Finds the taints that reach a pod through its claims and the time at which they evict it. Reads informers only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from dray.api.core import Pod
from dray.api.dra.claim_users import may_use, was_made_for
from dray.api.dra.consumption import allocation_results
from dray.api.dra.pod_claims import claim_names_of_entries, claims_of_entries
from dray.api.dra.pod_phase import is_active, is_bound
from dray.api.dra.pools import device_id
from dray.api.dra.taints import NO_EXECUTE
from dray.api.resource import DeviceRequestAllocationResult, DeviceTaint, DeviceTaintRule, ResourceClaim
from dray.client import Informer
from dray.clock import Clock
from dray.controllers.taint_eviction.deadlines import (
    Cause,
    Deadline,
    PublishedTaints,
    earliest,
    eviction_time,
    rule_applies,
    rule_selects,
)
from dray.controllers.taint_eviction.rule_status import RuleCounts


class EvictionCauses:
    def __init__(
        self,
        pods: Informer[Pod],
        claims: Informer[ResourceClaim],
        rules: Informer[DeviceTaintRule] | None,
        taints: PublishedTaints,
        clock: Clock,
    ) -> None:
        self._pods = pods
        self._claims = claims
        self._rules = rules
        self._taints = taints
        self._clock = clock

    def deadline(self, pod: Pod) -> Deadline | None:
        """When this pod has to go; None if it may stay, is over, or is leaving already."""
        if not self._taints and not self._rules:
            return None
        if not _may_be_evicted(pod):
            return None
        return earliest(self._causes(pod))

    def dry_run(self, rule: DeviceTaintRule) -> RuleCounts:
        """What the rule would do if its effect were NoExecute."""
        taint = msgspec.structs.replace(rule.spec.taint, effect=NO_EXECUTE)
        namespaces: Counter[str] = Counter()
        for pod in self._pods:
            if _may_be_evicted(pod) and self._would_evict(pod, rule, taint):
                namespaces[pod.metadata.namespace] += 1
        devices = {
            device_id(device)
            for claim in self._claims
            for device in allocation_results(claim)
            if rule_applies(rule, device)
        }
        selector = rule.spec.device_selector
        published = sum(rule_selects(selector, *device) for device in self._taints.devices())
        return RuleCounts(namespaces, 0, published, len(devices))

    def _would_evict(self, pod: Pod, rule: DeviceTaintRule, taint: DeviceTaint) -> bool:
        now = self._clock.now()
        return any(
            rule_applies(rule, device) and eviction_time(taint, device.tolerations, now) is not None
            for claim in self._claims_in_use(pod)
            for device in allocation_results(claim)
        )

    def _causes(self, pod: Pod) -> Iterator[Cause]:
        now = self._clock.now()
        for claim in self._claims_in_use(pod):
            for device in allocation_results(claim):
                for taint, rule_name in self._taints_of(device):
                    at = eviction_time(taint, device.tolerations, now)
                    if at is not None:
                        yield Cause(at, rule_name)

    def _taints_of(self, device: DeviceRequestAllocationResult) -> Iterator[tuple[DeviceTaint, str]]:
        for taint in self._taints.of(device.driver, device.pool, device.device):
            yield taint, ""
        for rule in self._rules or ():
            if rule_applies(rule, device):
                yield rule.spec.taint, rule.metadata.name

    def _claims_in_use(self, pod: Pod) -> Iterator[ResourceClaim]:
        """Allocated, reserved for this pod or its group, and made for it where it was made from a template."""
        for known in claims_of_entries(pod):
            claim = self._claims.get(f"{pod.metadata.namespace}/{known.claim_name}") if known.claim_name else None
            if claim is None or claim.status.allocation is None or not may_use(claim, pod):
                continue
            if not known.is_generated or was_made_for(claim, pod):
                yield claim


def _may_be_evicted(pod: Pod) -> bool:
    return is_bound(pod) and is_active(pod)


def claims_of(pod: Pod) -> Iterable[str]:
    return [f"{pod.metadata.namespace}/{name}" for name in claim_names_of_entries(pod)]


def pools_of(claim: ResourceClaim) -> Iterable[str]:
    return {f"{device.driver}/{device.pool}" for device in allocation_results(claim)}
