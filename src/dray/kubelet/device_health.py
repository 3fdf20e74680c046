"""The health of devices: drivers stream it, a file keeps it over a restart of the kubelet, container statuses show it."""

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc

from dray.api.core import Container, Pod
from dray.atomic_files import write_private
from dray.clock import Clock
from dray.kubelet.claims import ClaimCache, ClaimRefused, created_claims
from dray.kubelet.drivers import DriverClient

log = logging.getLogger(__name__)

FILE_NAME = "dra_health_state"


@dataclass(frozen=True, slots=True)
class StoredHealth:
    """One device; times are wall-clock seconds, since nothing else outlives a restart."""

    driver: str
    pool: str
    device: str
    health: str
    message: str
    lease_s: float
    updated_at: float


class HealthFile:
    """`{driver: {"Devices": {"pool/device": {...}}}}`. An unreadable file counts as missing."""

    def __init__(self, root: Path) -> None:
        self._path = root / FILE_NAME

    def read(self) -> list[StoredHealth]:
        try:
            return list(_entries(json.loads(self._path.read_bytes())))
        except FileNotFoundError:
            return []
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            log.warning(
                "%s cannot be read, health of devices is unknown until drivers report it: %r", self._path, error
            )
            return []

    def write(self, entries: Iterable[StoredHealth]) -> None:
        drivers: dict[str, dict[str, dict[str, Any]]] = {}
        for each in entries:
            devices = drivers.setdefault(each.driver, {"Devices": {}})["Devices"]
            devices[f"{each.pool}/{each.device}"] = {
                "PoolName": each.pool,
                "DeviceName": each.device,
                "Health": each.health,
                "Message": each.message,
                "LastUpdated": datetime.fromtimestamp(each.updated_at, UTC).isoformat(),
                "HealthCheckTimeout": int(each.lease_s * 1e9),
            }
        try:
            write_private(self._path, json.dumps(drivers).encode())
        except OSError as error:
            log.warning("%s cannot be written: %s", self._path, error)


def _entries(drivers: Mapping[str, Any]) -> Iterator[StoredHealth]:
    for driver, content in drivers.items():
        for each in content["Devices"].values():
            yield StoredHealth(
                driver=driver,
                pool=str(each["PoolName"]),
                device=str(each["DeviceName"]),
                health=str(each["Health"]),
                message=str(each.get("Message", "")),
                lease_s=each["HealthCheckTimeout"] / 1e9,
                updated_at=datetime.fromisoformat(each["LastUpdated"]).timestamp(),
            )


# --- health of running drivers -------------------------------------------------------------------------------------------

DEFAULT_LEASE_S = 30
RESTART_AFTER_S = 5.0
MAX_DEVICES = 16384
MAX_MESSAGE = 1024
# Half of the shortest lease that drivers usually have: what is on disk is young enough after a restart.
REPEATS_SAVED_AFTER_S = 10.0
_NAMES = {0: "Unknown", 1: "Healthy", 2: "Unhealthy"}

DeviceKey = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class HealthReport:
    """The health that a driver reported for a device, and when the report expires."""

    health: str
    message: str
    lease_s: float
    expires: float


class DeviceHealthCache:
    """Health by driver, pool and device. `changed` is called with the devices whose health changed."""

    def __init__(self, clock: Clock, changed: Callable[[set[DeviceKey]], None]) -> None:
        self._clock = clock
        self._changed = changed
        self._reports: dict[DeviceKey, HealthReport] = {}
        self._streams: dict[DriverClient, asyncio.Task[None]] = {}
        # When what is on disk is to be written again; None while it is as it should be.
        self._save_at: float | None = None

    # --- on disk

    def restore(self, stored: Iterable[StoredHealth]) -> None:
        """Takes over reports from before a restart that have not expired."""
        now, wall = self._clock.monotonic(), self._clock.now().timestamp()
        for each in stored:
            expires = now + each.updated_at + each.lease_s - wall
            if now <= expires <= now + each.lease_s:
                key = (each.driver, each.pool, each.device)
                self._reports[key] = HealthReport(each.health, each.message, each.lease_s, expires)

    def to_save(self) -> list[StoredHealth] | None:
        """Everything, if it is time to write it; changes at once, mere repetitions now and then."""
        now, wall = self._clock.monotonic(), self._clock.now().timestamp()
        if self._save_at is None or now < self._save_at:
            return None
        self._save_at = None
        return [
            StoredHealth(
                *key, report.health, report.message, report.lease_s, wall + report.expires - report.lease_s - now
            )
            for key, report in self._reports.items()
        ]

    def _tell(self, changed: set[DeviceKey]) -> None:
        self._save_at = self._clock.monotonic()
        self._changed(changed)

    # --- streams

    def follow(self, endpoint: DriverClient) -> None:
        if endpoint.health_service is not None:
            self._streams[endpoint] = asyncio.create_task(self._follow(endpoint), name=f"health of {endpoint.driver}")

    def unfollow(self, endpoint: DriverClient) -> None:
        stream = self._streams.pop(endpoint, None)
        if stream is not None:
            stream.cancel()
            self._forget(endpoint.driver)

    def of(self, key: DeviceKey) -> HealthReport:
        report = self._reports.get(key)
        if report is None or report.expires < self._clock.monotonic():
            return HealthReport("Unknown", "", 0.0, 0.0)
        return report

    def expire(self) -> None:
        """Tell of devices whose driver has been silent for too long."""
        now = self._clock.monotonic()
        late = {key for key, report in self._reports.items() if report.expires < now}
        for key in late:
            del self._reports[key]
        if late:
            self._tell(late)

    async def _follow(self, endpoint: DriverClient) -> None:
        while True:
            try:
                async for response in endpoint.watch_health():
                    self._take(endpoint.driver, response.devices)
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                    return
                log.info("health of %s: %s", endpoint.driver, error.details())
            self._forget(endpoint.driver)
            await self._clock.sleep(RESTART_AFTER_S)

    def _take(self, driver: str, devices: Iterable[Any]) -> None:
        """One report of a driver. What it does not mention stays as it is until its lease ends."""
        now = self._clock.monotonic()
        changed: set[DeviceKey] = set()
        room = MAX_DEVICES - sum(key[0] == driver for key in self._reports)
        ignored = 0
        for each in devices:
            key = (driver, each.device.pool_name, each.device.device_name)
            before = self._reports.get(key)
            if before is None and room <= 0:
                ignored += 1
                continue
            room -= before is None
            lease_s = each.health_check_timeout_seconds if each.health_check_timeout_seconds > 0 else DEFAULT_LEASE_S
            report = HealthReport(_NAMES.get(each.health, "Unknown"), _cut(each.message), lease_s, now + lease_s)
            if before is None or replace(before, expires=report.expires) != report:
                changed.add(key)
            self._reports[key] = report
        if ignored:
            log.error("health of %s: more than %d devices, %d are ignored", driver, MAX_DEVICES, ignored)
        if self._save_at is None:
            self._save_at = now + REPEATS_SAVED_AFTER_S
        if changed:
            self._tell(changed)

    def _forget(self, driver: str) -> None:
        gone = {key for key in self._reports if key[0] == driver}
        for key in gone:
            del self._reports[key]
        if gone:
            self._tell(gone)

    def statuses(self, pod: Pod, container: Container, cache: ClaimCache) -> list[dict[str, Any]]:
        """`allocatedResourcesStatus` of a container: one entry per claim it names, one line per device."""
        try:
            names = {each.entry: each.claim_name for each in created_claims(pod)}
        except ClaimRefused:
            return []
        found: list[dict[str, Any]] = []
        for use in container.resources.claims:
            state = cache.get(f"{pod.metadata.namespace}/{names.get(use.name, '')}")
            if state is None:
                continue
            lines: dict[str, dict[str, Any]] = {}
            for driver, driver_state in state.drivers.items():
                for device in driver_state.devices:
                    if device.serves(use.request):
                        report = self.of((driver, device.pool, device.device))
                        id_ = (
                            device.cdi_device_ids[0]
                            if device.cdi_device_ids
                            else f"{driver}/{device.pool}/{device.device}"
                        )
                        line = {"resourceID": id_, "health": report.health}
                        lines.setdefault(id_, line | ({"message": report.message} if report.message else {}))
            if lines:
                name = f"claim:{use.name}" + (f"/{use.request}" if use.request else "")
                found.append({"name": name, "resources": list(lines.values())})
        return found


def _cut(message: str) -> str:
    return message if len(message) <= MAX_MESSAGE else message[: MAX_MESSAGE - 3] + "..."
