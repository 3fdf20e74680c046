"""Computes the progress of a Deployment's rollout, and the next sizes of its old and new ReplicaSets. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from dray.api.times import parse_time
from dray.api.workloads import Deployment, DeploymentStatus, ReplicaSet, RollingUpdate, WorkloadCondition
from dray.clock import rfc3339

DEFAULT_PART = "25%"


def surge_and_unavailable(rolling: RollingUpdate | None, wanted: int) -> tuple[int, int]:
    """How many pods more, and how many fewer ready ones, than wanted are fine on the way; never none of both."""
    max_surge = rolling.max_surge if rolling else None
    max_unavailable = rolling.max_unavailable if rolling else None
    surge = number_of_pods(DEFAULT_PART if max_surge is None else max_surge, wanted, math.ceil)
    unavailable = number_of_pods(DEFAULT_PART if max_unavailable is None else max_unavailable, wanted, math.floor)
    if surge == 0 and unavailable == 0:
        unavailable = 1
    return surge, min(unavailable, wanted)


def number_of_pods(value: int | str, of: int, rounded: Callable[[float], int], *, unreadable: int = 0) -> int:
    """A number, or so many percent `of` the pods; `unreadable` if the text is neither."""
    if isinstance(value, int):
        return max(0, value)
    text = value.removesuffix("%")
    return max(0, rounded(int(text) * of / 100)) if text.isascii() and text.isdigit() and len(text) < 10 else unreadable


def next_sizes(
    wanted: int, surge: int, unavailable: int, new: ReplicaSet, old: Sequence[ReplicaSet]
) -> tuple[int, list[int]]:
    """The next sizes of the new set and of the old ones.

    The new set grows as far as the surge allows; old ones shrink by pods that do not work, and then by as many as the
    new set's available pods make up for.
    """
    new_size = new.spec.replicas or 0
    old_sizes = [item.spec.replicas or 0 for item in old]
    room = wanted + surge - new_size - sum(old_sizes)
    grown = wanted if new_size > wanted else min(wanted, new_size + max(0, room))
    spare = sum(old_sizes) + grown - (wanted - unavailable)
    new_unavailable = grown - min(grown, new.status.available_replicas)
    may_go = max(0, spare - new_unavailable)
    shrunk: list[int] = []
    for item, size in zip(old, old_sizes, strict=True):
        broken = max(0, size - item.status.available_replicas)
        gone = min(size, max(min(broken, max(0, spare)), min(size, may_go)))
        may_go = max(0, may_go - gone)
        spare = max(0, spare - gone)
        shrunk.append(size - gone)
    return grown, shrunk


AVAILABLE, PROGRESSING = "Available", "Progressing"
COMPLETE, UPDATED = "NewReplicaSetAvailable", "ReplicaSetUpdated"
TIMED_OUT, PAUSED = "ProgressDeadlineExceeded", "DeploymentPaused"
# Of a Deployment that sets it to "never", as Kubernetes writes that down.
NO_DEADLINE_S = 2**31 - 1


@dataclass(frozen=True, slots=True)
class RolloutReport:
    """`look_again_s`: when the deadline is up, unless something moves before."""

    status: DeploymentStatus
    look_again_s: float | None


def report(deployment: Deployment, new: ReplicaSet | None, old: Sequence[ReplicaSet], now: datetime) -> RolloutReport:
    wanted = 1 if deployment.spec.replicas is None else deployment.spec.replicas
    sets = [*old, new] if new is not None else list(old)
    replicas = sum(item.status.replicas for item in sets)
    available = sum(item.status.available_replicas for item in sets)
    counts = DeploymentStatus(
        observed_generation=deployment.metadata.generation,
        replicas=replicas,
        updated_replicas=new.status.replicas if new is not None else 0,
        ready_replicas=sum(item.status.ready_replicas for item in sets),
        available_replicas=available,
        unavailable_replicas=max(0, max(wanted, replicas) - available),
    )
    is_complete = new is not None and counts.updated_replicas == replicas == wanted == new.status.available_replicas
    conditions = Conditions(deployment, now)
    progressing, look_again_s = _progress(conditions, counts, new, is_complete=is_complete)
    both = (_availability(conditions, available, wanted), progressing)
    conditions_now = tuple(item for item in both if item is not None)
    status = msgspec.structs.replace(counts, conditions=conditions_now)
    return RolloutReport(status, look_again_s)


class Conditions:
    """The conditions of one Deployment as they were, and how they are brought up to date."""

    def __init__(self, deployment: Deployment, now: datetime) -> None:
        self.deployment = deployment
        self.now = now

    def old(self, type_: str) -> WorkloadCondition | None:
        return next((item for item in self.deployment.status.conditions if item.type == type_), None)

    def made(self, type_: str, status: str, reason: str, message: str, *, is_news: bool = False) -> WorkloadCondition:
        """As it was if it says the same; `is_news` moves its time all the same."""
        old = self.old(type_)
        if old is not None and not is_news and (old.status, old.reason, old.message) == (status, reason, message):
            return old
        now = rfc3339(self.now)
        is_same_state = old is not None and old.status == status
        changed = old.last_transition_time if old is not None and is_same_state else now
        return WorkloadCondition(
            type=type_,
            status=status,
            reason=reason,
            message=message,
            last_update_time=now,
            last_transition_time=changed,
        )


def _availability(conditions: Conditions, available: int, wanted: int) -> WorkloadCondition:
    strategy = conditions.deployment.spec.strategy
    # Recreate lets nothing be missing once it is done.
    unavailable = 0 if strategy.type == "Recreate" else surge_and_unavailable(strategy.rolling_update, wanted)[1]
    if available >= wanted - unavailable:
        text = "Deployment has minimum availability."
        return conditions.made(AVAILABLE, "True", "MinimumReplicasAvailable", text)
    text = "Deployment does not have minimum availability."
    return conditions.made(AVAILABLE, "False", "MinimumReplicasUnavailable", text)


def _progress(
    conditions: Conditions, counts: DeploymentStatus, new: ReplicaSet | None, *, is_complete: bool
) -> tuple[WorkloadCondition | None, float | None]:
    deployment, old = conditions.deployment, conditions.old(PROGRESSING)
    name = f'ReplicaSet "{new.metadata.name}"' if new is not None else f'Deployment "{deployment.metadata.name}"'
    if deployment.spec.paused:
        if old is not None and old.reason == COMPLETE:
            return old, None
        return conditions.made(PROGRESSING, "Unknown", PAUSED, "Deployment is paused"), None
    if is_complete:
        return conditions.made(PROGRESSING, "True", COMPLETE, f"{name} has successfully progressed."), None
    if (
        old is not None
        and old.reason == COMPLETE
        and deployment.status.observed_generation == counts.observed_generation
    ):
        return old, None  # Pods that fail after a roll-out are not the roll-out's failure.
    if old is None or old.status == "Unknown" or old.reason == COMPLETE or _has_moved(deployment.status, counts):
        made = conditions.made(PROGRESSING, "True", UPDATED, f"{name} is progressing.", is_news=True)
        return made, _deadline_s(deployment)
    left_s = _left_s(deployment, old, conditions.now)
    if left_s is None or left_s > 0:
        return old, left_s
    return conditions.made(PROGRESSING, "False", TIMED_OUT, f"{name} has timed out progressing."), None


def _has_moved(old: DeploymentStatus, new: DeploymentStatus) -> bool:
    """More new pods, fewer old ones, or more that work."""
    return (
        new.updated_replicas > old.updated_replicas
        or new.replicas - new.updated_replicas < old.replicas - old.updated_replicas
        or new.ready_replicas > old.ready_replicas
        or new.available_replicas > old.available_replicas
        or new.observed_generation > old.observed_generation
    )


def _deadline_s(deployment: Deployment) -> float | None:
    seconds = deployment.spec.progress_deadline_seconds
    return None if seconds is None or seconds >= NO_DEADLINE_S else float(seconds)


def _left_s(deployment: Deployment, condition: WorkloadCondition, now: datetime) -> float | None:
    deadline_s = _deadline_s(deployment)
    if deadline_s is None or condition.last_update_time is None:
        return None
    if condition.reason == TIMED_OUT:
        return 0.0
    # Times are whole seconds: one more, so that a deadline is never found a moment before it is up.
    return deadline_s + 1.0 - (now - parse_time(condition.last_update_time)).total_seconds()
