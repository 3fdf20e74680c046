"""Devices that must be made ready after their allocation is stored and before the pod is bound."""

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from dray.api.meta import Condition
from dray.api.resource import DeviceRequestAllocationResult, ResourceClaim


class Binding(enum.Enum):
    """How far a claim's devices are. The words are the `status` label of the binding metrics."""

    READY = "success"
    PENDING = "pending"
    FAILED = "failure"
    TIMED_OUT = "timeout"


@dataclass(frozen=True, slots=True)
class BindingState:
    binding: Binding
    reason: str = ""
    message: str = ""


_READY = BindingState(Binding.READY)
_PENDING = BindingState(Binding.PENDING)


def waits_for_conditions(claim: ResourceClaim) -> bool:
    allocation = claim.status.allocation
    return allocation is not None and any(result.binding_conditions for result in allocation.devices.results)


def drivers_with_conditions(claims: Iterable[ResourceClaim]) -> Iterator[str]:
    for claim in claims:
        if claim.status.allocation is not None:
            for result in claim.status.allocation.devices.results:
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
                return BindingState(Binding.FAILED, failed.reason, failed.message)
        pending = pending or any(
            name not in conditions or conditions[name].status != "True" for name in result.binding_conditions
        )
    if not pending:
        return _READY
    return BindingState(Binding.TIMED_OUT) if _age_s(claim, now) > timeout_s else _PENDING


def _reported(claim: ResourceClaim, result: DeviceRequestAllocationResult) -> dict[str, Condition]:
    """What the driver says about the device; shares of one device are not told apart."""
    for device in claim.status.devices:
        if (device.driver, device.pool, device.device) == (result.driver, result.pool, result.device):
            return {condition.type: condition for condition in device.conditions}
    return {}


def _age_s(claim: ResourceClaim, now: datetime) -> float:
    assert claim.status.allocation is not None
    stamp = claim.status.allocation.allocation_timestamp
    if not stamp:
        return 0.0
    allocated_at = datetime.fromisoformat(stamp.replace("Z", "+00:00"))
    return (now - allocated_at.astimezone(UTC)).total_seconds()
