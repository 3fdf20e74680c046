"""Which claims have which interfaces, on disk: written before anything is done to an interface, so that a crash leaves no riddle."""

from pathlib import Path

import msgspec

from dray.atomic_files import write_atomically
from dray.driver.claim_files import load_or_set_aside
from dray.driver.net.links import Link
from dray.driver.net.parameters import NetworkConfig


class SavedRoute(msgspec.Struct, frozen=True):
    """A route over an interface that somebody has set; those that come with an address are not saved."""

    destination: str
    gateway: str | None = None
    source: str | None = None
    scope: int = 0
    metric: int | None = None
    protocol: int = 4


class PodSide(msgspec.Struct, frozen=True):
    """An interface as a pod has it."""

    name: str
    ips: tuple[str, ...]
    hardware_address: str


class InterfaceUse(msgspec.Struct, frozen=True):
    """One device that a claim has.

    `link` and `routes` are the interface as it was when the claim was prepared. `is_touched` is set before the first change,
    and `pod_side` after the last one.
    """

    pool: str
    device: str
    share_id: str | None
    config: NetworkConfig
    link: Link
    routes: tuple[SavedRoute, ...] = ()
    is_shared: bool = False
    bits_per_second: int | None = None
    is_touched: bool = False
    pod_side: PodSide | None = None

    @property
    def name_in_pod(self) -> str:
        return self.config.interface.name or self.link.name


class ClaimRecord(msgspec.Struct, frozen=True):
    namespace: str
    name: str
    uses: tuple[InterfaceUse, ...]

    def with_use(self, index: int, use: InterfaceUse) -> "ClaimRecord":
        return msgspec.structs.replace(self, uses=(*self.uses[:index], use, *self.uses[index + 1 :]))


class ClaimRecords:
    """By the claim's UID; every change is on disk when the call returns."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.reload()

    def reload(self) -> None:
        """Another instance of the driver may have written since."""
        self._records = load_or_set_aside(self._path, dict[str, ClaimRecord], {})

    def get(self, uid: str) -> ClaimRecord | None:
        return self._records.get(uid)

    def put(self, uid: str, record: ClaimRecord) -> None:
        self._save(self._records | {uid: record})

    def remove(self, uid: str) -> None:
        self._save({each: record for each, record in self._records.items() if each != uid})

    def records(self) -> dict[str, ClaimRecord]:
        return self._records

    def _save(self, records: dict[str, ClaimRecord]) -> None:
        write_atomically(self._path, msgspec.json.encode(records), mode=0o600)
        self._records = records
