"""Device health, asked of the driver and streamed to every kubelet that listens."""

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Iterable

from dray.clock import Clock
from dray.driver.plugin import DeviceHealth, Driver

log = logging.getLogger(__name__)

INTERVAL_S = 5.0


def reports_health(driver: Driver) -> bool:
    """Whether the driver has a `health` method of its own."""
    return type(driver).health is not Driver.health


class HealthReports:
    """Polls the driver while somebody listens; a lease must be renewed even if nothing changed, so each poll is sent."""

    def __init__(self, driver: Driver, clock: Clock, interval_s: float = INTERVAL_S) -> None:
        self._driver = driver
        self._clock = clock
        self._interval_s = interval_s

    async def stream(self) -> AsyncIterator[list[DeviceHealth]]:
        while True:
            try:
                reports = await self._ask()
            except Exception:
                log.exception("driver %s cannot tell the health of its devices", self._driver.name)
            else:
                yield list(reports)
            await self._clock.sleep(self._interval_s)

    async def _ask(self) -> Iterable[DeviceHealth]:
        if inspect.iscoroutinefunction(self._driver.health):
            return await self._driver.health() or ()
        result = await asyncio.to_thread(self._driver.health)
        if inspect.isawaitable(result):
            return await result
        return result or ()
