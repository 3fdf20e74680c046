"""Records on disk of the cards of each claim. The driver writes a record before it changes a card, so it can undo the change after a crash."""

from pathlib import Path

import msgspec

from dray.driver.claim_files import ClaimRecords, ClaimWithPods


class CardUse(msgspec.Struct, frozen=True):
    """One device that a claim has. `card` is the card it is or belongs to."""

    device: str
    card: str
    uses_mps: bool = False
    memory_bytes: int | None = None


class CardRecord(ClaimWithPods, frozen=True):
    uses: tuple[CardUse, ...] = ()

    def memory_limit(self, card: str) -> int:
        """Bytes that all shares of the card may use together; 0 if the claim has no share of it."""
        return sum(use.memory_bytes or 0 for use in self.uses if use.card == card)


class CardRecords(ClaimRecords[CardRecord]):
    def __init__(self, path: Path) -> None:
        super().__init__(path, CardRecord)

    def cards_with_mps(self) -> set[str]:
        return {use.card for record in self.records() for use in record.uses if use.uses_mps}
