"""From a claim as the API has it to what a driver needs of it. Pure."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from dray.api.resource import DeviceAllocationConfiguration, DeviceRequestAllocationResult, ResourceClaim
from dray.driver.plugin import AllocatedDevice, ClaimReference, ClaimToPrepare


class ClaimError(Exception):
    """The claim cannot be prepared as it stands in the API."""


class ParametersError(Exception):
    """Opaque parameters of one claim that no driver could read."""


def claim_to_prepare(reference: ClaimReference, claim: ResourceClaim, driver: str) -> ClaimToPrepare:
    """Check that this is the claim the kubelet means and that it is allocated; keep this driver's devices."""
    if claim.metadata.uid != reference.uid:
        raise ClaimError(f"claim {reference} got replaced")
    allocation = claim.status.allocation
    if allocation is None:
        raise ClaimError(f"claim {reference} not allocated")
    mine = [result for result in allocation.devices.results if result.driver == driver]
    devices = tuple(_allocated_device(result, allocation.devices.config) for result in mine)
    return ClaimToPrepare(reference, devices, claim)


def _allocated_device(
    result: DeviceRequestAllocationResult, config: Iterable[DeviceAllocationConfiguration]
) -> AllocatedDevice:
    return AllocatedDevice(
        request=result.request,
        pool=result.pool,
        device=result.device,
        share_id=result.share_id,
        consumed_capacity=result.consumed_capacity,
        admin_access=bool(result.admin_access),
        config=tuple(_parameters_for(result, config)),
    )


def _parameters_for(
    result: DeviceRequestAllocationResult, config: Iterable[DeviceAllocationConfiguration]
) -> Iterable[Mapping[str, Any]]:
    names = {result.request, result.request.partition("/")[0]}
    for entry in config:
        if entry.opaque is None or entry.opaque.driver != result.driver:
            continue
        if not entry.requests or names.intersection(entry.requests):
            yield _parameters(bytes(entry.opaque.parameters), result.request)


def _parameters(text: bytes, request: str) -> Mapping[str, Any]:
    try:
        parameters = json.loads(text or b"{}")
    except ValueError as error:
        raise ParametersError(f"opaque parameters of request {request} are not JSON: {error}") from error
    if not isinstance(parameters, dict):
        raise ParametersError(
            f"opaque parameters of request {request} must be an object, not {type(parameters).__name__}"
        )
    return parameters
