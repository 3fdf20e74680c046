"""Which claims have which cards, on disk: written before anything is done to a card, so that a crash leaves no riddle."""

from pathlib import Path

import msgspec

from dray.atomic_files import write_atomically
from dray.driver.claim_files import load_or_set_aside


class CardUse(msgspec.Struct, frozen=True):
    """One device that a claim has. `card` is the card it is or belongs to."""

    device: str
    card: str
    uses_mps: bool = False
    memory_bytes: int | None = None


class ClaimRecord(msgspec.Struct, frozen=True):
    namespace: str
    name: str
    pods: tuple[str, ...]
    uses: tuple[CardUse, ...]


class ClaimRecords:
    """By the claim's UID; every change is on disk when the call returns."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._records = load_or_set_aside(path, dict[str, ClaimRecord], {})

    def get(self, uid: str) -> ClaimRecord | None:
        return self._records.get(uid)

    def put(self, uid: str, record: ClaimRecord) -> None:
        if self._records.get(uid) != record:
            self._save(self._records | {uid: record})

    def remove(self, uid: str) -> None:
        if uid in self._records:
            self._save({each: record for each, record in self._records.items() if each != uid})

    def records(self) -> tuple[ClaimRecord, ...]:
        return tuple(self._records.values())

    def cards_with_mps(self) -> set[str]:
        return {use.card for record in self._records.values() for use in record.uses if use.uses_mps}

    def _save(self, records: dict[str, ClaimRecord]) -> None:
        write_atomically(self._path, msgspec.json.encode(records), mode=0o600)
        self._records = records
