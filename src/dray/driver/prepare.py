"""Prepares and unprepares claims: checks a claim, calls the driver, writes CDI files, and remembers the result on disk."""

import asyncio
import contextlib
import fcntl
import inspect
import json
import logging
from collections import Counter as Tally
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from dray.api.cdi import CdiError, split_qualified_name
from dray.api.quantity import Quantity
from dray.api.resource import DeviceAllocationConfiguration, DeviceRequestAllocationResult, ResourceClaim
from dray.atomic_files import open_private
from dray.client import ApiError
from dray.driver.claim_files import CdiFiles, Checkpoint, DeviceMetadata, StoredClaim, StoredDevice
from dray.driver.plugin import (
    AllocatedDevice,
    ClaimReference,
    ClaimToPrepare,
    DeviceConfig,
    Driver,
    PreparedDevice,
    PrepareError,
)


class ClaimError(Exception):
    """The claim cannot be prepared as it stands in the API."""


class ClaimNotFound(ClaimError):
    """The API has no claim with this name and UID."""


class ParametersError(Exception):
    """Opaque parameters of one claim that no driver could read."""


def claim_to_prepare(reference: ClaimReference, claim: ResourceClaim, driver: str) -> ClaimToPrepare:
    """Check that this is the claim the kubelet means and that it is allocated; keep this driver's devices."""
    if claim.metadata.uid != reference.uid:
        raise ClaimNotFound(f"claim {reference} got replaced")
    allocation = claim.status.allocation
    if allocation is None:
        raise ClaimError(f"claim {reference} not allocated")
    mine = [result for result in allocation.devices.results if result.driver == driver]
    devices = tuple(
        _allocated_device(result, allocation.devices.config, _limits(claim, result.request)) for result in mine
    )
    return ClaimToPrepare(reference, devices, claim)


def _limits(claim: ResourceClaim, request: str) -> Mapping[str, Quantity]:
    """The limits of the request, or of the alternative that was chosen for it."""
    name, _, alternative = request.partition("/")
    for each in claim.spec.devices.requests:
        if each.name == name:
            asks = [sub for sub in each.first_available if sub.name == alternative] if alternative else [each.exactly]
            return next((ask.capacity.limits for ask in asks if ask is not None and ask.capacity is not None), {})
    return {}


def _allocated_device(
    result: DeviceRequestAllocationResult,
    config: Iterable[DeviceAllocationConfiguration],
    limits: Mapping[str, Quantity],
) -> AllocatedDevice:
    return AllocatedDevice(
        request=result.request,
        pool=result.pool,
        device=result.device,
        share_id=result.share_id,
        consumed_capacity=result.consumed_capacity,
        capacity_limits=limits,
        admin_access=bool(result.admin_access),
        config=tuple(_parameters_for(result, config)),
    )


def _parameters_for(
    result: DeviceRequestAllocationResult, config: Iterable[DeviceAllocationConfiguration]
) -> Iterable[DeviceConfig]:
    names = {result.request, result.request.partition("/")[0]}
    for entry in config:
        if entry.opaque is None or entry.opaque.driver != result.driver:
            continue
        if not entry.requests or names.intersection(entry.requests):
            parameters = _parameters(bytes(entry.opaque.parameters), result.request)
            yield DeviceConfig("FromClass" if entry.source == "FromClass" else "FromClaim", parameters)


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


log = logging.getLogger(__name__)

FetchClaim = Callable[[ClaimReference], Awaitable[ResourceClaim]]
HasDevice = Callable[[str, str], bool]
"""Whether the driver publishes the device (pool, name) now."""
T = TypeVar("T")


class ClaimPreparer:
    """Serves the two calls of the kubelet for one driver. One claim at a time: drivers need no locks of their own."""

    def __init__(
        self,
        driver: Driver,
        fetch_claim: FetchClaim,
        checkpoint: Checkpoint,
        cdi: CdiFiles,
        metadata: DeviceMetadata | None = None,
        lock_file: Path | None = None,
        has_device: HasDevice = lambda pool, device: True,
    ) -> None:
        self._driver = driver
        self._fetch_claim = fetch_claim
        self._checkpoint = checkpoint
        self._cdi = cdi
        self._metadata = metadata
        self._lock = asyncio.Lock()
        self._lock_file = lock_file
        self._has_device = has_device

    async def prepare(self, references: Sequence[ClaimReference]) -> dict[str, StoredClaim | str]:
        """An answer per claim UID: its devices, or why not. ClaimError voids the whole call."""
        claims = await asyncio.gather(*(self._fetch(reference) for reference in references))
        async with self._one_at_a_time():
            return {
                reference.uid: claim if isinstance(claim, str) else await self._prepare_one(claim)
                for reference, claim in zip(references, claims, strict=True)
            }

    async def unprepare(self, references: Sequence[ClaimReference]) -> dict[str, str]:
        """An error text per claim UID; empty means done."""
        async with self._one_at_a_time():
            return {reference.uid: await self._unprepare_one(reference) for reference in references}

    async def give_back_leftovers(self, is_gone: Callable[[ClaimReference], Awaitable[bool]]) -> None:
        """Unprepare what an earlier life prepared for claims that are gone or hold no devices any more."""
        for uid, claim in self._checkpoint.claims().items():
            reference = ClaimReference(claim.namespace, claim.name, uid)
            if await is_gone(reference):
                log.warning("claim %s (%s) went away while nobody looked: giving its devices back", reference, uid)
                await self.unprepare([reference])

    @contextlib.asynccontextmanager
    async def _one_at_a_time(self) -> AsyncIterator[None]:
        """One call at a time; with a lock file also among the instances of a driver that is being updated."""
        async with self._lock:
            if self._lock_file is None:
                yield
                return
            with open_private(self._lock_file, "w") as file:
                await asyncio.to_thread(fcntl.flock, file, fcntl.LOCK_EX)
                self._checkpoint.reload()
                yield

    async def _fetch(self, reference: ClaimReference) -> ClaimToPrepare | str:
        """The claim, or what is wrong with its parameters, which is nobody else's trouble."""
        try:
            claim = await self._fetch_claim(reference)
        except ApiError as error:
            kind = ClaimNotFound if error.is_not_found else ClaimError
            raise kind(f"retrieve claim {reference}: {error}") from error
        except Exception as error:
            raise ClaimError(f"retrieve claim {reference}: {error}") from error
        try:
            return claim_to_prepare(reference, claim, self._driver.name)
        except ParametersError as error:
            return str(error)

    async def _prepare_one(self, claim: ClaimToPrepare) -> StoredClaim | str:
        known = self._checkpoint.get(claim.uid)
        if known is not None and self._has_files_of(claim, known):
            return known
        try:
            self._refuse_missing_devices(claim)
            self._refuse_devices_of_others(claim)
            if self._driver.leaves_traces:
                self._checkpoint.begin(claim.uid, StoredClaim(claim.reference.namespace, claim.reference.name, ()))
            prepared = _checked_answer(claim, await _call(self._driver.prepare, claim))
            return self._store(claim, prepared)
        except (PrepareError, CdiError) as error:
            log.warning("prepare claim %s: %s", claim.reference, error)
            return str(error)
        except Exception as error:
            log.exception("prepare claim %s: the driver failed", claim.reference)
            return f"{type(error).__name__}: {error}"

    def _has_files_of(self, claim: ClaimToPrepare, known: StoredClaim) -> bool:
        """CDI files do not outlive a reboot, what is on record does: the driver is asked again, and answers the same."""
        names = {name for device in known.devices for name in device.cdi_device_ids}
        return self._cdi.has(claim.uid, names) and (self._metadata is None or self._metadata.has(names))

    def _refuse_missing_devices(self, claim: ClaimToPrepare) -> None:
        """The allocation may be older than the driver's devices, or name some that never were there."""
        for device in claim.devices:
            if not self._has_device(device.pool, device.device):
                raise PrepareError(
                    f"device {device.pool}/{device.device} of request {device.request} is not among the devices that "
                    f"driver {self._driver.name} publishes"
                )

    def _refuse_devices_of_others(self, claim: ClaimToPrepare) -> None:
        for device in claim.devices:
            if device.admin_access or device.share_id:
                continue
            holder = self._checkpoint.holder_of(device.pool, device.device, besides=claim.uid)
            if holder is not None:
                other = f"{holder.claim.namespace}/{holder.claim.name}"
                raise PrepareError(
                    f"device {device.pool}/{device.device} is already prepared for claim {other} ({holder.claim_uid})"
                )

    def _store(self, claim: ClaimToPrepare, prepared: Sequence[PreparedDevice]) -> StoredClaim:
        names = _unique_names(prepared)
        cdi_names = self._cdi.write(claim.uid, [(name, item.edits) for name, item in zip(names, prepared, strict=True)])
        ids_by_item = [
            (*item.cdi_device_ids, *([cdi_names[name]] if name in cdi_names else []))
            for name, item in zip(names, prepared, strict=True)
        ]
        if self._metadata is not None:
            ids_by_item = self._metadata.add(claim, prepared, ids_by_item)
        stored = StoredClaim(
            namespace=claim.reference.namespace,
            name=claim.reference.name,
            devices=tuple(_stored(item, ids) for item, ids in zip(prepared, ids_by_item, strict=True)),
        )
        self._checkpoint.put(claim.uid, stored)
        return stored

    async def _unprepare_one(self, reference: ClaimReference) -> str:
        try:
            await _call(self._driver.unprepare, reference)
            self._cdi.remove(reference.uid)
            if self._metadata is not None:
                self._metadata.remove(reference)
            self._checkpoint.remove(reference.uid)
        except PrepareError as error:
            return str(error)
        except Exception as error:
            log.exception("unprepare claim %s: the driver failed", reference)
            return f"{type(error).__name__}: {error}"
        return ""


def _checked_answer(claim: ClaimToPrepare, answer: Iterable[PreparedDevice] | None) -> list[PreparedDevice]:
    """What the driver's `prepare` answered; a plain mistake in it is told in words of the kit."""
    prepared = list(answer or ())
    for item in prepared:
        if not isinstance(item, PreparedDevice):
            raise PrepareError(f"the driver must answer with a list of PreparedDevice, not of {type(item).__name__}")
        if item.device not in claim.devices:
            raise PrepareError(
                f"the driver answered with device {item.device.pool}/{item.device.device}, which the claim was not given"
            )
        for name in item.cdi_device_ids:
            split_qualified_name(name)
    answered = [item.device for item in prepared]
    missing = [f"{device.pool}/{device.device}" for device in claim.devices if device not in answered]
    if missing:
        raise PrepareError(
            f"the driver answered for {len(claim.devices) - len(missing)} of {len(claim.devices)} devices, without "
            f"{', '.join(missing)}: each device of the claim needs a PreparedDevice, even if it changes nothing in a container"
        )
    return prepared


def _unique_names(prepared: Iterable[PreparedDevice]) -> list[str]:
    """A CDI device name for each answer: the device, and a number where a device serves several requests or shares."""
    seen: Tally[str] = Tally()
    names = []
    for item in prepared:
        name = item.device.device
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return names


def _stored(item: PreparedDevice, cdi_device_ids: Iterable[str]) -> StoredDevice:
    return StoredDevice(
        requests=(item.device.base_request,),
        pool=item.device.pool,
        device=item.device.device,
        cdi_device_ids=tuple(cdi_device_ids),
        share_id=item.device.share_id,
        is_exclusive=not (item.device.admin_access or item.device.share_id),
    )


async def _call(function: Callable[..., T | Awaitable[T]], *arguments: object) -> T:
    """Call a driver's method, plain or async; a plain one runs in a thread so that it may block."""
    if inspect.iscoroutinefunction(function):
        return await function(*arguments)  # type: ignore[no-any-return]
    result = await asyncio.to_thread(function, *arguments)
    return await result if inspect.isawaitable(result) else result
