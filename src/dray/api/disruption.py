"""PodDisruptionBudgets: the condition that says whether pods may be disrupted. Server and controller both write it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from dray.api.meta import Condition

ALLOWED = "DisruptionAllowed"
SUFFICIENT, INSUFFICIENT, SYNC_FAILED = "SufficientPods", "InsufficientPods", "SyncFailed"


def with_verdict(
    conditions: Sequence[Condition], allowed: int, generation: int, now: str, failure: str = ""
) -> tuple[Condition, ...]:
    """`conditions` with the one about `allowed` disruptions. A `failure` is the reason why nobody can say how many they are.

    The time of the condition changes only with its status.
    """
    reason = SYNC_FAILED if failure else SUFFICIENT if allowed > 0 else INSUFFICIENT
    status = "True" if reason == SUFFICIENT else "False"
    old = verdict_of(conditions)
    since = old.last_transition_time if old is not None and old.status == status else now
    verdict = Condition(
        type=ALLOWED,
        status=status,
        observed_generation=generation,
        last_transition_time=since,
        reason=reason,
        message=failure,
    )
    if old is None:
        return (*conditions, verdict)
    return tuple(verdict if each is old else each for each in conditions)


def verdict_of(conditions: Sequence[Condition]) -> Condition | None:
    return next((each for each in conditions if each.type == ALLOWED), None)
