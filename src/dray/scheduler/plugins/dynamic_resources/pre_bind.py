"""Reserve, Unreserve and PreBind: the chosen devices count before anything is written; then each claim's allocation and reservation are stored.

What the claims take from the node is written into the pod's status. Devices with binding conditions must be made ready after their allocation
is stored and before the pod is bound: the scheduler waits for them. A pod that fails gives everything back.
"""

import enum
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec
from msgspec.structs import replace

from dray.allocator import Allocation
from dray.api.codec import to_document
from dray.api.core import Pod
from dray.api.dra.claim_users import consumer_reference, group_name, is_reserved_for
from dray.api.dra.consumption import allocation_results
from dray.api.dra.pod_claims import extended_claim_record
from dray.api.meta import Condition
from dray.api.resource import (
    CLAIM_FINALIZER,
    AllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
)
from dray.client.errors import ApiError, ServerUnreachable
from dray.clock import rfc3339
from dray.scheduler.framework.interface import CycleState, DefaultBinding, PluginStatus, error
from dray.scheduler.handle import Handle
from dray.scheduler.node_demand import ClaimStatuses
from dray.scheduler.nodes import NodeState
from dray.scheduler.plugins.dynamic_resources.decision_log import log as decisions
from dray.scheduler.plugins.dynamic_resources.decision_log import log_reserved
from dray.scheduler.plugins.dynamic_resources.pod_claims import PodAttempt, UsableClaim, to_create


def reserve(attempt: PodAttempt, handle: Handle, node: NodeState, allocation: Allocation | None) -> PluginStatus | None:
    attempt.chosen = variant = attempt.on(node)
    if not variant.to_allocate:
        return None
    if allocation is None:
        return error("claim allocation not found for node")
    for claim, result in zip(variant.to_allocate, allocation.results(handle.share_ids), strict=True):
        attempt.results[claim.metadata.uid] = result
        if decisions.shows(5):
            log_reserved(claim, result)
        handle.devices.begin(with_allocation(claim, result))
    return None


def with_finalizer(claim: ResourceClaim) -> ResourceClaim:
    if CLAIM_FINALIZER in claim.metadata.finalizers:
        return claim
    metadata = replace(claim.metadata, finalizers=(*claim.metadata.finalizers, CLAIM_FINALIZER))
    return replace(claim, metadata=metadata)


def with_allocation(claim: ResourceClaim, result: AllocationResult) -> ResourceClaim:
    return with_finalizer(replace(claim, status=replace(claim.status, allocation=result)))


log = logging.getLogger(__name__)


async def unreserve(attempt: PodAttempt, pod: Pod, handle: Handle) -> None:
    """Allocations that were stored stay; the pod's place in `reservedFor` goes. Best effort: failures are logged."""
    decisions.say(5, "Unreserve", pod=pod, claims=attempt.claim_objects)
    for uid in attempt.results:
        handle.devices.give_up(uid)
    await _delete_made(attempt, handle)
    if attempt.reserved and not await _has_a_node(pod, handle):
        for row in attempt.claims:
            if row.claim.metadata.uid in attempt.reserved:
                await _leave_claim(row, pod, handle)


async def _has_a_node(pod: Pod, handle: Handle) -> bool:
    """Another scheduler may have bound the pod with the very reservation we wrote; then it must stay."""
    try:
        return await handle.writer.is_assigned(pod)
    except (ApiError, ServerUnreachable) as problem:
        log.warning("pod %s/%s: not read: %s", pod.metadata.namespace, pod.metadata.name, problem)
        return True  # Nobody knows; a reservation too many can be given back later, one too few ends in a lost device.


async def _leave_claim(row: UsableClaim, pod: Pod, handle: Handle) -> None:
    metadata = row.claim.metadata
    if row.user.uid != pod.metadata.uid and is_group_placed(pod, handle):
        return
    current = handle.devices.claims.get(metadata.namespace, metadata.name)
    if current is None or current.metadata.uid != metadata.uid or not is_reserved_for(current, row.user.uid):
        return
    try:
        stored = await handle.writer.unreserve_claim(current, row.user)
    except (ApiError, ServerUnreachable) as problem:
        log.warning("claim %s/%s: reservation not removed: %s", metadata.namespace, metadata.name, problem)
    else:
        handle.devices.claims.wrote(stored)


def is_group_placed(pod: Pod, handle: Handle) -> bool:
    """Does another pod of the group have a node, or is about to?"""
    name, namespace = group_name(pod), pod.metadata.namespace
    return any(
        group_name(placed.pod) == name and placed.pod.metadata.namespace == namespace
        for placed in handle.snapshot.pods()
        if placed.pod.metadata.uid != pod.metadata.uid
    )


async def _delete_made(attempt: PodAttempt, handle: Handle) -> None:
    if attempt.made is None:
        return
    try:
        await handle.writer.delete_claim(attempt.made)
    except (ApiError, ServerUnreachable) as problem:
        log.warning("claim %s for extended resources not deleted: %s", attempt.made.metadata.name, problem)


TRIES = 5
PAUSE_S = 0.01


class BindingProblem(Exception):
    """Why the claims cannot be bound; the text is for the user."""

    def status(self) -> PluginStatus:
        return error(str(self))


async def bind_with_claim(attempt: PodAttempt, cycle: CycleState, pod: Pod, node_name: str, handle: Handle) -> bool:
    """Stores a pod's claim and binds the pod in one commit, where the server can do that and nobody must be waited for.

    False if that was not possible; nothing is written then, and one write after the other shows why.
    """
    binding, row = cycle.read(DefaultBinding), _only_claim(attempt)
    if binding is None or row is None or _amounts(cycle, pod, handle) is not None:
        return False
    current, result = _newest(row.claim, handle), attempt.results.get(row.claim.metadata.uid)
    if result is None and is_reserved_for(current, row.user.uid):
        return False
    try:
        _check(current, result, handle)
        wanted = _reserved(with_finalizer(current), result, row.user, handle)
        if waits_for_conditions(wanted):
            return False
        stored = await handle.writer.bind_with_claim(pod, node_name, current, wanted)
    except (BindingProblem, ApiError, ServerUnreachable) as problem:
        log.info("pod %s/%s: not bound with its claim: %s", pod.metadata.namespace, pod.metadata.name, problem)
        return False
    if stored is None:
        return False
    handle.devices.claims.wrote(stored)
    binding.is_done = True
    return True


def _only_claim(attempt: PodAttempt) -> UsableClaim | None:
    if attempt.chosen is not None and attempt.chosen.extended_claim is not None:
        return None
    rows = {row.claim.metadata.uid: row for row in attempt.claims}
    return next(iter(rows.values())) if len(rows) == 1 else None


async def bind_claims(attempt: PodAttempt, pod: Pod, handle: Handle) -> None:
    """Every claim of the pod, in order. Raises `BindingProblem`."""
    done: set[str] = set()
    for row in attempt.claims:
        uid = row.claim.metadata.uid
        if uid not in done:
            done.add(uid)
            stored = await bind_claim(row.claim, attempt.results.get(uid), row.user, handle)
            decisions.say(5, "Reserved claim for pod", pod=pod, claim=row.claim, is_new=stored is not None)
            if stored is not None:
                attempt.reserved.add(uid)
    if attempt.chosen is not None and attempt.chosen.extended_claim is not None:
        await _bind_extended_claim(attempt, pod, handle)


async def _bind_extended_claim(attempt: PodAttempt, pod: Pod, handle: Handle) -> None:
    """Create the claim for extended resources, store its allocation, and tell the pod which request is for whom."""
    assert attempt.chosen is not None
    assert attempt.chosen.extended is not None
    assert attempt.chosen.extended_claim is not None
    in_memory = attempt.chosen.extended_claim
    try:
        attempt.made = await handle.writer.create_claim(to_create(in_memory))
    except (ApiError, ServerUnreachable) as problem:
        handle.metrics.claim_creates.inc("failure", "false", "", "Pod")
        raise BindingProblem(f"create claim for extended resources {_name(in_memory)}: {problem}") from problem
    handle.metrics.claim_creates.inc("success", "false", "", "Pod")
    stored = await bind_claim(attempt.made, attempt.results[in_memory.metadata.uid], consumer_reference(pod), handle)
    attempt.made = stored or attempt.made
    handle.devices.give_up(in_memory.metadata.uid)
    mappings = [to_document(row) for row in attempt.chosen.extended.mappings]
    try:
        await handle.writer.patch_pod_status(pod, extended_claim_record(attempt.made.metadata.name, mappings))
    except (ApiError, ServerUnreachable) as problem:
        where = f"{pod.metadata.namespace}/{pod.metadata.name}"
        raise BindingProblem(f"update pod {where} ExtendedResourceClaimStatus: {problem}") from problem


async def bind_claim(
    claim: ResourceClaim, result: AllocationResult | None, user: ResourceClaimConsumerReference, handle: Handle
) -> ResourceClaim | None:
    """Write allocation (if new) and reservation; None if both are there already.

    The first try trusts what we know, each further one reads again.
    """
    current = _newest(claim, handle)
    for tried in range(TRIES):
        if tried:
            await handle.clock.sleep(PAUSE_S)
            current = await _read_again(claim, handle)
        if result is None and is_reserved_for(current, user.uid):
            return None
        _check(current, result, handle)
        try:
            stored = await _write(current, result, user, handle)
        except ApiError as problem:
            if not problem.is_conflict or problem.is_device_conflict or tried == TRIES - 1:
                raise BindingProblem(_refused(claim, result, problem)) from problem
        except ServerUnreachable as problem:
            raise BindingProblem(_refused(claim, result, problem)) from problem
        else:
            handle.devices.claims.wrote(stored)
            return stored
    raise AssertionError("the last try either returns or raises")


def _newest(claim: ResourceClaim, handle: Handle) -> ResourceClaim:
    known = handle.devices.claims.get(claim.metadata.namespace, claim.metadata.name)
    return known if known is not None and known.metadata.uid == claim.metadata.uid else claim


async def _read_again(claim: ResourceClaim, handle: Handle) -> ResourceClaim:
    try:
        current = await handle.writer.get_claim(claim.metadata.namespace, claim.metadata.name)
    except (ApiError, ServerUnreachable) as problem:
        raise BindingProblem(f"get updated claim {_name(claim)} after conflict: {problem}") from problem
    if current is None or current.metadata.uid != claim.metadata.uid:
        raise BindingProblem(f"claim {_name(claim)} got deleted in the meantime")
    return current


def _check(current: ResourceClaim, result: AllocationResult | None, handle: Handle) -> None:
    name = _name(current)
    if current.metadata.deletion_timestamp is not None:
        raise BindingProblem(f"claim {name} got deleted in the meantime")
    if result is not None and current.status.allocation is not None:
        raise BindingProblem(f"claim {name} got allocated elsewhere in the meantime")
    if result is None and current.status.allocation is None:
        raise BindingProblem(f"claim {name} got deallocated elsewhere in the meantime")


async def _protect(claim: ResourceClaim, handle: Handle) -> ResourceClaim:
    try:
        return await handle.writer.update_claim(with_finalizer(claim))
    except (ApiError, ServerUnreachable) as problem:
        if isinstance(problem, ApiError) and problem.is_conflict:
            raise
        raise BindingProblem(f"add finalizer to claim {_name(claim)}: {problem}") from problem


async def _write(
    current: ResourceClaim, result: AllocationResult | None, user: ResourceClaimConsumerReference, handle: Handle
) -> ResourceClaim:
    """The finalizer comes first, so that there is never an allocation or a user without an object that holds it. (Whoever allocates a claim by
    hand may have left the finalizer out.)
    """
    if CLAIM_FINALIZER not in current.metadata.finalizers:
        current = await _protect(current, handle)
    return await handle.writer.update_claim_status(_reserved(current, result, user, handle))


def _reserved(
    current: ResourceClaim, result: AllocationResult | None, user: ResourceClaimConsumerReference, handle: Handle
) -> ResourceClaim:
    """The claim with its allocation and one more user."""
    if is_reserved_for(current, user.uid):
        users = current.status.reserved_for
    else:
        users = (*current.status.reserved_for, user)
    allocation = current.status.allocation if result is None else result
    # Only what is new is stamped: the server lets nobody change an allocation that somebody else wrote.
    if result is not None and result.allocation_timestamp is None and handle.devices.features.binds_with_conditions:
        allocation = replace(result, allocation_timestamp=rfc3339(handle.clock.now()))
    status = ResourceClaimStatus(allocation=allocation, reserved_for=users, devices=current.status.devices)
    return replace(current, status=status)


def _refused(claim: ResourceClaim, result: AllocationResult | None, problem: Exception) -> str:
    what = "add reservation" if result is None else "add allocation and reservation"
    return f"{what} to claim {_name(claim)}: {problem}"


def _name(claim: ResourceClaim) -> str:
    return f"{claim.metadata.namespace}/{claim.metadata.name}"


FIELD = "nodeAllocatableResourceClaimStatuses"


class Written(msgspec.Struct, frozen=True):
    """Statuses of this attempt reached the API server, so undoing it must clear them."""


async def write_statuses(cycle: CycleState, pod: Pod, node_name: str, handle: Handle) -> None:
    statuses = _amounts(cycle, pod, handle)
    if statuses is None:
        return
    try:
        await handle.writer.patch_pod_status(pod, {FIELD: [to_document(status) for status in statuses]})
    except (ApiError, ServerUnreachable) as problem:
        where = f"{pod.metadata.namespace}/{pod.metadata.name}"
        raise BindingProblem(f"updating pod {where} NodeAllocatableResourceClaimStatuses: {problem}") from problem
    cycle.write(Written())


def _amounts(cycle: CycleState, pod: Pod, handle: Handle) -> ClaimStatuses | None:
    """What the claims take from the node, if the pod's status does not say so yet.

    The assumed pod says what to write: the ledger and the status can never differ.
    """
    placed = handle.snapshot.placed(pod.metadata.uid)
    statuses = placed.pod.status.node_allocatable_resource_claim_statuses if placed is not None else ()
    statuses = _with_made_name(statuses, cycle.read(PodAttempt))
    return None if statuses == pod.status.node_allocatable_resource_claim_statuses else statuses


def _with_made_name(statuses: ClaimStatuses, attempt: PodAttempt | None) -> ClaimStatuses:
    """The claim for extended resources was counted before it had a name."""
    if attempt is None or attempt.made is None or attempt.chosen is None or attempt.chosen.extended_claim is None:
        return statuses
    before, after = attempt.chosen.extended_claim.metadata.name, attempt.made.metadata.name
    renamed = (
        replace(status, resource_claim_name=after) if status.resource_claim_name == before else status
        for status in statuses
    )
    return tuple(sorted(renamed, key=lambda status: status.resource_claim_name))


async def clear_statuses(cycle: CycleState, pod: Pod, handle: Handle) -> None:
    if cycle.read(Written) is None:
        return
    try:
        await handle.writer.patch_pod_status(pod, {FIELD: []}, strategic=False)
    except (ApiError, ServerUnreachable) as problem:
        log.warning("pod %s/%s: status not cleared: %s", pod.metadata.namespace, pod.metadata.name, problem)


class BindingProgress(enum.Enum):
    """How far a claim's devices are. The words are the `status` label of the binding metrics."""

    READY = "success"
    PENDING = "pending"
    FAILED = "failure"
    TIMED_OUT = "timeout"


@dataclass(frozen=True, slots=True)
class BindingState:
    binding: BindingProgress
    reason: str = ""
    message: str = ""


_READY = BindingState(BindingProgress.READY)
_PENDING = BindingState(BindingProgress.PENDING)


def waits_for_conditions(claim: ResourceClaim) -> bool:
    return any(result.binding_conditions for result in allocation_results(claim))


def drivers_with_conditions(claims: Iterable[ResourceClaim]) -> Iterator[str]:
    for claim in claims:
        for result in allocation_results(claim):
            if result.binding_conditions:
                yield result.driver


def binding_state(claim: ResourceClaim, now: datetime, timeout_s: float) -> BindingState:
    """A failed device decides; then an old allocation; then a device that is not ready."""
    if not waits_for_conditions(claim):
        return _READY
    assert claim.status.allocation is not None
    pending = False
    for result in claim.status.allocation.devices.results:
        conditions = _reported(claim, result)
        for name in result.binding_failure_conditions:
            failed = conditions.get(name)
            if failed is not None and failed.status == "True":
                return BindingState(BindingProgress.FAILED, failed.reason, failed.message)
        pending = pending or any(
            name not in conditions or conditions[name].status != "True" for name in result.binding_conditions
        )
    if not pending:
        return _READY
    return BindingState(BindingProgress.TIMED_OUT) if _age_s(claim, now) > timeout_s else _PENDING


def _reported(claim: ResourceClaim, result: DeviceRequestAllocationResult) -> dict[str, Condition]:
    """What the driver says about the device, or about this share of it."""
    wanted = (result.driver, result.pool, result.device, result.share_id)
    for device in claim.status.devices:
        if (device.driver, device.pool, device.device, device.share_id) == wanted:
            return {condition.type: condition for condition in device.conditions}
    return {}


def _age_s(claim: ResourceClaim, now: datetime) -> float:
    assert claim.status.allocation is not None
    stamp = claim.status.allocation.allocation_timestamp
    if not stamp:
        return 0.0
    allocated_at = datetime.fromisoformat(stamp.replace("Z", "+00:00"))
    return (now - allocated_at.astimezone(UTC)).total_seconds()


LOOK_EVERY_S = 0.5


async def wait_until_ready(
    claims: list[ResourceClaim], pod: Pod, node_name: str, handle: Handle, timeout_s: float
) -> None:
    """Raises `BindingProblem` if a device fails or takes longer than `timeout_s`."""
    waiting = [claim for claim in claims if waits_for_conditions(claim)]
    if not waiting:
        return
    handle.writer.event(
        pod,
        "Normal",
        "BindingConditionsPending",
        "Scheduling",
        f"waiting for binding conditions for device on node {node_name}",
    )
    await _nominate(pod, node_name, handle)
    started = handle.clock.monotonic()
    outcome = "error"
    try:
        while True:
            pending = _look(waiting, handle, timeout_s)
            if not pending:
                outcome = BindingProgress.READY.value
                return
            if handle.clock.monotonic() - started > timeout_s:
                raise _Timeout(pending[0])
            with handle.long_wait():
                await handle.clock.sleep(LOOK_EVERY_S)
    except _Failure as problem:
        outcome = problem.outcome
        raise BindingProblem(str(problem)) from None
    finally:
        _count(waiting, pod, handle, outcome, handle.clock.monotonic() - started)


async def _nominate(pod: Pod, node_name: str, handle: Handle) -> None:
    """Binding takes a while, so the pod says where it is going. Others only read it: a failure does no harm."""
    if not handle.gates.enabled("NominatedNodeNameForExpectation") or pod.status.nominated_node_name == node_name:
        return
    try:
        await handle.writer.patch_pod_status(pod, {"nominatedNodeName": node_name})
    except (ApiError, ServerUnreachable) as problem:
        log.info("pod %s/%s: nominated node not written: %s", pod.metadata.namespace, pod.metadata.name, problem)


class _Failure(Exception):
    outcome = BindingProgress.FAILED.value


class _Timeout(_Failure):
    outcome = BindingProgress.TIMED_OUT.value

    def __init__(self, claim: ResourceClaim) -> None:
        super().__init__(f"device binding timeout: claim={claim.metadata.name}")


def _look(waiting: list[ResourceClaim], handle: Handle, timeout_s: float) -> list[ResourceClaim]:
    """The claims that are still pending, as we know them now."""
    pending = []
    for claim in waiting:
        current = handle.devices.claims.get(claim.metadata.namespace, claim.metadata.name)
        if current is None or current.status.allocation is None:
            raise _Failure(
                f"claim {claim.metadata.namespace}/{claim.metadata.name} got deallocated elsewhere in the meantime"
            )
        state = binding_state(current, handle.clock.now(), timeout_s)
        if state.binding is BindingProgress.FAILED:
            raise _Failure(_failed(claim, state))
        if state.binding is BindingProgress.TIMED_OUT:
            raise _Timeout(claim)
        if state.binding is BindingProgress.PENDING:
            pending.append(current)
    return pending


def _failed(claim: ResourceClaim, state: BindingState) -> str:
    return f'device binding failed: claim={claim.metadata.name}, reason={state.reason}, message="{state.message}"'


def _count(claims: list[ResourceClaim], pod: Pod, handle: Handle, outcome: str, waited_s: float) -> None:
    profile = pod.spec.scheduler_name
    drivers = list(drivers_with_conditions(claims))
    for driver in drivers:
        handle.metrics.binding_allocations.inc(profile, driver, outcome)
    for driver in set(drivers):
        handle.metrics.binding_wait.observe(waited_s, profile, driver, outcome)
