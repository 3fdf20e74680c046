"""The condition in a DeviceTaintRule's status that reports the evictions it causes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from dray.api.dra.taints import NO_EXECUTE
from dray.api.meta import Condition
from dray.api.resource import DeviceTaintRule

CONDITION = "EvictionInProgress"
NONE = "None"


@dataclass(frozen=True, slots=True)
class RuleCounts:
    """Pods that a rule evicts now, by namespace, and how many it evicted since the controller started."""

    pending: Counter[str]
    evicted: int = 0
    published_devices: int = 0
    allocated_devices: int = 0


def condition(rule: DeviceTaintRule, counts: RuleCounts) -> Condition:
    """Without a transition time: the writer adds it when the status changes."""
    status, reason, message = _verdict(rule.spec.taint.effect, counts)
    return Condition(
        type=CONDITION, status=status, reason=reason, message=message, observed_generation=rule.metadata.generation
    )


def _verdict(effect: str, counts: RuleCounts) -> tuple[str, str, str]:
    pods, namespaces = counts.pending.total(), len(counts.pending)
    if effect == NONE:
        return "False", "NoEffect", _dry_run(counts)
    if effect != NO_EXECUTE:
        return "False", "OtherEffect", "Eviction only happens for the NoExecute effect."
    evicted = f"{_count(counts.evicted, 'pod')} evicted since starting the controller."
    if pods:
        need = "needs" if pods == 1 else "need"
        where = "1 namespace" if namespaces == 1 else f"{namespaces} different namespaces"
        text = f"{_count(pods, 'pod')} {need} to be evicted in {where}."
        return "True", "PodsPendingEviction", f"{text} {evicted}"
    return "False", "Completed" if counts.evicted else "NotStarted", evicted


def _dry_run(counts: RuleCounts) -> str:
    pods, namespaces = counts.pending.total(), len(counts.pending)
    where = f"{namespaces} different namespaces" if namespaces > 1 else _count(namespaces, "namespace")
    return (
        f"{_count(counts.published_devices, 'published device')} selected. "
        f"{_count(counts.allocated_devices, 'allocated device')} selected. "
        f"{_count(pods, 'pod')} would be evicted in {where} if the effect was NoExecute. "
        "This information will not be updated again. Recreate the DeviceTaintRule to trigger an update."
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
