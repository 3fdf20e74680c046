"""Deletes a pod where its PodDisruptionBudget allows it, and takes the disruption from the budget."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
from msgspec.structs import replace

from dray.api.disruption import SYNC_FAILED, verdict_of, with_verdict
from dray.api.dra.pod_phase import is_finished_document
from dray.api.meta import Condition
from dray.api.safe_get import mapping, mappings
from dray.api.scheme import by_kind
from dray.apiserver import errors
from dray.apiserver.core import QUICK, Core, in_thread_if_large
from dray.apiserver.read.selectors import selects
from dray.apiserver.request.request_info import ApiCall
from dray.apiserver.watch.stored_object import Stored
from dray.apiserver.write.deletion import DeleteOptions, Deleter
from dray.apiserver.write.object_writer import MAX_ATTEMPTS, ObjectChange, ObjectWriter

Document = dict[str, Any]

REFUSED = "Cannot evict pod as it would violate the pod's disruption budget."
CAUSE = "DisruptionBudget"
# Evictions that the controller has not confirmed yet.
MOST_DISRUPTED_PODS = 2000
RETRY_AFTER_S = 10
DISRUPTED = {
    "type": "DisruptionTarget",
    "status": "True",
    "lastProbeTime": None,
    "reason": "EvictionByEvictionAPI",
    "message": "Eviction API: evicting",
}


class Evictions:
    def __init__(self, core: Core, writer: ObjectWriter, deleter: Deleter) -> None:
        self._core = core
        self._writer = writer
        self._deleter = deleter

    async def evict(self, call: ApiCall, deletion: DeleteOptions) -> None:
        """Deletes the pod; raises 429 where its budget has no disruption left."""
        conflict = errors.conflict(call.row, call.name)
        for _ in range(MAX_ATTEMPTS):
            stored = await self._writer.current(self._core.cache(call.row), call.namespace, call.name)
            if stored is None:
                raise errors.not_found(call.row, call.name)
            pod = await self._core.document(stored)
            if _is_protected(pod):
                await self._evict_protected(call, deletion, stored, pod)
                return
            try:
                await self._delete_disrupted(call, _of_this_state(deletion, stored) if _may_start(pod) else deletion)
                return
            except errors.ApiError as error:
                if error.code != 409 or deletion.resource_version or not _may_start(pod):
                    raise
                conflict = error
        raise conflict

    async def _evict_protected(self, call: ApiCall, deletion: DeleteOptions, stored: Stored, pod: Document) -> None:
        budget = await self._budget_of(call, pod)
        if budget is None:
            await self._delete_disrupted(call, deletion)
        elif not is_ready(pod) and spares_unready(await self._core.document(budget)):
            await self._delete_unready(call, deletion, stored, budget.name)
        else:
            await self._use_budget(call, budget.name, deletion)
            await self._delete_disrupted(call, deletion)

    async def _delete_unready(self, call: ApiCall, deletion: DeleteOptions, stored: Stored, budget: str) -> None:
        """As long as the pod is what it was: one that has become ready counts, and the client asks again."""
        try:
            await self._delete_disrupted(call, _of_this_state(deletion, stored))
        except errors.ApiError as error:
            if error.code != 409 or deletion.resource_version:
                raise
            raise still_processed(budget) from None

    async def _delete_disrupted(self, call: ApiCall, deletion: DeleteOptions) -> None:
        """Marks the pod first, which tells whoever made it that it did not fail by itself."""
        if not deletion.dry_run:

            def build(old: Document) -> Document:
                self._deleter.check_preconditions(call, deletion, old)
                return _with_condition(old, {**DISRUPTED, "lastTransitionTime": self._core.now()})

            change = ObjectChange(build, "eviction", False, endpoint="finalize", skip_admission=True)
            marked = await self._writer.change(call, change)
            if deletion.resource_version:
                deletion = dataclasses.replace(deletion, resource_version=str(marked.stored.revision))
        await self._deleter.delete(call, deletion)

    async def _budget_of(self, call: ApiCall, pod: Document) -> Stored | None:
        labels = pod["metadata"].get("labels") or {}
        budgets = [*self._core.cache(by_kind("PodDisruptionBudget")).list(call.namespace)]
        # Whoever may write in the namespace decides how many there are, and how long they are.
        size = sum(stored.size for stored in budgets) // QUICK
        found = await in_thread_if_large(
            size, lambda: [stored for stored in budgets if covers(stored.document(), labels)]
        )
        if len(found) > 1:
            raise errors.bad_request(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
            )
        return found[0] if found else None

    async def _use_budget(self, call: ApiCall, name: str, deletion: DeleteOptions) -> None:
        """Takes one disruption from the budget, so that the next eviction finds one less; raises 429 when none is left."""
        budget = replace(call, row=by_kind("PodDisruptionBudget"), info=replace(call.info, name=name))

        def build(old: Document) -> Document:
            # Without a resourceVersion: after a conflict the writer asks the newer budget.
            metadata = {key: value for key, value in old["metadata"].items() if key != "resourceVersion"}
            return with_one_less({**old, "metadata": metadata}, call.name, self._core.now())

        await self._writer.change(budget, ObjectChange(build, "status", deletion.dry_run, skip_admission=True))


def _of_this_state(deletion: DeleteOptions, stored: Stored) -> DeleteOptions:
    """The deletion of the pod as it was read, unless the client names a state itself."""
    return dataclasses.replace(deletion, resource_version=deletion.resource_version or str(stored.revision))


def _with_condition(pod: Document, condition: Document) -> Document:
    """The pod with the condition in place of an older one of its type, unless that says the same."""
    status = pod.get("status") or {}
    others = [each for each in status.get("conditions") or () if each.get("type") != condition["type"]]
    same = [
        each
        for each in status.get("conditions") or ()
        if all(each.get(key) == value for key, value in condition.items() if key != "lastTransitionTime")
    ]
    return {**pod, "status": {**status, "conditions": [*others, same[0] if same else condition]}}


def _is_protected(pod: Document) -> bool:
    """Whether a budget covers the pod at all: one that has ended, has not started or is being deleted disrupts nobody."""
    if is_finished_document(pod) or (pod.get("status") or {}).get("phase") == "Pending":
        return False
    return not pod["metadata"].get("deletionTimestamp")


def _may_start(pod: Document) -> bool:
    """Whether a pod that no budget covers may be covered a moment later."""
    return not is_finished_document(pod) and not pod["metadata"].get("deletionTimestamp")


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
