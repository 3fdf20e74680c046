"""How many pods of a budget have to be healthy, and how many may go. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from dray.api.disruption import with_verdict
from dray.api.meta import LabelSelector
from dray.api.times import parse_time
from dray.api.workloads import PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus
from dray.clock import rfc3339
from dray.controllers.deployment_rollout import number_of_pods
from dray.controllers.disruption.coverage import CoveredPod, PodsOfBudget

# An evicted pod that nobody has begun to delete within this time is counted again.
DELETION_TIMEOUT_S = 120.0
LARGEST = 2**31 - 1


class NotCountable(Exception):
    """Nobody can say how many pods there should be; the text becomes the condition's message."""


def needs_scale(spec: PodDisruptionBudgetSpec) -> bool:
    """Whether the numbers depend on how many pods their owners want; else those that are there are counted."""
    return spec.max_unavailable is not None or isinstance(spec.min_available, str)


def desired_healthy(spec: PodDisruptionBudgetSpec, expected: int) -> int:
    if spec.max_unavailable is not None:
        return max(0, expected - _pods(spec.max_unavailable, expected))
    if spec.min_available is None:
        return 0
    return min(LARGEST, _pods(spec.min_available, expected))


def _pods(value: int | str, of: int) -> int:
    if isinstance(value, str) and not value.endswith("%"):
        raise NotCountable("invalid value for IntOrString: invalid type: string is not a percentage")
    number = number_of_pods(value, of, math.ceil, unreadable=-1)
    if number < 0:
        raise NotCountable(f'invalid value for IntOrString: invalid value "{value}": not a whole number of percent')
    return number


@dataclass(frozen=True, slots=True)
class DisruptedPods:
    """Evicted pods that are not being deleted yet. `left_s`: when the first of them is given up; `not_deleted` were."""

    waiting: dict[str, str]
    left_s: float | None
    not_deleted: tuple[str, ...]


def disrupted_pods(noted: Mapping[str, str], pods: Mapping[str, CoveredPod], now: datetime) -> DisruptedPods:
    waiting: dict[str, str] = {}
    not_deleted: list[str] = []
    left: list[float] = []
    for name, since in noted.items():
        if name not in pods or pods[name].is_leaving:
            continue
        left_s = _seconds_left(since, now)
        if left_s < 0:
            not_deleted.append(name)
        else:
            waiting[name] = since
            left.append(left_s)
    return DisruptedPods(waiting, min(left, default=None), tuple(not_deleted))


def _seconds_left(since: str, now: datetime) -> float:
    try:
        return DELETION_TIMEOUT_S + (parse_time(since) - now).total_seconds()
    except ValueError:
        return -1.0


def status_of(
    budget: PodDisruptionBudget, coverage: PodsOfBudget, expected: int, waiting: Mapping[str, str], now: datetime
) -> PodDisruptionBudgetStatus:
    """A budget that expects no pods allows nothing: its first pods may be there before anybody has counted them."""
    expected = min(expected, LARGEST)
    desired = desired_healthy(budget.spec, expected)
    healthy = coverage.ready - sum(coverage.pods[name].is_ready for name in waiting)
    allowed = max(0, healthy - desired) if expected > 0 else 0
    generation = budget.metadata.generation or 0
    return PodDisruptionBudgetStatus(
        observed_generation=generation,
        disrupted_pods=dict(waiting),
        disruptions_allowed=allowed,
        current_healthy=healthy,
        desired_healthy=desired,
        expected_pods=expected,
        conditions=with_verdict(budget.status.conditions, allowed, generation, rfc3339(now)),
    )


OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


def selector_problem(selector: LabelSelector | None) -> str:
    for each in selector.match_expressions if selector else ():
        if each.operator not in OPERATORS:
            return f'"{each.operator}" is not a valid label selector operator'
        if each.operator in ("In", "NotIn") and not each.values:
            return "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty"
        if each.operator in ("Exists", "DoesNotExist") and each.values:
            return "values: Invalid value: values set must be empty for exists and does not exist"
    return ""
