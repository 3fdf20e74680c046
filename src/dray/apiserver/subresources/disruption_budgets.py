"""Whether a PodDisruptionBudget lets a pod be evicted, and the budget after that. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from dray.api.disruption import SYNC_FAILED, verdict_of, with_verdict
from dray.api.meta import Condition
from dray.api.safe_get import mapping, mappings
from dray.api.scheme import by_kind
from dray.apiserver import errors
from dray.apiserver.read.selectors import selects

Document = dict[str, Any]

REFUSED = "Cannot evict pod as it would violate the pod's disruption budget."
CAUSE = "DisruptionBudget"
# Evictions that the controller has not confirmed yet.
MOST_DISRUPTED_PODS = 2000
RETRY_AFTER_S = 10


def covers(budget: Document, labels: Document) -> bool:
    """A budget without a selector is for no pod."""
    selector = mapping(budget, "spec").get("selector")
    return selector is not None and selects(selector, labels)


def spares_unready(budget: Document) -> bool:
    """Whether a pod that is not ready may go without being counted."""
    if mapping(budget, "spec").get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = mapping(budget, "status")
    healthy, needed = status.get("currentHealthy") or 0, status.get("desiredHealthy") or 0
    return bool(healthy >= needed > 0)


def is_ready(pod: Document) -> bool:
    conditions = mappings(mapping(pod, "status"), "conditions")
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def with_one_less(budget: Document, pod_name: str, now: str) -> Document:
    """The budget after the eviction of this pod; raises 429 or 403 where it does not allow one."""
    name, status = budget["metadata"]["name"], mapping(budget, "status")
    generation = status.get("observedGeneration") or 0
    if generation < (budget["metadata"].get("generation") or 0):
        raise still_processed(name)
    allowed, disrupted = status.get("disruptionsAllowed") or 0, mapping(status, "disruptedPods")
    if allowed < 0:
        raise _forbidden(name, "pdb disruptions allowed is negative", "pdb disruptions allowed is negative")
    if len(disrupted) > MOST_DISRUPTED_PODS:
        why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise _forbidden(name, why, "too many pending evictions not confirmed by PDB controller")
    conditions = msgspec.convert(mappings(status, "conditions"), tuple[Condition, ...])
    if allowed == 0:
        raise _with_cause(errors.too_many_requests(REFUSED, 0), _used_up(name, status, verdict_of(conditions)))
    left: Document = {"disruptionsAllowed": allowed - 1, "disruptedPods": {**disrupted, pod_name: now}}
    if allowed == 1:
        verdict = with_verdict(conditions, 0, generation, now)
        left["conditions"] = [{"message": "", **msgspec.to_builtins(each)} for each in verdict]
    return {**budget, "status": {**status, **left}}


def still_processed(name: str) -> errors.ApiError:
    why = f"The disruption budget {name} is still being processed by the server."
    return _with_cause(errors.too_many_requests(REFUSED, RETRY_AFTER_S), why)


def _used_up(name: str, status: Document, verdict: Condition | None) -> str:
    needs, has = status.get("desiredHealthy") or 0, status.get("currentHealthy") or 0
    says_no = verdict is not None and verdict.status == "False" and verdict.message
    text = f"The disruption budget {name} does not allow evicting pods currently"
    if verdict is not None and says_no and verdict.reason == SYNC_FAILED:
        return f"{text} because it failed sync: {verdict.message}"
    if has <= needs:
        return f"The disruption budget {name} needs {needs} healthy pods and has {has} currently"
    return f"{text} ({verdict.reason}): {verdict.message}" if verdict is not None and says_no else text


def _forbidden(name: str, why: str, cause: str) -> errors.ApiError:
    text = f"The disruption budget {name} does not allow evicting pods currently: {cause}"
    return _with_cause(errors.forbidden(by_kind("PodDisruptionBudget"), name, why), text)


def _with_cause(error: errors.ApiError, message: str) -> errors.ApiError:
    error.details = {**(error.details or {}), "causes": [{"reason": CAUSE, "message": message}]}
    return error
