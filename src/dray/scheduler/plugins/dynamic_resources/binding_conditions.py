"""Devices that must be made ready after their allocation is stored and before the pod is bound: the scheduler waits for them."""

import enum
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from dray.api.core import Pod
from dray.api.dra.consumption import allocation_results
from dray.api.meta import Condition
from dray.api.resource import DeviceRequestAllocationResult, ResourceClaim
from dray.client.errors import ApiError, ServerUnreachable
from dray.scheduler.handle import Handle
from dray.scheduler.plugins.dynamic_resources.pre_bind import BindingProblem


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


log = logging.getLogger(__name__)

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
