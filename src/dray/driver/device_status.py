"""Writes what a driver knows of prepared devices into `status.devices` of their claims.

Server-side apply in the driver's name: entries of other drivers stay, and those that the driver no longer reports go.
"""

import asyncio
import logging
from collections.abc import Sequence

import msgspec

from dray.api.resource import AllocatedDeviceStatus
from dray.client import CLAIMS, ApiError, Client, ServerUnreachable
from dray.driver.plugin import ClaimReference

log = logging.getLogger(__name__)

TRY_AGAIN_AFTER_S = 5.0


class StatusWriter:
    """Writes the last report of each claim, and tries again while the server cannot take it."""

    def __init__(self, client: Client, driver: str) -> None:
        self._client = client
        self._driver = driver
        self._reports: dict[ClaimReference, tuple[AllocatedDeviceStatus, ...]] = {}
        self._is_there_work = asyncio.Event()

    def put(self, claim: ClaimReference, devices: Sequence[AllocatedDeviceStatus]) -> None:
        self._reports[claim] = tuple(devices)
        self._is_there_work.set()

    async def run(self) -> None:
        while True:
            await self._is_there_work.wait()
            self._is_there_work.clear()
            for claim, devices in list(self._reports.items()):
                if await self._is_settled(claim, devices) and self._reports.get(claim) == devices:
                    del self._reports[claim]
            if self._reports:
                await self._client.clock.sleep(TRY_AGAIN_AFTER_S)
                self._is_there_work.set()

    async def _is_settled(self, claim: ClaimReference, devices: Sequence[AllocatedDeviceStatus]) -> bool:
        """Whether nothing is left to do: it is written, or the claim or its allocation is gone."""
        try:
            await self._write(claim, devices)
        except (ApiError, ServerUnreachable) as error:
            if isinstance(error, ApiError) and (error.is_not_found or error.is_conflict):
                return True
            log.warning("driver %s cannot write the device status of claim %s: %s", self._driver, claim, error)
            # What the server refuses now it refuses again, but for lack of permission, which somebody may grant.
            return isinstance(error, ApiError) and error.code < 500 and error.code not in (401, 403, 429)
        return True

    async def _write(self, claim: ClaimReference, devices: Sequence[AllocatedDeviceStatus]) -> None:
        entries = [msgspec.to_builtins(each) | {"driver": self._driver} for each in devices]
        document = {
            "metadata": {"namespace": claim.namespace, "name": claim.name, "uid": claim.uid},
            "status": {"devices": entries},
        }
        await self._client.apply(CLAIMS, document, field_manager=self._driver, force=True, subresource="status")
