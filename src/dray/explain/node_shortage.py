"""Rows of a node's ledger that are too small for a pod, and the pods that take the most."""

from __future__ import annotations

from dataclasses import dataclass

from dray.accounting import Demand, DoesNotFit, NodeLedger, Row, Shortage, as_quantity
from dray.accounting.fit import SharedClaim
from dray.api.quantity import Quantity

MOST_ROWS = 5


@dataclass(frozen=True, slots=True)
class ShortRow:
    """`asked` is what the pod wants of `free`, which is left of `allocatable`; `takers` hold the most of the rest."""

    resource: str
    asked: str
    asked_by_claims: str
    free: str
    allocatable: str
    takers: tuple[str, ...]
    claim: str = ""

    @property
    def missing_share(self) -> float:
        """How much of what is asked for is missing, from 0 to 1."""
        asked, free = Quantity.parse(self.asked).nanos, Quantity.parse(self.free).nanos
        return (asked - free) / asked if asked else 0.0

    def sentence(self) -> str:
        of_claims = f" ({self.asked_by_claims} of it through claims)" if self.asked_by_claims else ""
        pool = f" in the pool of claim {self.claim}" if self.claim else ""
        text = f"{self.resource}{pool}: {self.asked} asked{of_claims}, {self.free} of {self.allocatable} free"
        if Quantity.parse(self.asked) > Quantity.parse(self.allocatable):
            return f"{text}, so the node is too small even when it is empty" if self.takers else text
        return text + (f"; most is taken by {', '.join(self.takers)}" if self.takers else "")

    def document(self) -> dict[str, object]:
        return {
            "resource": self.resource,
            "asked": self.asked,
            "askedByClaims": self.asked_by_claims or "0",
            "free": self.free,
            "allocatable": self.allocatable,
            "takers": list(self.takers),
            "claim": self.claim,
        }


def short_rows(ledger: NodeLedger, demand: Demand, spec_demand: Demand) -> list[ShortRow]:
    """The rows that are too small for a pod with `demand`; `spec_demand` is the part that the pod's spec requests."""
    answer = ledger.fits(demand)
    if not isinstance(answer, DoesNotFit):
        return []
    return [_row(ledger, short, spec_demand) for short in answer.refusals if not isinstance(short, SharedClaim)]


def _row(ledger: NodeLedger, short: Shortage, spec_demand: Demand) -> ShortRow:
    name = short.resource
    by_claims = 0 if short.claim else short.asked - spec_demand.amount(name)
    return ShortRow(
        name,
        _text(name, short.asked),
        _text(name, by_claims) if by_claims > 0 and name != "pods" else "",
        _text(name, short.capacity - short.used),
        _text(name, short.capacity),
        tuple(takers_of(ledger, name)),
        short.claim,
    )


def _text(name: str, amount: int) -> str:
    return str(amount) if name == "pods" else str(as_quantity(name, amount))


def takers_of(ledger: NodeLedger, resource: str, most: int = MOST_ROWS) -> list[str]:
    """The pods that take the most of a resource, largest first."""
    rows = sorted(ledger.why(resource), key=lambda row: -row.quantity.nanos) if resource != "pods" else []
    return [_taker(row) for row in rows[:most]]


def _taker(row: Row) -> str:
    pods = ", ".join(map(str, row.pods))
    through = f" through claim {row.claim}" if row.claim else ""
    return f"{pods}{through} ({row.quantity})"
