"""The health of devices on disk, so that pods do not look worse after a restart of the agent than they are."""

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dray.atomic_files import write_private

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
    """`{driver: {"Devices": {"pool/device": {...}}}}`. What cannot be read counts as not there."""

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
