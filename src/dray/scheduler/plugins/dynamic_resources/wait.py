"""Waiting until devices with binding conditions are ready, have failed, or took too long."""

import logging

from dray.api.core import Pod
from dray.api.resource import ResourceClaim
from dray.client.errors import ApiError, ServerUnreachable
from dray.scheduler.handle import Handle
from dray.scheduler.plugins.dynamic_resources.binding_conditions import (
    Binding,
    BindingState,
    binding_state,
    drivers_with_conditions,
    waits_for_conditions,
)
from dray.scheduler.plugins.dynamic_resources.pre_bind import BindingProblem

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
                outcome = Binding.READY.value
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
    outcome = Binding.FAILED.value


class _Timeout(_Failure):
    outcome = Binding.TIMED_OUT.value

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
        if state.binding is Binding.FAILED:
            raise _Failure(_failed(claim, state))
        if state.binding is Binding.TIMED_OUT:
            raise _Timeout(claim)
        if state.binding is Binding.PENDING:
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
